//! The bare-metal LVZ suite of tests/lvz, as a machine to start.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::bare;
use crate::context::Context;
use crate::qemu::{Qemu, Timing};
use crate::setup::qemu::program;

/// The CPU with LVZ, and without.
pub const WITH_LVZ: &str = "la464,lvz=on";
/// See [`WITH_LVZ`].
pub const WITHOUT_LVZ: &str = "la464,lvz=off";

/// The setup steps that the suite needs.
pub const NEEDS: [&str; 2] = ["target", "qemu"];

/// Memory of the machine, in MiB.
const MEMORY_MIB: u32 = 1024;

/// How much of a failed run's output is shown, in lines.
pub const SHOWN: usize = 25;

/// The suite's program and the QEMU to run it on.
pub struct Suite {
    qemu: PathBuf,
    image: PathBuf,
}

impl Suite {
    /// Builds the suite.
    ///
    /// # Errors
    /// It doesn't compile.
    pub fn build(cx: &Context) -> Result<Self> {
        Ok(Self {
            qemu: program(cx),
            image: bare::build(cx, "lvz-suite")?,
        })
    }

    /// The machine that runs the suite in `mode`, with LVZ.
    pub fn machine(&self, mode: &str, cpus: u32, timing: Timing, seed: u64) -> Qemu {
        self.machine_of(WITH_LVZ, mode, cpus, timing, seed)
    }

    /// The machine that runs the suite in `mode` on CPUs of the model `cpu`.
    pub fn machine_of(&self, cpu: &str, mode: &str, cpus: u32, timing: Timing, seed: u64) -> Qemu {
        let qemu = Qemu::new(&self.qemu, cpu, cpus, MEMORY_MIB, timing);
        qemu.kernel(&self.image)
            .append(&format!("mode={mode} seed={seed}"))
    }
}

/// Runs `machine` until it ends by itself, as long as it prints something at least every
/// `limit`; returns all that it has printed.
///
/// # Errors
/// It can't be started, hangs, or QEMU ends with an error: with the end of
/// what was printed, and how to replay the run.
pub fn to_end(machine: &Qemu, limit: Duration) -> Result<Vec<u8>> {
    let mut running = machine.spawn()?;
    let ended = running.wait(limit);
    let printed = running.console.all(Duration::from_secs(1));
    let how = match ended {
        Ok(status) if status.success() => return Ok(printed),
        Ok(status) => format!("QEMU failed ({status})"),
        Err(error) => format!("{error:#}"),
    };
    let (last, line) = (running.console.tail(SHOWN), running.command_line());
    bail!("{how}; the last lines were:\n{last}  to replay: {line}")
}
