//! A VM that is stopped in the middle of its work and started again, over and over: all
//! that it had comes back each time, to the byte. And what the monitor does to a VM
//! that never gives its CPU back.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::guests::PARAVIRTUAL;
use crate::hypervisor::{GuestVm, Hypervisor};
use crate::qemu::{Qemu, Running, Timing};
use crate::test::{Options, Tally};

/// How often, in the short and in the long form.
const CYCLES: [u32; 2] = [30, 1000];

/// What one step takes at most, on a machine that is busy with other work.
const LIMIT: Duration = Duration::from_secs(240);

/// What the monitor shows when it waits.
const PROMPT: &str = "loongvisor> ";

/// What the hypervisor says of a VM once it has what was the VM's.
const STOPPED: &str = "VM a has stopped: the user stopped it";

/// Exits after which a VM is in the middle of its work.
const BUSY: u64 = 2000;

/// Runs them.
///
/// # Errors
/// None: a machine that can't be started fails its check.
pub fn run(hypervisor: &Hypervisor, options: &Options, tally: &mut Tally) -> Result<()> {
    let cycles = if options.long { CYCLES[1] } else { CYCLES[0] };
    let name = format!("{cycles} times stopped at work and started");
    tally.check(&name, stop_and_start(hypervisor, cycles));
    tally.check("a VM that spins is moved and stopped", spin(hypervisor));
    tally.check("a polled console beside one that spins", polled(hypervisor));
    Ok(())
}

/// Somebody at the monitor.
struct Monitor(Running);

impl Monitor {
    /// The machine that runs `vm` on `cpus` CPUs.
    fn start(hypervisor: &Hypervisor, vm: GuestVm, cpus: u32) -> Result<Self> {
        Self::start_on(&hypervisor.machine(&[vm], cpus, Timing::Threads)?)
    }

    /// At this machine's.
    fn start_on(machine: &Qemu) -> Result<Self> {
        let mut running = machine.spawn_with_keyboard()?;
        running.console.wait_for("starts at", LIMIT)?;
        running.type_text("\u{1}m")?;
        running.console.wait_for(PROMPT, LIMIT)?;
        Ok(Self(running))
    }

    /// What a command prints.
    fn run(&mut self, command: &str) -> Result<String> {
        self.0.type_text(&format!("{command}\r"))?;
        // The prompt is shown again whenever the hypervisor says something.
        self.0.console.wait_for(&format!("{command}\r\n"), LIMIT)?;
        self.0.console.wait_for(PROMPT, LIMIT)
    }

    /// Runs a command and waits until `text` has been said.
    fn until(&mut self, command: &str, text: &str) -> Result<()> {
        if !self.run(command)?.contains(text) {
            self.0.console.wait_for(text, LIMIT)?;
        }
        Ok(())
    }

    /// The exits of VM 0 so far.
    fn exits(&mut self) -> Result<u64> {
        let list = self.run("list")?;
        number_before(&list, " exits")
    }

    /// Free RAM, and heap in use, in bytes.
    fn memory(&mut self) -> Result<(u64, u64)> {
        let text = self.run("memory")?;
        let free = number_before(&text, " bytes of RAM free")?;
        Ok((free, number_before(&text, " bytes of heap in use")?))
    }
}

/// The number in front of `what`.
fn number_before(text: &str, what: &str) -> Result<u64> {
    let before = text.split_once(what).map(|(before, _)| before);
    let word = before.and_then(|before| before.split_whitespace().next_back());
    let number = word.and_then(|word| word.parse().ok());
    number.with_context(|| format!("no number before `{what}` in:\n{text}"))
}

fn stop_and_start(hypervisor: &Hypervisor, cycles: u32) -> Result<()> {
    let vm = GuestVm {
        more: PARAVIRTUAL,
        ..GuestVm::new("a", 4, "mode=work cpus=2")
    };
    let mut monitor = Monitor::start(hypervisor, vm, 2)?;
    let mut first = None;
    for cycle in 0..cycles {
        while monitor.exits()? < BUSY {}
        monitor.until("stop 0", STOPPED)?;
        let left = monitor.memory()?;
        let expected = *first.get_or_insert(left);
        ensure!(
            left == expected,
            "after {cycle} cycles {left:?} bytes of RAM and heap, at first {expected:?}"
        );
        monitor.until("start 0", "starts at")?;
    }
    let text = monitor.0.console.text();
    for bad in ["FAIL", "FATAL", "ERROR"] {
        ensure!(!text.contains(bad), "{bad}:\n{text}");
    }
    let ends = text.matches("VM a ran for").count();
    ensure!(
        ends == cycles as usize,
        "{ends} VMs have said how they fared"
    );
    Ok(())
}

/// On a console without an interrupt the monitor answers though its CPU has nothing but a
/// guest that never gives it back, and no time of anybody's comes.
fn polled(hypervisor: &Hypervisor) -> Result<()> {
    let vm = GuestVm::new("a", 1, "mode=evil kind=spin");
    let machine = hypervisor.machine(&[vm], 1, Timing::Threads)?;
    let mut monitor = Monitor::start_on(&machine.append("console=lines console=poll"))?;
    let list = monitor.run("list")?;
    ensure!(list.contains("running"), "`list`:\n{list}");
    monitor.until("stop a", STOPPED)
}

/// A guest with interrupts off, in a loop.
fn spin(hypervisor: &Hypervisor) -> Result<()> {
    let vm = GuestVm::new("a", 1, "mode=evil kind=spin");
    let mut monitor = Monitor::start(hypervisor, vm, 2)?;
    for cpu in [1, 0, 1] {
        monitor.run(&format!("move a 0 {cpu}"))?;
        // The monitor has CPU 0 while it answers.
        let wanted = format!("a vCPU 0 on CPU {cpu},");
        let start = std::time::Instant::now();
        while !monitor.run("vcpus a")?.contains(&wanted) {
            ensure!(start.elapsed() < LIMIT, "it is never on CPU {cpu}");
        }
    }
    for (command, why) in [
        ("move a 0 2", "it may not run on that CPU"),
        ("move a 1 0", "it has no vCPU with this id"),
        ("move a 0", "move VM VCPU CPU"),
    ] {
        let said = monitor.run(command)?;
        ensure!(said.contains(why), "`{command}`:\n{said}");
    }
    let stats = monitor.run("stats a")?;
    ensure!(stats.contains("host-interrupt"), "no exits:\n{stats}");
    monitor.until("stop a", STOPPED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_before_their_words() {
        let text = "0 a  running 12 exits\n345 bytes of RAM free";
        assert_eq!(number_before(text, " exits").unwrap(), 12);
        assert_eq!(number_before(text, " bytes of RAM free").unwrap(), 345);
        assert!(number_before(text, " 4").is_err());
    }
}
