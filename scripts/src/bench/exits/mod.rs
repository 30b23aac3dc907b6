//! `cargo xtask bench exits`: what each exit costs the hypervisor, and KVM beside it.
//!
//! A bare-metal guest makes each kind of exit a few times while the emulator writes down
//! the hypervisor's instructions ([`counted`]): what the limits are for, and what a test
//! compares with the counts in `baseline.toml`. For KVM, and where only a clock can tell,
//! a guest makes batches of equal exits between two looks at the counter, on the same QEMU
//! with one instruction a virtual nanosecond, under the hypervisor and under Linux's KVM
//! with Debian's QEMU. The guest's own few instructions around an exit are in the clock's
//! figures of both. A figure above its limit is a failure.

pub mod baseline;
pub mod counted;
mod rows;

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use self::counted::Counts;
use self::rows::{Measured, ROWS, Row};
use super::{Bench, Options};
use crate::bare;
use crate::context::Context;
use crate::guest::images::Image;
use crate::guest::job::Job;
use crate::guest::machine::{Machine, NEEDS};
use crate::hint::failure;
use crate::hypervisor::{GuestVm, Hypervisor};
use crate::progress::Progress;
use crate::qemu::Timing;
use crate::suite::to_end;

/// The measurement `exits`.
pub struct Exits;

/// A run that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(600);

/// Idle vCPUs poll for as long as they may.
const POLLING: &str = "pv_ipi = true\nidle_poll = 10000";

/// The one of [`GROUPS`] that runs under KVM as well: there a vCPU that sleeps isn't
/// woken by the software interrupt that the others send.
const UNDER_KVM: &str = "single";

/// The guest's groups of rows that a clock measures: name, vCPUs, CPUs, configuration.
const GROUPS: [(&str, u32, u32, &str); 2] = [
    ("single", 1, 1, "pv_ipi = true"),
    ("hop", 2, 2, "pv_ipi = true\nidle_poll = 0"),
];

impl Bench for Exits {
    fn name(&self) -> &'static str {
        "exits"
    }

    fn about(&self) -> &'static str {
        "the hypervisor's instructions an exit, beside KVM's"
    }

    fn needs(&self) -> Vec<&'static str> {
        [&NEEDS[..], &["target"]].concat()
    }

    fn run(&self, cx: &Context, options: &Options) -> Result<Value> {
        let timing = Timing::Deterministic { seed: options.seed };
        let mut task = Progress::detect().task("exits");
        let hypervisor = Hypervisor::build(cx)?;
        task.doing("counting");
        let counts = counted::count(&hypervisor, options.seed)?;
        if options.renew {
            baseline::write(cx, &counts)?;
        }
        let (mut ours, mut kvm) = (Measured::new(), Measured::new());
        for (group, vcpus, cpus, more) in GROUPS {
            task.doing(group);
            let vm = GuestVm {
                more,
                ..GuestVm::new("bench", vcpus, &format!("mode=bench what={group}"))
            };
            let machine = hypervisor.machine(&[vm], cpus, timing)?;
            let printed = to_end(&machine, LIMIT)?;
            ours.extend(rows::read(&String::from_utf8_lossy(&printed)));
            if group == UNDER_KVM {
                task.doing(&format!("{group}, under KVM"));
                kvm.extend(under_kvm(cx, group, vcpus, timing)?);
            }
        }
        rows::derive(&mut ours);
        rows::derive(&mut kvm);
        task.finish(&format!(
            "{} figures",
            counts.len() + ours.len() + kvm.len()
        ));
        print!("{}", table(&counts, &ours, &kvm));
        judge(&counts, &ours)?;
        Ok(json!({ "rows": ROWS, "counted": counts, "clock": ours, "kvm": kvm }))
    }
}

/// Runs a group as a guest of KVM.
fn under_kvm(cx: &Context, group: &str, vcpus: u32, timing: Timing) -> Result<Measured> {
    let guest = std::fs::read(bare::build(cx, "test-guests")?)?;
    let ids: Vec<String> = (0..vcpus).map(|id| id.to_string()).collect();
    let append = format!("ids={} mode=bench what={group}", ids.join(","));
    let variables = [("VCPUS", vcpus.to_string()), ("APPEND", append)];
    let job = Job::new(cx, "kvm-bare.sh", &variables)?.with_file("guest.elf", guest)?;
    let machine = Machine {
        cpus: vcpus,
        memory_mib: 2048,
        timing,
        lvz: true,
        image: Image::KvmHost,
        append: "nokaslr norandmaps".to_owned(),
    };
    let run = machine.run(cx, &format!("exits-kvm-{group}"), &job, LIMIT)?;
    let measured = rows::read(&run.text);
    (!measured.is_empty())
        .then_some(measured)
        .with_context(|| format!("the guest of KVM has measured nothing:\n{}", run.text))
}

/// The results, for people.
fn table(counts: &Counts, ours: &Measured, kvm: &Measured) -> String {
    let mut text = format!(
        "{:42} {:>8} {:>8} {:>8} {:>8}\n",
        "instructions an exit", "at most", "counted", "by clock", "KVM"
    );
    let number = |figure: Option<u64>| figure.map_or("-".to_owned(), |n| n.to_string());
    for row in &ROWS {
        let clock = |of: &Measured| number(of.get(row.name).map(|of| of.median));
        // Writing to a string never fails.
        let _ = writeln!(
            text,
            "{:42} {:>8} {:>8} {:>8} {:>8}{}",
            row.what,
            row.limit,
            number(counts.get(row.name).copied()),
            clock(ours),
            clock(kvm),
            if met(row, counts, ours) {
                ""
            } else {
                "  missed"
            },
        );
    }
    text
}

/// Whether a row was measured and is within its limit.
fn met(row: &Row, counts: &Counts, ours: &Measured) -> bool {
    let figure = match row.counted {
        Some(_) => counts.get(row.name).copied(),
        None => ours.get(row.name).map(|of| of.median),
    };
    figure.is_some_and(|figure| figure <= row.limit)
}

/// Fails where a limit is missed.
fn judge(counts: &Counts, ours: &Measured) -> Result<()> {
    let missed: Vec<&str> = ROWS
        .iter()
        .filter(|row| !met(row, counts, ours))
        .map(|row| row.what)
        .collect();
    if missed.is_empty() {
        return Ok(());
    }
    Err(failure(
        format!("above the limit, or not measured: {}", missed.join("; ")),
        "the table above says by how much",
    ))
}

#[cfg(test)]
mod tests {
    use super::rows::Figures;
    use super::*;

    fn all_at(percent: u64) -> (Counts, Measured) {
        let of = |row: &Row| row.limit * percent / 100;
        let figures = |row: &Row| {
            let (min, median) = (of(row), of(row));
            (row.name.to_owned(), Figures { min, median })
        };
        let counted = ROWS.iter().filter(|row| row.counted.is_some());
        (
            counted.map(|row| (row.name.to_owned(), of(row))).collect(),
            ROWS.iter().map(figures).collect(),
        )
    }

    #[test]
    fn a_missed_limit_and_a_missing_row_fail() {
        let (mut counts, mut ours) = all_at(100);
        assert!(judge(&counts, &ours).is_ok());
        let (more, later) = all_at(103);
        assert!(judge(&more, &ours).is_err() && judge(&counts, &later).is_err());
        counts.remove("switch");
        let error = judge(&counts, &ours).unwrap_err();
        assert!(format!("{error:#}").contains("switch between two vCPUs"));
        assert!(table(&counts, &ours, &ours).contains("missed"));
        ours.remove("hop");
        assert!(format!("{:#}", judge(&all_at(50).0, &ours).unwrap_err()).contains("sleep"));
    }
}
