//! All checks, by group.

mod bank;
mod counter;
mod detect;
mod entries;
mod entry;
mod gcsr;
mod gspr;
mod guest_tlb;
mod host;
mod invtlb;
mod irq;
mod lines;
mod llsc;
mod off;
mod own;
mod pages;
mod smp;
mod stage2;
mod stress;
mod timer;
mod timer_restore;
mod tlb;
mod traps;
mod unit;
mod vmstate;

use crate::check::Check;
use crate::machine::cmdline::Mode;
use crate::println;

/// What a machine with LVZ must pass. The bank's own group comes before
/// anything that writes the bank.
const WITH_LVZ: &[&[Check]] = &[
    detect::CHECKS,
    host::CHECKS,
    gcsr::CHECKS,
    bank::CHECKS,
    entry::CHECKS,
    gspr::CHECKS,
    traps::CHECKS,
    own::CHECKS,
    unit::CHECKS,
    stage2::CHECKS,
    pages::CHECKS,
    tlb::CHECKS,
    guest_tlb::CHECKS,
    invtlb::CHECKS,
    irq::HOST_CHECKS,
    irq::CHECKS,
    lines::CHECKS,
    timer::HOST_CHECKS,
    timer::CHECKS,
    timer_restore::CHECKS,
    counter::CHECKS,
    llsc::CHECKS,
    smp::HOST_CHECKS,
    smp::CHECKS,
    stress::CHECKS,
];

/// What one without must pass.
const WITHOUT_LVZ: &[&[Check]] = &[
    off::CHECKS,
    irq::HOST_CHECKS,
    timer::HOST_CHECKS,
    smp::HOST_CHECKS,
];

/// The checks of a mode.
pub fn for_mode(mode: Mode) -> impl Iterator<Item = &'static Check> {
    let groups = match mode {
        Mode::Off => WITHOUT_LVZ,
        Mode::VmState => &[vmstate::CHECKS],
        Mode::Suite | Mode::List | Mode::Bench => WITH_LVZ,
    };
    groups.iter().flat_map(|group| group.iter())
}

/// Prints how many checks a run on this many CPUs has, and their names.
pub fn list(cpus: usize) {
    let fitting = || for_mode(Mode::Suite).filter(|c| c.fits(cpus));
    println!("declared {}", fitting().count());
    fitting().for_each(|check| println!("{}", check.name));
}
