//! Configuring and building QEMU in a tree that stays in the cache.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

use super::overlay;
use super::source::TREE;
use super::wheels::PYTHON;
use super::{PROGRAM, addition_folder};
use crate::cache::{make_folder, remove, write_atomically};
use crate::context::Context;
use crate::hash::Inputs;
use crate::hint::Advise;
use crate::process;
use crate::step::{Output, Stamp};

/// What is built: one target, without what a headless machine can do without.
pub const OPTIONS: [&str; 13] = [
    "--target-list=loongarch64-softmmu",
    "--without-default-features",
    "--enable-tcg",
    "--enable-fdt=system",
    "--enable-pixman",
    // Debian's loong64 kernels are zstd images.
    "--enable-zstd",
    "--enable-plugins",
    "--enable-trace-backends=log",
    "--disable-install-blobs",
    "--disable-docs",
    "--disable-werror",
    "--disable-debug-info",
    // Meson is beside the source: see the wheels.
    "--disable-download",
];

/// The folders of the build, which stay from one run to the next.
struct Tree {
    root: PathBuf,
    pristine: PathBuf,
}

/// Builds QEMU from the finished steps `qemu-source` and `wheels` and the addition;
/// returns the program.
///
/// # Errors
/// A patch doesn't apply, or the build fails.
pub fn build(cx: &Context, out: &mut Output) -> Result<PathBuf> {
    let pristine = cx.cache.output("qemu-source").join(TREE);
    let tree = Tree {
        root: cx.cache.kept("qemu")?,
        pristine,
    };
    tree.start(cx, out)?;
    let wheels = cx.cache.output("wheels");
    let overlay = tree.root.join("overlay");
    let paths = overlay::make(&addition_folder(cx), &tree.pristine, &wheels, &overlay, out)?;
    let record = tree.root.join("laid-over");
    let written = overlay::lay_over(&paths, &overlay, &tree.pristine, &tree.source(), &record)?;
    out.task
        .doing(&format!("{written} files of the source changed"));
    tree.configure(cx, out)?;
    tree.make(out)
}

impl Tree {
    fn source(&self) -> PathBuf {
        self.root.join("source")
    }

    fn build(&self) -> PathBuf {
        self.root.join("build")
    }

    /// Makes the source tree a copy of the pristine one, unless it is of the same source
    /// already.
    fn start(&self, cx: &Context, out: &mut Output) -> Result<()> {
        let source = Stamp::read(&cx.cache, "qemu-source").context("QEMU's source is not there")?;
        let record = self.root.join("copied-from");
        if fs::read_to_string(&record).is_ok_and(|copied| copied == source.result) {
            return Ok(());
        }
        out.task.doing("copying the source");
        for old in [
            &record,
            &self.source(),
            &self.build(),
            &self.root.join("laid-over"),
        ] {
            remove(old)?;
        }
        let mut copy = process::command("cp");
        out.log.run(
            copy.arg("-a").arg(&self.pristine).arg(self.source()),
            |_| (),
        )?;
        write_atomically(&record, source.result.as_bytes())
    }

    /// Runs configure, unless it has succeeded with these options here.
    fn configure(&self, cx: &Context, out: &mut Output) -> Result<()> {
        let mut wanted = Inputs::default();
        OPTIONS
            .iter()
            .for_each(|option| wanted.add("option", option));
        wanted.add("source", fs::read(self.root.join("copied-from"))?);
        wanted.add(
            "wheels",
            Stamp::read(&cx.cache, "wheels")
                .map(|stamp| stamp.inputs)
                .unwrap_or_default(),
        );
        let (wanted, record) = (wanted.finish(), self.root.join("configured"));
        let is_configured = fs::read_to_string(&record).is_ok_and(|done| done == wanted);
        if is_configured && self.build().join("build.ninja").is_file() {
            return Ok(());
        }
        remove(&record)?;
        remove(&self.build())?;
        make_folder(&self.build())?;
        out.task.doing("configuring");
        let mut configure = process::command(self.source().join("configure"));
        configure
            .args(OPTIONS)
            .arg(format!("--python={PYTHON}"))
            .current_dir(self.build());
        out.log
            .run(&mut configure, |_| ())
            .context("QEMU could not be configured")
            .advise(
                "look into the log that is named above; a missing package is the usual reason",
            )?;
        write_atomically(&record, wanted.as_bytes())
    }

    /// Runs ninja; returns the program.
    fn make(&self, out: &mut Output) -> Result<PathBuf> {
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        let mut ninja = process::command("ninja");
        ninja
            .arg("-C")
            .arg(self.build())
            .args(["-j", &jobs.to_string(), PROGRAM]);
        ninja.env("NINJA_STATUS", "[%f/%t] ");
        let (log, task) = (&out.log, &mut out.task);
        log.run(&mut ninja, |line| {
            if let Some((done, total, what)) = ninja_progress(line) {
                task.count(done, total, what);
            }
        })
        .context("QEMU could not be built")
        .advise("look into the log that is named above; running the same command again goes on where it stopped")?;
        Ok(self.build().join(PROGRAM))
    }
}

/// `(done, total, what)` of a line that ninja prints with our NINJA_STATUS.
fn ninja_progress(line: &str) -> Option<(u64, u64, &str)> {
    let (status, what) = line.strip_prefix('[')?.split_once("] ")?;
    let (done, total) = status.split_once('/')?;
    Some((done.parse().ok()?, total.parse().ok()?, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ninja_lines_give_progress() {
        let line = "[430/1432] Compiling C object libqemu.a.p/target_loongarch_cpu.c.o";
        assert_eq!(
            ninja_progress(line),
            Some((
                430,
                1432,
                "Compiling C object libqemu.a.p/target_loongarch_cpu.c.o"
            ))
        );
        assert_eq!(ninja_progress("ninja: no work to do."), None);
        assert_eq!(ninja_progress("[x/y] z"), None);
    }
}
