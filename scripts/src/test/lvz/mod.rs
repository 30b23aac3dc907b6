//! Part `lvz`: the bare-metal suite of tests/lvz on QEMU with LVZ.
//!
//! The suite runs on 1, 4 and 16 CPUs, deterministically with several seeds, and with a
//! thread for each CPU. Besides: equal seeds must give equal output, a machine that is
//! saved in guest mode and loaded by another QEMU must go on, and with `lvz=off`
//! nothing of LVZ may show.

mod run;
mod vmstate;

use anyhow::{Result, bail};
use rayon::prelude::*;

use self::run::Run;
use super::{Options, Part, Tally, names};
use crate::context::Context;
use crate::qemu::Timing;
use crate::suite::{NEEDS, Suite, to_end};

/// The part `lvz`.
pub struct Lvz;

/// A step of this part.
type Step = fn(&Context, &Suite, &Options, &mut Tally) -> Result<()>;

/// The steps, by the names that `--only` knows.
const STEPS: [(&str, Step); 6] = [
    ("suite-1", |_, suite, o, tally| on_cpus(1, suite, o, tally)),
    ("suite-4", |_, suite, o, tally| on_cpus(4, suite, o, tally)),
    ("suite-16", |_, suite, o, tally| {
        on_cpus(16, suite, o, tally)
    }),
    ("equal", |_, suite, options, tally| {
        let seed = options.seed.unwrap_or(SEEDS[0]);
        tally.check("equal seeds give equal output", deterministic(suite, seed));
        Ok(())
    }),
    ("off", |_, suite, _, tally| {
        let run = Run::without_lvz(suite);
        run.count(run.run(), &[], tally);
        Ok(())
    }),
    ("vmstate", vmstate::run),
];

/// CPUs of the runs that must be equal.
const CPUS: u32 = 4;

/// The seeds of deterministic runs: the short form's, and how many the long form has.
const SEEDS: [u64; 3] = [1, 2, 3];
const LONG_SEEDS: u64 = 20;

/// How often each multi-threaded run is repeated: every time is another race.
const THREADED_RUNS: u64 = 2;
const LONG_THREADED_RUNS: u64 = 10;

impl Part for Lvz {
    fn name(&self) -> &'static str {
        "lvz"
    }

    fn about(&self) -> &'static str {
        "QEMU's LVZ, by a bare-metal suite"
    }

    fn steps(&self) -> Vec<&'static str> {
        names(&STEPS)
    }

    fn needs(&self) -> Vec<&'static str> {
        NEEDS.to_vec()
    }

    fn run(&self, cx: &Context, options: &Options, tally: &mut Tally) -> Result<()> {
        let suite = Suite::build(cx)?;
        options.run_steps(&STEPS, |step| step(cx, &suite, options, tally))
    }
}

/// The suite on `cpus` CPUs, in every kind of time.
fn on_cpus(cpus: u32, suite: &Suite, options: &Options, tally: &mut Tally) -> Result<()> {
    let declared = run::declared(suite, cpus)?;
    let (threaded, counted): (Vec<_>, Vec<_>) = timings(options)
        .into_iter()
        .partition(|(timing, _)| *timing == Timing::Threads);
    let run = |&(timing, seed): &(Timing, u64)| {
        let run = Run::new(suite, cpus, timing, seed);
        let ended = run.run();
        (run, ended)
    };
    // A deterministic machine needs one CPU; of two with threads neither would have enough.
    let ended: Vec<_> = counted.par_iter().with_max_len(1).map(run).collect();
    for (run, ended) in ended.into_iter().chain(threaded.iter().map(run)) {
        run.count(ended, &declared, tally);
    }
    Ok(())
}

/// The ways to run the suite, each with its seed.
fn timings(options: &Options) -> Vec<(Timing, u64)> {
    let seeds: Vec<u64> = match options.seed {
        Some(seed) => vec![seed],
        None if options.long => (1..=LONG_SEEDS).collect(),
        None => SEEDS.to_vec(),
    };
    let first = seeds.first().copied().unwrap_or_default();
    let threaded = if options.long {
        LONG_THREADED_RUNS
    } else {
        THREADED_RUNS
    };
    let deterministic = seeds
        .into_iter()
        .map(|seed| (Timing::Deterministic { seed }, seed));
    deterministic
        .chain((0..threaded).map(|run| (Timing::Threads, first + run)))
        .collect()
}

/// Two runs with the same seed must print the same bytes.
fn deterministic(suite: &Suite, seed: u64) -> Result<()> {
    let timing = Timing::Deterministic { seed };
    let run = || suite.machine("suite", CPUS, timing, seed);
    let (first, second) = (to_end(&run(), run::LIMIT)?, to_end(&run(), run::LIMIT)?);
    if first == second {
        return Ok(());
    }
    let same = first
        .iter()
        .zip(&second)
        .take_while(|(a, b)| a == b)
        .count();
    let line = String::from_utf8_lossy(&first[..same]).lines().count();
    let command = run().command_line();
    bail!("the runs differ from line {line} on; to replay: {command}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_form_has_several_seeds_and_threads() {
        let short = timings(&Options::default());
        assert_eq!(short.len(), 5);
        assert!(short.contains(&(Timing::Deterministic { seed: 3 }, 3)));
        assert_eq!(
            short
                .iter()
                .filter(|(timing, _)| *timing == Timing::Threads)
                .count(),
            2
        );
        assert_eq!(
            timings(&Options {
                long: true,
                ..Options::default()
            })
            .len(),
            30
        );
    }

    #[test]
    fn a_given_seed_is_the_only_one() {
        let given = timings(&Options {
            seed: Some(77),
            ..Options::default()
        });
        let seeds: Vec<u64> = given.iter().map(|(_, seed)| *seed).collect();
        assert_eq!(seeds, [77, 77, 78]);
        assert_eq!(given[0].0, Timing::Deterministic { seed: 77 });
    }
}
