//! A kernel with IPIs, and not much else.
//!
//! It starts three more CPUs, sends an IPI to all of them a thousand times,
//! says how many arrived and what that cost, and switches the machine off. It
//! runs on four CPUs with ids 0 to 3, a UART, and at least 4 MiB of RAM: as a
//! VM of Loongvisor's or of Linux's KVM, with or without the paravirtual IPI,
//! and on QEMU's `virt` machine itself:
//!
//! ```text
//! cargo build --release -p guest-pv --example kernel --target loongarch64-unknown-none-softfloat
//! qemu-system-loongarch64 -M virt -cpu la464 -smp 4 -nographic -kernel …/release/examples/kernel
//! ```
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("this example runs on a LoongArch machine only");
}

#[cfg(target_os = "none")]
mod machine;

#[cfg(target_os = "none")]
mod kernel {
    use crate::machine::{self, println};
    use core::sync::atomic::{AtomicU32, Ordering};
    use guest_pv::abi::cpucfg::PvFeatures;
    use guest_pv::abi::hypercall::SEND_IPI;
    use guest_pv::cpu::{Cpu, PhysicalId};
    use guest_pv::cpu_set::CpuSet;
    use guest_pv::ipi::{Action, Ipi};
    use guest_pv::loongarch::Native;
    use guest_pv::{call, detect};

    /// A real kernel reads from the device tree how many there are.
    const COUNT: usize = machine::MAX_CPUS;
    const ROUNDS: u32 = 1000;
    /// The only action of this kernel.
    const PING: Action = Action::new(1).unwrap();

    static CPUS: [Cpu; COUNT] = [const { Cpu::new() }; COUNT];
    static FEATURES: AtomicU32 = AtomicU32::new(0);
    static STARTED: AtomicU32 = AtomicU32::new(0);
    static PINGS: AtomicU32 = AtomicU32::new(0);

    /// The kernel's IPIs: two words and a flag, made where they are needed.
    fn ipi() -> Ipi<'static, Native> {
        let features = PvFeatures::from_bits_retain(FEATURES.load(Ordering::Relaxed));
        Ipi::new(Native, features, &CPUS)
    }

    /// The first CPU arrives here.
    pub fn boot_cpu() -> ! {
        let features = detect::features(&Native);
        FEATURES.store(features.bits(), Ordering::Relaxed);
        for (id, cpu) in (0..).zip(&CPUS) {
            let id = PhysicalId::new(id).expect("a small number");
            cpu.set_id(id);
        }
        run_on_this_cpu();
        // All CPUs were switched on at once. One that isn't yet where it waits loses
        // what is sent to it; in a VM of KVM's, for good.
        machine::wait_ms(500);
        for cpu in 1..COUNT {
            while STARTED.load(Ordering::Acquire) <= cpu as u32 {
                // SAFETY: the CPU waits, and the entry is for CPUs that start. One
                // that has just started takes no notice.
                let started = unsafe { ipi().boot(cpu, machine::secondary_entry()) };
                started.expect("a CPU with an id");
                for _ in 0..1_000_000 {
                    if STARTED.load(Ordering::Acquire) > cpu as u32 {
                        break;
                    }
                    core::hint::spin_loop();
                }
            }
        }
        ping_all();
        finish();
    }

    /// Every other CPU arrives here.
    pub fn secondary_cpu() -> ! {
        run_on_this_cpu();
        machine::sleep()
    }

    fn run_on_this_cpu() {
        ipi().enable();
        STARTED.fetch_add(1, Ordering::Release);
        machine::interrupts_on();
    }

    fn ping_all() {
        let mut others = CpuSet::first(COUNT);
        others.remove(0);
        for round in 1..=ROUNDS {
            let sent = ipi().send_ipi_mask(&others, PING);
            sent.expect("CPUs with ids");
            wait_for(&PINGS, round * (COUNT as u32 - 1));
        }
    }

    /// SWI0 or a native IPI has come, or both.
    pub fn on_interrupt(cpu: usize, swi0: bool, native: bool) {
        let mut wanted = guest_pv::ipi::Actions::NONE;
        if swi0 {
            wanted = wanted.or(ipi().handle_swi0(cpu));
        }
        if native {
            wanted = wanted.or(ipi().handle_ipi(cpu));
        }
        if wanted.contains(PING) {
            PINGS.fetch_add(1, Ordering::Release);
        }
    }

    fn wait_for(counter: &AtomicU32, value: u32) {
        while counter.load(Ordering::Acquire) < value {
            core::hint::spin_loop();
        }
    }

    fn finish() -> ! {
        let (cpus, pings) = (COUNT - 1, PINGS.load(Ordering::Relaxed));
        println!("{pings} IPIs handled by {cpus} CPUs");
        match ipi().is_paravirtual() {
            false => println!("all were native"),
            true => match call::call_count(&Native, SEND_IPI) {
                Ok(calls) => println!("they took {calls} hypercalls"),
                Err(_) => println!("they were paravirtual"),
            },
        }
        machine::switch_off()
    }

    #[panic_handler]
    fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
        println!("{info}");
        machine::sleep()
    }
}
