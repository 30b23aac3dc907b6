//! Part `kvm`: Linux's own KVM, written for silicon, as the client of our LVZ.
//!
//! Debian's kernel boots on the emulated machine and is KVM's host; Debian's QEMU runs
//! in it, and Debian's kernel again as its guest, to a load that uses every CPU, the
//! timers, IPIs and memory.

mod checks;

use std::time::Duration;

use anyhow::Result;

use self::checks::{Boot, LAST_NUMBER};
use super::{Options, Part, Tally, names};
use crate::context::Context;
use crate::guest::images::{Image, kernel_hz};
use crate::guest::job::Job;
use crate::guest::machine::{COMMAND_LINE, Machine, NEEDS};
use crate::guest::report::Report;
use crate::qemu::Timing;

/// The part `kvm`.
pub struct Kvm;

/// The steps, by the names that `--only` knows: each has the boots whose time is of a kind.
const STEPS: [(&str, bool); 2] = [("icount", false), ("threads", true)];

/// One boot of a guest.
#[derive(Debug, Clone, Copy)]
struct Case {
    /// CPUs of the guest.
    vcpus: u32,
    /// CPUs of the machine. With fewer than the guest has, they take turns.
    cpus: u32,
    /// Whether each CPU of the machine is a thread; else its time is deterministic.
    threads: bool,
    /// What random numbers of both kernels start from.
    seed: u64,
    /// Whether the host moves the guest's memory about while it runs.
    disturbed: bool,
}

/// Memory of the guest in MiB.
const GUEST_MIB: u32 = 768;
/// Memory of the machine in MiB.
const HOST_MIB: u32 = 3072;
/// How long the guest's job may take by the guest's clock, in seconds; with a thread for each
/// CPU that is this machine's, which may have little time for it.
const GUEST_LIMIT: u32 = 1200;
/// How long nothing may be printed.
const LIMIT: Duration = Duration::from_secs(600);

impl Part for Kvm {
    fn name(&self) -> &'static str {
        "kvm"
    }

    fn about(&self) -> &'static str {
        "Linux's KVM on our LVZ, with a Linux guest (--long: 20 boots)"
    }

    fn steps(&self) -> Vec<&'static str> {
        names(&STEPS)
    }

    fn needs(&self) -> Vec<&'static str> {
        NEEDS.to_vec()
    }

    fn run(&self, cx: &Context, options: &Options, tally: &mut Tally) -> Result<()> {
        let first_seed = options.seed.unwrap_or(1);
        let cases = if options.long {
            long(first_seed)
        } else {
            short(first_seed)
        };
        options.run_steps(&STEPS, |threads| {
            let mut cases = cases.iter().filter(|case| case.threads == *threads);
            cases.try_for_each(|case| case.run(cx, tally))
        })
    }
}

/// The short form: every number of CPUs, both kinds of time, more virtual CPUs than real
/// ones, and the guest's memory moved about.
fn short(seed: u64) -> Vec<Case> {
    let kinds = [
        (1, 1, false, false),
        (4, 4, true, false),
        (4, 2, false, false),
        (8, 4, true, true),
    ];
    let case = |(seed, (vcpus, cpus, threads, disturbed))| Case {
        vcpus,
        cpus,
        threads,
        seed,
        disturbed,
    };
    (seed..).zip(kinds).map(case).collect()
}

/// Twenty boots: every number of CPUs in both kinds of time, some with more virtual CPUs
/// than real ones, every third with the guest's memory moved about.
fn long(seed: u64) -> Vec<Case> {
    let kinds = [(1, 1), (4, 4), (8, 8), (4, 2), (8, 4)];
    let case = |(n, &(vcpus, cpus))| Case {
        vcpus,
        cpus,
        threads: n % 2 == 1,
        seed: seed + n,
        disturbed: n % 3 == 2,
    };
    (0..20).zip(kinds.iter().cycle()).map(case).collect()
}

impl Case {
    /// How its time runs.
    fn timing(self) -> Timing {
        match self.threads {
            true => Timing::Threads,
            false => Timing::Deterministic { seed: self.seed },
        }
    }

    /// What its kernels get on their command lines. Time goes on for multi-threaded CPUs
    /// while this machine runs something else, which with a load of 20 on two cores made
    /// one boot in ten look stalled for 21 s: there it takes 60 s to count as a stall, or
    /// as a lockup.
    fn command_line(self) -> &'static str {
        match self.threads {
            true => "rcupdate.rcu_cpu_stall_timeout=60 watchdog_thresh=30",
            false => "",
        }
    }

    /// Its name in lines of results.
    fn label(self) -> String {
        let time = if self.threads { "threads" } else { "icount" };
        let disturbed = if self.disturbed { ", memory moved" } else { "" };
        format!(
            "{} vCPUs on {} CPUs, {time}, seed {}{disturbed}",
            self.vcpus, self.cpus, self.seed
        )
    }

    /// Boots it and counts its checks.
    fn run(self, cx: &Context, tally: &mut Tally) -> Result<()> {
        let machine = Machine {
            cpus: self.cpus,
            memory_mib: HOST_MIB,
            timing: self.timing(),
            lvz: true,
            image: Image::KvmHost,
            append: format!("{} job_limit={}", self.command_line(), 2 * GUEST_LIMIT),
        };
        let log = format!("kvm-{}", self.label().replace(", ", "-").replace(' ', "-"));
        let run = machine.run(cx, &log, &self.job(cx)?, LIMIT)?;
        let (host, guest) = Report::split(&run.text);
        let hz = kernel_hz(cx)?;
        let boot = Boot {
            case: self,
            hz,
            run: &run,
            host: &host,
            guest: &guest,
        };
        let outcomes = boot.judge();
        if outcomes.iter().any(|(_, outcome)| outcome.is_err()) {
            println!(
                "{}: the console is in {}",
                self.label(),
                cx.cache.log(&log).display()
            );
        }
        for (check, outcome) in outcomes {
            let name = format!("{}: {check}", self.label());
            match outcome {
                Ok(figures) => tally.pass(&format!("{name}: {figures}")),
                Err(why) => tally.fail(&name, &format!("{why:#}")),
            }
        }
        Ok(())
    }

    /// The host's job, which carries the guest's.
    fn job(self, cx: &Context) -> Result<Job> {
        let load = [
            ("SPIN", "1".to_owned()),
            ("LAST_NUMBER", LAST_NUMBER.to_string()),
            ("MESSAGES", "1000".to_owned()),
            ("MEMORY_OPS", "4000".to_owned()),
            ("ROUNDS", "3".to_owned()),
        ];
        let guest = Job::new(cx, "guest-load.sh", &load)?;
        let host = [
            ("CPU", "la464".to_owned()),
            ("VCPUS", self.vcpus.to_string()),
            ("MEMORY", GUEST_MIB.to_string()),
            ("SEED", self.seed.to_string()),
            (
                "DISTURB",
                if self.disturbed { "yes" } else { "no" }.to_owned(),
            ),
            (
                "APPEND",
                format!(
                    "{COMMAND_LINE} {} job_limit={GUEST_LIMIT}",
                    self.command_line()
                ),
            ),
        ];
        Job::new(cx, "kvm-host.sh", &host)?.with_file("guest.cpio", guest.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_long_form_has_twenty_different_boots_of_every_kind() {
        let cases = long(1);
        assert_eq!(cases.len(), 20);
        for vcpus in [1, 4, 8] {
            for threads in [false, true] {
                let of_kind = |case: &&Case| case.vcpus == vcpus && case.threads == threads;
                assert!(cases.iter().any(|case| of_kind(&case)), "{vcpus} {threads}");
            }
        }
        assert!(cases.iter().any(|case| case.disturbed && case.threads));
        assert!(cases.iter().any(|case| case.disturbed && !case.threads));
        let mut seeds: Vec<u64> = cases.iter().map(|case| case.seed).collect();
        seeds.dedup();
        assert_eq!(seeds.len(), 20);
    }
}
