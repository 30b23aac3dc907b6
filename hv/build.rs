//! Names the flag under which the concurrent parts are built for loom, and
//! links the binary for the bare machine with its linker script.

/// What makes an image of it that runs wherever it is loaded: a table of the
/// words that hold an address of its own. The compiler's code is the same as
/// without (it takes every address relative to the program counter), so the
/// table is all that it costs; constants are in it too, hence `notext`.
const RELOCATABLE: [&str; 4] = [
    "-pie",
    "--no-dynamic-linker",
    "--pack-dyn-relocs=relr",
    "-znotext",
];

fn main() {
    println!("cargo:rustc-check-cfg=cfg(loom)");
    println!("cargo:rerun-if-changed=build.rs");
    let bare = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "none");
    if bare {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../linker/hv.ld");
        println!("cargo:rustc-link-arg-bins=-T{script}");
        println!("cargo:rerun-if-changed={script}");
        for argument in RELOCATABLE {
            println!("cargo:rustc-link-arg-bins={argument}");
        }
    }
}
