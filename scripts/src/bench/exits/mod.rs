//! `cargo xtask bench exits`: what each exit costs the hypervisor, and KVM beside it.
//!
//! A bare-metal guest makes batches of equal exits between two looks at the counter, on
//! the same QEMU with one instruction a virtual nanosecond: once under the hypervisor,
//! once under Linux's KVM with Debian's QEMU. The guest's own few instructions around an
//! exit are in the figures of both. A figure above its limit is a failure.

mod rows;

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use self::rows::{Figures, Measured, ROWS, Row, SET};
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

/// The guest's groups of rows: name, vCPUs, CPUs, configuration.
const GROUPS: [(&str, u32, u32, &str); 4] = [
    ("single", 1, 1, "pv_ipi = true"),
    ("send", SET as u32 + 1, SET as u32 + 1, POLLING),
    ("hop", 2, 2, "pv_ipi = true\nidle_poll = 0"),
    ("switch", 2, 1, "pv_ipi = true"),
];

/// The groups that run under KVM, with as many vCPUs.
const KVM_GROUPS: [(&str, u32); 1] = [("single", 1)];

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
        let mut ours = Measured::new();
        let hypervisor = Hypervisor::build(cx)?;
        for (group, vcpus, cpus, more) in GROUPS {
            task.doing(group);
            let vm = GuestVm {
                more,
                ..GuestVm::new("bench", vcpus, &format!("mode=bench what={group}"))
            };
            let machine = hypervisor.machine(&[vm], cpus, timing)?;
            let printed = to_end(&machine, LIMIT)?;
            ours.extend(rows::read(&String::from_utf8_lossy(&printed)));
        }
        rows::derive(&mut ours);
        let mut kvm = Measured::new();
        for (group, vcpus) in KVM_GROUPS {
            task.doing(&format!("{group}, under KVM"));
            kvm.extend(under_kvm(cx, group, vcpus, timing)?);
        }
        rows::derive(&mut kvm);
        task.finish(&format!("{} figures", ours.len() + kvm.len()));
        print!("{}", table(&ours, &kvm));
        judge(&ours)?;
        Ok(json!({ "rows": ROWS, "ours": ours, "kvm": kvm }))
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
fn table(ours: &Measured, kvm: &Measured) -> String {
    let mut text = format!(
        "{:40} {:>8} {:>8} {:>8} {:>8}\n",
        "instructions an exit, median", "at most", "here", "least", "KVM"
    );
    for row in &ROWS {
        let figures = ours.get(row.name);
        let number = |figure: Option<u64>| figure.map_or("-".to_owned(), |n| n.to_string());
        let (median, min) = (figures.map(|of| of.median), figures.map(|of| of.min));
        let kvm = kvm.get(row.name).map(|of| of.median);
        // Writing to a string never fails.
        let _ = writeln!(
            text,
            "{:40} {:>8} {:>8} {:>8} {:>8}{}",
            row.what,
            row.limit,
            number(median),
            number(min),
            number(kvm),
            if met(row, figures) { "" } else { "  missed" },
        );
    }
    text
}

/// Whether a row was measured and is within its limit.
fn met(row: &Row, figures: Option<&Figures>) -> bool {
    figures.is_some_and(|of| of.median <= row.limit)
}

/// Fails where a limit is missed.
fn judge(ours: &Measured) -> Result<()> {
    let missed: Vec<&str> = ROWS
        .iter()
        .filter(|row| !met(row, ours.get(row.name)))
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
    use super::*;

    fn all_at(percent: u64) -> Measured {
        let figures = |row: &Row| {
            let median = row.limit * percent / 100;
            let min = median;
            (row.name.to_owned(), Figures { min, median })
        };
        ROWS.iter().map(figures).collect()
    }

    #[test]
    fn a_missed_limit_and_a_missing_row_fail() {
        assert!(judge(&all_at(100)).is_ok());
        assert!(judge(&all_at(103)).is_err());
        let mut ours = all_at(50);
        ours.remove("switch");
        let error = judge(&ours).unwrap_err();
        assert!(format!("{error:#}").contains("switch between two vCPUs"));
        assert!(table(&ours, &all_at(400)).contains("missed"));
    }
}
