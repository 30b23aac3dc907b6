//! The hypervisor's instructions from an exit to the next entry, one by one.
//!
//! The emulator executes one instruction at a time, and writes down each of the
//! hypervisor's, each exit from guest mode, and each IPI that a CPU sends. So a CPU's
//! instructions are told from another's and from the guest's, which no clock does, and
//! the counts are exact: the same code gives the same counts.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use object::{Object, ObjectSection, ObjectSymbol};
use serde_json::json;

use super::POLLING;
use super::rows::{Kind, Of, ROWS};
use crate::hypervisor::{GuestVm, Hypervisor};
use crate::qemu::qmp::Qmp;
use crate::qemu::{Qemu, Timing};

/// Counts by the names of their rows.
pub type Counts = BTreeMap<String, u64>;

/// A run that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(300);

/// The guest's groups of exits: name, vCPUs, CPUs, configuration.
const GROUPS: [(&str, u32, u32, &str); 3] = [
    ("awake", 17, 17, POLLING),
    ("asleep", 2, 2, "pv_ipi = true\nidle_poll = 0"),
    ("slices", 2, 1, "pv_ipi = true"),
];

/// Part of the name of the function that polls.
const POLL: &str = "processor4wait4poll";

/// Parts of the names of functions that no exit may come to: the heap's and the
/// formatter's.
const FORBIDDEN: [&str; 2] = ["GlobalAlloc", "4core3fmt"];

/// What the emulator writes down besides instructions.
const EVENTS: [&str; 2] = ["lvz_exit", "loongson_ipi_write"];

/// Counts every exit that a row names, on machines of the seed `seed`.
///
/// # Errors
/// A machine doesn't do as expected, or an exit isn't found.
pub fn count(hypervisor: &Hypervisor, seed: u64) -> Result<Counts> {
    let code = Code::read(hypervisor.image())?;
    let mut seen = Seen::default();
    for (group, vcpus, cpus, more) in GROUPS {
        let vm = GuestVm {
            more,
            ..GuestVm::new("bench", vcpus, &format!("mode=bench what={group}"))
        };
        let machine = hypervisor.machine(&[vm], cpus, Timing::Deterministic { seed })?;
        run(machine, &code, &mut seen).with_context(|| format!("counting {group}"))?;
    }
    if let Some((mark, pc)) = seen.broken {
        bail!("an exit under mark {mark} allocates or formats: it came to {pc:#x}");
    }
    ROWS.iter()
        .filter_map(|row| Some((row.name, row.counted?)))
        .map(|(name, kind)| {
            let count = seen.usual(kind);
            let count = count.with_context(|| format!("no exit for {name} was as expected"))?;
            Ok((name.to_owned(), count))
        })
        .collect()
}

/// Runs a machine whose guest waits for a key before it begins.
fn run(machine: Qemu, code: &Code, seen: &mut Seen) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (socket, log) = (folder.path().join("monitor"), folder.path().join("log"));
    let machine = machine
        .args(Qmp::args(&socket))
        .args([
            "-accel",
            "tcg,one-insn-per-tb=on",
            "-dfilter",
            &code.ranges(),
        ])
        .args(EVENTS.iter().flat_map(|event| ["-trace", event]))
        .args(["-D".into(), log.clone().into_os_string()]);
    let mut running = machine.spawn_with_keyboard()?;
    let mut monitor = Qmp::connect(&socket, LIMIT)?;
    running.console.wait_for("READY", LIMIT)?;
    let events = EVENTS.map(|event| format!(",trace:{event}")).concat();
    let command = format!("log exec,nochain{events}");
    monitor.execute("human-monitor-command", json!({ "command-line": command }))?;
    running.type_text("\r")?;
    let status = running.wait(LIMIT)?;
    ensure!(
        status.success(),
        "QEMU failed:\n{}",
        running.console.tail(20)
    );
    seen.read(BufReader::with_capacity(1 << 20, File::open(&log)?), code)
}

/// The hypervisor's code.
struct Code {
    start: u64,
    words: Vec<u32>,
    /// Where a CPU polls: it does so until another one does something, which is no exit's.
    poll: Range<u64>,
    /// See [`FORBIDDEN`].
    forbidden: Vec<Range<u64>>,
}

impl Code {
    fn read(image: &Path) -> Result<Self> {
        let bytes = std::fs::read(image)?;
        let file = object::File::parse(bytes.as_slice())?;
        let text = file.section_by_name(".text").context("no code")?;
        let named = |part: &str| {
            let symbols = file.symbols();
            let found = symbols.filter(|of| of.name().is_ok_and(|name| name.contains(part)));
            let ranges = found.map(|of| of.address()..of.address() + of.size());
            let ranges: Vec<_> = ranges.collect();
            ensure!(!ranges.is_empty(), "the hypervisor has no function {part}");
            Ok(ranges)
        };
        let words = text.data()?.chunks_exact(4);
        let word = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        Ok(Self {
            start: text.address(),
            words: words.map(word).collect(),
            poll: named(POLL)?.swap_remove(0),
            forbidden: [named(FORBIDDEN[0])?, named(FORBIDDEN[1])?].concat(),
        })
    }

    /// What the emulator writes down, as its option takes it.
    fn ranges(&self) -> String {
        let end = self.start + self.words.len() as u64 * 4;
        let (before, behind) = (self.poll.start - 1, self.poll.end);
        format!("{:#x}..{before:#x},{behind:#x}..{:#x}", self.start, end - 1)
    }

    /// Whether the instruction at `pc` is `idle`.
    fn idles(&self, pc: u64) -> bool {
        let index = pc.checked_sub(self.start).map(|bytes| bytes as usize / 4);
        let word = index.and_then(|index| self.words.get(index));
        word.is_some_and(|word| word >> 15 == 0x0648_8000 >> 15)
    }
}

/// An exit that a CPU is busy with.
#[derive(Debug, Clone, Copy)]
struct Open {
    kind: Kind,
    count: u64,
}

/// What was seen: how often each number of instructions came, by kind.
#[derive(Debug, Default)]
struct Seen {
    mark: u32,
    /// The CPU that marks.
    marks: u32,
    /// The CPU whose instruction came last.
    last: u32,
    open: BTreeMap<u32, Open>,
    /// The mark and the instruction of an exit that came to a forbidden function.
    broken: Option<(u32, u64)>,
    counts: BTreeMap<Kind, BTreeMap<u64, u64>>,
}

impl Seen {
    fn read(&mut self, lines: impl BufRead, code: &Code) -> Result<()> {
        (self.mark, self.open) = (0, BTreeMap::new());
        for line in lines.lines() {
            let line = line?;
            if let Some(rest) = line.strip_prefix("Trace ") {
                self.instruction(rest, code);
            } else if let Some(rest) = line.strip_prefix("lvz_exit cpu ") {
                self.exit(rest);
            } else if line.starts_with("loongson_ipi_write")
                && line.contains("addr: 0x40val")
                && let Some(open) = self.open.get_mut(&self.last)
            {
                open.kind.ipis += 1;
            }
        }
        Ok(())
    }

    /// `3: 0x7f… [0000000000000000/900000000020700c/…] …`.
    fn instruction(&mut self, rest: &str, code: &Code) {
        let parse = || {
            let (cpu, rest) = rest.split_once(':')?;
            let pc = rest.split('/').nth(1)?;
            Some((cpu.parse().ok()?, u64::from_str_radix(pc, 16).ok()?))
        };
        let Some((cpu, pc)) = parse() else { return };
        self.last = cpu;
        let Some(open) = self.open.get_mut(&cpu) else {
            return;
        };
        open.count += 1;
        if open.kind.mark != 0 && code.forbidden.iter().any(|of| of.contains(&pc)) {
            self.broken = Some((open.kind.mark, pc));
        }
        if code.idles(pc) {
            let mut ended = *open;
            (open.kind.of, open.kind.ipis, open.count) = (Of::Wake, 0, 0);
            ended.kind.of = Of::Sleep;
            self.note(ended);
        }
    }

    /// `3 Hypervisor call pc 0x… insn 0x002b8100 badv 0x…`.
    fn exit(&mut self, rest: &str) {
        let mut words = rest.split(' ');
        let cpu = words.next().and_then(|cpu| cpu.parse().ok());
        let interrupt = words.next() == Some("Interrupt");
        let insn = words.skip_while(|&word| word != "insn").nth(1);
        let insn =
            insn.and_then(|word| u32::from_str_radix(word.trim_start_matches("0x"), 16).ok());
        let (Some(cpu), Some(insn)) = (cpu, insn) else {
            return;
        };
        if let Some(ended) = self.open.remove(&cpu) {
            // Who is sent to makes exits of its own at the same time.
            if ended.kind.of != Of::Exit || cpu == self.marks {
                self.note(ended);
            }
        }
        // `cpucfg $zero, $rN`: the mark N.
        if !interrupt && insn & !0x3e0 == 0x6c00 {
            (self.marks, self.mark) = (cpu, insn >> 5 & 31);
            return;
        }
        let of = if interrupt { Of::Interrupt } else { Of::Exit };
        let (mark, ipis, count) = (self.mark, 0, 0);
        let kind = Kind { mark, of, ipis };
        self.open.insert(cpu, Open { kind, count });
    }

    fn note(&mut self, ended: Open) {
        let counts = self.counts.entry(ended.kind).or_default();
        *counts.entry(ended.count).or_default() += 1;
    }

    /// The usual count: of a switch or an interrupt there are others beside it.
    fn usual(&self, kind: Kind) -> Option<u64> {
        let counts = self.counts.get(&kind)?;
        let (count, _) = counts.iter().max_by_key(|&(_, times)| *times)?;
        Some(*count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(log: &str) -> Seen {
        let code = Code {
            start: 0x1000,
            words: vec![0, 0x0648_8000, 0],
            poll: 0x1004..0x1008,
            forbidden: vec![0x2000..0x2010, 0x3000..0x3004],
        };
        let mut seen = Seen::default();
        seen.read(log.as_bytes(), &code).unwrap();
        seen
    }

    fn exit(cpu: u32, cause: &str, insn: &str) -> String {
        format!("lvz_exit cpu {cpu} {cause} pc 0x20000 insn {insn} badv 0x0\n")
    }

    fn step(cpu: u32, pc: u64) -> String {
        format!("Trace {cpu}: 0x7f00 [00000000/{pc:016x}/00000010/ff002201] f\n")
    }

    fn kind(mark: u32, of: Of, ipis: u32) -> Kind {
        Kind { mark, of, ipis }
    }

    const CALL: (&str, &str) = ("Hypervisor call", "0x002b8100");
    const SEND: &str = "loongson_ipi_write size: 4 addr: 0x40val: 0x80030001\n";

    #[test]
    fn each_cpu_s_instructions_are_its_own() {
        let mark = |n: u32| exit(0, "Guest sensitive", &format!("{:#010x}", 0x6c00 | n << 5));
        let call = exit(0, CALL.0, CALL.1);
        let taken = exit(1, "Interrupt", "0x00000000");
        let (zero, one) = (step(0, 0x1000), step(1, 0x1000));
        let log = format!(
            "{}{zero}{call}{zero}{zero}{SEND}{taken}{one}{zero}{}{zero}{taken}",
            mark(3),
            mark(0)
        );
        let seen = seen(&log);
        assert_eq!(seen.usual(kind(3, Of::Exit, 1)), Some(3));
        assert_eq!(seen.usual(kind(3, Of::Interrupt, 0)), Some(1));
        assert_eq!(seen.usual(kind(3, Of::Exit, 0)), None);
    }

    #[test]
    fn an_exit_that_allocates_is_found() {
        let mark = exit(0, "Guest sensitive", "0x00006c20");
        let call = exit(0, CALL.0, CALL.1);
        let alloc = step(0, 0x2004);
        assert_eq!(seen(&format!("{alloc}{mark}{call}")).broken, None);
        let broken = seen(&format!("{mark}{call}{alloc}")).broken;
        assert_eq!(broken, Some((1, 0x2004)));
    }

    #[test]
    fn an_exit_that_sleeps_is_two_counts() {
        let idle = exit(0, "Guest sensitive", "0x06488000");
        let slept = step(0, 0x1000) + &step(0, 0x1004) + &step(0, 0x1008);
        let seen = seen(&format!("{idle}{slept}{idle}{slept}{idle}"));
        assert_eq!(seen.usual(kind(0, Of::Sleep, 0)), Some(2));
        assert_eq!(seen.usual(kind(0, Of::Wake, 0)), Some(1));
    }
}
