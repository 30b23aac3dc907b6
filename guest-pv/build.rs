//! Names the flag under which the crate is built for loom, and links the
//! example kernel for the bare machine with its linker script.

fn main() {
    println!("cargo:rustc-check-cfg=cfg(loom)");
    println!("cargo:rerun-if-changed=build.rs");
    let bare = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "none");
    if bare {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/kernel/kernel.ld");
        println!("cargo:rustc-link-arg-examples=-T{script}");
        println!("cargo:rerun-if-changed={script}");
    }
}
