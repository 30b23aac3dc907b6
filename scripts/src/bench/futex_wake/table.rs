//! The results, for people.

use std::fmt::Write as _;

use super::figures::Figures;
use super::goals::{goals, prices};
use super::model::{MEASURED, Model, Reading};
use super::results::Models;

/// All of it: times, what a wake takes, the model, the goals.
pub fn text(figures: &[Figures], models: Models) -> String {
    let Some(bare) = figures.first() else {
        return String::new();
    };
    let parts = [
        times(figures, bare),
        wakes(figures, bare),
        reasons(figures),
        modelled(figures, models),
        goals(figures, models.all)
            .iter()
            .map(ToString::to_string)
            .collect(),
        prices(figures, models.all),
    ];
    parts.join("\n")
}

/// How long perf's repeats took.
fn times(figures: &[Figures], bare: &Figures) -> String {
    let mut text = format!(
        "{:28} {:>8} {:>8} {:>8} {:>8} {:>7}\n",
        "perf's repeat, virtual ms", "min", "quarter", "median", "3/4", "÷ bare"
    );
    for of in figures {
        let s = &of.summary;
        // Writing to a string never fails.
        let _ = writeln!(
            text,
            "{:28} {:8.4} {:8.4} {:8.4} {:8.4} {:7.2}",
            of.system.label(),
            s.minimum,
            s.lower_quartile,
            s.median,
            s.upper_quartile,
            s.minimum / bare.summary.minimum,
        );
    }
    text
}

/// What a wake takes more than on the machine itself.
fn wakes(figures: &[Figures], bare: &Figures) -> String {
    let mut text = format!(
        "{:28} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}\n",
        "a wake", "+ timed", "+ whole", "exits", "hv instr", "phys IPI", "its IPI", "ticks"
    );
    for of in figures {
        let [timed, whole] = of.added(bare);
        let _ = writeln!(
            text,
            "{:28} {timed:8.0} {whole:8.0} {:8.2} {:8.0} {:8.2} {:8.2} {:8.2}",
            of.system.label(),
            of.wake.all_exits(),
            of.wake.all_instructions(),
            of.wake.physical_ipis,
            of.wake.interrupts,
            of.wake.ticks,
        );
    }
    text + "+: instructions more than bare, of what perf times (the least), and until the woken thread's\n\
        answer (the median); the others until it sleeps again: exits, the hypervisor's instructions\n\
        from an exit to the next entry (of KVM's whole host), IPIs sent and got, timer interrupts\n"
}

/// Exits by reason, the frequent first, each with the instructions that they took.
fn reasons(figures: &[Figures]) -> String {
    let mut text = String::new();
    for of in figures {
        let mut exits: Vec<_> = of.wake.exits.iter().collect();
        exits.sort_by(|a, b| b.1.total_cmp(a.1));
        let words = exits.iter().filter(|(_, count)| count.abs() >= 0.005);
        let words: Vec<String> = words
            .map(|&(reason, count)| {
                let instructions = of.wake.instructions.get(reason).unwrap_or(&0.0);
                format!("{reason} {count:.2} ({instructions:.0})")
            })
            .collect();
        if !words.is_empty() {
            let _ = writeln!(text, "{:28} {}", of.system.label(), words.join(", "));
        }
    }
    text
}

/// What the model makes of it, and how much hangs on its constants.
fn modelled(figures: &[Figures], models: Models) -> String {
    let names: Vec<_> = figures.iter().map(|of| of.system.label()).collect();
    let Models { all, waker, alone } = models;
    let mut text = format!(
        "model, an estimate and no time of hardware: cycles = instructions / {:.2} + exits × price, at {:.0} MHz;\n\
         ms, and ÷ bare, of {}\n",
        all.ipc,
        all.clock_mhz,
        names.join(" · ")
    );
    let mut row = |what: String, model: Model, reading: Reading| {
        let ms = |of: &Figures| model.ms(of.counts(reading));
        let bare = figures.first().map_or(f64::NAN, ms);
        let cells = figures
            .iter()
            .map(|of| format!(" {:7.4} ({:4.2})", ms(of), ms(of) / bare));
        let _ = writeln!(text, "{what:42}{}", cells.collect::<String>());
    };
    let price =
        |of: &str, model: Model| format!("exits of {of}, {:.0} cycles each", model.exit_cycles);
    row(price("all CPUs", all), all, Reading::All);
    for factor in [0.5, 2.0] {
        row(
            format!("  price × {factor}"),
            all.with_exits_at(factor),
            Reading::All,
        );
        row(
            format!("  IPC × {factor}"),
            all.with_ipc_at(factor),
            Reading::All,
        );
    }
    for (with, model) in ["with", "without"]
        .into_iter()
        .zip(alone.into_iter().flatten())
    {
        let price = model.exit_cycles;
        row(
            format!("  {price:.0} cycles, by KVM {with} alone"),
            model,
            Reading::All,
        );
    }
    row(price("the waker alone", waker), waker, Reading::Waker);
    let [bare, paravirtual, native] = MEASURED;
    let _ = writeln!(
        text,
        "measured on a 3C5000 by others: bare {bare}, KVM with paravirtual IPI {paravirtual}, without {native}"
    );
    text
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::figures;
    use super::*;
    use crate::bench::systems::System;

    #[test]
    fn columns_are_compared_with_the_first() {
        let all = [
            figures(System::Bare, &[0.02, 0.06], 0.0),
            figures(System::KvmParavirtual, &[0.04, 0.05], 2.5),
        ];
        let model = Model {
            ipc: 1.0,
            exit_cycles: 1000.0,
            clock_mhz: 1000.0,
        };
        let models = Models {
            all: model,
            waker: model.with_exits_at(0.25),
            alone: Some([model.with_exits_at(0.75), model]),
        };
        let text = text(&all, models);
        let row = |start: &str| {
            let mut rows = text.lines().filter(|line| line.starts_with(start));
            rows.next().unwrap().to_owned()
        };
        assert!(row("Linux KVM, para").contains("   2.00"), "{text}");
        assert!(text.contains("1250        0     2.50     1000"), "{text}");
        assert!(text.contains("idle 2.50 (1000)"), "{text}");
        // 40,000 instructions and 40 exits at 1,000 cycles.
        assert!(
            row("exits of all CPUs, 1000").contains(" 0.0800 (4.00)"),
            "{text}"
        );
        assert!(row("  price × 2").contains(" 0.1200 (6.00)"), "{text}");
        assert!(row("  IPC × 2").contains(" 0.0600 (6.00)"), "{text}");
        let alone = row("  750 cycles, by KVM with alone");
        assert!(alone.contains(" 0.0700 (3.50)"), "{text}");
        assert!(
            row("exits of the waker").contains(" 0.0500 (2.50)"),
            "{text}"
        );
    }
}
