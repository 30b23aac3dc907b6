//! A machine saved in guest mode and loaded by another QEMU.
//!
//! The suite's mode `vmstate` runs a guest that checks itself and prints a line
//! `VMSTATE step N` now and then. It is stopped in one of these steps, its state goes
//! into a qcow2 file that QEMU makes itself, and a new QEMU that loads it must go on to
//! the end with every check passed.

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::json;

use super::run::count_transcript;
use crate::context::Context;
use crate::qemu::Timing;
use crate::qemu::qmp::Qmp;
use crate::suite::Suite;
use crate::test::lines::Transcript;
use crate::test::{Options, Tally};

/// How many CPUs the machine has.
const CPUS: u32 = 4;

/// How often a machine is saved and loaded: each time at another moment.
const ROUNDS: u64 = 3;
const LONG_ROUNDS: u64 = 20;

/// How long a machine may take from one wait to the next.
const LIMIT: Duration = Duration::from_secs(120);

/// How many steps the guest goes through before one that nothing may follow.
const STEPS: u64 = 50;

/// The name of the saved state in its file.
const TAG: &str = "saved";

/// Saves and loads a machine several times, deterministic and multi-threaded, and
/// counts the checks of each.
///
/// # Errors
/// The folder for the files can't be used.
pub fn run(cx: &Context, suite: &Suite, options: &Options, tally: &mut Tally) -> Result<()> {
    let rounds = if options.long { LONG_ROUNDS } else { ROUNDS };
    let first = options.seed.unwrap_or(1);
    for seed in first..first + rounds {
        for timing in [Timing::Deterministic { seed }, Timing::Threads] {
            let label = format!("saved and loaded, {}, round {seed}", timing.label());
            match save_and_load(cx, suite, timing, seed) {
                Ok(text) => count_transcript(tally, &label, &Transcript::parse("lvz", &text, &[])),
                Err(error) => tally.fail(&label, &format!("{error:#}")),
            }
        }
    }
    Ok(())
}

/// One round; returns what both machines have printed, one after the other.
fn save_and_load(cx: &Context, suite: &Suite, timing: Timing, seed: u64) -> Result<String> {
    let files = Files::new(cx)?;
    let machine = suite
        .machine("vmstate", CPUS, timing, seed)
        .args(files.args());
    let mut first = machine.spawn()?;
    let mut monitor = Qmp::connect(&files.socket, LIMIT)?;
    let step = format!("VMSTATE step {}", 1 + 7 * seed % STEPS);
    first
        .console
        .wait_for(&step, LIMIT)
        .context("the guest doesn't work")?;
    // Another place within the step in every round.
    std::thread::sleep(Duration::from_millis(3 * (seed % 5)));
    monitor.execute("stop", json!({}))?;
    files.format(&mut monitor)?;
    snapshot(&mut monitor, "snapshot-save")?;
    // All that it has printed is there once it has ended.
    monitor.execute("quit", json!({}))?;
    first.wait(LIMIT)?;
    let printed = String::from_utf8_lossy(&first.console.all(LIMIT)).into_owned();
    if Transcript::parse("lvz", &printed, &[]).faults.is_empty() {
        bail!("the guest had ended before it was saved");
    }
    ensure!(!files.socket.exists(), "the first QEMU has left its socket");
    let mut second = machine.clone().args(["-S"]).args(files.node()).spawn()?;
    let mut monitor = Qmp::connect(&files.socket, LIMIT)?;
    snapshot(&mut monitor, "snapshot-load")?;
    monitor.execute("cont", json!({}))?;
    let status = second.wait(LIMIT).with_context(|| {
        format!(
            "the loaded machine hangs; its last lines were:\n{}",
            second.console.tail(15)
        )
    })?;
    let loaded = String::from_utf8_lossy(&second.console.all(LIMIT)).into_owned();
    if !status.success() {
        bail!("the loaded machine's QEMU failed ({status}):\n{loaded}");
    }
    Ok(format!("{printed}{loaded}"))
}

/// Runs the job `command` (`snapshot-save` or `snapshot-load`) to its end.
fn snapshot(monitor: &mut Qmp, command: &str) -> Result<()> {
    let nodes = json!({ "job-id": "job", "tag": TAG, "vmstate": "state", "devices": ["state"] });
    monitor.execute(command, nodes)?;
    monitor
        .finish_job("job")
        .with_context(|| command.to_owned())
}

/// The file that holds the state, and the monitor's socket.
struct Files {
    image: PathBuf,
    socket: PathBuf,
}

impl Files {
    /// New ones, in the cache and in a folder whose path is short enough for a socket.
    fn new(cx: &Context) -> Result<Self> {
        let folder = cx.cache.kept("vmstate")?;
        let id = std::process::id();
        let files = Self {
            image: folder.join(format!("{id}.qcow2")),
            socket: std::env::temp_dir().join(format!("loongvisor-{id}.qmp")),
        };
        files.remove();
        File::create(&files.image)
            .with_context(|| format!("can't write {}", files.image.display()))?;
        Ok(files)
    }

    /// The arguments for a machine's monitor and the file.
    fn args(&self) -> Vec<String> {
        let mut args = Qmp::args(&self.socket).to_vec();
        args.extend([
            "-blockdev".to_owned(),
            node(
                "file",
                "file",
                &format!("filename={}", self.image.display()),
            ),
        ]);
        args
    }

    /// The argument for the state in the file, which must be formatted.
    fn node(&self) -> [String; 2] {
        ["-blockdev".to_owned(), node("qcow2", "state", "file=file")]
    }

    /// Formats the file and opens the state in it.
    fn format(&self, monitor: &mut Qmp) -> Result<()> {
        let options = json!({ "driver": "qcow2", "file": "file", "size": 64 << 20 });
        monitor.execute(
            "blockdev-create",
            json!({ "job-id": "format", "options": options }),
        )?;
        monitor.finish_job("format")?;
        monitor.execute(
            "blockdev-add",
            json!({ "driver": "qcow2", "node-name": "state", "file": "file" }),
        )?;
        Ok(())
    }

    fn remove(&self) {
        // Whatever can't be removed is of no use, and does no harm either.
        let _ = fs::remove_file(&self.image);
        let _ = fs::remove_file(&self.socket);
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        self.remove();
    }
}

/// A block node for the command line. A comma in a file's name would end it.
fn node(driver: &str, name: &str, rest: &str) -> String {
    format!(
        "driver={driver},node-name={name},{}",
        rest.replace(',', ",,")
    )
}
