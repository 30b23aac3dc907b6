//! Wakes among vCPUs of a guest of our own, which idles as it likes: at once, as Linux does,
//! or after it has polled, so that who wakes it need not send anything.
//!
//! What is left of a wake when Linux's ticks are not in it, and when a guest keeps the
//! hypervisor out of it: a lower bound and the next best design, not a column. The model
//! takes Linux's own instructions, on the bare machine, and this guest's exits.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use super::figures::{Figures, Wake};
use super::model::{Counts, Model, Reading};
use crate::bench::systems::CPUS;
use crate::bench::trace::{self, Trace};
use crate::context::Context;
use crate::hypervisor::{GuestVm, Hypervisor};
use crate::qemu::Timing;
use crate::suite::to_end;

/// A run that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(300);

/// The guest's names of the two kinds, and what they are.
const KINDS: [(&str, &str); 2] = [
    ("idles", "a guest that idles at once"),
    ("polls", "a guest that polls before it idles"),
];

/// A kind of guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Doze {
    /// What it does.
    pub what: String,
    /// What a wake takes.
    pub wake: Wake,
}

/// Measures both kinds, on a machine of the seed `seed`.
///
/// # Errors
/// The guest doesn't do as expected.
pub fn measure(cx: &Context, seed: u64) -> Result<Vec<Doze>> {
    let hypervisor = Hypervisor::build(cx)?;
    let vm = GuestVm {
        more: "pv_ipi = true\nidle_poll = 0",
        ..GuestVm::new("bench", CPUS, "mode=bench what=doze")
    };
    let trace = Trace::new(cx)?;
    let timing = Timing::Deterministic { seed };
    let machine = trace.of(hypervisor.machine(&[vm], CPUS, timing)?);
    to_end(&machine, LIMIT)?;
    let windows = trace.read()?;
    let of = |(name, what): (&str, &str)| {
        let counts = windows.get(name);
        let counts = counts.with_context(|| format!("nothing was counted of {what}"))?;
        Ok(Doze {
            what: what.to_owned(),
            wake: wake(counts),
        })
    };
    KINDS.into_iter().map(of).collect()
}

/// The average of the rounds: each wakes all vCPUs but one, and that one by the answer.
fn wake(counts: &trace::Counts) -> Wake {
    // Each round has a pause of its own between marks, in which the last ones go to sleep.
    let wakes = (counts.rounds.len() / 2) as f64 * f64::from(CPUS);
    let mut wake = Wake::default();
    for round in &counts.rounds {
        for (of, counts) in [
            (&mut wake.exits, &round.exits),
            (&mut wake.instructions, &round.instructions),
        ] {
            for (reason, count) in counts {
                *of.entry(reason.clone()).or_default() += *count as f64 / wakes;
            }
        }
    }
    wake
}

/// For people: exits and the hypervisor's instructions a wake, and the model's ratio.
pub fn text(all: &[Doze], bare: Option<&Figures>, model: Model) -> String {
    let row = |of: &Doze| {
        let ratio = bare.map_or(f64::NAN, |bare| of.ratio(bare, model));
        format!(
            "{:36} {:8.2} {:8.0} {ratio:22.2}\n",
            of.what,
            of.wake.all_exits(),
            of.wake.all_instructions()
        )
    };
    let rows: String = all.iter().map(row).collect();
    match all {
        [] => String::new(),
        _ => format!(
            "{:36} {:>8} {:>8} {:>22}\n{rows}",
            "a wake, guest-pv instead of Linux", "exits", "hv instr", "÷ bare in the model"
        ),
    }
}

impl Doze {
    /// How many times the bare machine's time the model gives for Linux's instructions with
    /// these exits.
    pub fn ratio(&self, bare: &Figures, model: Model) -> f64 {
        let threads = f64::from(bare.threads);
        let bare = bare.counts(Reading::All);
        let with = Counts {
            instructions: bare.instructions + self.wake.all_instructions() * threads,
            exits: self.wake.all_exits() * threads,
        };
        model.ms(with) / model.ms(bare)
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::figures;
    use super::*;
    use crate::bench::systems::System;

    #[test]
    fn the_model_takes_linux_s_instructions_and_these_exits() {
        let round = |exits| trace::Round {
            exits: [("idle".to_owned(), exits)].into(),
            instructions: [("idle".to_owned(), 100 * exits)].into(),
            ..trace::Round::default()
        };
        let counts = trace::Counts {
            rounds: vec![round(32), round(0), round(30), round(2)],
            ..trace::Counts::default()
        };
        let doze = Doze {
            what: "one".to_owned(),
            wake: wake(&counts),
        };
        assert_eq!(doze.wake.all_exits(), 2.0);
        assert_eq!(doze.wake.all_instructions(), 200.0);
        let model = Model {
            ipc: 1.0,
            exit_cycles: 525.0,
            clock_mhz: 1000.0,
        };
        // 20,000 instructions; 16 wakes of 2 exits and 200 instructions.
        let bare = figures(System::Bare, &[0.02], 0.0);
        assert!((doze.ratio(&bare, model) - 2.0).abs() < 1e-9);
        assert!(text(&[doze], Some(&bare), model).contains("2.00      200"));
        assert!(text(&[], Some(&bare), model).is_empty());
    }
}
