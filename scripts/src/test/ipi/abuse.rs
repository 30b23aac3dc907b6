//! A guest that does its worst with calls and registers, and one beside it that counts.

use std::time::Duration;

use anyhow::{Result, bail, ensure};

use super::among::{CHECKS, Shape};
use crate::hypervisor::{GuestVm, lines_of};
use crate::qemu::Timing;
use crate::suite::to_end;
use crate::test::alone::{CLOSING, log_flood};
use crate::test::lines::Transcript;
use crate::test::{Rig, Tally};

/// A run ends within this time.
const ABUSE_LIMIT: Duration = Duration::from_secs(1200);

/// Runs the check.
///
/// # Errors
/// None: a failure is one of the check.
pub fn run(rig: &Rig<'_>, tally: &mut Tally) -> Result<()> {
    let abuse = abuse(rig);
    tally.check("beside a guest that calls and accesses at random", abuse);
    Ok(())
}

/// A guest that makes random calls, IOCSR accesses and reads of CPUCFG, and one beside it,
/// on the same CPUs, that checks all of its IPIs. Both end.
fn abuse(rig: &Rig<'_>) -> Result<()> {
    let seed = rig.seed();
    // Both take about as long.
    let (limit, rounds) = if rig.options.long {
        (10_000_000, 20_000)
    } else {
        (200_000, 400)
    };
    let offered = "pv_ipi = true\npv_steal_time = true";
    let worst = format!("mode=evil kind=calls limit={limit} seed={seed}");
    let good = Shape::new("beside", (0..8).collect(), 2, rounds).vm(seed);
    let evil = GuestVm {
        more: offered,
        ..GuestVm::new("evil", 1, &worst)
    };
    let machine = rig
        .hypervisor
        .machine(&[evil, good.clone()], 2, Timing::Threads)?;
    let printed = to_end(&machine, ABUSE_LIMIT)?;
    let printed = String::from_utf8_lossy(&printed);
    if let Some(flood) = log_flood(&printed) {
        bail!("{flood}:\n{printed}");
    }
    let done = format!("evil| evil: {limit} accesses");
    ensure!(printed.contains(&done), "no line `{done}`:\n{printed}");
    let declared = CHECKS.map(str::to_owned);
    let transcript = Transcript::parse(CLOSING, &lines_of(good.name, &printed), &declared);
    let failed = transcript.checks.iter();
    let failed = failed.filter_map(|(name, why)| Some(format!("{name}: {}", why.as_ref()?)));
    let faults: Vec<String> = failed.chain(transcript.faults).collect();
    ensure!(faults.is_empty(), "{}", faults.join("; "));
    Ok(())
}
