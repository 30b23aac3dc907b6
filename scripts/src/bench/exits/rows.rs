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
}

/// How many vCPUs a set names in the row of sets.
pub const SET: u64 = 7;

const fn row(name: &'static str, what: &'static str, limit: u64) -> Row {
    Row { name, what, limit }
}

/// All rows, in the order of the table.
pub const ROWS: [Row; 14] = [
    row("call-null", "null hypercall, short cut", 40),
    row("call-general", "null hypercall, general path", 150),
    row("cpucfg", "CPUCFG", 160),
    row("csr", "CSR that isn't banked, read", 160),
    row("mmio-pch-pic", "MMIO read of the PCH-PIC", 250),
    row(
        "hop",
        "IPI call, idle to sleep, wake-up to guest",
        75 + 200 + 200,
    ),
    row("switch", "switch between two vCPUs on a CPU", 600),
    row("send-self", "IPI call to itself: send, kick, SWI0", 75 + 70),
    row("send-polling", "IPI call to a vCPU that polls", 60),
    row("send-pending", "IPI call, already pending", 45),
    row("send-set", "IPI call to 7 vCPUs that poll", 60 + 14 * SET),
    row("iocsr-send", "IOCSR IPI: send to a vCPU that polls", 110),
    row("iocsr-status", "IOCSR IPI: status read", 110),
    row("iocsr-clear", "IOCSR IPI: clear", 110),
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
