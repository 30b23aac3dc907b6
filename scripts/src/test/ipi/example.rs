//! The example kernel of the crate guest-pv: on the machine itself, under the hypervisor,
//! and under Linux's KVM, whose ABI the crate speaks.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::bare;
use crate::context::Context;
use crate::guest::images::Image;
use crate::guest::job::Job;
use crate::guest::machine::Machine;
use crate::hypervisor::{GuestVm, Hypervisor};
use crate::qemu::{Qemu, Timing};
use crate::setup::qemu::program;
use crate::suite::{WITHOUT_LVZ, to_end};
use crate::test::{Rig, Tally};

/// It ends within this time; with a Linux around it, within that.
const LIMIT: Duration = Duration::from_secs(120);
const KVM_LIMIT: Duration = Duration::from_secs(900);

/// What it prints wherever it runs: a thousand IPIs to each of three CPUs; and then, by
/// what was offered.
const SEEN: &str = "3000 IPIs handled by 3 CPUs";
const NATIVE: &str = "all were native";
const COUNTED: &str = "they took 1000 hypercalls";
const PARAVIRTUAL: &str = "they were paravirtual";

/// CPUs that it wants.
const CPUS: u32 = 4;

// It waits in loops; QEMU's deterministic time lets one CPU loop for long before the next
// one runs.
const TIMING: Timing = Timing::Threads;

/// Runs it everywhere.
///
/// # Errors
/// It doesn't compile.
pub fn run(rig: &Rig<'_>, tally: &mut Tally) -> Result<()> {
    let kernel = bare::build_example(rig.cx, "guest-pv", "kernel")?;
    let on_itself = Qemu::new(&program(rig.cx), WITHOUT_LVZ, CPUS, 256, TIMING).kernel(&kernel);
    let result = to_end(&on_itself, LIMIT);
    let result = result.and_then(|printed| judge(&String::from_utf8_lossy(&printed), NATIVE));
    tally.check("the example kernel, on the machine itself", result);
    let bytes = std::fs::read(&kernel)?;
    for (kind, more, how) in [
        ("paravirtual", "pv_ipi = true", COUNTED),
        ("native", "", NATIVE),
    ] {
        let name = format!("the example kernel, {kind}");
        tally.check(&name, example(&rig.hypervisor, &bytes, more, how));
    }
    if rig.options.long {
        tally.check("the example kernel, under KVM", under_kvm(rig.cx, bytes));
    }
    Ok(())
}

fn example(hypervisor: &Hypervisor, kernel: &[u8], more: &'static str, how: &str) -> Result<()> {
    let vm = GuestVm {
        more,
        ..GuestVm::new("a", CPUS, "")
    };
    let printed = to_end(
        &hypervisor.machine_with(kernel, &[vm], CPUS, TIMING)?,
        LIMIT,
    )?;
    let printed = String::from_utf8_lossy(&printed);
    ensure!(printed.contains("VM a has stopped"), "{printed}");
    judge(&printed, how)
}

fn under_kvm(cx: &Context, kernel: Vec<u8>) -> Result<()> {
    let variables = [("VCPUS", CPUS.to_string()), ("APPEND", "none".to_owned())];
    let job = Job::new(cx, "kvm-bare.sh", &variables)?;
    let job = job.with_file("guest.elf", kernel)?;
    let machine = Machine {
        cpus: CPUS,
        memory_mib: 2048,
        timing: TIMING,
        lvz: true,
        image: Image::KvmHost,
        append: String::new(),
    };
    let run = machine.run(cx, "example-kvm", &job, KVM_LIMIT)?;
    judge(&run.text, PARAVIRTUAL)
}

/// It has seen all its IPIs, of the kind `how`.
fn judge(printed: &str, how: &str) -> Result<()> {
    for line in [SEEN, how] {
        let found = printed.contains(line).then_some(());
        found.with_context(|| format!("no `{line}` in:\n{printed}"))?;
    }
    Ok(())
}
