//! What a machine does at its hypervisor's border, seen from outside.
//!
//! The emulator writes a line for each exit from guest mode and each entry, with the
//! instructions that the CPU has executed so far, for each IPI that a physical CPU sends,
//! and for each byte that is printed, in the order in which they happen: the same for
//! every system, at no cost to any, and deterministic like the run. What a CPU executes
//! from an exit to its next entry is the hypervisor's. A job marks what is to be counted by
//! the lines that it prints: from `count NAME` to `count end`. What lies between two of
//! tests/wake's marks in there is a [`Round`].

mod round;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use anyhow::{Context as _, Result};
use tempfile::NamedTempFile;

use self::round::Open;
pub use self::round::Round;
use crate::context::Context;
use crate::qemu::Qemu;

/// The emulator's events: exits and entries, writes of the IPI registers, bytes to the
/// serial port.
const EVENTS: [&str; 4] = [
    "lvz_exit",
    "lvz_enter",
    "loongson_ipi_write",
    "serial_write",
];

/// IPI_SEND's place among the IPI registers (3A5000 manual, IPI).
const IPI_SEND: &str = "0x40";

/// The instructions by which tests/wake marks where a round begins, `cpucfg $zero, $zero`,
/// and where all are woken, `cpucfg $zero, $a0`; not counted.
const ROUND: &str = "0x00006c00";
const WOKEN: &str = "0x00006c80";

/// Numbers by the reason of an exit.
pub type Exits = BTreeMap<String, u64>;

/// Adds `more` for `reason`.
fn add(exits: &mut Exits, reason: &str, more: u64) {
    match exits.get_mut(reason) {
        Some(count) => *count += more,
        None => {
            exits.insert(reason.to_owned(), more);
        }
    }
}

/// What was counted between two marks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Exits of all CPUs from guest mode.
    pub exits: Exits,
    /// Instructions from those to the next entry of the same CPU: the hypervisor's, and on a
    /// host that does other things those of all that it does meanwhile.
    pub instructions: Exits,
    /// Each round that is over.
    pub rounds: Vec<Round>,
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
    /// The round since the last mark, if there was one.
    round: Option<Open>,
    /// Of the CPUs that are outside of the guest: why, and what they had executed.
    outside: BTreeMap<u32, (String, u64)>,
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
            Some("lvz_enter") => {
                // `cpu 3 gid 1 pc 0x… insns 1000`.
                let mut number = |place| words.nth(place)?.parse().ok();
                if let (Some(cpu), Some(insns)) = (number(1), number(5)) {
                    self.enter(cpu as u32, insns);
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
        let &Exit { cpu, insns, .. } = exit;
        self.outside.remove(&cpu);
        match exit.insn {
            ROUND => {
                let round = self.round.replace(Open::new(cpu));
                if let (Some(round), Some(counts)) = (round, self.counts()) {
                    counts.rounds.push(round.end());
                }
            }
            WOKEN => {
                if let Some(round) = &mut self.round {
                    round.woken();
                }
            }
            insn => {
                let reason = reason(exit.cause, insn);
                if let Some(round) = &mut self.round {
                    round.exit(cpu, insns, &reason);
                }
                if let Some(counts) = self.counts() {
                    add(&mut counts.exits, &reason, 1);
                }
                self.outside.insert(cpu, (reason, insns));
            }
        }
    }

    /// The CPU `cpu`, which has executed `insns`, enters the guest.
    fn enter(&mut self, cpu: u32, insns: u64) {
        let Some((reason, before)) = self.outside.remove(&cpu) else {
            return;
        };
        let spent = insns.saturating_sub(before);
        if let Some(round) = &mut self.round {
            round.enter(cpu, &reason, spent);
        }
        if let Some(counts) = self.counts() {
            add(&mut counts.instructions, &reason, spent);
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
            self.round = None;
            self.outside.clear();
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

/// An exit's line,
/// `lvz_exit cpu 3 Hypervisor call pc 0x… insn 0x002b8100 badv 0x… insns 1000`.
struct Exit<'a> {
    cpu: u32,
    cause: &'a str,
    insn: &'a str,
    /// What the CPU has executed so far.
    insns: u64,
}

impl<'a> Exit<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (before, after) = line.split_once(" pc ")?;
        let mut words = before.splitn(4, ' ').skip(2);
        let (cpu, cause) = (words.next()?.parse().ok()?, words.next()?);
        let mut words = after.split_ascii_whitespace();
        let insn = words.nth(2)?;
        // An emulator of before doesn't say.
        let insns = words.nth(3).and_then(|word| word.parse().ok());
        Some(Self {
            cpu,
            cause,
            insn,
            insns: insns.unwrap_or(0),
        })
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

    const IDLE: &str = "lvz_exit cpu 12 Guest sensitive privileged resource pc 0x9000000000221000 insn 0x06488000 badv 0x0 insns 500\n";
    const CALL: &str =
        "lvz_exit cpu 0 Hypervisor call pc 0x9000000000221000 insn 0x002b8100 badv 0x0 insns 700\n";
    const ENTER: &str = "lvz_enter cpu 0 gid 1 pc 0x9000000000221004 insns 760\n";
    const SEND: &str = "loongson_ipi_write size: 4 addr: 0x40val: 0x80030001\n";
    const CLEAR: &str = "loongson_ipi_write size: 4 addr: 0xcval: 0x8\n";

    fn exits(of: &[(&str, u64)]) -> Exits {
        let each = of.iter().map(|&(name, count)| (name.to_owned(), count));
        each.collect()
    }

    #[test]
    fn what_is_between_the_marks_counts() {
        let (start, end) = (printed("guest 1.5 count wake\r\n"), printed("count end\n"));
        let trace = format!(
            "{IDLE}{ENTER}{start}{ENTER}{IDLE}{CALL}{SEND}{ENTER}{CLEAR}{ENTER}{IDLE}{end}{CALL}{SEND}{ENTER}"
        );
        let found = windows(&trace);
        let counts = Counts {
            exits: exits(&[("hypercall", 1), ("idle", 2)]),
            instructions: exits(&[("hypercall", 60)]),
            ipis: 1,
            ..Counts::default()
        };
        assert_eq!(found, Windows::from([("wake".to_owned(), counts)]));
        assert!(windows(IDLE).is_empty());
    }

    #[test]
    fn rounds_are_between_marks() {
        let (start, end) = (printed("count wake\n"), printed("count end\n"));
        let mark = |insn, insns| {
            format!("lvz_exit cpu 0 {GSPR} pc 0x20000 insn {insn} badv 0x0 insns {insns}\n")
        };
        let (first, woken, next) = (mark(ROUND, 650), mark(WOKEN, 800), mark(ROUND, 900));
        let again = CALL.replace("700", "1900");
        let trace = format!(
            "{first}{start}{IDLE}{first}{IDLE}{CALL}{ENTER}{again}{woken}{ENTER}{IDLE}{next}{CALL}{next}{end}{next}"
        );
        let counts = windows(&trace).remove("wake").unwrap();
        let round = Round {
            // One CPU's first sleep, and what the other calls.
            exits: exits(&[("hypercall", 2), ("idle", 1)]),
            instructions: exits(&[("hypercall", 60)]),
            waker_exits: 2,
            send_instructions: Some(1200),
        };
        assert_eq!(counts.rounds[0], round);
        assert_eq!(counts.rounds[1].exits, exits(&[("hypercall", 1)]));
        assert_eq!((counts.rounds.len(), counts.exits["idle"]), (2, 3));
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
