//! What the example kernel needs of the machine besides IPIs: the first
//! instructions, an interrupt entry, a console.

use crate::kernel;
use core::arch::{asm, global_asm};
use core::fmt;
use guest_pv::loongarch::Native;
use guest_pv::machine::Machine as _;

/// CPUs of the kernel.
pub const MAX_CPUS: usize = 4;

const STACK_BYTES: usize = 16 << 10;

#[repr(C, align(16))]
struct Stacks([[u8; STACK_BYTES]; MAX_CPUS]);

static mut STACKS: Stacks = Stacks([[0; STACK_BYTES]; MAX_CPUS]);

/// SWI0 and IPI in ESTAT and ECFG.
const SWI0: u64 = 1 << 0;
const IPI: u64 = 1 << 12;

// A CPU begins in direct addressing; it turns on a window for devices and
// one for memory, and takes the stack and, in tp, the index of its id.
global_asm!(
    ".section .text.boot, \"ax\"",
    ".macro start_cpu main",
    "li.d $t0, 0x8000000000000001",
    "csrwr $t0, 0x180",
    "li.d $t0, 0x9000000000000011",
    "csrwr $t0, 0x181",
    "la.pcrel $t0, 1f",
    "lu52i.d $t0, $t0, -0x700",
    "jirl $zero, $t0, 0",
    "1: li.w $t0, 0xb0",
    "csrwr $t0, 0x0",
    "la.pcrel $t0, interrupt_entry",
    "csrwr $t0, 0xc",
    "csrrd $tp, 0x20",
    "la.pcrel $sp, {stacks}",
    "li.w $t0, {stack_bytes}",
    "addi.d $t1, $tp, 1",
    "mul.d $t0, $t0, $t1",
    "add.d $sp, $sp, $t0",
    "b \\main",
    ".endm",
    ".globl _start",
    "_start: start_cpu {boot}",
    "start_secondary: start_cpu {secondary}",
    ".section .text.exception, \"ax\"",
    ".balign 4096",
    "interrupt_entry:",
    "addi.d $sp, $sp, -144",
    "st.d $ra, $sp, 0",
    ".irp n,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20",
    "st.d $r\\n, $sp, 8 * (\\n - 3)",
    ".endr",
    "bl {interrupt}",
    "ld.d $ra, $sp, 0",
    ".irp n,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20",
    "ld.d $r\\n, $sp, 8 * (\\n - 3)",
    ".endr",
    "addi.d $sp, $sp, 144",
    "ertn",
    ".section .text, \"ax\"",
    stacks = sym STACKS,
    stack_bytes = const STACK_BYTES,
    boot = sym boot,
    secondary = sym secondary,
    interrupt = sym interrupt,
);

extern "C" fn boot() -> ! {
    kernel::boot_cpu()
}

extern "C" fn secondary() -> ! {
    kernel::secondary_cpu()
}

unsafe extern "C" {
    fn start_secondary();
}

/// Physical address at which another CPU starts.
pub fn secondary_entry() -> u64 {
    start_secondary as *const () as u64 & 0xffff_ffff_ffff
}

extern "C" fn interrupt() {
    let (cpu, estat): (usize, u64);
    // SAFETY: reads this CPU's index and why it was interrupted.
    unsafe { asm!("move {}, $tp", "csrrd {}, 0x5", out(reg) cpu, out(reg) estat) };
    assert!(estat >> 16 & 0x3f == 0, "exception: ESTAT is {estat:#x}");
    kernel::on_interrupt(cpu, estat & SWI0 != 0, estat & IPI != 0);
}

/// Lets SWI0 and IPI through on this CPU.
pub fn interrupts_on() {
    // SAFETY: their handlers are ready.
    unsafe {
        asm!("csrwr {}, 0x4", inout(reg) SWI0 | IPI => _);
        asm!("csrxchg {}, $t0, 0x0", inout(reg) 4_u64 => _, in("$t0") 4_u64);
    }
}

/// Waits for `ms` milliseconds, by the stable counter.
pub fn wait_ms(ms: u64) {
    let now = || {
        let value: u64;
        // SAFETY: reads a counter.
        unsafe { asm!("rdtime.d {}, $zero", out(reg) value, options(nomem, nostack)) };
        value
    };
    // Words 4 and 5: the crystal's frequency, and what it is multiplied and divided by.
    let (crystal, ratio) = (u64::from(Native.cpucfg(4)), u64::from(Native.cpucfg(5)));
    let per_second = crystal * (ratio & 0xffff) / (ratio >> 16).max(1);
    let start = now();
    while now() - start < per_second / 1000 * ms {
        core::hint::spin_loop();
    }
}

/// Does nothing but handle interrupts.
pub fn sleep() -> ! {
    loop {
        // SAFETY: waits for an interrupt.
        unsafe { asm!("idle 0") };
    }
}

/// Ends it all: the power controller of QEMU's `virt` machine, which
/// Loongvisor's VMs have too.
pub fn switch_off() -> ! {
    let power = 0x8000_0000_100e_001c as *mut u8;
    // SAFETY: a device's register.
    unsafe { power.write_volatile(0x34) };
    sleep()
}

/// The UART of the virtual machine.
pub struct Console;

impl fmt::Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let uart = 0x8000_0000_1fe0_01e0 as *mut u8;
        for byte in text.bytes() {
            // SAFETY: its line status and transmit registers.
            unsafe {
                while uart.add(5).read_volatile() & 0x20 == 0 {}
                uart.write_volatile(byte);
            }
        }
        Ok(())
    }
}

/// Prints a line.
macro_rules! println {
    ($($arg:tt)*) => {{
        use core::fmt::Write;
        // The console never fails.
        let _ = writeln!($crate::machine::Console, $($arg)*);
    }};
}
pub(crate) use println;
