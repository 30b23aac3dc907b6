//! What a job has printed, taken apart.
//!
//! The forms are those of tests/linux/lib.sh: facts, snapshots of the interrupt counts,
//! kernel logs. The lines of a guest inside the machine carry a mark and the machine's
//! own time; they make a report of their own.

use super::interrupts::Snapshot;

/// All that one Linux has reported.
#[derive(Debug, Default)]
pub struct Report {
    facts: Vec<(String, Vec<String>)>,
    snapshots: Vec<Taken>,
    /// The lines of its kernel's log, if it was printed to the end.
    pub kernel_log: Option<String>,
    /// How its job ended: a status, or the word `limit`.
    pub ended: Option<String>,
    /// Everything it printed.
    pub text: String,
}

/// A snapshot, and when the machine around saw its first line, in seconds of that
/// machine's time since boot.
#[derive(Debug)]
struct Taken {
    snapshot: Snapshot,
    seen: Option<f64>,
}

/// One line of a report.
#[derive(Debug, Clone, Copy)]
struct Line<'a> {
    seen: Option<f64>,
    text: &'a str,
}

impl Report {
    /// The reports of a machine and of the guest in it, from the machine's console.
    pub fn split(console: &str) -> (Self, Self) {
        let (mut host, mut guest) = (Vec::new(), Vec::new());
        for line in console.lines().map(str::trim_end) {
            match guest_line(line) {
                Some(line) => guest.push(line),
                None => host.push(Line {
                    seen: None,
                    text: line,
                }),
            }
        }
        (Self::of(&host), Self::of(&guest))
    }

    /// The report of a machine that has no guest, from what it has printed.
    pub fn read(text: &str) -> Self {
        let line = |text| Line { seen: None, text };
        Self::of(
            &text
                .lines()
                .map(str::trim_end)
                .map(line)
                .collect::<Vec<_>>(),
        )
    }

    /// The report in `lines`.
    fn of(lines: &[Line<'_>]) -> Self {
        let text = lines
            .iter()
            .map(|line| format!("{}\n", line.text))
            .collect();
        let mut report = Self {
            text,
            ..Self::default()
        };
        let mut rest = lines.iter();
        while let Some(line) = rest.next() {
            let words: Vec<&str> = line.text.split_whitespace().collect();
            match words[..] {
                ["fact", name, ref values @ ..] => {
                    let values = values.iter().map(|word| (*word).to_owned()).collect();
                    report.facts.push((name.to_owned(), values));
                }
                ["snapshot", name, ref times @ ..] => {
                    let block = block(&mut rest, "snapshot-end");
                    let snapshot = block.and_then(|block| Snapshot::parse(name, times, &block));
                    let seen = line.seen;
                    let taken = snapshot.map(|snapshot| Taken { snapshot, seen });
                    report.snapshots.extend(taken);
                }
                ["log", _] => {
                    report.kernel_log = block(&mut rest, "log-end").map(|block| block.join("\n"))
                }
                ["job-end", how] => report.ended = Some(how.to_owned()),
                _ => {}
            }
        }
        report
    }

    /// The values of the fact `name`; none if it wasn't reported.
    pub fn fact(&self, name: &str) -> Option<&[String]> {
        self.facts(name).next()
    }

    /// The values of each fact `name`.
    pub fn facts<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [String]> {
        let wanted = name.to_owned();
        self.facts
            .iter()
            .filter(move |(name, _)| *name == wanted)
            .map(|(_, values)| values.as_slice())
    }

    /// The snapshot `name`.
    pub fn snapshot(&self, name: &str) -> Option<&Snapshot> {
        self.taken(name).map(|taken| &taken.snapshot)
    }

    /// When the machine around saw the snapshot `name`, in seconds of its time.
    pub fn seen(&self, name: &str) -> Option<f64> {
        self.taken(name)?.seen
    }

    fn taken(&self, name: &str) -> Option<&Taken> {
        self.snapshots
            .iter()
            .find(|taken| taken.snapshot.name == name)
    }
}

/// A line of the guest: `guest TIME TEXT`.
fn guest_line(line: &str) -> Option<Line<'_>> {
    let (time, text) = line.strip_prefix("guest ")?.split_once(' ')?;
    Some(Line {
        seen: Some(time.parse().ok()?),
        text,
    })
}

/// The lines up to one that is `end`; none if it never comes.
fn block<'a>(lines: &mut std::slice::Iter<'_, Line<'a>>, end: &str) -> Option<Vec<&'a str>> {
    let mut block = Vec::new();
    for line in lines {
        if line.text.trim() == end {
            return Some(block);
        }
        block.push(line.text);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONSOLE: &str = "[    0.0] Linux\r\nfact kvm-device yes\r\nguest 9.50 fact data 0 abc\r\n\
        guest 9.60 fact data 1 abd\r\nguest 9.70 snapshot load-start 4.20 3\r\nguest 9.71        CPU0\r\n\
        guest 9.72  18:   5  CPUINTC  11  timer\r\nguest 9.73 snapshot-end\r\nguest 9.8 log guest\r\n\
        guest 9.9 [    0.0] hello\r\nguest 9.9 log-end\r\nguest 9.9 job-end 0\r\nfact qemu 0\r\njob-end 0\r\n";

    #[test]
    fn the_machine_and_its_guest_are_kept_apart() {
        let (host, guest) = Report::split(CONSOLE);
        assert_eq!(host.fact("qemu"), Some(&["0".to_owned()][..]));
        assert_eq!(host.facts("data").count(), 0);
        assert_eq!(
            guest
                .facts("data")
                .map(|values| values[1].as_str())
                .collect::<Vec<_>>(),
            ["abc", "abd"]
        );
        assert_eq!(
            guest.snapshot("load-start").unwrap().counts("timer"),
            Some(&[5][..])
        );
        assert_eq!(guest.seen("load-start"), Some(9.7));
        assert_eq!(guest.kernel_log.as_deref(), Some("[    0.0] hello"));
        assert_eq!(
            (host.ended.as_deref(), guest.ended.as_deref()),
            (Some("0"), Some("0"))
        );
    }

    #[test]
    fn what_is_cut_off_is_not_there() {
        let cut = CONSOLE.find("guest 9.73").unwrap();
        let (_, guest) = Report::split(&CONSOLE[..cut]);
        assert!(guest.snapshot("load-start").is_none());
        assert_eq!(guest.ended, None);
    }
}
