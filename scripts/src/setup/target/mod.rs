//! The standard library for the bare-metal LoongArch target.
//!
//! rustup is asked first. Where it can't serve the target, `core`, `alloc` and
//! `compiler_builtins` are built from Debian's package rust-src of the very same
//! version and put into the toolchain, after which a plain stable `cargo build` works.

mod source;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::cache::{make_folder, remove};
use crate::context::Context;
use crate::hash::Inputs;
use crate::process;
use crate::step::{Output, Step};

/// The target of everything that runs on the bare machine, as rust-toolchain.toml
/// names it: soft float, since FP and vector registers belong to the guest.
pub const TARGET: &str = "loongarch64-unknown-none-softfloat";

/// A program that needs all three libraries, and `memcpy` from the last.
const PROBE: &str = include_str!("probe_program.rs");
/// How the probe is compiled: as the release profile of the workspace does, for which
/// libraries must have more in them than for linking alone.
const LINK_TIME: &str = "-Clto=fat";

/// In a target's folder that this step has made: the compiler it was made for.
const MADE_FOR: &str = "made-for-rustc";

/// The step `target`.
pub struct Target;

/// The compiler this repository uses.
pub(super) struct Compiler {
    /// All that `rustc -vV` says.
    pub identity: String,
    /// Its version, `1.95.0`.
    pub version: String,
    /// Its commit, in hexadecimal.
    pub commit: String,
    /// `lib/rustlib/<target>` in its sysroot.
    pub folder: PathBuf,
}

impl Compiler {
    /// Asks rustc.
    ///
    /// # Errors
    /// There is no rustc, or it says something unexpected.
    pub fn find(cx: &Context) -> Result<Self> {
        let identity = process::output(rustc(cx).arg("-vV"))?;
        let sysroot = process::output(rustc(cx).args(["--print", "sysroot"]))?;
        let field = |key: &str| {
            let value = identity
                .lines()
                .find_map(|line| line.strip_prefix(key))
                .map(str::trim);
            value
                .map(str::to_owned)
                .with_context(|| format!("`rustc -vV` doesn't say {key}"))
        };
        let (version, commit) = (field("release:")?, field("commit-hash:")?);
        let folder = Path::new(sysroot.trim()).join("lib/rustlib").join(TARGET);
        Ok(Self {
            version,
            commit,
            folder,
            identity,
        })
    }

    /// Whether the target's folder is there and belongs to this compiler: either it
    /// came with the toolchain, or this step made it for the same one.
    fn has_target(&self) -> bool {
        let made_for = fs::read_to_string(self.folder.join(MADE_FOR));
        self.folder.join("lib").is_dir()
            && made_for.map_or(true, |made_for| made_for == self.identity)
    }
}

impl Step for Target {
    fn name(&self) -> &'static str {
        "target"
    }

    fn about(&self) -> &'static str {
        "Rust's libraries for the bare-metal LoongArch target"
    }

    fn inputs(&self, cx: &Context, inputs: &mut Inputs) -> Result<()> {
        let compiler = Compiler::find(cx)?;
        inputs.add("rustc", compiler.identity);
        inputs.add("probe", PROBE);
        inputs.add("probe's flag", LINK_TIME);
        inputs.add("folder", compiler.folder.as_os_str().as_encoded_bytes());
        Ok(())
    }

    fn disk_mib(&self) -> u64 {
        600
    }

    fn intact(&self, cx: &Context) -> Result<bool> {
        Ok(Compiler::find(cx)?.has_target())
    }

    fn run(&self, cx: &Context, out: &mut Output) -> Result<()> {
        let compiler = Compiler::find(cx)?;
        let origin = provide(cx, &compiler, out)?;
        out.set_result(format!("{TARGET} for rustc {} {origin}", compiler.version));
        Ok(())
    }
}

/// Brings the target by the first way that works, and says which.
fn provide(cx: &Context, compiler: &Compiler, out: &mut Output) -> Result<&'static str> {
    if compiler.has_target() && probe(cx, out).is_ok() {
        return Ok("was there");
    }
    out.task.doing("asking rustup");
    let mut add = process::command("rustup");
    add.args(["target", "add", TARGET])
        .current_dir(cx.repo(""))
        .env("RUST_BACKTRACE", "0");
    let origin = match out.log.run(&mut add, |_| ()) {
        Ok(()) => "from rustup",
        Err(_) => {
            out.task
                .line("rustup can't serve the target; building it from Debian's rust-src");
            let made = source::build(cx, compiler, out)?;
            install(compiler, &made)?;
            remove(&out.folder().join(source::WORK))?;
            "built from Debian's rust-src"
        }
    };
    probe(cx, out).context("the target's libraries are there but don't work")?;
    Ok(origin)
}

/// Compiles and links the probe.
fn probe(cx: &Context, out: &mut Output) -> Result<()> {
    let (source, program) = (
        out.folder().join("probe.rs"),
        out.folder().join("probe.elf"),
    );
    fs::write(&source, PROBE)?;
    let mut compile = rustc(cx);
    compile
        .args([
            "--edition=2024",
            "-Copt-level=1",
            LINK_TIME,
            "--target",
            TARGET,
        ])
        .arg("-o")
        .arg(&program)
        .arg(&source);
    out.log.run(&mut compile, |_| ())?;
    if !program.is_file() {
        bail!("rustc made no {}", program.display());
    }
    Ok(())
}

/// Puts the libraries in `made` into the toolchain: complete, or not at all.
fn install(compiler: &Compiler, made: &[PathBuf]) -> Result<()> {
    let new = compiler.folder.with_extension("loongvisor-new");
    remove(&new)?;
    make_folder(&new.join("lib"))?;
    for library in made {
        let name = library.file_name().context("a library has a name")?;
        fs::copy(library, new.join("lib").join(name))?;
    }
    fs::write(new.join(MADE_FOR), &compiler.identity)?;
    process::output(process::command("sync").arg("-f").arg(&new))?;
    remove(&compiler.folder)?;
    fs::rename(&new, &compiler.folder).with_context(|| {
        format!(
            "can't put the target's libraries into {}",
            compiler.folder.display()
        )
    })
}

/// A call of the repository's rustc.
fn rustc(cx: &Context) -> Command {
    let mut rustc = process::command("rustc");
    rustc.current_dir(cx.repo(""));
    rustc
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiler(folder: &Path, identity: &str) -> Compiler {
        let (identity, folder) = (identity.to_owned(), folder.join("rustlib").join(TARGET));
        Compiler {
            identity,
            version: String::new(),
            commit: String::new(),
            folder,
        }
    }

    #[test]
    fn a_folder_made_for_another_compiler_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("libcore-1.rlib");
        fs::write(&library, "x").unwrap();
        let old = compiler(folder.path(), "rustc 1");
        assert!(!old.has_target());
        install(&old, std::slice::from_ref(&library)).unwrap();
        assert!(old.has_target());
        let new = compiler(folder.path(), "rustc 2");
        assert!(!new.has_target());
        install(&new, &[library]).unwrap();
        assert!(new.has_target() && !old.has_target());
    }

    #[test]
    fn a_folder_that_came_with_the_toolchain_counts() {
        let folder = tempfile::tempdir().unwrap();
        let compiler = compiler(folder.path(), "rustc 1");
        make_folder(&compiler.folder.join("lib")).unwrap();
        assert!(compiler.has_target());
    }
}
