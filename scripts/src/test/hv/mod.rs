//! Part `hv`: the hypervisor, by guests that test it from inside.
//!
//! The guests' checks run with as many vCPUs as CPUs and with more, deterministically
//! with several seeds and with a thread for each CPU; beside guests that do their worst;
//! and what the hypervisor must refuse is refused.

mod application;
mod guests;
mod nodes;
mod refusals;

pub use guests::PARAVIRTUAL;

use anyhow::{Result, ensure};

use super::{Options, Part, Tally};
use crate::context::Context;
use crate::hypervisor::Hypervisor;
use crate::suite::NEEDS;

/// The part `hv`.
pub struct Hv;

/// Most bytes of the hypervisor's ELF, without what a debugger reads.
const LARGEST: u64 = 512 << 10;

impl Part for Hv {
    fn name(&self) -> &'static str {
        "hv"
    }

    fn about(&self) -> &'static str {
        "the hypervisor, by bare-metal guests"
    }

    fn needs(&self) -> Vec<&'static str> {
        NEEDS.to_vec()
    }

    fn run(&self, cx: &Context, options: &Options, tally: &mut Tally) -> Result<()> {
        let hypervisor = Hypervisor::build(cx)?;
        tally.check("size of the ELF", size(&hypervisor));
        let application = std::fs::read(hypervisor.efi()?)?;
        tally.check(
            "header of the EFI application",
            application::check(&application),
        );
        refusals::run(&hypervisor, tally)?;
        nodes::run(&hypervisor, tally)?;
        guests::run(&hypervisor, options, tally)
    }
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
