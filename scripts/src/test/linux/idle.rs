//! What vCPUs cost that have nothing to do.
//!
//! An idle Linux wakes its CPUs by itself: with Debian's kernel, each one every four
//! seconds for the watchdog of soft lockups, which takes two interrupts, and some several
//! times a second for memory compaction and DAMON's statistics. It does the same on the
//! machine itself. Each wake ends in one exit, and without one a vCPU never leaves.

use anyhow::{Context as _, Result, ensure};

use super::one::{VCPUS, interrupts};
use super::session::Session;
use crate::guest::interrupts::Snapshot;

/// How long vCPUs are left alone before and while they are watched, in seconds.
const SETTLE_SECONDS: u32 = 20;
const QUIET_SECONDS: u32 = 60;

/// Turns off what Linux wakes its CPUs for, all but the work that it finds to do.
const NO_HOUSEKEEPING: &str = "echo 0 > /proc/sys/kernel/watchdog && \
                               echo 0 > /proc/sys/vm/compaction_proactiveness && \
                               echo N > /sys/module/damon_stat/parameters/enabled";

/// How many vCPUs don't leave the guest at all then, and how many do so at most once a
/// second otherwise: the kernel's worker threads run on any of the others.
const LEAST_STILL: usize = 2;
const LEAST_RARE: usize = 3;

/// Most accesses to devices. What is typed meanwhile, some thirty keys, comes one by one
/// where the emulator is late, and the kernel's worker that takes a key, on any CPU, tells
/// the port that it may send.
const MOST_ACCESSES: u64 = 120;

/// The interrupts that wake CPUs.
const WAKING: [&str; 2] = ["timer", "SWI0-IPI"];

/// A vCPU leaves the guest as often as Linux wakes it; where only the watchdog does so, at
/// most once a second.
pub fn kept(session: &mut Session) -> Result<()> {
    let quiet = Quiet::watch(session)?;
    quiet.no_more_than_wakes()?;
    let rates = quiet.rates();
    let (rare, median) = (at_most(&rates, 1.0), median(&rates)?);
    println!(
        "{rare} of {} idle vCPUs leave the guest at most once a second, the median {median:.2} times",
        rates.len()
    );
    ensure!(rare >= LEAST_RARE, "times a second: {rates:.2?}");
    Ok(())
}

/// With its housekeeping off, many of them don't leave at all, and the others, where work
/// turns up at times, hardly ever.
pub fn at_rest(session: &mut Session) -> Result<()> {
    let off = session.run(NO_HOUSEKEEPING)?;
    ensure!(
        off.status == 0,
        "Linux has other housekeeping than was thought"
    );
    let quiet = Quiet::watch(session)?;
    quiet.no_more_than_wakes()?;
    let rates = quiet.rates();
    let (still, median) = (at_most(&rates, 0.0), median(&rates)?);
    let most = rates.last().copied().context("no rates")?;
    println!(
        "with nothing to do {still} of {} never do, the median {median:.2} times, one {most:.2}",
        rates.len()
    );
    ensure!(
        still >= LEAST_STILL && median <= 0.5 && most <= 3.0,
        "times a second: {rates:.2?}"
    );
    Ok(())
}

/// How many of `rates` aren't above `limit`.
fn at_most(rates: &[f64], limit: f64) -> usize {
    rates.iter().filter(|&&rate| rate <= limit).count()
}

/// The median of `rates`, which are sorted.
fn median(rates: &[f64]) -> Result<f64> {
    rates.get(rates.len() / 2).copied().context("no rates")
}

/// What has happened while a VM was left alone.
#[derive(Debug)]
struct Quiet {
    /// By the hypervisor's clock, in seconds.
    seconds: f64,
    /// All but those of vCPU 0, which answers at the console.
    vcpus: Vec<Exits>,
    /// How often the guest says that each of them was woken, in no less time.
    woken: Vec<u64>,
    /// How often the guest says that each CPU, the first one too, got an IPI, in no less
    /// time.
    ipis: Vec<u64>,
}

/// How often a vCPU has left the guest: to sleep, to call, for a device, for anything else.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Exits {
    idle: u64,
    calls: u64,
    devices: u64,
    others: u64,
}

/// What the monitor says at a time, in seconds.
#[derive(Debug)]
struct Reading {
    at: f64,
    vcpus: Vec<Exits>,
}

impl Quiet {
    /// Leaves the VM alone. What its shell does stays on CPU 0.
    fn watch(session: &mut Session) -> Result<Self> {
        session.line("taskset -p 1 $$ > /dev/null")?;
        session.run(&format!("sleep {SETTLE_SECONDS}"))?;
        let (first, before) = (interrupts(session)?, Reading::take(session)?);
        session.run(&format!("sleep {QUIET_SECONDS}"))?;
        let (after, last) = (Reading::take(session)?, interrupts(session)?);
        session.line("taskset -p ffff $$ > /dev/null")?;
        let snapshots = (first.snapshot("now"), last.snapshot("now"));
        let (Some(first), Some(last)) = snapshots else {
            anyhow::bail!("no snapshots");
        };
        let pairs = after.vcpus.iter().zip(&before.vcpus);
        Ok(Self {
            seconds: after.at - before.at,
            vcpus: pairs
                .map(|(after, before)| after.since(before))
                .skip(1)
                .collect(),
            woken: woken(first, last)?.into_iter().skip(1).collect(),
            ipis: last.since(first, "SWI0-IPI").context("no IPIs")?,
        })
    }

    /// A vCPU goes to sleep no more often than it is woken, calls no more often than to
    /// wake another one, and has little to do with devices.
    fn no_more_than_wakes(&self) -> Result<()> {
        let pairs = self.woken.iter().zip(self.ipis.iter().skip(1));
        for (cpu, (exits, (woken, ipis))) in (1..).zip(self.vcpus.iter().zip(pairs)) {
            // It was awake when the watch began, or is when it ends; a tick of the
            // machine's may have met it; and an IPI that meets it at work interrupts it.
            ensure!(
                exits.idle <= woken + 1 && exits.others <= 2 + woken / 10 + ipis,
                "CPU {cpu}: {exits:?}, woken {woken} times, {ipis} of them by IPIs"
            );
        }
        let sum = |of: fn(&Exits) -> u64| self.vcpus.iter().map(of).sum::<u64>();
        let (calls, accesses) = (sum(|exits| exits.calls), sum(|exits| exits.devices));
        ensure!(
            accesses <= MOST_ACCESSES,
            "{accesses} accesses to devices: {:?}",
            self.vcpus
        );
        let ipis: u64 = self.ipis.iter().sum();
        ensure!(calls <= ipis + 1, "{calls} calls for {ipis} IPIs");
        Ok(())
    }

    /// How often each vCPU has left the guest, times a second, the least first.
    fn rates(&self) -> Vec<f64> {
        let rate = |exits: &Exits| exits.all() as f64 / self.seconds;
        let mut rates: Vec<f64> = self.vcpus.iter().map(rate).collect();
        rates.sort_by(f64::total_cmp);
        rates
    }
}

/// How often each CPU was woken between two snapshots.
fn woken(first: &Snapshot, last: &Snapshot) -> Result<Vec<u64>> {
    let mut sums = vec![0; VCPUS as usize];
    for name in WAKING {
        let counts = last
            .since(first, name)
            .with_context(|| format!("no {name}"))?;
        for (sum, count) in sums.iter_mut().zip(counts) {
            *sum += count;
        }
    }
    Ok(sums)
}

impl Reading {
    fn take(session: &mut Session) -> Result<Self> {
        let text = session.monitor("vcpus", 0)?;
        let reading = Self::parse(&text).filter(|reading| reading.vcpus.len() == VCPUS as usize);
        reading.with_context(|| format!("the monitor says: {text}"))
    }

    /// `NAME was made 1234 ms ago`, and lines of vCPUs.
    fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.split_once(" was made ")?;
        let (ms, _) = rest.split_once(" ms ago")?;
        Some(Self {
            at: ms.parse::<f64>().ok()? / 1000.0,
            vcpus: text.lines().filter_map(Exits::parse).collect(),
        })
    }
}

impl Exits {
    /// `NAME vCPU 1 on CPU 1, asleep: 9 exits: hypercall 2 idle 7; 0.000 ms stolen`.
    fn parse(line: &str) -> Option<Self> {
        let (_, rest) = line.split_once(" exits:")?;
        let (counts, _) = rest.split_once(';')?;
        let words: Vec<&str> = counts.split_whitespace().collect();
        let mut exits = Self::default();
        for pair in words.chunks(2) {
            let [name, count] = pair else { return None };
            let place = match *name {
                "idle" => &mut exits.idle,
                "hypercall" => &mut exits.calls,
                "mmio" => &mut exits.devices,
                _ => &mut exits.others,
            };
            *place += count.parse::<u64>().ok()?;
        }
        Some(exits)
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            idle: self.idle - before.idle,
            calls: self.calls - before.calls,
            devices: self.devices - before.devices,
            others: self.others - before.others,
        }
    }

    const fn all(&self) -> u64 {
        self.idle + self.calls + self.devices + self.others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_monitor_s_lines_are_understood() {
        let text = "a was made 2500 ms ago\na vCPU 0 on CPU 0, asleep: 17 exits: \
                    host-interrupt 1 hypercall 3 idle 8 mmio 5; 0.000 ms stolen\n\
                    a vCPU 1 on CPU 1, asleep: 0 exits:; 0.000 ms stolen\n";
        let reading = Reading::parse(text).unwrap();
        assert_eq!(reading.at, 2.5);
        let first = Exits {
            idle: 8,
            calls: 3,
            devices: 5,
            others: 1,
        };
        assert_eq!(reading.vcpus, [first, Exits::default()]);
        assert!(Reading::parse("a doesn't run").is_none());
    }

    #[test]
    fn more_exits_than_wakes_are_too_many() {
        let quiet = |idle, calls, others, devices| Quiet {
            seconds: 2.0,
            vcpus: vec![Exits {
                idle,
                calls,
                devices,
                others,
            }],
            woken: vec![5],
            ipis: vec![2, 1],
        };
        assert!(quiet(6, 4, 3, 120).no_more_than_wakes().is_ok());
        assert!(quiet(7, 0, 0, 0).no_more_than_wakes().is_err());
        assert!(quiet(0, 5, 0, 0).no_more_than_wakes().is_err());
        assert!(quiet(0, 0, 4, 0).no_more_than_wakes().is_err());
        assert!(quiet(0, 0, 0, 121).no_more_than_wakes().is_err());
        assert_eq!(quiet(6, 4, 2, 2).rates(), [7.0]);
    }
}
