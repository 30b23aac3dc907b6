//! Bare-metal guests that test the hypervisor from inside.
//!
//! One program, started by the hypervisor as a VM's kernel; its command line
//! says what to do (`mode=`: check, the default, ipi, moves, exits, work, parked,
//! reset, evil, or bench with `what=`), on which physical ids
//! (`ids=0,1,…`) and which checks (`only=`part of a name). Each check prints
//! a PASS or FAIL line; then the VM stops itself.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("test-guests runs in a VM on a LoongArch machine only");
}

#[cfg(target_os = "none")]
mod bench;
#[cfg(target_os = "none")]
mod check;
#[cfg(target_os = "none")]
mod checks;
#[cfg(target_os = "none")]
mod evil;
#[cfg(target_os = "none")]
mod exits;
#[cfg(target_os = "none")]
mod moves;
#[cfg(target_os = "none")]
mod parked;
#[cfg(target_os = "none")]
mod pv;
#[cfg(target_os = "none")]
mod reset;
#[cfg(target_os = "none")]
mod runtime;
#[cfg(target_os = "none")]
mod work;

#[cfg(target_os = "none")]
use loongarch_isa::csr_read as csrrd;
#[cfg(target_os = "none")]
use runtime::{call, cmdline::Options, smp, trap};

/// The boot vCPU arrives here.
#[cfg(target_os = "none")]
extern "C" fn guest_main(one: u64, command_line: u64, system_table: u64) -> ! {
    trap::set_up(0);
    checks::start::keep([one, system_table]);
    let options = Options::new(command_line);
    let clean = reset::first_look();
    smp::start(&options);
    let code = match options.text("mode") {
        "evil" => evil::run(&options),
        "bench" => {
            bench::run(options.text("what"));
            0
        }
        "ipi" => pv::run(&options),
        "parked" => parked::run(&options),
        "reset" => reset::run(clean),
        "moves" => moves::run(&options),
        "exits" => exits::run(&options),
        "work" => work::run(),
        "" | "check" => check::run_all(&checks::ALL, options.text("only"), smp::count()),
        other => {
            println!("FAIL guest: no mode {other}");
            1
        }
    };
    call::stop(code)
}

#[cfg(target_os = "none")]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    println!("FAIL guest: {info}");
    call::stop(1)
}
