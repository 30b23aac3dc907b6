//! `/proc/interrupts` of a Linux, as a job prints it.

use std::collections::BTreeMap;

/// The interrupt counts of one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// The name the job gave it.
    pub name: String,
    /// The time since that kernel's boot, in seconds.
    pub uptime: f64,
    /// The time that the hypervisor gave to others, in seconds, for each CPU.
    pub stolen: Vec<f64>,
    counts: BTreeMap<String, Vec<u64>>,
}

impl Snapshot {
    /// The snapshot `name`; `times` are the time since boot, in seconds, and the time
    /// stolen from each CPU, in hundredths of a second; `lines` are `/proc/interrupts`.
    /// None if the times aren't numbers.
    ///
    /// The first line names the CPUs; each other one is a label, a count for each CPU,
    /// and a description, whose last word says what it is.
    pub fn parse(name: &str, times: &[&str], lines: &[&str]) -> Option<Self> {
        let times = times
            .iter()
            .map(|time| time.parse().ok())
            .collect::<Option<Vec<f64>>>()?;
        let (&uptime, stolen) = times.split_first()?;
        let cpus = lines
            .first()
            .map_or(0, |head| head.split_whitespace().count());
        let counts = lines
            .iter()
            .skip(1)
            .filter_map(|line| counts_of(line, cpus));
        Some(Self {
            name: name.to_owned(),
            uptime,
            stolen: stolen.iter().map(|hundredths| hundredths / 100.0).collect(),
            counts: counts.collect(),
        })
    }

    /// The counts of the interrupt whose description ends with `name`, a CPU each; none
    /// if there is no such line.
    pub fn counts(&self, name: &str) -> Option<&[u64]> {
        self.counts.get(name).map(Vec::as_slice)
    }

    /// How many more of the interrupt `name` each CPU has taken than at `earlier`.
    pub fn since(&self, earlier: &Self, name: &str) -> Option<Vec<u64>> {
        let pairs = self.counts(name)?.iter().zip(earlier.counts(name)?);
        Some(
            pairs
                .map(|(now, before)| now.saturating_sub(*before))
                .collect(),
        )
    }
}

/// The last word of a line of `/proc/interrupts`, and its counts on `cpus` CPUs.
fn counts_of(line: &str, cpus: usize) -> Option<(String, Vec<u64>)> {
    let (_, rest) = line.split_once(':')?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    let numbers = words.iter().take(cpus).map_while(|word| word.parse().ok());
    let numbers: Vec<u64> = numbers.collect();
    let name = words.last()?;
    (numbers.len() == cpus && words.len() > cpus).then(|| ((*name).to_owned(), numbers))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: [&str; 6] = [
        "           CPU0       CPU1       ",
        " 17:        151         12  CPUINTC    12  IPI",
        " 18:        867      20962  CPUINTC    11  timer",
        " 20:          7          8  CPUINTC     0  SWI0-IPI",
        "IPI0:         22         17 LoongArch  1  Rescheduling interrupts",
        " ERR:          0",
    ];

    #[test]
    fn counts_are_found_by_their_last_word() {
        let snapshot = Snapshot::parse("x", &["1.5", "7", "0"], &LINES).unwrap();
        assert_eq!(snapshot.counts("timer"), Some(&[867, 20962][..]));
        assert_eq!(snapshot.counts("SWI0-IPI"), Some(&[7, 8][..]));
        assert_eq!(snapshot.counts("ERR"), None);
        assert_eq!(
            (snapshot.uptime, snapshot.stolen.as_slice()),
            (1.5, &[0.07, 0.0][..])
        );
        assert_eq!(Snapshot::parse("x", &["soon"], &LINES), None);
    }

    #[test]
    fn differences_are_per_cpu() {
        let before = Snapshot::parse("x", &["1.5", "7", "0"], &LINES).unwrap();
        let mut lines = LINES;
        lines[2] = " 18:        900      20962  CPUINTC    11  timer";
        let after = Snapshot::parse("y", &["2.5"], &lines).unwrap();
        assert_eq!(after.since(&before, "timer"), Some(vec![33, 0]));
        assert_eq!(after.since(&before, "nothing"), None);
    }
}
