//! A bare-metal conformance suite for LVZ, the LoongArch virtualization
//! extension.
//!
//! It runs without a hypervisor: it enters guest mode itself, with programs
//! of a few instructions, and looks at what came back. Each check is one
//! line, `PASS name` or `FAIL name: why`; the last line has the totals. What
//! is checked is what Linux's KVM relies on and, where that says nothing, the
//! decisions in boards/qemu-virt/README.md.
//!
//! QEMU loads it with `-kernel`; `-append` takes `mode=` (suite, list, bench,
//! vmstate, off), `seed=N`, `only=part-of-a-name` and `verbose=1`.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("lvz-suite runs on a bare LoongArch machine only");
}

#[cfg(target_os = "none")]
mod arch;
#[cfg(target_os = "none")]
mod bench;
#[cfg(target_os = "none")]
mod check;
#[cfg(target_os = "none")]
mod checks;
#[cfg(target_os = "none")]
mod guest;
#[cfg(target_os = "none")]
mod machine;

#[cfg(target_os = "none")]
use loongarch_isa::{csr_read as csrrd, gcsr_read as gcsrrd};
#[cfg(target_os = "none")]
use machine::{cmdline::Mode, cmdline::Options, power, smp};

/// CPU 0 arrives here; `command_line` is the physical address of QEMU's
/// `-append`.
#[cfg(target_os = "none")]
extern "C" fn suite_main(command_line: u64) -> ! {
    match Options::parse(smp::command_line(command_line)) {
        Ok(options) => act(&options),
        Err(word) => println!("FAIL command-line: unknown word {word}"),
    }
    power::off()
}

#[cfg(target_os = "none")]
fn act(options: &Options) {
    let cpus = smp::count();
    if options.mode == Mode::List {
        return checks::list(cpus);
    }
    smp::set_up_this_cpu();
    if options.mode == Mode::Bench {
        return bench::run();
    }
    smp::start(cpus);
    let checks = checks::for_mode(options.mode);
    check::run_all(checks, cpus, options);
}

#[cfg(target_os = "none")]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    println!("FAIL panic: cpu {}: {}", smp::this_cpu(), info);
    power::off()
}
