//! The cache folder: everything `setup` makes, outside the repository.
//!
//! `$LOONGVISOR_CACHE`, else `$XDG_CACHE_HOME/loongvisor`, else
//! `~/.cache/loongvisor` (XDG Base Directory Specification). It may be deleted at any
//! time; the next `setup` makes it anew.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::hint::{Advise, failure};

/// What an unfinished folder's name has between the step's and the process's.
const UNFINISHED: &str = ".unfinished-";

/// The cache folder and the layout inside it.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// The cache folder that the environment names; it is made if it doesn't exist.
    ///
    /// # Errors
    /// No home folder is known, or the folder can't be made.
    pub fn from_env() -> Result<Self> {
        let root = choose(|name| env::var_os(name)).ok_or_else(|| {
            failure(
                "no cache folder: HOME is not set",
                "set LOONGVISOR_CACHE to a folder to use",
            )
        })?;
        Self::at(root)
    }

    /// The cache folder `root`; it is made if it doesn't exist.
    ///
    /// # Errors
    /// The folder can't be made.
    pub fn at(root: PathBuf) -> Result<Self> {
        let cache = Self {
            root: std::path::absolute(root)?,
        };
        make_folder(&cache.root)
            .advise("set LOONGVISOR_CACHE to a folder you may write to")
            .context("the cache folder can't be used")?;
        Ok(cache)
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What the finished step `name` has made.
    pub fn output(&self, name: &str) -> PathBuf {
        self.root.join("steps").join(name)
    }

    /// Where the step `name` builds its output until it is complete: a sibling of
    /// [`Cache::output`], so that a rename puts it there in one go. It is this process's
    /// own: a program that outlives a killed process can't write into it.
    pub fn unfinished(&self, name: &str) -> PathBuf {
        let (folder, own) = (self.root.join("steps"), std::process::id());
        folder.join(format!("{name}{UNFINISHED}{own}"))
    }

    /// Removes what interrupted runs of the step `name` have left, as far as possible: a
    /// program that one of them has started may still be writing.
    pub fn remove_unfinished(&self, name: &str) {
        let prefix = format!("{name}{UNFINISHED}");
        let entries = fs::read_dir(self.root.join("steps")).into_iter().flatten();
        for entry in entries.filter_map(Result::ok) {
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                // The next run tries again.
                let _ = remove(&entry.path());
            }
        }
    }

    /// The record that says that the step `name` is complete, and of which inputs.
    pub fn stamp(&self, name: &str) -> PathBuf {
        self.root.join("stamps").join(format!("{name}.json"))
    }

    /// What the last run of the commands of the step `name` printed.
    pub fn log(&self, name: &str) -> PathBuf {
        self.root.join("logs").join(format!("{name}.log"))
    }

    /// A folder that stays from one run of a step to the next (a build tree, downloaded
    /// packages). It is made if it doesn't exist. Nothing in it may be taken for
    /// complete on the word of its being there.
    ///
    /// # Errors
    /// The folder can't be made.
    pub fn kept(&self, name: &str) -> Result<PathBuf> {
        let folder = self.root.join("kept").join(name);
        make_folder(&folder)?;
        Ok(folder)
    }
}

/// Makes `folder` and its parents, if they don't exist.
///
/// # Errors
/// One of them can't be made; the error names the folder.
pub fn make_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)
        .with_context(|| format!("can't make the folder {}", folder.display()))
}

/// Removes `path`, a file or a folder with all that it holds, if it exists.
///
/// # Errors
/// It exists and can't be removed; the error names it.
pub fn remove(path: &Path) -> Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Err(_) => return Ok(()),
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
    };
    removed.with_context(|| format!("can't remove {}", path.display()))
}

/// Writes `content` to `path` so that `path` is either as before or complete, also
/// after a power loss: through a file beside it, synced and renamed.
///
/// # Errors
/// The file can't be written; the error names it.
pub fn write_atomically(path: &Path, content: &[u8]) -> Result<()> {
    let folder = path.parent().context("a file needs a folder")?;
    make_folder(folder)?;
    let new = path.with_extension("new");
    let write = || -> std::io::Result<()> {
        fs::write(&new, content)?;
        fs::File::open(&new)?.sync_all()?;
        fs::rename(&new, path)?;
        fs::File::open(folder)?.sync_all()
    };
    write().with_context(|| format!("can't write {}", path.display()))
}

/// The cache folder by the rule in the module's head; empty variables count as unset.
fn choose(var: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name: &str| {
        var(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    set("LOONGVISOR_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|folder| folder.join("loongvisor")))
        .or_else(|| set("HOME").map(|home| home.join(".cache/loongvisor")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(vars: &[(&str, &str)]) -> Option<PathBuf> {
        choose(|name| {
            let found = vars.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn the_environment_chooses_the_folder() {
        let home = ("HOME", "/h");
        assert_eq!(chosen(&[home]), Some("/h/.cache/loongvisor".into()));
        let xdg = ("XDG_CACHE_HOME", "/x");
        assert_eq!(chosen(&[home, xdg]), Some("/x/loongvisor".into()));
        assert_eq!(
            chosen(&[home, xdg, ("LOONGVISOR_CACHE", "/l")]),
            Some("/l".into())
        );
        assert_eq!(
            chosen(&[home, ("LOONGVISOR_CACHE", "")]),
            Some("/h/.cache/loongvisor".into())
        );
        assert_eq!(chosen(&[]), None);
    }

    #[test]
    fn an_atomic_write_replaces_the_file_and_leaves_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sub/file.json");
        write_atomically(&path, b"one").unwrap();
        write_atomically(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn removing_what_is_absent_is_fine() {
        let folder = tempfile::tempdir().unwrap();
        remove(&folder.path().join("nothing")).unwrap();
    }
}
