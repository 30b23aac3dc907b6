//! Whether time goes right in the guest: ticks and the clock.

use anyhow::{Context as _, Result, bail, ensure};

use super::Boot;

/// How many times in a row a CPU may read the same number of timer interrupts: five
/// times what is seen on the fastest. With threads the emulator's timers may have to wait
/// for a processor while the CPU reads on: a quarter of all readings. One that is lost for
/// good leaves none.
const LONGEST_ROW: u32 = 100;
const LONGEST_ROW_THREADS: u32 = 1000;

impl Boot<'_> {
    /// On a busy CPU the kernel's tick comes HZ times a second, and a few interrupts of
    /// other timers with it. Out of its turn a CPU may miss ticks, but not in the time that
    /// its hypervisor has not given to others. A multi-threaded CPU is out of its turn
    /// also while this machine runs something else, and can't know: there the rate has no
    /// lower bound, and [`Boot::ticks`] sees whether a tick was lost.
    pub fn timer(&self) -> Result<String> {
        let (start, end) = (self.snapshot("spin-start")?, self.snapshot("spin-end")?);
        let span = end.uptime - start.uptime;
        let counts = end
            .since(start, "timer")
            .context("no timer in /proc/interrupts")?;
        let stolen = end
            .stolen
            .iter()
            .zip(&start.stolen)
            .map(|(end, start)| end - start);
        let rates = counts
            .iter()
            .zip(stolen)
            .map(|(&count, stolen)| self.rate(count as f64, span, stolen));
        let rates = rates.collect::<Result<Vec<_>>>()?;
        ensure!(
            rates.len() == self.case.vcpus as usize && span > 0.5,
            "counts of {} CPUs in {span} s",
            rates.len()
        );
        let low = rates.iter().copied().fold(f64::MAX, f64::min);
        let high = rates.iter().copied().fold(0.0, f64::max);
        Ok(format!(
            "{low:.0} to {high:.0} per second and CPU, HZ is {}",
            self.hz
        ))
    }

    /// The rate of `count` ticks in `span` seconds, of which `stolen` went to others.
    fn rate(&self, count: f64, span: f64, stolen: f64) -> Result<f64> {
        let (hz, rate) = (f64::from(self.hz), count / span);
        let least = if self.case.threads {
            1.0
        } else {
            0.95 * hz * (span - stolen)
        };
        ensure!(
            count >= least && rate <= 1.1 * hz,
            "{rate:.0} per second, {stolen:.2} of {span:.2} s stolen"
        );
        Ok(rate)
    }

    /// No CPU runs for long without a tick. How long is measured in readings of the tick
    /// count by the CPU itself, so by its own work, however little it gets of the machine:
    /// 1 CPU in deterministic time reads it 21 times a tick, and nothing is faster.
    pub fn ticks(&self) -> Result<String> {
        let mut longest = 0;
        for cpu in 0..self.case.vcpus {
            let values = self
                .guest
                .facts("ticks")
                .find(|values| values.first() == Some(&cpu.to_string()));
            let values = values.with_context(|| format!("CPU {cpu} has reported nothing"))?;
            let numbers = values
                .iter()
                .map(|word| word.parse::<u32>())
                .collect::<Result<Vec<_>, _>>()?;
            let [_, ticks, readings, same] = numbers[..] else {
                bail!("CPU {cpu} reported {values:?}")
            };
            ensure!(
                ticks > 0 && readings > 0,
                "CPU {cpu} got {ticks} ticks in {readings} readings"
            );
            longest = longest.max(same);
        }
        let most = if self.case.threads {
            LONGEST_ROW_THREADS
        } else {
            LONGEST_ROW
        };
        ensure!(
            longest <= most,
            "a CPU went on for {longest} readings without a tick"
        );
        Ok(format!(
            "at most {longest} readings of the count without a tick"
        ))
    }

    /// The guest's clock goes as fast as its host's. The host's times are those at which
    /// it saw a line: a host that shares a busy machine sees it late.
    pub fn clock(&self) -> Result<String> {
        let (first, last) = ("load-start", "load-end");
        let guest = self.snapshot(last)?.uptime - self.snapshot(first)?.uptime;
        let seen = self.guest.seen(last).zip(self.guest.seen(first));
        let host = seen
            .map(|(last, first)| last - first)
            .context("the host saw nothing")?;
        let late = if self.case.threads { 3.0 } else { 0.2 };
        let figures = format!("{guest:.2} s in the guest, {host:.2} s on its host");
        ensure!((guest - host).abs() <= late + 0.02 * host, "{figures}");
        Ok(figures)
    }
}
