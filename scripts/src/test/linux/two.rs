//! Two VMs at once, each on CPUs of its own.

use anyhow::{Result, bail, ensure};

use super::session::Session;
use crate::guest::images::Image;
use crate::hypervisor::lines_of;
use crate::test::{Rig, Tally};
use crate::vm::LinuxVm;

/// The VMs.
const NAMES: [&str; 2] = ["left", "right"];

/// vCPUs of each, and CPUs of the machine.
const VCPUS: u32 = 2;
const CPUS: u32 = 4;

/// Runs the checks.
///
/// # Errors
/// The machine can't be made.
pub fn run(rig: &Rig<'_>, tally: &mut Tally) -> Result<()> {
    let vm = |name, cpus: &str| LinuxVm {
        more: format!("cpus = \"{cpus}\"\nexclusive = true"),
        ..LinuxVm::new(name, VCPUS, 256)
    };
    let [left, right] = NAMES;
    let vms = [vm(left, "0-1"), vm(right, "2-3")];
    let machine = rig.linux(Image::Shell, None, &vms, CPUS, rig.timing())?;
    let mut session = Session::start(&machine)?;
    tally.check("two VMs at once", both(&mut session));
    Ok(())
}

/// What the second VM prints while the first is shown is kept until its turn. It prints
/// after a time of its own, in which the first may not be shown yet where this machine is
/// slow: then it is given more.
fn kept(session: &mut Session) -> Result<()> {
    for second in [0.5, 4.0, 32.0, 256.0] {
        session.keys(&format!("sleep {second}; echo la''ter\n\u{1}0"))?;
        let early = session.wait_for("[left: Ctrl-A h helps]")?;
        let still_here = session.line("hostname")?;
        ensure!(still_here == "vm0", "input went elsewhere");
        session.run(&format!("sleep {}", 2.0 * second))?;
        session.show(1)?;
        if !early.contains("later") {
            return session.wait_for("later").map(|_| ());
        }
    }
    bail!("the other VM is never shown in time")
}

fn both(session: &mut Session) -> Result<()> {
    session.log_in_to(&NAMES)?;
    for vm in 0..NAMES.len() {
        session.show(vm)?;
        session.run(&format!("hostname vm{vm}"))?;
    }
    kept(session)?;
    // Line by line, each with its name.
    session.keys("\u{1}l")?;
    session.wait_for("input goes to right]")?;
    session.keys("hostname\n")?;
    session.wait_for("right| vm1")?;
    // A kernel that panics restarts alone.
    session.keys("echo c > /proc/sysrq-trigger\n")?;
    session.wait_for("right| ")?;
    session.wait_for("VM right has stopped: it reset itself")?;
    // The hypervisor's own lines would stand among those of the other VM.
    session.wait_for("VM right: 2 vCPUs")?;
    session.show(0)?;
    ensure!(session.line("hostname")? == "vm0", "left has suffered");
    session.show(1)?;
    session.log_in()?;
    ensure!(session.line("hostname")? == "loongvisor", "right isn't new");
    ensure!(
        !session.text().contains("FATAL"),
        "the hypervisor has a fault"
    );
    session.keys("poweroff -f\n")?;
    session.wait_for("VM right has stopped: it switched itself off")?;
    session.show(0)?;
    ensure!(
        session.line("nproc")? == VCPUS.to_string(),
        "left has suffered"
    );
    session.keys("poweroff -f\n")?;
    session.ended()?;
    let lines = lines_of("right", &session.text());
    ensure!(lines.contains("vm1"), "right's lines have no name");
    Ok(())
}
