//! How a VM has fared: its time, its exits by reason, its calls.

use super::ticks_per_ms;
use crate::arch::cpu;
use crate::stats::{CALLED, Stats};
use crate::vm::{VcpuShared, Vm};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use guest_pv::abi::vendor::ExitReason;

/// It, in lines.
pub fn of(vm: &Vm) -> Vec<String> {
    let (now, age) = (cpu::ticks(), age(vm));
    let sum = |count: &dyn Fn(&Stats) -> u64| -> u64 {
        let each = vm.vcpus().iter().map(|vcpu| count(&vcpu.stats));
        each.fold(0, u64::wrapping_add)
    };
    let name = &vm.name;
    let rest = |vcpu: &VcpuShared| {
        let stats = &vcpu.stats;
        let sleeps = vcpu.postbox.asleep();
        let now_asleep = if sleeps {
            now.saturating_sub(stats.slept.get())
        } else {
            0
        };
        age.saturating_sub(stats.asleep.get() + now_asleep + stats.stolen.get())
    };
    let ran = milliseconds(vm.vcpus().iter().map(|vcpu| rest(vcpu)).sum());
    let stolen = milliseconds(sum(&|s| s.stolen.get()));
    let kicks = sum(&|s| s.kicks.get());
    let woken = sum(&|s| s.woken.get());
    let mut exits = String::new();
    for reason in ExitReason::ALL {
        add(&mut exits, reason.name(), sum(&|s| s.exits(reason)));
    }
    let mut calls = String::new();
    for (function, called) in CALLED {
        add(&mut calls, called, sum(&|s| s.calls(function).unwrap_or(0)));
    }
    Vec::from([
        format!(
            "VM {name} ran for {ran} ms, {stolen} ms more were stolen, \
             {kicks} physical IPIs stopped it and {woken} woke it"
        ),
        format!("VM {name}, exits:{exits}"),
        format!("VM {name}, calls:{calls}"),
    ])
}

/// How long ago it was made, in milliseconds.
pub fn age_ms(vm: &Vm) -> u64 {
    milliseconds(age(vm))
}

/// How long ago it was made, in ticks: its counter began then.
fn age(vm: &Vm) -> u64 {
    cpu::ticks().wrapping_add(vm.clock.offset)
}

fn add(text: &mut String, name: &str, count: u64) {
    if count > 0 {
        *text += &format!(" {name} {count}");
    }
}

fn milliseconds(ticks: u64) -> u64 {
    ticks / ticks_per_ms()
}
