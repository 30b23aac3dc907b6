//! What the hypervisor must refuse, and how it says so; how many CPUs it starts; and
//! what a fault of its own looks like.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::guests::PARAVIRTUAL;
use crate::hypervisor::{GuestVm, Hypervisor};
use crate::qemu::{Qemu, Timing};
use crate::suite::{WITHOUT_LVZ, to_end};
use crate::test::{Options, Tally};

/// A run that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(120);

/// Where the table of a bundle begins.
const TABLE: usize = 32;

/// What the device tree says of `virt`.
const ECAM: &str = "PCI configuration space at 0x20000000 to 0x28000000, left alone";

const TIMING: Timing = Timing::Deterministic { seed: 1 };

/// Configurations that can't be met: lines that are added, and what is said.
const IMPOSSIBLE: [(&str, &str); 21] = [
    ("vcpus = 129", "129 vCPUs: 1 to 128 are possible"),
    ("vcpus = 0", "0 vCPUs: 1 to 128 are possible"),
    ("memory = 64G", "65536 MiB of RAM wanted"),
    (
        "device = uart@0x1fe00200",
        "uart at 0x1fe001e0 overlaps uart",
    ),
    ("cpus = 7", "the machine has no CPU 7"),
    ("kernel = nothing", "no file nothing in the bundle"),
    ("colour = red", "unknown key colour"),
    (
        "device = pch-pic@0x18100000",
        "a VM has one pch-pic, not two",
    ),
    (
        "device = pch-msi@0x18100000",
        "a VM has one pch-msi, not two",
    ),
    ("device = power@0x18100000", "a VM has one power, not two"),
    ("device = rtc@0x18100000", "a VM has one rtc, not two"),
    ("device = ports@0x18200000", "a VM has one ports, not two"),
    ("device = uart@0x1000", "uart at 0x1000 overlaps RAM"),
    (
        "device = uart@0xffffffffffff",
        "uart at 0xffffffffffff is beyond 48 bits",
    ),
    (
        "ids = 1024",
        "physical id 1024 is given twice or not below 1024",
    ),
    ("vcpus = 2\nids = 7,7", "physical id 7 is given twice"),
    ("vcpus = 3\nids = 0,1", "2 physical ids for 3 vCPUs"),
    (
        "memory = 0",
        "0 bytes of RAM: not a multiple of 16 KiB above 0",
    ),
    ("memory = 20000", "20000 bytes of RAM: not a multiple"),
    ("cpus = 0,0", "CPU 0 is named twice"),
    (
        "memory = 1M",
        "guest.elf: the segment at 0xa00000 isn't in RAM",
    ),
];

/// Runs them all.
///
/// # Errors
/// A bundle can't be made.
pub fn run(hypervisor: &Hypervisor, _: &Options, tally: &mut Tally) -> Result<()> {
    let without = hypervisor.bare(WITHOUT_LVZ, 1, TIMING);
    let line = "this CPU has no LVZ (CPUCFG word 2, bit 10)";
    tally.check("no LVZ is refused", says(&without, &[line]));
    for cpus in [1, 2, 3, 5, 16, 64] {
        let machine = hypervisor.bare(WITHOUT_LVZ, cpus, TIMING);
        let line = format!("{cpus} CPUs");
        tally.check(
            &format!("{cpus} CPUs are started"),
            says(&machine, &[&line, ECAM]),
        );
    }
    faults(hypervisor, tally);
    bundles(hypervisor, tally)?;
    tally.check("RAM runs out among 40 VMs of 128 vCPUs", many(hypervisor));
    impossible(hypervisor, tally)
}

/// What a fault of the hypervisor's own looks like.
fn faults(hypervisor: &Hypervisor, tally: &mut Tally) {
    for (kind, line) in [
        ("break", "cause Brk (0xc, sub-code 0)"),
        ("refill", "TLB refill of the hypervisor on CPU 0"),
        ("panic", "crash=panic was asked for"),
    ] {
        let machine = hypervisor.bare(WITHOUT_LVZ, 3, TIMING);
        let machine = machine.append(&format!("crash={kind}"));
        let lines = [line, "called from", "the machine stops"];
        tally.check(
            &format!("a fault ({kind}) is dumped"),
            says(&machine, &lines),
        );
    }
}

/// Configurations that can't be met, each beside a VM that runs.
fn impossible(hypervisor: &Hypervisor, tally: &mut Tally) -> Result<()> {
    for (lines, said) in IMPOSSIBLE {
        let bad = GuestVm {
            more: lines,
            ..GuestVm::new("bad", 1, "")
        };
        let good = GuestVm {
            more: PARAVIRTUAL,
            ..GuestVm::new("good", 1, "only=call.null")
        };
        let vms = [bad, good];
        let machine = hypervisor.machine(&vms, 1, TIMING)?;
        let good = "good| guest: 1 passed, 0 failed";
        let result = says(&machine, &[&format!("bad.vm: {said}"), good]);
        let result = result.or_else(|_| {
            // A line of the file, where there is one, stands in front.
            says(&machine, &["bad.vm: line", said, good])
        });
        let lines = lines.replace('\n', ", ");
        tally.check(&format!("`{lines}` is refused, the other VM runs"), result);
    }
    Ok(())
}

/// VMs whose vCPUs take more heap than there is at first, so many that RAM runs out while
/// the last of them are made: these are refused, and the others run. Each has 128 vCPUs and
/// a fortieth of the machine's free RAM, less what rounding takes.
fn many(hypervisor: &Hypervisor) -> Result<()> {
    const VMS: usize = 40;
    let vm = |number| GuestVm {
        more: "memory = 25344K",
        ..GuestVm::new(
            format!("v{number}").leak(),
            128,
            "only=call.null spares=127",
        )
    };
    let vms: Vec<GuestVm> = (0..VMS).map(vm).collect();
    let machine = hypervisor.machine(&vms, 1, TIMING)?;
    let printed = to_end(&machine, LIMIT)?;
    let printed = String::from_utf8_lossy(&printed);
    let count = |text| printed.matches(text).count();
    let (run, out) = (count("1 passed, 0 failed"), count(".vm: out of RAM"));
    ensure!(
        run + out == VMS && run > 30 && out > 0,
        "{run} VMs ran, {out} found no RAM:\n{printed}"
    );
    ensure!(printed.contains("no VM runs: switching off"), "{printed}");
    Ok(())
}

/// Initrds that are no bundle, or a damaged one.
fn bundles(hypervisor: &Hypervisor, tally: &mut Tally) -> Result<()> {
    let good = hv::bundle::write(&[("a.vm", b"name = a")]).map_err(|e| anyhow::anyhow!("{e}"))?;
    let mut damaged = good.clone();
    if let Some(first) = damaged.get_mut(TABLE) {
        *first ^= 1;
    }
    for (what, initrd, said) in [
        ("no bundle", b"\x7fELF".to_vec(), "the initrd: not a bundle"),
        (
            "a truncated bundle",
            good[..good.len() - 8].to_vec(),
            "the initrd: truncated",
        ),
        ("a damaged table", damaged, "the initrd: bad checksum"),
    ] {
        let machine = hypervisor.with_initrd(&initrd, 1, TIMING)?;
        tally.check(&format!("{what} is refused"), says(&machine, &[said]));
    }
    Ok(())
}

/// The machine ends by itself, and has printed each of `texts`.
fn says(machine: &Qemu, texts: &[&str]) -> Result<()> {
    let printed = to_end(machine, LIMIT)?;
    let printed = String::from_utf8_lossy(&printed);
    for text in texts {
        ensure!(printed.contains(text), "`{text}` isn't among:\n{printed}");
    }
    Ok(())
}
