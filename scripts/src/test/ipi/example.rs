//! The example kernel of the crate guest-pv.

use std::time::Duration;

use anyhow::Result;

use crate::bare;
use crate::context::Context;
use crate::hypervisor::{GuestVm, Hypervisor};
use crate::qemu::Timing;
use crate::test::{Options, Tally};

/// It prints its lines within this time.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs it with paravirtual IPIs and with native ones.
///
/// # Errors
/// It doesn't compile.
pub fn run(
    cx: &Context,
    hypervisor: &mut Hypervisor,
    _options: &Options,
    tally: &mut Tally,
) -> Result<()> {
    hypervisor.set_guest(&bare::build_example(cx, "guest-pv", "kernel")?)?;
    for paravirtual in [true, false] {
        let kind = if paravirtual { "paravirtual" } else { "native" };
        let name = format!("the example kernel, {kind}");
        tally.check(&name, example(hypervisor, paravirtual));
    }
    Ok(())
}

/// The crate's example ends, having seen all its IPIs: a thousand calls to three CPUs.
fn example(hypervisor: &Hypervisor, paravirtual: bool) -> Result<()> {
    let (more, how) = if paravirtual {
        ("pv_ipi = true", "they took 1000 hypercalls")
    } else {
        ("", "all were native")
    };
    let vm = GuestVm {
        more,
        ..GuestVm::new("a", 4, "")
    };
    // It waits in a loop; QEMU's deterministic time lets one CPU loop for long before the
    // next one runs.
    let machine = hypervisor.machine(&[vm], 4, Timing::Threads)?;
    let mut running = machine.spawn()?;
    for line in ["a| 3000 IPIs handled by 3 CPUs", how] {
        running.console.wait_for(line, LIMIT)?;
    }
    Ok(())
}
