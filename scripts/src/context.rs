//! What every command of this tool works with.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::cache::Cache;
use crate::hint::failure;
use crate::progress::Progress;

/// The repository, the cache and the way to show progress.
#[derive(Debug, Clone)]
pub struct Context {
    repo: PathBuf,
    /// Where everything made by `setup` lies.
    pub cache: Cache,
    /// How to show progress.
    pub progress: Progress,
}

impl Context {
    /// The context of this call: the repository that this crate belongs to, and the
    /// cache that the environment names.
    ///
    /// # Errors
    /// The repository can't be found, or there is no usable cache folder.
    pub fn from_env() -> Result<Self> {
        let cache = Cache::from_env()?;
        Ok(Self {
            repo: find_repo()?,
            cache,
            progress: Progress::detect(),
        })
    }

    /// A context for tests: a cache in `cache`, the real repository, plain progress.
    ///
    /// # Panics
    /// The cache folder can't be made.
    #[cfg(test)]
    pub fn for_tests(cache: &Path) -> Self {
        let cache = Cache::at(cache.to_path_buf()).expect("a cache folder in a test's own folder");
        Self {
            repo: find_repo().expect("tests run in the repository"),
            cache,
            progress: Progress::plain(),
        }
    }

    /// `path`, relative to the root of the repository.
    pub fn repo(&self, path: impl AsRef<Path>) -> PathBuf {
        self.repo.join(path)
    }
}

/// The root of the repository. `cargo run` says where this crate is; the copy of it
/// that was compiled in serves when the program is started by hand.
fn find_repo() -> Result<PathBuf> {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR");
    let scripts = manifest.map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    let repo = scripts
        .parent()
        .context("this crate lies in a folder of the repository")?;
    if !repo.join("rust-toolchain.toml").is_file() {
        let what = format!("the repository is not at {}", repo.display());
        return Err(failure(what, "run `cargo xtask` inside the repository"));
    }
    Ok(repo.to_path_buf())
}
