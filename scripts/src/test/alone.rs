//! One VM with the test guests' program, alone on the hypervisor, to its end.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::Tally;
use super::lines::Transcript;
use crate::hypervisor::{GuestVm, Hypervisor, lines_of};
use crate::qemu::Timing;
use crate::suite::to_end;

/// A run that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(240);

/// The program's own word at the end of its checks.
pub const CLOSING: &str = "guest";

/// Runs `vm` on `cpus` CPUs and counts its checks, and the run as a whole, in `tally`;
/// `declared` are checks that must be among them. What the VM printed.
///
/// # Errors
/// The bundle can't be made.
pub fn run_alone(
    hypervisor: &Hypervisor,
    tally: &mut Tally,
    label: &str,
    vm: &GuestVm,
    cpus: u32,
    timing: Timing,
    declared: &[&str],
) -> Result<String> {
    let machine = hypervisor.machine(std::slice::from_ref(vm), cpus, timing)?;
    let printed = match to_end(&machine, LIMIT) {
        Ok(printed) => String::from_utf8_lossy(&printed).into_owned(),
        Err(error) => {
            tally.fail(label, &format!("{error:#}"));
            return Ok(String::new());
        }
    };
    let declared: Vec<String> = declared.iter().map(|&name| name.to_owned()).collect();
    let lines = lines_of(vm.name, &printed);
    let transcript = Transcript::parse(CLOSING, &lines, &declared);
    for (name, failure) in &transcript.checks {
        match failure {
            None => tally.pass(&format!("{name} ({label})")),
            Some(why) => tally.fail(&format!("{name} ({label})"), why),
        }
    }
    let mut faults = transcript.faults;
    if !printed.contains("no VM runs: switching off") {
        faults.push("the hypervisor didn't end by itself".to_owned());
    }
    let result = || {
        let line = machine.command_line();
        ensure!(
            faults.is_empty(),
            "{}; to replay: {line}",
            faults.join("; ")
        );
        Ok(())
    };
    tally.check(&format!("the run as a whole ({label})"), result());
    Ok(lines)
}
