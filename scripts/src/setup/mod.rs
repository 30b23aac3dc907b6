//! `cargo xtask setup`: the steps, and the one list they stand in.

pub mod firmware;
mod packages;
pub mod qemu;
pub mod target;

use anyhow::Result;

use crate::context::Context;
use crate::guest;
use crate::step::{self, Step};

/// All steps; a new one is a line here.
pub fn steps() -> Vec<Box<dyn Step>> {
    vec![
        Box::new(packages::Packages),
        Box::new(target::Target),
        Box::new(qemu::Wheels),
        Box::new(qemu::Source),
        Box::new(qemu::Qemu),
        Box::new(guest::packages::Packages),
        Box::new(guest::images::Images),
        Box::new(guest::newest::NewestKernel),
        Box::new(firmware::FIRMWARE),
        Box::new(firmware::GRUB),
        Box::new(firmware::SYSTEMD_BOOT),
    ]
}

/// Makes sure that the steps `names`, and all that they need, are done.
///
/// # Errors
/// A step fails, or there is no step of such a name.
pub fn ensure(cx: &Context, names: &[&str]) -> Result<()> {
    step::ensure(cx, &steps(), names)
}

/// Does the steps `names`, or all of them if none is named.
///
/// # Errors
/// A step fails, or there is no step of such a name.
pub fn run(cx: &Context, names: &[String]) -> Result<()> {
    let steps = steps();
    let wanted = steps.iter().filter(|step| step.is_wanted());
    let all: Vec<&str> = wanted.map(|step| step.name()).collect();
    let named: Vec<&str> = names.iter().map(String::as_str).collect();
    step::ensure(cx, &steps, if named.is_empty() { &all } else { &named })
}
