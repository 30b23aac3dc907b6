//! Links the guests for the bare machine with their linker script.

fn main() {
    let bare = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "none");
    if bare {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../linker/guest.ld");
        println!("cargo:rustc-link-arg-bins=-T{script}");
        println!("cargo:rerun-if-changed={script}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
