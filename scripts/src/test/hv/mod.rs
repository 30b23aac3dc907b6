//! Part `hv`: the hypervisor, by guests that test it from inside.
//!
//! The guests' checks run with as many vCPUs as CPUs and with more, deterministically
//! with several seeds and with a thread for each CPU; beside guests that do their worst;
//! with vCPUs on the move, and VMs that are stopped at work; and what the hypervisor must
//! refuse is refused.

mod application;
mod cycles;
mod guests;
mod keys;
mod moves;
mod nodes;
mod refusals;

pub use guests::PARAVIRTUAL;

use anyhow::{Result, ensure};

use super::{Options, Part, Tally, names};
use crate::bench::exits::{baseline, counted};
use crate::context::Context;
use crate::hypervisor::Hypervisor;
use crate::suite::NEEDS;

/// The part `hv`.
pub struct Hv;

/// A step of this part.
type Step = fn(&Hypervisor, &Options, &mut Tally) -> Result<()>;

/// The steps, by the names that `--only` knows.
const STEPS: [(&str, Step); 9] = [
    ("image", image),
    ("exits", exits),
    ("refusals", refusals::run),
    ("nodes", nodes::run),
    ("keys", keys::run),
    ("cycles", cycles::run),
    ("moves", moves::run),
    ("guests", guests::run),
    ("beside", guests::beside_worst),
];

/// Most bytes of the hypervisor's ELF, without what a debugger reads.
const LARGEST: u64 = 512 << 10;

impl Part for Hv {
    fn name(&self) -> &'static str {
        "hv"
    }

    fn about(&self) -> &'static str {
        "the hypervisor, by bare-metal guests"
    }

    fn steps(&self) -> Vec<&'static str> {
        names(&STEPS)
    }

    fn needs(&self) -> Vec<&'static str> {
        NEEDS.to_vec()
    }

    fn run(&self, cx: &Context, options: &Options, tally: &mut Tally) -> Result<()> {
        let hypervisor = Hypervisor::build(cx)?;
        options.run_steps(&STEPS, |step| step(&hypervisor, options, tally))
    }
}

fn image(hypervisor: &Hypervisor, _: &Options, tally: &mut Tally) -> Result<()> {
    tally.check("size of the ELF", size(hypervisor));
    let application = std::fs::read(hypervisor.efi()?)?;
    tally.check(
        "header of the EFI application",
        application::check(&application),
    );
    Ok(())
}

/// No exit takes more instructions than when the baseline was written.
fn exits(hypervisor: &Hypervisor, options: &Options, tally: &mut Tally) -> Result<()> {
    let counts = counted::count(hypervisor, options.seed.unwrap_or(1));
    let same = counts.and_then(|counts| baseline::check(&counts));
    tally.check("instructions an exit", same);
    Ok(())
}

/// The sections that are loaded are small enough together.
fn size(hypervisor: &Hypervisor) -> Result<()> {
    use object::{Object, ObjectSegment};
    let bytes = std::fs::read(hypervisor.image())?;
    let file = object::File::parse(bytes.as_slice())?;
    let loaded: u64 = file.segments().map(|segment| segment.file_range().1).sum();
    ensure!(loaded < LARGEST, "{loaded} bytes are loaded from it");
    Ok(())
}
