//! QEMU with this project's LVZ: source, addition, build.
//!
//! Two steps: `qemu-source` brings the pristine source, from the machine's Debian
//! mirror or from a given tarball, and `qemu` builds it with the addition of
//! boards/qemu-virt. A binary that is already built can be named instead.

mod addition;
mod binary;
mod build;
mod overlay;
mod source;
mod wheels;

pub use binary::Qemu;
pub use source::Source;
pub use wheels::Wheels;

use std::path::PathBuf;

use crate::context::Context;

/// Names a built qemu-system-loongarch64 to use instead of building one.
const GIVEN_BINARY: &str = "LOONGVISOR_QEMU";

/// Names the source to build: a `.dsc`, or a tarball of QEMU's own.
const GIVEN_SOURCE: &str = "LOONGVISOR_QEMU_TARBALL";

/// The program that is built.
const PROGRAM: &str = "qemu-system-loongarch64";

/// The emulator, once the step `qemu` is done.
pub fn program(cx: &Context) -> PathBuf {
    cx.cache.output("qemu").join(PROGRAM)
}

/// The path that the environment variable `name` holds, if it is set and not empty.
fn given(name: &str) -> Option<PathBuf> {
    std::env::var_os(name)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

/// Where boards/qemu-virt keeps the addition.
fn addition_folder(cx: &Context) -> PathBuf {
    cx.repo("boards/qemu-virt/qemu")
}
