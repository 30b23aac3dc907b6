//! VMs of many sizes: each boots, tells what it has, and switches itself off. The long
//! form has every size of both kernels that Debian has: the images' own, and the newest.

use anyhow::{Context as _, Result, ensure};

use super::LIMIT;
use crate::context::Context;
use crate::guest::images::Image;
use crate::guest::job::Job;
use crate::guest::newest;
use crate::guest::report::Report;
use crate::setup;
use crate::suite::to_end;
use crate::test::{Options, Rig, Tally};
use crate::vm::LinuxVm;

/// vCPUs, MiB and CPUs of the machine.
type Shape = (u32, u32, u32);

/// In the short form.
const SHORT: [Shape; 2] = [(1, 256, 1), (5, 512, 2)];

/// In the long form: vCPUs with the CPUs that they run on, each with each amount of
/// memory.
const VCPUS: [(u32, u32); 7] = [(1, 1), (2, 2), (3, 3), (5, 5), (16, 4), (16, 16), (64, 16)];
const MEMORY_MIB: [u32; 5] = [256, 512, 1024, 2048, 4096];

/// The VMs of five vCPUs have no controller of message-signalled interrupts, and their
/// kernels are told to use none.
const WITHOUT_MSI: &str = "devices = [\"uart\", \"pch-pic\", \"rtc\", \"power\", \"ports\"]";

/// The kernels of VMs below this, in MiB, are told to have few bounce buffers; the others
/// have this much, in KiB.
const SMALL_MIB: u32 = 1024;
const BUFFERS_KIB: u64 = 64 << 10;

/// Tells the kernel, the CPUs and the memory.
const JOB: &str = ". /job.d/lib.sh\nfact kernel $(uname -r)\nfact cpus $(nproc)\n\
                   fact memory $(awk '/^MemTotal/ { print $2 }' /proc/meminfo)\n";

/// Runs the checks.
///
/// # Errors
/// A machine can't be made, or the newest kernel not be had.
pub fn run(rig: &Rig<'_>, tally: &mut Tally) -> Result<()> {
    let job = Job::from_text(rig.cx, JOB, &[])?;
    for (kernel, (vcpus, memory_mib, cpus)) in shapes(rig.cx, rig.options)? {
        let mut vm = LinuxVm {
            kernel,
            ..LinuxVm::new("debian", vcpus, memory_mib)
        };
        if vcpus == 5 {
            vm.command_line += " pci=nomsi";
            vm.more = WITHOUT_MSI.to_owned();
        }
        let vms = [vm];
        let machine = rig.linux(Image::Shell, Some(&job), &vms, cpus, rig.timing())?;
        let printed = to_end(&machine, LIMIT * 2);
        let report = printed.map(|bytes| Report::read(&String::from_utf8_lossy(&bytes)));
        let version = report
            .as_ref()
            .ok()
            .and_then(|report| word(report, "kernel"));
        let version = version.unwrap_or("Linux").to_owned();
        tally.check(
            &format!("{vcpus} vCPUs on {cpus} CPUs, {memory_mib} MiB, {version}"),
            report.and_then(|report| judge(&report, vcpus, memory_mib)),
        );
    }
    Ok(())
}

/// The kernels, as a VM's file has them, each with the shapes to run it in.
fn shapes(cx: &Context, options: &Options) -> Result<Vec<(String, Shape)>> {
    let own = "@kernel".to_owned();
    if !options.long {
        return Ok(SHORT.map(|shape| (own.clone(), shape)).to_vec());
    }
    setup::ensure(cx, &[newest::STEP])?;
    let newest = newest::kernel(cx);
    let newest = newest
        .to_str()
        .context("a path that isn't text")?
        .to_owned();
    let sizes = VCPUS
        .into_iter()
        .flat_map(|(vcpus, cpus)| MEMORY_MIB.map(|memory| (vcpus, memory, cpus)));
    let all = sizes.flat_map(|shape| [&own, &newest].map(|kernel| (kernel.clone(), shape)));
    Ok(all.collect())
}

/// The fact `name`, if it has been reported.
fn word<'a>(report: &'a Report, name: &str) -> Option<&'a str> {
    report.fact(name)?.first().map(String::as_str)
}

fn judge(report: &Report, vcpus: u32, memory_mib: u32) -> Result<()> {
    let number = |name| {
        let value = word(report, name).and_then(|value| value.parse::<u64>().ok());
        value.with_context(|| format!("no `{name}` in:\n{}", report.text))
    };
    let found = number("cpus")?;
    ensure!(found == u64::from(vcpus), "{found} CPUs");
    // The kernel itself and its tables take some, and bounce buffers where the hypervisor
    // doesn't tell it to have few.
    let (found, all) = (number("memory")?, u64::from(memory_mib) << 10);
    let buffers = if memory_mib < SMALL_MIB {
        0
    } else {
        BUFFERS_KIB
    };
    let most = (64 << 10) + all / 20 + buffers;
    ensure!(found <= all && all - found < most, "{found} KiB of {all}");
    Ok(())
}
