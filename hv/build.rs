//! Names the flag under which the concurrent parts are built for loom.

fn main() {
    println!("cargo:rustc-check-cfg=cfg(loom)");
    println!("cargo:rerun-if-changed=build.rs");
}
