//! The addition as files: what differs between QEMU's source and ours.
//!
//! The build tree stays in the cache, and only files whose content changes are written
//! to it, so that a change of the addition rebuilds what depends on it and nothing
//! else. For that the patches are applied beside the tree, to copies of the pristine
//! files they touch; a patch that fails leaves the tree as it was.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::cache::{make_folder, remove, write_atomically};
use crate::hash::files_below;
use crate::hint::Advise;
use crate::process;
use crate::step::Output;

/// Makes in `overlay` every file that the addition in `addition` adds to or changes in
/// the `pristine` tree; `wheels` go where QEMU's configure looks for them. Returns the
/// paths, relative to the tree, that differ from it; one that isn't in `overlay` is
/// removed by a patch.
///
/// # Errors
/// A patch doesn't apply, or a file can't be read or written.
pub fn make(
    addition: &Path,
    pristine: &Path,
    wheels: &Path,
    overlay: &Path,
    out: &mut Output,
) -> Result<BTreeSet<PathBuf>> {
    remove(overlay)?;
    make_folder(overlay)?;
    let mut paths = copy_tree(wheels, overlay, "python/wheels")?;
    paths.extend(copy_tree(&addition.join("files"), overlay, "")?);
    let patches = series(addition)?;
    for patch in &patches {
        for path in touched_by(&fs::read_to_string(patch)?)? {
            copy_if_absent(&pristine.join(&path), &overlay.join(&path))?;
            paths.insert(path);
        }
    }
    let hint = "if you changed a patch, make it anew against this QEMU; \
                else use a version of QEMU that addition.toml names";
    for (done, patch) in patches.iter().enumerate() {
        let name = patch
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        out.task.count(
            done as u64,
            patches.len() as u64,
            &format!("patches applied; {name}"),
        );
        apply(patch, overlay, out)
            .with_context(|| format!("the patch {name} doesn't apply"))
            .advise(hint)?;
    }
    Ok(paths)
}

/// The patches in the order of `patches/series`; comments and empty lines are skipped.
fn series(addition: &Path) -> Result<Vec<PathBuf>> {
    let folder = addition.join("patches");
    let text = match fs::read_to_string(folder.join("series")) {
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        text => text.context("can't read the series of patches")?,
    };
    let names = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or(line).trim());
    Ok(names
        .filter(|name| !name.is_empty())
        .map(|name| folder.join(name))
        .collect())
}

/// Applies `patch` to the files in `overlay`, with no line of context missing.
fn apply(patch: &Path, overlay: &Path, out: &mut Output) -> Result<()> {
    let mut apply = process::command("patch");
    apply.args([
        "-p1",
        "--fuzz=0",
        "--batch",
        "--forward",
        "--no-backup-if-mismatch",
        "-d",
    ]);
    out.log.run(apply.arg(overlay).arg("-i").arg(patch), |_| ())
}

/// The files, relative to the tree, that a patch in unified format changes, makes or
/// removes.
///
/// # Errors
/// One lies outside the tree.
fn touched_by(patch: &str) -> Result<BTreeSet<PathBuf>> {
    let mut paths = BTreeSet::new();
    for line in patch.lines() {
        let marks = ["--- a/", "+++ b/", "rename from ", "rename to "];
        let Some(name) = marks.iter().find_map(|mark| line.strip_prefix(mark)) else {
            continue;
        };
        let path = PathBuf::from(name.split('\t').next().unwrap_or(name).trim_end());
        if path
            .components()
            .any(|part| !matches!(part, Component::Normal(_)))
        {
            bail!("a patch names a file outside the source tree: {name}");
        }
        paths.insert(path);
    }
    Ok(paths)
}

/// Copies `from` to `to`, unless there is no `from`, or there is a `to`.
fn copy_if_absent(from: &Path, to: &Path) -> Result<()> {
    if to.exists() || !from.is_file() {
        return Ok(());
    }
    make_folder(to.parent().context("a file has a folder")?)?;
    fs::copy(from, to).with_context(|| format!("can't copy {}", from.display()))?;
    Ok(())
}

/// Copies every file below `from` to the same place below `root`/`folder`; returns
/// their paths, relative to `root`.
fn copy_tree(from: &Path, root: &Path, folder: &str) -> Result<BTreeSet<PathBuf>> {
    let mut paths = BTreeSet::new();
    for source in files_below(from)? {
        let path = Path::new(folder).join(source.strip_prefix(from)?);
        copy_if_absent(&source, &root.join(&path))?;
        paths.insert(path);
    }
    Ok(paths)
}

/// Makes `tree`, once a copy of `pristine`, differ from it in `paths` alone, which are
/// as in `overlay`; writes only what isn't so yet. `record` names the paths that
/// differed before; returns how many files were written or removed.
///
/// The record is written first and names the old and the new paths, so that an
/// interrupted call is made good by the next.
///
/// # Errors
/// A file can't be read or written.
pub fn lay_over(
    paths: &BTreeSet<PathBuf>,
    overlay: &Path,
    pristine: &Path,
    tree: &Path,
    record: &Path,
) -> Result<usize> {
    let old: BTreeSet<PathBuf> = fs::read_to_string(record)
        .unwrap_or_default()
        .lines()
        .map(PathBuf::from)
        .collect();
    let all: BTreeSet<PathBuf> = old.union(paths).cloned().collect();
    write_record(record, &all)?;
    let mut written = 0;
    for path in &all {
        let source = if paths.contains(path) {
            overlay
        } else {
            pristine
        }
        .join(path);
        let wanted = source.is_file().then_some(source.as_path());
        written += usize::from(make_equal(wanted, &tree.join(path))?);
    }
    write_record(record, paths)?;
    Ok(written)
}

fn write_record(record: &Path, paths: &BTreeSet<PathBuf>) -> Result<()> {
    let lines: String = paths
        .iter()
        .map(|path| format!("{}\n", path.display()))
        .collect();
    write_atomically(record, lines.as_bytes())
}

/// Gives `path` the content and mode of `wanted`, or removes it for none; returns
/// whether it was different. An equal file keeps its time.
fn make_equal(wanted: Option<&Path>, path: &Path) -> Result<bool> {
    let present = fs::read(path).ok();
    let content = wanted.map(fs::read).transpose()?;
    if present == content {
        return Ok(false);
    }
    remove(path)?;
    if let Some(wanted) = wanted {
        make_folder(path.parent().context("a file has a folder")?)?;
        fs::copy(wanted, path).with_context(|| format!("can't write {}", path.display()))?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests;
