//! Part `wake`: what a wake takes, beside the committed baseline.
//!
//! A short form of `cargo xtask bench futex-wake`: our two columns and the bare machine,
//! one seed. One exit, or one instruction of the hypervisor's, more than in the baseline is
//! a failure, where emulator, kernel and programs are the same; else the goals must be
//! reached.

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Result, ensure};
use tempfile::NamedTempFile;

use super::{Options, Part, Tally, names};
use crate::bench::futex_wake::baseline::{self, Baseline};
use crate::bench::futex_wake::part::GuestPart;
use crate::bench::futex_wake::{Results, board, measure};
use crate::bench::systems::System;
use crate::context::Context;
use crate::guest::images::Image;
use crate::guest::machine::Machine;
use crate::qemu::Timing;
use crate::run::NEEDS;

/// CPUs of the machine that stands for a board.
const BOARD_CPUS: u32 = 4;

/// It does what it does within this time.
const LIMIT: Duration = Duration::from_secs(300);

/// The part `wake`.
pub struct Wake;

/// A step of this part.
type Step = fn(&Context, &mut Tally) -> Result<()>;

/// The steps, by the names that `--only` knows.
const STEPS: [(&str, Step); 2] = [
    ("figures", figures),
    ("board", |cx, tally| {
        tally.check("the board's initramfs measures by itself", on_a_board(cx));
        Ok(())
    }),
];

impl Part for Wake {
    fn name(&self) -> &'static str {
        "wake"
    }

    fn about(&self) -> &'static str {
        "exits and instructions of a wake, beside a baseline"
    }

    fn steps(&self) -> Vec<&'static str> {
        names(&STEPS)
    }

    fn needs(&self) -> Vec<&'static str> {
        NEEDS.to_vec()
    }

    fn run(&self, cx: &Context, options: &Options, tally: &mut Tally) -> Result<()> {
        options.run_steps(&STEPS, |step| step(cx, tally))
    }
}

/// Against the baseline, and against itself.
fn figures(cx: &Context, tally: &mut Tally) -> Result<()> {
    let options = baseline::options();
    let figures = measure(cx, &options)?;
    compare(cx, &Results::of(figures.clone(), &options)?, tally)?;
    let short = crate::bench::Options {
        systems: vec![System::Paravirtual],
        ..options
    };
    let wanted = |system: &System| short.systems().contains(system);
    let first = figures.into_iter().filter(|of| wanted(&of.system));
    let first = Results::of(first.collect(), &short)?;
    let second = Results::of(measure(cx, &short)?, &short)?;
    tally.check("equal seeds give equal bytes", equal(cx, &first, &second));
    Ok(())
}

/// What a user boots on a board, on a machine without LVZ.
fn on_a_board(cx: &Context) -> Result<()> {
    let machine = Machine {
        cpus: BOARD_CPUS,
        memory_mib: 1024,
        timing: Timing::Deterministic { seed: 1 },
        lvz: false,
        image: Image::Bench,
        append: String::new(),
    };
    let mut initramfs = NamedTempFile::new_in(cx.cache.kept("runs")?)?;
    initramfs.write_all(&board(cx)?)?;
    let mut running = machine.qemu(cx, initramfs.path()).spawn_with_keyboard()?;
    running.console.wait_for("log measured", LIMIT)?;
    let part = GuestPart::read(&running.console.text())?;
    ensure!(
        (part.cpus, part.threads) == (BOARD_CPUS, BOARD_CPUS) && !part.rounds_ns.is_empty(),
        "it printed: {part:?}"
    );
    // It stays for its user to look.
    running.console.wait_for("/ # ", LIMIT)?;
    running.type_text("poweroff -f\n")?;
    let status = running.wait(LIMIT)?;
    ensure!(status.success(), "the emulator ended with {status}");
    Ok(())
}

/// Compares with the baseline where that can be, and with the goals where not.
fn compare(cx: &Context, results: &Results<'_>, tally: &mut Tally) -> Result<()> {
    let (old, new) = (Baseline::committed(cx)?, Baseline::of(cx, &results.figures));
    if old.versions == new.versions {
        let more = new.increases(&old);
        let renew = Baseline::how_to_renew();
        let same = || {
            ensure!(
                more.is_empty(),
                "{}\nif it must be: {renew}",
                more.join("\n")
            );
            Ok(())
        };
        tally.check("no exit and no instruction more than the baseline", same());
        if new != old && more.is_empty() {
            println!("less than the baseline: {renew}");
        }
        return Ok(());
    }
    println!(
        "the baseline is of other versions ({}): the goals count",
        old.versions.join(", ")
    );
    for goal in results.goals().into_iter().filter(|goal| goal.counted) {
        let met = || {
            ensure!(goal.met(), "{goal}");
            Ok(())
        };
        tally.check(&goal.what, met());
    }
    Ok(())
}

/// JSON and picture of both are the same, byte by byte.
fn equal(cx: &Context, first: &Results<'_>, second: &Results<'_>) -> Result<()> {
    let bytes = |results: &Results<'_>| -> Result<(Vec<u8>, String)> {
        Ok((serde_json::to_vec(&results.json(cx))?, results.svg()?))
    };
    let ((json, picture), (json_again, picture_again)) = (bytes(first)?, bytes(second)?);
    ensure!(
        json == json_again,
        "the figures differ:\n{}\n{}",
        first.json(cx),
        second.json(cx)
    );
    ensure!(picture == picture_again, "the pictures differ");
    Ok(())
}
