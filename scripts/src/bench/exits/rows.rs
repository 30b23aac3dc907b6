//! The rows of the table, and the lines that they are read from.

use std::collections::BTreeMap;

use serde::Serialize;

/// What a bench guest has printed: by name, instructions an exit, the least and the
/// median.
pub type Measured = BTreeMap<String, Figures>;

/// Instructions an exit, over a guest's samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// The cleanest sample.
    pub min: u64,
    /// The median.
    pub median: u64,
}

/// What is counted of the exits under a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Of {
    /// From an exit by an instruction of the guest's to the next entry.
    Exit,
    /// From an exit by an interrupt to the next entry.
    Interrupt,
    /// From an exit to the CPU's own `idle`, that included.
    Sleep,
    /// From there to the next entry.
    Wake,
}

/// Exits that a row is about: those under the guest's mark in which the CPU sent so many
/// IPIs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Kind {
    /// The mark.
    pub mark: u32,
    /// What is counted.
    pub of: Of,
    /// IPIs to other CPUs.
    pub ipis: u32,
}

/// A row: what is measured, under the name that the guest prints, and the most
/// instructions that it may take.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Row {
    /// The guest's name for it.
    pub name: &'static str,
    /// What it is, for people.
    pub what: &'static str,
    /// Most instructions.
    pub limit: u64,
    /// What is counted; none where only a clock can tell.
    pub counted: Option<Kind>,
}

/// How many vCPUs the sets of the rows of sets name.
pub const SETS: [u64; 2] = [7, 16];

const fn row(name: &'static str, what: &'static str, limit: u64, mark: u32, of: Of) -> Row {
    telling(0, name, what, limit, mark, of)
}

/// A row of exits in which `ipis` CPUs are told.
const fn telling(
    ipis: u32,
    name: &'static str,
    what: &'static str,
    limit: u64,
    mark: u32,
    of: Of,
) -> Row {
    Row {
        name,
        what,
        limit,
        counted: Some(Kind { mark, of, ipis }),
    }
}

const fn by_clock(name: &'static str, what: &'static str, limit: u64) -> Row {
    let counted = None;
    Row {
        name,
        what,
        limit,
        counted,
    }
}

/// Most instructions of a send to a set of `n`.
const fn set(n: u64) -> u64 {
    60 + 14 * n
}

/// All rows, in the order of the table.
pub const ROWS: [Row; 20] = [
    row("call-null", "null hypercall, short cut", 40, 1, Of::Exit),
    row(
        "call-general",
        "null hypercall, general path",
        150,
        2,
        Of::Exit,
    ),
    row("cpucfg", "CPUCFG", 160, 3, Of::Exit),
    row("csr", "CSR that isn't banked, read", 160, 4, Of::Exit),
    row("mmio-pch-pic", "MMIO read of the PCH-PIC", 250, 5, Of::Exit),
    row(
        "idle-sleep",
        "idle to the CPU's own idle",
        200,
        15,
        Of::Sleep,
    ),
    row("wake", "wake-up by interrupt to guest", 200, 15, Of::Wake),
    by_clock(
        "hop",
        "IPI call, idle to sleep, wake-up to guest",
        75 + 200 + 200,
    ),
    row(
        "switch",
        "switch between two vCPUs on a CPU",
        600,
        17,
        Of::Interrupt,
    ),
    by_clock("send-self", "IPI call to itself: send, kick, SWI0", 75 + 70),
    telling(
        1,
        "send-running",
        "IPI call to a vCPU that runs",
        75,
        12,
        Of::Exit,
    ),
    row(
        "receive",
        "kick to the SWI0 vector of one that runs",
        70,
        12,
        Of::Interrupt,
    ),
    row(
        "send-polling",
        "IPI call to a vCPU that polls",
        60,
        9,
        Of::Exit,
    ),
    row(
        "send-pending",
        "IPI call, already pending",
        45,
        16,
        Of::Exit,
    ),
    telling(
        7,
        "set-running-7",
        "IPI call to 7 vCPUs that run",
        set(SETS[0]),
        13,
        Of::Exit,
    ),
    telling(
        16,
        "set-running-16",
        "IPI call to 16 vCPUs that run",
        set(SETS[1]),
        14,
        Of::Exit,
    ),
    row(
        "set-polling-7",
        "IPI call to 7 vCPUs that poll",
        set(SETS[0]),
        10,
        Of::Exit,
    ),
    row(
        "iocsr-send",
        "IOCSR IPI: send to a vCPU that polls",
        110,
        8,
        Of::Exit,
    ),
    row("iocsr-status", "IOCSR IPI: status read", 110, 6, Of::Exit),
    row("iocsr-clear", "IOCSR IPI: clear", 110, 7, Of::Exit),
];

/// The lines `BENCH name min=… median=…` among `printed`, whatever stands in front.
pub fn read(printed: &str) -> Measured {
    printed.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<(String, Figures)> {
    let (_, rest) = line.split_once("BENCH ")?;
    let mut words = rest.split_ascii_whitespace();
    let name = words.next()?.to_owned();
    let mut number = |key| words.next()?.strip_prefix(key)?.parse().ok();
    let (min, median) = (number("min=")?, number("median=")?);
    Some((name, Figures { min, median }))
}

/// Takes the guest's own part off the rows of calls.
pub fn derive(measured: &mut Measured) {
    let part = measured.get("guest-part").map_or(0, |of| of.median);
    for (name, figures) in measured {
        if name.starts_with("call-") || name.starts_with("send-") {
            figures.min = figures.min.saturating_sub(part);
            figures.median = figures.median.saturating_sub(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_behind_anything() {
        let printed = "BENCH guest-part min=4 median=5\na| BENCH send-polling min=61 median=62\r\nguest 3.1 BENCH hop min=400 median=420\nBENCH bad min=x median=3\n";
        let mut measured = read(printed);
        assert_eq!(measured.len(), 3);
        derive(&mut measured);
        let (min, median) = (56, 57);
        assert_eq!(measured["send-polling"], Figures { min, median });
    }

    #[test]
    fn rows_have_names_of_their_own() {
        let names: std::collections::BTreeSet<_> = ROWS.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), ROWS.len());
    }
}
