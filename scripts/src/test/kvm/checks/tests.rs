//! A boot as it should be passes; each thing that can be wrong is seen.

use std::time::Duration;

use super::*;

/// The console of a good boot of two CPUs.
fn good() -> String {
    let guest = format!(
        "fact cpus 2\n{}{}fact ticks 0 250 900 9\nfact ticks 1 249 910 8\n{}\
         fact hackbench 0 Time: 0.5\nfact futex 0 Wokeup 16 of 16 threads in 0.2 ms\nfact memory 0\n\
         stress-ng: info:  [1] passed: 2: vm (2)\nstress-ng: info:  [1] failed: 0\n\
         fact data 0 {hash}\nfact data 1 {hash}\n{}log guest\n[ 0.0] Linux\nlog-end\njob-end 0\n",
        snapshot("spin-start", "10.0 0 0", [100, 100], [1, 1]),
        snapshot("spin-end", "11.0 0 20", [350, 305], [1, 1]),
        snapshot("load-start", "12.0 0 0", [400, 400], [1, 1]),
        snapshot("load-end", "15.0 0 0", [900, 900], [40, 30]),
        hash = *RIGHT_HASH,
    );
    let seen = guest.lines().scan(20.0, |time, line| {
        *time += if line.starts_with("snapshot load-end") {
            3.0
        } else {
            0.0
        };
        Some(format!("guest {time:.2} {line}\n"))
    });
    format!(
        "fact kvm-device yes\n{}fact qemu 0\nfact moved 0 1 2\nlog host\n[ 0.0] Linux\nlog-end\njob-end 0\n",
        seen.collect::<String>()
    )
}

/// A snapshot of two CPUs.
fn snapshot(name: &str, times: &str, timer: [u32; 2], swi: [u32; 2]) -> String {
    let [timer0, timer1] = timer;
    let [swi0, swi1] = swi;
    format!(
        "snapshot {name} {times}\n CPU0 CPU1\n 22: {timer0} {timer1} CPUINTC 11 timer\n\
         21: {swi0} {swi1} CPUINTC 0 SWI0-IPI\nsnapshot-end\n"
    )
}

/// The names of the checks that `console` fails.
fn failed(console: &str, case: Case) -> Vec<&'static str> {
    let (host, guest) = Report::split(console);
    let run = Run {
        text: console.to_owned(),
        finished: true,
        wall: Duration::ZERO,
    };
    let boot = Boot {
        case,
        hz: 250,
        run: &run,
        host: &host,
        guest: &guest,
    };
    let outcomes = boot.judge().into_iter();
    outcomes
        .filter(|(_, outcome)| outcome.is_err())
        .map(|(name, _)| name)
        .collect()
}

const CASE: Case = Case {
    vcpus: 2,
    cpus: 2,
    threads: false,
    seed: 1,
    disturbed: false,
};

#[test]
fn a_good_boot_passes() {
    assert!(
        failed(&good(), CASE).is_empty(),
        "{:?}",
        failed(&good(), CASE)
    );
    assert_eq!(failed("", CASE).len(), 13);
}

#[test]
fn each_fault_is_seen() {
    let faults = [
        ("fact qemu 0", "fact qemu 1", "ran to its end"),
        ("job-end 0\nfact", "job-end limit\nfact", "ran to its end"),
        ("fact cpus 2", "fact cpus 1", "CPUs"),
        ("22: 350 305", "22: 335 305", "timer rate"),
        ("22: 350 305", "22: 380 305", "timer rate"),
        ("spin-end 11.0 0 20", "spin-end 11.0 0 0", "timer rate"),
        ("ticks 0 250 900 9", "ticks 0 250 900 101", "ticks"),
        ("load-end 15.0", "load-end 15.5", "clock"),
        ("21: 40 30", "21: 40 1", "SWI0-IPI"),
        ("hackbench 0", "hackbench 1", "hackbench"),
        ("futex 0 Wokeup 16", "futex 0 Wokeup 15", "futex wake"),
        ("[1] failed: 0", "[1] failed: 1", "memory checker"),
        ("fact memory 0", "fact memory 2", "memory checker"),
        (
            "fact data 1 ",
            "fact data-differs 1 0\nguest 20.0 fact data 1 ",
            "data",
        ),
        ("fact data 1 b", "fact data 1 c", "data"),
        (
            "[ 0.0] Linux\nguest",
            "[ 0.0] BUG: x\nguest",
            "guest's kernel log",
        ),
        (
            "[ 0.0] Linux\nlog",
            "[ 0.0] WARNING: x\nlog",
            "host's kernel log",
        ),
    ];
    for (right, wrong, check) in faults {
        let console = good();
        assert!(console.contains(right), "{right} isn't in\n{console}");
        assert_eq!(
            failed(&console.replacen(right, wrong, 1), CASE),
            [check],
            "{wrong}"
        );
    }
}

#[test]
fn threads_may_miss_ticks_and_a_disturbed_guest_must_move() {
    let few = good().replace("22: 350 305", "22: 110 103");
    assert!(
        failed(
            &few,
            Case {
                threads: true,
                ..CASE
            }
        )
        .is_empty()
    );
    assert_eq!(
        failed(
            &good(),
            Case {
                disturbed: true,
                ..CASE
            }
        ),
        ["guest's memory"]
    );
    let moved = good().replace("fact moved 0", "fact moved 4000");
    assert!(
        failed(
            &moved,
            Case {
                disturbed: true,
                ..CASE
            }
        )
        .is_empty()
    );
}
