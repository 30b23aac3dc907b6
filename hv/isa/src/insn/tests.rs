//! Host tests of the decoder: every opcode it claims, with every operand.

use super::*;

/// The words a template covers: `fixed` with the bits of `operands` free.
struct Template {
    fixed: u32,
    operands: u32,
    expect: fn(u32) -> Insn,
}

fn load(word: u32, width: Width, signed: bool) -> Insn {
    let rd = rd(word);
    Insn::Load { width, signed, rd }
}

fn store(word: u32, width: Width) -> Insn {
    let rd = rd(word);
    Insn::Store { width, rd }
}

fn iocsr(word: u32, width: Width, write: bool) -> Insn {
    let (rd, rj) = (rd(word), rj(word));
    if write {
        Insn::IocsrWrite { width, rd, rj }
    } else {
        Insn::IocsrRead { width, rd, rj }
    }
}

fn csr(word: u32, op: CsrOp) -> Insn {
    let rd = rd(word);
    let csr = Csr::from_field(word >> 10);
    Insn::Csr { op, csr, rd }
}

use Width::{Byte, Double, Half, Word};

/// Each mnemonic with its word from the manual's table, operands zero.
#[rustfmt::skip]
const TEMPLATES: [Template; 43] = [
    Template { fixed: 0x0000_6c00, operands: 0x3ff, expect: |w| Insn::Cpucfg { rd: rd(w), rj: rj(w) } },
    Template { fixed: 0x002b_8000, operands: 0x7fff, expect: |w| Insn::Hvcl { code: (w & 0x7fff) as u16 } },
    Template { fixed: 0x0400_0000, operands: 0xff_fc1f, expect: |w| csr(w, CsrOp::Read) },
    Template { fixed: 0x0400_0020, operands: 0xff_fc1f, expect: |w| csr(w, CsrOp::Write) },
    Template { fixed: 0x0400_0040, operands: 0xff_fc1f, expect: |w| csr(w, CsrOp::Exchange { mask: Gpr::TP }) },
    Template { fixed: 0x0400_03e0, operands: 0xff_fc1f, expect: |w| csr(w, CsrOp::Exchange { mask: Gpr::from_field(31) }) },
    Template { fixed: 0x0600_0000, operands: 0x1f_ffff, expect: |w| Insn::Cacop { code: (w & 31) as u8, rj: rj(w), offset: (w >> 10 & 0x7ff) as i16 } },
    Template { fixed: 0x0620_0000, operands: 0x1f_ffff, expect: |w| Insn::Cacop { code: (w & 31) as u8, rj: rj(w), offset: (w >> 10 & 0x7ff) as i16 - 2048 } },
    Template { fixed: 0x0648_0000, operands: 0x3ff, expect: |w| iocsr(w, Byte, false) },
    Template { fixed: 0x0648_0400, operands: 0x3ff, expect: |w| iocsr(w, Half, false) },
    Template { fixed: 0x0648_0800, operands: 0x3ff, expect: |w| iocsr(w, Word, false) },
    Template { fixed: 0x0648_0c00, operands: 0x3ff, expect: |w| iocsr(w, Double, false) },
    Template { fixed: 0x0648_1000, operands: 0x3ff, expect: |w| iocsr(w, Byte, true) },
    Template { fixed: 0x0648_1400, operands: 0x3ff, expect: |w| iocsr(w, Half, true) },
    Template { fixed: 0x0648_1800, operands: 0x3ff, expect: |w| iocsr(w, Word, true) },
    Template { fixed: 0x0648_1c00, operands: 0x3ff, expect: |w| iocsr(w, Double, true) },
    Template { fixed: 0x0648_8000, operands: 0x7fff, expect: |_| Insn::Idle },
    Template { fixed: 0x2400_0000, operands: 0xff_ffff, expect: |w| load(w, Word, true) },
    Template { fixed: 0x2500_0000, operands: 0xff_ffff, expect: |w| store(w, Word) },
    Template { fixed: 0x2600_0000, operands: 0xff_ffff, expect: |w| load(w, Double, true) },
    Template { fixed: 0x2700_0000, operands: 0xff_ffff, expect: |w| store(w, Double) },
    Template { fixed: 0x2800_0000, operands: 0x3f_ffff, expect: |w| load(w, Byte, true) },
    Template { fixed: 0x2840_0000, operands: 0x3f_ffff, expect: |w| load(w, Half, true) },
    Template { fixed: 0x2880_0000, operands: 0x3f_ffff, expect: |w| load(w, Word, true) },
    Template { fixed: 0x28c0_0000, operands: 0x3f_ffff, expect: |w| load(w, Double, true) },
    Template { fixed: 0x2900_0000, operands: 0x3f_ffff, expect: |w| store(w, Byte) },
    Template { fixed: 0x2940_0000, operands: 0x3f_ffff, expect: |w| store(w, Half) },
    Template { fixed: 0x2980_0000, operands: 0x3f_ffff, expect: |w| store(w, Word) },
    Template { fixed: 0x29c0_0000, operands: 0x3f_ffff, expect: |w| store(w, Double) },
    Template { fixed: 0x2a00_0000, operands: 0x3f_ffff, expect: |w| load(w, Byte, false) },
    Template { fixed: 0x2a40_0000, operands: 0x3f_ffff, expect: |w| load(w, Half, false) },
    Template { fixed: 0x2a80_0000, operands: 0x3f_ffff, expect: |w| load(w, Word, false) },
    Template { fixed: 0x3800_0000, operands: 0x7fff, expect: |w| load(w, Byte, true) },
    Template { fixed: 0x3804_0000, operands: 0x7fff, expect: |w| load(w, Half, true) },
    Template { fixed: 0x3808_0000, operands: 0x7fff, expect: |w| load(w, Word, true) },
    Template { fixed: 0x380c_0000, operands: 0x7fff, expect: |w| load(w, Double, true) },
    Template { fixed: 0x3810_0000, operands: 0x7fff, expect: |w| store(w, Byte) },
    Template { fixed: 0x3814_0000, operands: 0x7fff, expect: |w| store(w, Half) },
    Template { fixed: 0x3818_0000, operands: 0x7fff, expect: |w| store(w, Word) },
    Template { fixed: 0x381c_0000, operands: 0x7fff, expect: |w| store(w, Double) },
    Template { fixed: 0x3820_0000, operands: 0x7fff, expect: |w| load(w, Byte, false) },
    Template { fixed: 0x3824_0000, operands: 0x7fff, expect: |w| load(w, Half, false) },
    Template { fixed: 0x3828_0000, operands: 0x7fff, expect: |w| load(w, Word, false) },
];

/// Calls `visit` with every word of `template`.
fn for_each_word(template: &Template, mut visit: impl FnMut(u32)) {
    let free = template.operands;
    let mut operands = 0u32;
    loop {
        visit(template.fixed | operands);
        if operands == free {
            return;
        }
        // The next subset of `free`, in ascending order.
        operands = (operands.wrapping_sub(free)) & free;
    }
}

#[test]
fn every_word_of_every_template_decodes_as_the_manual_says() {
    for template in &TEMPLATES {
        for_each_word(template, |word| {
            assert_eq!(
                decode(word),
                Some((template.expect)(word)),
                "word {word:#010x}"
            );
        });
    }
}

/// All 2^22 patterns of the bits above rj and rd, which no opcode but the
/// CSR group's depends on.
#[test]
fn nothing_outside_the_templates_decodes() {
    for upper in 0..1u32 << 22 {
        let word = upper << 10 | 0x43;
        let claimed = TEMPLATES.iter().any(|t| word & !t.operands == t.fixed);
        assert_eq!(decode(word).is_some(), claimed, "word {word:#010x}");
    }
}

#[test]
fn exchange_takes_any_mask_register_from_r2_up() {
    for n in 2..32 {
        let word = opcode::CSR | 0x5 << 10 | n << 5 | 4;
        let mask = Gpr::from_field(n);
        assert_eq!(decode(word), Some(csr(word, CsrOp::Exchange { mask })));
    }
}

/// Words as the LLVM assembler writes them.
#[test]
fn words_of_a_real_assembler() {
    let csr = Csr::ESTAT;
    // csrwr $t0, 0x5; cacop 0x9, $a0, -4; iocsrrd.w $a1, $a2; hvcl 0x100
    let rd = Gpr::T0;
    let op = CsrOp::Write;
    assert_eq!(decode(0x0400_142c), Some(Insn::Csr { op, csr, rd }));
    let (code, rj, offset) = (9, Gpr::A0, -4);
    assert_eq!(decode(0x063f_f089), Some(Insn::Cacop { code, rj, offset }));
    let (rd, rj, width) = (Gpr::A1, Gpr::A2, Word);
    assert_eq!(decode(0x0648_08c5), Some(Insn::IocsrRead { width, rd, rj }));
    assert_eq!(decode(0x002b_8100), Some(Insn::Hvcl { code: 0x100 }));
    // gcsrrd $a0, 0x5: guests have no such instruction.
    assert_eq!(decode(0x0500_1404), None);
}

/// Words as the LLVM assembler writes them.
#[test]
fn addresses_are_those_of_the_registers_and_the_word() {
    let mut gprs = Gprs::new();
    gprs.set(Gpr::A0, 0x1000);
    gprs.set(Gpr::A2, u64::MAX - 0x7ff);
    for (word, address) in [
        (0x28ff_f085, 0xffc),  // ld.d a1, a0, -4
        (0x299f_fc85, 0x17ff), // st.w a1, a0, 2047
        (0x26ff_fc85, 0xffc),  // ldptr.d a1, a0, -4
        (0x257f_fc85, 0x8ffc), // stptr.w a1, a0, 0x7ffc
        (0x380c_1885, 0x800),  // ldx.d a1, a0, a2
        (0x381c_0085, 0x1000), // stx.d a1, a0, zero
    ] {
        assert_eq!(super::address(word, &gprs), address, "{word:#x}");
    }
}

#[test]
fn widths_extend_from_their_own_sign_bit() {
    assert_eq!(Byte.sign_extend(0x1_80), 0xffff_ffff_ffff_ff80);
    assert_eq!(Byte.zero_extend(0x1_80), 0x80);
    assert_eq!(Half.sign_extend(0x7fff), 0x7fff);
    assert_eq!(Word.sign_extend(0x8000_0000), 0xffff_ffff_8000_0000);
    assert_eq!(Word.zero_extend(u64::MAX), 0xffff_ffff);
    assert_eq!(Double.sign_extend(u64::MAX), u64::MAX);
    assert_eq!(Double.zero_extend(u64::MAX), u64::MAX);
    assert_eq!(Width::ALL.map(Width::bytes), [1, 2, 4, 8]);
}
