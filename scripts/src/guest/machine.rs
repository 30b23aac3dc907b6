//! A machine that boots one of the images, with or without a job.

use std::fs;
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tempfile::NamedTempFile;

use super::images::{self, Image};
use super::job::Job;
use crate::cache::make_folder;
use crate::context::Context;
use crate::qemu::{Ended, Patience, Qemu, Timing};
use crate::setup;

/// What every kernel gets on its command line. Self-tests of ciphers are left out for
/// their time. The probe of the keyboard controller is left out because QEMU's `virt`
/// machine maps no legacy I/O ports: without ACPI, Linux reads there all the same, and
/// oopses.
pub const COMMAND_LINE: &str =
    "console=ttyS0 loglevel=5 cryptomgr.notests initcall_blacklist=i8042_init";

/// The CPU model with LVZ, and without.
const CPU: [&str; 2] = ["la464,lvz=off", "la464,lvz=on"];

/// The steps of `setup` that a machine needs.
pub const NEEDS: [&str; 2] = ["qemu", images::STEP];

/// A machine that boots Debian's kernel.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Number of CPUs, 1 to 64.
    pub cpus: u32,
    /// Memory in MiB, at least 1024.
    pub memory_mib: u32,
    /// How virtual time and threads work.
    pub timing: Timing,
    /// Whether the CPUs have LVZ.
    pub lvz: bool,
    /// What it boots into.
    pub image: Image,
    /// What is added to the kernel's command line.
    pub append: String,
}

/// What became of a job.
#[derive(Debug)]
pub struct Run {
    /// All that was printed on the console.
    pub text: String,
    /// Whether the machine powered itself off.
    pub finished: bool,
    /// How long it took on this machine.
    pub wall: Duration,
}

impl Machine {
    /// The QEMU that boots it; `initrd` is the image or what stands for it.
    pub fn qemu(&self, cx: &Context, initrd: &std::path::Path) -> Qemu {
        let cpu = CPU[usize::from(self.lvz)];
        Qemu::new(
            &setup::qemu::program(cx),
            cpu,
            self.cpus,
            self.memory_mib,
            self.timing,
        )
        .kernel(&images::kernel(cx))
        .initrd(initrd)
        .append(format!("{COMMAND_LINE} {}", self.append).trim_end())
    }

    /// Boots, runs `job`, and waits for the machine to power itself off, as long as it
    /// prints something at least every `limit`. What was printed is also kept in the cache,
    /// as the log `name`.
    ///
    /// # Errors
    /// QEMU can't be started. A machine that hangs, crashes or prints errors is no
    /// error here.
    pub fn run(&self, cx: &Context, name: &str, job: &Job, limit: Duration) -> Result<Run> {
        let initrd = with_job(cx, self.image, job)?;
        run_to_end(cx, &self.qemu(cx, initrd.path()), name, limit)
    }
}

/// Runs `qemu` until it ends by itself, as long as it prints something at least every
/// `limit`. What was printed is also kept in the cache, as the log `name`.
///
/// # Errors
/// QEMU can't be started, or the log not written.
pub fn run_to_end(cx: &Context, qemu: &Qemu, name: &str, limit: Duration) -> Result<Run> {
    run_watched(cx, qemu, name, limit, &mut |_| ())
}

/// [`run_to_end`]; `see` gets each line as it is printed.
///
/// # Errors
/// As [`run_to_end`].
pub fn run_watched(
    cx: &Context,
    qemu: &Qemu,
    name: &str,
    limit: Duration,
    see: &mut dyn FnMut(&str),
) -> Result<Run> {
    let started = Instant::now();
    let mut running = qemu.spawn()?;
    let mut log = log_file(cx, name)?;
    writeln!(log, "$ {}", running.command_line())?;
    let (mut patience, mut lines) = (Patience::new(limit, 0), 0);
    let ended = loop {
        let Some(left) = patience.left(lines) else {
            break Ended::Timeout;
        };
        match running.console.next_line(left) {
            Ok(line) => {
                lines += 1;
                writeln!(log, "{line}")?;
                see(&line);
            }
            Err(ended) => break ended,
        }
    };
    Ok(Run {
        text: running.console.text(),
        finished: ended == Ended::Closed,
        wall: started.elapsed(),
    })
}

/// `image` with `job` before it, in a file that vanishes when it is dropped.
///
/// # Errors
/// The image can't be read, or the file not written.
pub fn with_job(cx: &Context, image: Image, job: &Job) -> Result<NamedTempFile> {
    let mut file = NamedTempFile::new_in(cx.cache.kept("runs")?)?;
    let image = image.path(cx);
    file.write_all(&job.bytes())?;
    file.write_all(&fs::read(&image).with_context(|| format!("can't read {}", image.display()))?)?;
    file.flush()?;
    Ok(file)
}

/// A new log `name` in the cache. It is written line by line: one can look at it while
/// the machine runs.
fn log_file(cx: &Context, name: &str) -> Result<fs::File> {
    let path = cx.cache.log(name);
    make_folder(path.parent().context("a log lies in a folder")?)?;
    fs::File::create(&path).with_context(|| format!("can't write {}", path.display()))
}
