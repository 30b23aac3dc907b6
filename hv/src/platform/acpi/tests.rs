use super::*;
use crate::mm::phys::{FakeMem, PhysMem};

/// Tables, each at its address in a small memory.
struct Tables {
    memory: FakeMem,
    next: u64,
    root: Vec<u64>,
}

/// The RSDP's address.
const RSDP: Hpa = Hpa::new(0x100);

impl Tables {
    fn new() -> Self {
        Self {
            memory: FakeMem(vec![0; 0x4000]),
            next: 0x1000,
            root: Vec::new(),
        }
    }

    /// Puts a table of this signature with these bytes after its header;
    /// returns its address.
    fn put(&mut self, signature: &[u8; 4], body: &[u8]) -> u64 {
        let mut table = signature.to_vec();
        table.extend((36 + body.len() as u32).to_le_bytes());
        table.extend([5, 0]); // Revision, checksum.
        table.extend(b"TESTERTESTTEST");
        table.extend([0; 12]);
        table.extend(body);
        checked(&mut table, 9);
        let at = self.next;
        self.memory.write(Hpa::new(at), &table);
        self.next = (at + table.len() as u64).next_multiple_of(16);
        at
    }

    /// Puts a table and names it in the root.
    fn add(&mut self, signature: &[u8; 4], body: &[u8]) {
        let at = self.put(signature, body);
        self.root.push(at);
    }

    /// What is read of all that.
    fn read(self) -> Option<Machine> {
        let (memory, _) = self.finish();
        super::read(&memory, RSDP)
    }

    /// The memory with all that, and where the root is.
    fn finish(mut self) -> (FakeMem, u64) {
        let root: Vec<u8> = self.root.iter().flat_map(|at| at.to_le_bytes()).collect();
        let root = self.put(b"XSDT", &root);
        let mut rsdp = b"RSD PTR \0TESTER\x02".to_vec();
        rsdp.extend([0; 4]);
        rsdp.extend(36u32.to_le_bytes());
        rsdp.extend(root.to_le_bytes());
        rsdp.extend([0; 4]);
        checked(&mut rsdp[..20], 8);
        checked(&mut rsdp, 32);
        self.memory.write(RSDP, &rsdp);
        (self.memory, root)
    }
}

/// Makes the sum of all bytes 0 by the one at `at`.
fn checked(bytes: &mut [u8], at: usize) {
    let sum = bytes.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    bytes[at] = bytes[at].wrapping_sub(sum);
}

/// A MADT with CPUs of these ids and flags, and the PCH-PIC of QEMU's `virt`.
fn madt(cpus: &[(u32, u32)]) -> Vec<u8> {
    let mut body = vec![0; 8];
    for &(id, flags) in cpus {
        body.extend([CORE_PIC, 15, 1]);
        for word in [7, id, flags] {
            body.extend(u32::to_le_bytes(word));
        }
    }
    // A kind that isn't read.
    body.extend([0x14, 13, 1, 3, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0]);
    body.extend([LIO_PIC, 23, 1]);
    body.extend(0x1fe0_1400u64.to_le_bytes());
    body.extend([0x80, 0, 2, 3, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xff]);
    body.extend([BIO_PIC, 17, 1]);
    body.extend(0x1000_0000u64.to_le_bytes());
    for half in [0x1000u16, 0, 0x40] {
        body.extend(half.to_le_bytes());
    }
    body
}

/// An SPCR of revision 2 with this interface, address and interrupt.
fn spcr(interface: u8, space: u8, at: u64, interrupt: u32) -> Vec<u8> {
    let mut body = vec![interface, 0, 0, 0, space, 32, 0, 1];
    body.extend(at.to_le_bytes());
    body.extend([0, 0]);
    body.extend(interrupt.to_le_bytes());
    body.resize(80 - 36, 0);
    body
}

/// A FADT of reduced hardware, or of PM1 registers of `bits` bits.
fn fadt(reduced: bool, bits: u8, dsdt: u64) -> Vec<u8> {
    let mut table = vec![0; 276];
    let flags = if reduced { 1u32 << 20 } else { 0 };
    table[112..116].copy_from_slice(&flags.to_le_bytes());
    table[140..148].copy_from_slice(&dsdt.to_le_bytes());
    for (offset, at) in [(172, 0x100d_0014u64), (244, 0x100e_001c)] {
        table[offset..offset + 4].copy_from_slice(&[0, bits, 0, 0]);
        table[offset + 4..offset + 12].copy_from_slice(&at.to_le_bytes());
    }
    table.split_off(36)
}

/// Byte code with `_S5_` as QEMU writes it.
const S5: &[u8] = b"\x10\x0d\\\x00\x08_S5_\x12\x06\x04\x0a\x05\x00\x00\x00";

#[test]
fn a_machine_of_two_nodes() {
    let mut tables = Tables::new();
    // Firmware leaves places of tables that are gone.
    tables.root.push(0);
    tables.add(b"APIC", &madt(&[(4, 1), (0, 1), (5, 0)]));
    let mut srat = vec![0; 12];
    srat.extend([CPU_AFFINITY, 16, 1, 4, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let mut memory = vec![MEMORY_AFFINITY, 40, 1, 0, 0, 0, 0, 0];
    memory.extend((1u64 << 44).to_le_bytes());
    memory.extend((1u64 << 33).to_le_bytes());
    memory.extend([0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    srat.extend(memory);
    tables.add(b"SRAT", &srat);
    tables.add(b"SPCR", &spcr(0, 0, 0x1fe0_01e0, 0x42));
    let machine = tables.read().unwrap();
    let cpus = [Cpu { id: 4, node: 1 }, Cpu { id: 0, node: 0 }];
    assert_eq!(machine.cpus, cpus);
    let range = Range::new(1 << 44, (1 << 44) + (1 << 33));
    assert_eq!(machine.nodes, [(range, 1)]);
    assert_eq!(machine.console, Console::At(0x1fe0_01e0));
    let route = machine.console_interrupt.unwrap();
    assert_eq!(route.base, Hpa::new(0x1000_0000));
    assert_eq!((route.input.number(), route.vector.number()), (2, 2));
    assert_eq!(machine.pch_pics, [Hpa::new(0x1000_0000)]);
    assert_eq!(machine.legacy_pic, Some(Hpa::new(0x1fe0_1400)));
    assert_eq!(machine.power_off, None);
}

#[test]
fn consoles_of_other_kinds_are_told_apart() {
    let console = |spcr: Vec<u8>| {
        let mut tables = Tables::new();
        tables.add(b"APIC", &madt(&[(0, 1)]));
        tables.add(b"SPCR", &spcr);
        let machine = tables.read().unwrap();
        (machine.console, machine.console_interrupt.is_some())
    };
    let (pl011, in_ports) = (spcr(3, 0, 0x1000, 0), spcr(0, 1, 0x3f8, 4));
    assert_eq!(console(pl011), (Console::Unusable, false));
    assert_eq!(console(in_ports), (Console::Unusable, false));
    let mut off = spcr(0, 0, 0, 0);
    off[4..16].fill(0);
    assert_eq!(console(off), (Console::Default, false));
}

#[test]
fn switching_off_by_either_kind_of_register() {
    let with_bits = |reduced, bits, code: &[u8]| {
        let mut tables = Tables::new();
        tables.add(b"APIC", &madt(&[(0, 1)]));
        let dsdt = tables.put(b"DSDT", code);
        tables.add(b"FACP", &fadt(reduced, bits, dsdt));
        tables.read().unwrap().power_off
    };
    let power_off = |reduced, code| with_bits(reduced, 16, code);
    let reduced = power_off(true, S5).unwrap();
    assert_eq!((reduced.register, reduced.width), (0x100e_001c, 1));
    assert_eq!((reduced.keep, reduced.value), (0, 0x34));
    let fixed = power_off(false, S5).unwrap();
    assert_eq!((fixed.register, fixed.width), (0x100d_0014, 2));
    assert_eq!((fixed.keep, fixed.value), (!0x1c00, 5 << 10 | 1 << 13));
    assert_eq!(with_bits(false, 32, S5).map(|found| found.width), Some(4));
    assert_eq!(power_off(true, b"_S4_"), None);
    assert_eq!(power_off(true, b"_S5_\x12\x06\x04\x0a\x08"), None);
    assert_eq!(power_off(true, b"_S5_\x12"), None);
}

#[test]
fn damage_is_refused() {
    let mut tables = Tables::new();
    tables.add(b"APIC", &madt(&[(0, 1)]));
    let at = tables.root[0] as usize;
    tables.memory.0[at + 44] ^= 1;
    assert_eq!(tables.read(), None);
    assert_eq!(Tables::new().read(), None);
    let nothing = FakeMem(vec![0; 0x1000]);
    assert_eq!(super::read(&nothing, RSDP), None);
}

/// A sum of 0 over as many bytes as a table's length says is easily had.
#[test]
fn no_length_is_believed() {
    for length in [0, 1, 35, 36, (4 << 20) + 1, 1 << 31, u32::MAX] {
        let mut tables = Tables::new();
        tables.add(b"APIC", &madt(&[(0, 1)]));
        let dsdt = tables.put(b"DSDT", S5);
        tables.add(b"FACP", &fadt(true, 16, dsdt));
        let named = [tables.root[0], tables.root[1], dsdt];
        let (good, root) = tables.finish();
        for at in named.into_iter().chain([root]) {
            let mut memory = FakeMem(good.0.clone());
            let table = &mut memory.0[at as usize..];
            table[4..8].copy_from_slice(&length.to_le_bytes());
            checked(&mut table[..(length as usize).clamp(10, 36)], 9);
            // The machine's power switch may be known, or nothing.
            let _ = super::read(&memory, RSDP);
        }
        let mut memory = good;
        let rsdp = &mut memory.0[RSDP.get() as usize..];
        rsdp[20..24].copy_from_slice(&length.to_le_bytes());
        checked(&mut rsdp[..(length as usize).clamp(10, 36)], 8);
        let _ = super::read(&memory, RSDP);
    }
}

#[test]
fn an_entry_longer_than_its_table_ends_it() {
    let body = [CORE_PIC, 15, 0, CORE_PIC, 0, CORE_PIC, 200];
    assert_eq!(entries(&body, 0).count(), 0);
    assert_eq!(entries(&body[3..], 0).count(), 1);
    assert_eq!(entries(&body, 100).count(), 0);
}

#[test]
fn configuration_space_is_that_of_the_buses_there_are() {
    let entry = |base: u64, first: u8, last: u8| {
        let mut entry = base.to_le_bytes().to_vec();
        entry.extend([0, 0, first, last, 0, 0, 0, 0]);
        entry
    };
    let ecam = |entries: &[Vec<u8>]| {
        let mut tables = Tables::new();
        tables.add(b"APIC", &madt(&[(0, 1)]));
        tables.add(b"MCFG", &[vec![0; 8], entries.concat()].concat());
        tables.read().unwrap().ecam
    };
    // QEMU's, a 3C5000's second bridge, one that ends beyond 64 bits, half a
    // one.
    let found = ecam(&[
        entry(0x2000_0000, 0, 0x7f),
        entry(0xe00_0000_0000, 0x80, 0xff),
        entry(u64::MAX - 0xffff, 0, 0xff),
        entry(0x1000_0000, 7, 6),
        entry(0, 0, 0)[..8].to_vec(),
    ]);
    let expected = [
        Range::new(0x2000_0000, 0x2800_0000),
        Range::new(0xe00_0800_0000, 0xe00_1000_0000),
    ];
    assert_eq!(found, expected);
    assert!(ecam(&[]).is_empty());
    let mut tables = Tables::new();
    tables.add(b"APIC", &madt(&[(0, 1)]));
    tables.add(b"MCFG", &[]);
    assert!(tables.read().unwrap().ecam.is_empty());
}
