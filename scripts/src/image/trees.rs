//! Device trees for boards whose firmware has no usable one.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use hv::platform::fdt;

use crate::hint::Advise;
use crate::process;

/// The tree at `path` as firmware would give it: a source (`.dts`) is compiled. It is
/// read as the hypervisor reads it.
///
/// # Errors
/// It can't be read or compiled, or describes no machine; the error names the file.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    let blob = if path.extension().is_some_and(|kind| kind == "dts") {
        compile(path)
    } else {
        fs::read(path).map_err(Into::into)
    };
    let blob = blob.with_context(|| format!("{} can't be read", path.display()))?;
    let has_cpus = fdt::read(&blob).is_some_and(|machine| !machine.cpus.is_empty());
    ensure!(
        has_cpus,
        "{} is no device tree of a machine with CPUs",
        path.display()
    );
    Ok(blob)
}

/// Compiles the source at `path`; a warning counts as an error.
fn compile(path: &Path) -> Result<Vec<u8>> {
    let out = tempfile::NamedTempFile::new()?;
    let mut dtc = process::command("dtc");
    dtc.args(["-O", "dtb", "-o"]).arg(out.path()).arg(path);
    let ran = dtc.output().context("there is no dtc");
    let ran = ran.advise("apt-get install device-tree-compiler")?;
    let said = String::from_utf8_lossy(&ran.stderr);
    ensure!(ran.status.success() && said.is_empty(), "dtc says:\n{said}");
    Ok(fs::read(out.path())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hv::platform::machine::Console;

    fn boards(path: &str) -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../boards")
            .join(path)
    }

    #[test]
    fn the_3c5000_s_tree_says_what_the_hypervisor_looks_for() {
        let blob = read(&boards("3c5000/3c5000.dts")).unwrap();
        let machine = fdt::read(&blob).unwrap();
        let ids: Vec<u32> = machine.cpus.iter().map(|cpu| cpu.id).collect();
        assert_eq!(ids, (0..16).collect::<Vec<_>>());
        assert_eq!(machine.console, Console::At(0x1fe0_01e0));
        assert_eq!(machine.rtc, Some(0x100d_0100));
        let [bridge] = machine.pch_pics[..] else {
            panic!("{:?}", machine.pch_pics);
        };
        assert_eq!(bridge.get(), 0x1000_0000);
        let off = machine.power_off.unwrap();
        assert_eq!((off.register, off.width), (0x100d_0014, 4));
        assert_eq!((off.value, off.keep), (0x3c00, !0x3c00));
    }

    #[test]
    fn what_is_no_tree_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text, why) in [
            ("a.dtb", "\u{7f}ELF", "a.dtb is no device tree"),
            ("b.dts", "/dts-v1/; / { };", "b.dts is no device tree"),
            ("c.dts", "/dts-v1/; / {", "c.dts can't be read: dtc says"),
            (
                "d.dts",
                "/dts-v1/; / { a@1 { }; };",
                "d.dts can't be read: dtc says",
            ),
        ] {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            let found = format!("{:#}", read(&path).unwrap_err());
            assert!(found.contains(why), "{found}");
        }
        let none = format!("{:#}", read(&folder.path().join("none.dtb")).unwrap_err());
        assert!(none.contains("none.dtb can't be read"), "{none}");
    }
}
