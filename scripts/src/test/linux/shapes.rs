//! VMs of many sizes: each boots, tells what it has, and switches itself off.

use anyhow::{Result, ensure};

use super::LIMIT;
use crate::context::Context;
use crate::guest::images::Image;
use crate::guest::job::Job;
use crate::guest::report::Report;
use crate::hypervisor::Hypervisor;
use crate::qemu::Timing;
use crate::suite::to_end;
use crate::test::{Options, Tally};
use crate::vm::{Files, LinuxVm};

/// vCPUs, MiB and CPUs of the machine.
type Shape = (u32, u32, u32);

/// In the short form, and more in the long one.
const SHORT: [Shape; 2] = [(1, 256, 1), (5, 512, 2)];
const LONG: [Shape; 6] = [
    (2, 1024, 2),
    (3, 2048, 3),
    (5, 4096, 5),
    (16, 4096, 16),
    (16, 512, 4),
    (64, 4096, 16),
];

/// Tells the CPUs and the memory, and prints the log.
const JOB: &str = ". /job.d/lib.sh\nfact cpus $(nproc)\n\
                   fact memory $(awk '/^MemTotal/ { print $2 }' /proc/meminfo)\n";

/// Runs the checks.
///
/// # Errors
/// A machine can't be made.
pub fn run(
    cx: &Context,
    hypervisor: &Hypervisor,
    options: &Options,
    tally: &mut Tally,
) -> Result<()> {
    let files = Files::new(cx, Image::Shell, Some(&Job::from_text(cx, JOB, &[])?))?;
    let long = LONG.iter().filter(|_| options.long);
    for &(vcpus, memory_mib, cpus) in SHORT.iter().chain(long) {
        let vms = [LinuxVm::new("debian", vcpus, memory_mib)];
        let timing = Timing::Deterministic {
            seed: options.seed.unwrap_or(1),
        };
        let machine = files.machine(cx, hypervisor, &vms, cpus, timing, "")?;
        let label = format!("{vcpus} vCPUs on {cpus} CPUs, {memory_mib} MiB");
        let printed = to_end(&machine, LIMIT * 2);
        let result = printed.and_then(|bytes| judge(&bytes, vcpus, memory_mib));
        tally.check(&label, result);
    }
    Ok(())
}

fn judge(printed: &[u8], vcpus: u32, memory_mib: u32) -> Result<()> {
    let report = Report::read(&String::from_utf8_lossy(printed));
    let number = |name| {
        let fact = report.fact(name).and_then(|values| values.first());
        fact.and_then(|value| value.parse::<u64>().ok())
            .unwrap_or(0)
    };
    let found = number("cpus");
    ensure!(found == u64::from(vcpus), "{found} CPUs");
    // The kernel itself and its tables take some; less than a sixth of 256 MiB.
    let (found, all) = (number("memory"), u64::from(memory_mib) << 10);
    let taken = all.saturating_sub(found);
    ensure!(
        found <= all && taken < (64 << 10) + all / 20,
        "{found} KiB of {all}"
    );
    Ok(())
}
