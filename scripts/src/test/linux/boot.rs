//! How long it takes to boot, by the clock that instructions make.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::guest::images::Image;
use crate::guest::job::Job;
use crate::guest::machine::{COMMAND_LINE, Machine};
use crate::guest::report::Report;
use crate::suite::to_end;
use crate::test::{Rig, Tally};
use crate::vm::LinuxVm;

/// CPUs and MiB of the machine whose Linux boots alone, and of the VM.
const CPUS: u32 = 16;
const MEMORY_MIB: u32 = 1024;

/// The most from power-on to the guest's first instruction, in milliseconds.
const MOST_TO_GUEST: u64 = 50;
/// The most from power-on to the first program's job, in times of what it takes on the
/// machine itself.
const MOST_TO_SHELL: f64 = 1.3;

/// How long a run may take.
const LIMIT: Duration = Duration::from_secs(480);

/// Reports the time since the kernel's start, in seconds.
const JOB: &str = ". /job.d/lib.sh\nread -r up _ < /proc/uptime\nfact uptime $up\n";

/// Runs the checks.
///
/// # Errors
/// A machine can't be made.
pub fn run(rig: &Rig<'_>, tally: &mut Tally) -> Result<()> {
    let timing = rig.timing();
    let job = Job::from_text(rig.cx, JOB, &[])?;
    let vms = [LinuxVm {
        command_line: COMMAND_LINE.to_owned(),
        ..LinuxVm::new("debian", CPUS, MEMORY_MIB)
    }];
    let guest = rig.linux(Image::Shell, Some(&job), &vms, CPUS, timing)?;
    let bare = Machine {
        cpus: CPUS,
        memory_mib: MEMORY_MIB,
        timing,
        lvz: true,
        image: Image::Shell,
        append: String::new(),
    };
    let printed = to_end(&guest, LIMIT).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let printed = printed.unwrap_or_else(|error| format!("{error:#}"));
    tally.check("boot, to the guest's first instruction", to_guest(&printed));
    let bare = bare.run(rig.cx, "linux-boot-bare", &job, LIMIT)?.text;
    tally.check("boot, to the shell", to_shell(&printed, &bare));
    Ok(())
}

/// When the VM has started, in milliseconds since power-on, as the hypervisor says.
fn started(printed: &str) -> Result<u64> {
    let (_, rest) = printed.split_once(" starts at ").context("no VM starts")?;
    let (ms, _) = rest.split_once(" ms").context("no time")?;
    Ok(ms.parse()?)
}

fn to_guest(printed: &str) -> Result<()> {
    let ms = started(printed)?;
    println!("the guest starts {ms} ms after power-on");
    ensure!(ms <= MOST_TO_GUEST, "{ms} ms, above {MOST_TO_GUEST}");
    Ok(())
}

fn to_shell(printed: &str, bare: &str) -> Result<()> {
    let ms = |text: &str| {
        let report = Report::read(text);
        let uptime = report.fact("uptime").and_then(|values| values.first());
        let uptime: f64 = uptime.context("no uptime")?.parse()?;
        anyhow::Ok(uptime * 1000.0)
    };
    let guest = started(printed)? as f64 + ms(printed)?;
    let bare = ms(bare)?;
    let ratio = guest / bare;
    println!(
        "the shell starts after {guest:.0} ms, on the machine itself after {bare:.0}: {ratio:.2}"
    );
    ensure!(
        ratio <= MOST_TO_SHELL,
        "{ratio:.2} times as long as on the machine itself"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(start: u64, uptime: &str) -> String {
        format!("[hv INFO ] VM debian: 16 vCPUs, starts at {start} ms\r\nfact uptime {uptime}\r\n")
    }

    #[test]
    fn both_times_have_a_limit() {
        assert!(to_guest(&guest(50, "1")).is_ok());
        assert!(to_guest(&guest(51, "1")).is_err());
        assert!(to_guest("nothing").is_err());
        let bare = "fact uptime 1.00\r\n";
        assert!(to_shell(&guest(50, "1.24"), bare).is_ok());
        assert!(to_shell(&guest(50, "1.26"), bare).is_err());
        assert!(to_shell(&guest(50, "1.24"), "no").is_err());
    }
}
