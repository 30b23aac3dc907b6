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

/// A run of one VM, alone.
pub struct Alone {
    /// What its checks are called by, besides their names.
    pub label: String,
    /// The VM.
    pub vm: GuestVm,
    /// CPUs of the machine.
    pub cpus: u32,
    /// How its time goes.
    pub timing: Timing,
}

/// How a run went: the command that repeats it, and what was printed.
pub struct Ran {
    command: String,
    printed: Result<String>,
}

impl Alone {
    /// Runs it.
    ///
    /// # Errors
    /// The bundle can't be made.
    pub fn run(&self, hypervisor: &Hypervisor) -> Result<Ran> {
        let vms = std::slice::from_ref(&self.vm);
        let machine = hypervisor.machine(vms, self.cpus, self.timing)?;
        let printed = to_end(&machine, LIMIT);
        Ok(Ran {
            command: machine.command_line(),
            printed: printed.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
        })
    }

    /// Counts the checks of `ran`, and the run as a whole, in `tally`; `declared` are checks
    /// that must be among them. What the VM printed.
    pub fn count(&self, ran: Ran, declared: &[&str], tally: &mut Tally) -> String {
        let label = &self.label;
        let printed = match ran.printed {
            Ok(printed) => printed,
            Err(error) => {
                tally.fail(label, &format!("{error:#}"));
                return String::new();
            }
        };
        let declared: Vec<String> = declared.iter().map(|&name| name.to_owned()).collect();
        let lines = lines_of(self.vm.name, &printed);
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
        faults.extend(log_flood(&printed));
        let (faults, command) = (faults.join("; "), ran.command);
        let result = || {
            ensure!(faults.is_empty(), "{faults}; to replay: {command}");
            Ok(())
        };
        tally.check(&format!("the run as a whole ({label})"), result());
        lines
    }
}

/// Most lines of the hypervisor's own log, whatever its guests do.
const MOST_LOG_LINES: usize = 40;

/// What is wrong with the length of the hypervisor's log in `printed`: nothing that a
/// guest does a thousand times may be said a thousand times.
pub fn log_flood(printed: &str) -> Option<String> {
    let own = printed.lines().filter(|line| line.starts_with("[hv "));
    let count = own.count();
    (count > MOST_LOG_LINES).then(|| format!("{count} lines of the hypervisor's log"))
}

/// Runs `vm` on `cpus` CPUs and counts its checks, as [`Alone::count`] does. What the VM
/// printed.
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
    let alone = Alone {
        label: label.to_owned(),
        vm: vm.clone(),
        cpus,
        timing,
    };
    Ok(alone.count(alone.run(hypervisor)?, declared, tally))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_has_an_end() {
        let line = "[hv INFO ] a|b\na| [hv WARN ] its own\n";
        assert_eq!(log_flood(&line.repeat(MOST_LOG_LINES)), None);
        let flood = log_flood(&line.repeat(MOST_LOG_LINES + 1)).unwrap();
        assert!(flood.starts_with("41 lines"), "{flood}");
    }
}
