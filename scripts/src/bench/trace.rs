//! What a machine does at its hypervisor's border, seen from outside.
//!
//! The emulator writes a line for each exit from guest mode, each IPI that a physical CPU
//! sends, and each byte that is printed, in the order in which they happen: the same for
//! every system, at no cost to any, and deterministic like the run. A job marks what is to
//! be counted by the lines that it prints: from `count NAME` to `count end`. What lies
//! between two of tests/wake's marks in there is a round.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use anyhow::{Context as _, Result};
use tempfile::NamedTempFile;

use crate::context::Context;
use crate::qemu::Qemu;

/// The emulator's events: exits, writes of the IPI registers, bytes to the serial port.
const EVENTS: [&str; 3] = ["lvz_exit", "loongson_ipi_write", "serial_write"];

/// IPI_SEND's place among the IPI registers (3A5000 manual, IPI).
const IPI_SEND: &str = "0x40";

/// The instructions by which tests/wake marks where a round begins, `cpucfg $zero, $zero`,
/// and where all are woken, `cpucfg $zero, $a0`; not counted.
const ROUND: &str = "0x00006c00";
const WOKEN: &str = "0x00006c80";

/// Exits by reason.
pub type Exits = BTreeMap<String, u64>;

/// What was counted between two marks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Exits of all CPUs from guest mode.
    pub exits: Exits,
    /// Those of each round.
    pub rounds: Vec<Exits>,
    /// Of each round, those of the CPU that wakes, until all are woken.
    pub waker: Vec<u64>,
    /// IPIs that physical CPUs sent.
    pub ipis: u64,
}

/// Counts by the names of their marks.
pub type Windows = BTreeMap<String, Counts>;

/// The record of one run, gone when it is dropped.
pub struct Trace(NamedTempFile);

impl Trace {
    /// An empty record.
    ///
    /// # Errors
    /// It can't be written.
    pub fn new(cx: &Context) -> Result<Self> {
        let folder = cx.cache.kept("runs")?;
        Ok(Self(NamedTempFile::with_suffix_in(".trace", folder)?))
    }

    /// `qemu`, which fills the record.
    pub fn of(&self, qemu: Qemu) -> Qemu {
        let events = EVENTS.iter().flat_map(|event| ["-trace", event]);
        let qemu = qemu.args(events);
        qemu.args(["-D".into(), self.0.path().as_os_str().to_owned()])
    }

    /// What the run that is over has filled it with.
    ///
    /// # Errors
    /// It can't be read.
    pub fn read(&self) -> Result<Windows> {
        read(self.0.path())
    }
}

fn read(path: &Path) -> Result<Windows> {
    let file = File::open(path).context("the emulator's trace can't be read")?;
    let mut reader = BufReader::with_capacity(1 << 20, file);
    let (mut counting, mut line) = (Counting::default(), Vec::new());
    while reader.read_until(b'\n', &mut line)? > 0 {
        counting.event(&String::from_utf8_lossy(&line));
        line.clear();
    }
    Ok(counting.windows)
}

/// A reading of a trace, so far.
#[derive(Default)]
struct Counting {
    windows: Windows,
    /// The name of the window that is open.
    open: Option<String>,
    /// The exits since the last mark, if there was one.
    round: Option<Exits>,
    /// The CPU that wakes, and its exits since the last mark.
    waker: Option<(String, u64)>,
    /// What is printed on the line that isn't complete.
    printed: Vec<u8>,
}

impl Counting {
    fn event(&mut self, line: &str) {
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("serial_write") => {
                // `write addr 0x00 val 0x6f`: the data register, then.
                if let (Some("0x00"), Some(value)) = (words.nth(2), words.nth(1)) {
                    let digits = value.trim_start_matches("0x");
                    self.print(u8::from_str_radix(digits, 16).unwrap_or(0));
                }
            }
            Some("lvz_exit") => {
                if let Some(exit) = Exit::parse(line).filter(|_| self.open.is_some()) {
                    self.exit(&exit);
                }
            }
            Some("loongson_ipi_write") => {
                // `size: 4 addr: 0x40val: 0x80000003`.
                let place = words.nth(3).and_then(|word| word.strip_suffix("val:"));
                if let Some(counts) = self.counts().filter(|_| place == Some(IPI_SEND)) {
                    counts.ipis += 1;
                }
            }
            _ => {}
        }
    }

    fn exit(&mut self, exit: &Exit<'_>) {
        if exit.insn == ROUND {
            let round = self.round.replace(Exits::new());
            self.waker = Some((exit.cpu.to_owned(), 0));
            if let Some(counts) = self.counts() {
                counts.rounds.extend(round);
            }
            return;
        }
        if exit.insn == WOKEN {
            let waker = self.waker.take().map(|(_, exits)| exits);
            if let Some(counts) = self.counts() {
                counts.waker.extend(waker);
            }
            return;
        }
        if let Some((_, exits)) = self.waker.as_mut().filter(|(cpu, _)| cpu == exit.cpu) {
            *exits += 1;
        }
        let reason = reason(exit.cause, exit.insn);
        if let Some(round) = &mut self.round {
            *round.entry(reason.clone()).or_default() += 1;
        }
        if let Some(counts) = self.counts() {
            *counts.exits.entry(reason).or_default() += 1;
        }
    }

    fn counts(&mut self) -> Option<&mut Counts> {
        self.windows.get_mut(self.open.as_deref()?)
    }

    fn print(&mut self, byte: u8) {
        if byte != b'\n' {
            self.printed.push(byte);
            return;
        }
        let line = String::from_utf8_lossy(&self.printed).into_owned();
        self.printed.clear();
        // Marks in front are those of guests and VMs.
        let mut words = line.split_ascii_whitespace().rev();
        if let (Some(name), Some("count")) = (words.next(), words.next()) {
            self.open = (name != "end").then(|| name.to_owned());
            (self.round, self.waker) = (None, None);
            self.windows
                .extend(self.open.clone().map(|name| (name, Counts::default())));
        }
    }
}

/// The instructions that leave guest mode, by their fixed bits: a mask, and what is left.
const INSTRUCTIONS: [(u32, u32, &str); 5] = [
    (0xffff_8000, 0x0648_8000, "idle"),
    (0xffff_e000, 0x0648_0000, "iocsr"),
    (0xffff_fc00, 0x0000_6c00, "cpucfg"),
    (0xff00_0000, 0x0400_0000, "csr"),
    (0xffc0_0000, 0x0600_0000, "cacop"),
];

/// An exit's line, `lvz_exit cpu 3 Hypervisor call pc 0x… insn 0x002b8100 badv 0x…`.
struct Exit<'a> {
    cpu: &'a str,
    cause: &'a str,
    insn: &'a str,
}

impl<'a> Exit<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (before, after) = line.split_once(" pc ")?;
        let mut words = before.splitn(4, ' ').skip(2);
        let (cpu, cause) = (words.next()?, words.next()?);
        let insn = after.split(' ').nth(2)?;
        Some(Self { cpu, cause, insn })
    }
}

/// The name of an exit's reason, from the exception and the instruction.
fn reason(cause: &str, insn: &str) -> String {
    let word = u32::from_str_radix(insn.trim_start_matches("0x"), 16).unwrap_or(0);
    let of = |(mask, bits, _): &&(u32, u32, &str)| word & mask == *bits;
    let name = match cause {
        "Guest sensitive privileged resource" => {
            INSTRUCTIONS.iter().find(of).map(|(_, _, name)| *name)
        }
        "Hypervisor call" => Some("hypercall"),
        "Interrupt" => Some("interrupt"),
        _ if cause.starts_with("Page ") => Some("memory"),
        _ => None,
    };
    name.unwrap_or(cause).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(text: &str) -> String {
        let byte = |byte| format!("serial_write write addr 0x00 val 0x{byte:02x}\n");
        text.bytes().map(byte).collect()
    }

    fn windows(trace: &str) -> Windows {
        let mut counting = Counting::default();
        trace.lines().for_each(|line| counting.event(line));
        counting.windows
    }

    const IDLE: &str = "lvz_exit cpu 12 Guest sensitive privileged resource pc 0x9000000000221000 insn 0x06488000 badv 0x0\n";
    const CALL: &str =
        "lvz_exit cpu 0 Hypervisor call pc 0x9000000000221000 insn 0x002b8100 badv 0x0\n";
    const SEND: &str = "loongson_ipi_write size: 4 addr: 0x40val: 0x80030001\n";
    const CLEAR: &str = "loongson_ipi_write size: 4 addr: 0xcval: 0x8\n";

    #[test]
    fn what_is_between_the_marks_counts() {
        let (start, end) = (printed("guest 1.5 count wake\r\n"), printed("count end\n"));
        let trace = format!("{IDLE}{start}{IDLE}{CALL}{SEND}{CLEAR}{IDLE}{end}{CALL}{SEND}");
        let found = windows(&trace);
        let exits = [("hypercall".to_owned(), 1), ("idle".to_owned(), 2)];
        let (exits, ipis) = (Exits::from(exits), 1);
        let (rounds, waker) = (Vec::new(), Vec::new());
        assert_eq!(
            found,
            Windows::from([(
                "wake".to_owned(),
                Counts {
                    exits,
                    rounds,
                    waker,
                    ipis
                }
            )])
        );
        assert!(windows(IDLE).is_empty());
    }

    #[test]
    fn rounds_are_between_marks() {
        let (start, end) = (printed("count wake\n"), printed("count end\n"));
        let mark = |insn| format!("lvz_exit cpu 0 {GSPR} pc 0x20000 insn {insn} badv 0x0\n");
        let (mark, woken) = (mark(ROUND), mark(WOKEN));
        let trace = format!(
            "{mark}{start}{IDLE}{mark}{IDLE}{CALL}{woken}{IDLE}{mark}{CALL}{mark}{end}{mark}"
        );
        let counts = windows(&trace).remove("wake").unwrap();
        let (idle, call) = (("idle".to_owned(), 2), ("hypercall".to_owned(), 1));
        assert_eq!(
            counts.rounds,
            [Exits::from([idle, call.clone()]), Exits::from([call])]
        );
        assert_eq!(counts.exits["idle"], 3);
        assert_eq!(counts.waker, [1]);
    }

    const GSPR: &str = "Guest sensitive privileged resource";

    #[test]
    fn reasons_are_told_by_exception_and_instruction() {
        for (cause, insn, name) in [
            (GSPR, "0x06488000", "idle"),
            (GSPR, "0x0648190d", "iocsr"),
            (GSPR, "0x00006c0c", "cpucfg"),
            (GSPR, "0x04014820", "csr"),
            (GSPR, "0x00000000", GSPR),
            ("Interrupt", "0x00000000", "interrupt"),
            ("Page invalid exception for load", "0x28c00000", "memory"),
            (
                "Floating Point Disabled",
                "0x00000000",
                "Floating Point Disabled",
            ),
        ] {
            assert_eq!(reason(cause, insn), name);
        }
    }
}
