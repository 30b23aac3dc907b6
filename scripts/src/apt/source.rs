//! Source packages through the private apt.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::{Apt, CHECK_NETWORK};
use crate::hint::Advise;
use crate::process;
use crate::step::Output;

/// One version of a source package in the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceVersion {
    /// The Debian version, with epoch and revision: `1:10.0.13+ds-0+deb13u1`.
    pub debian: String,
    /// The version of the program itself: `10.0.13`.
    pub upstream: String,
}

impl SourceVersion {
    /// Splits a Debian version (deb-version(7)). What is repacked for Debian carries a
    /// mark after the upstream version: `+ds`, `+dfsg`.
    pub fn parse(debian: &str) -> Self {
        let without_epoch = debian.split_once(':').map_or(debian, |(_, rest)| rest);
        let upstream = without_epoch
            .rsplit_once('-')
            .map_or(without_epoch, |(version, _)| version);
        let upstream = upstream.split(['+', '~']).next().unwrap_or(upstream);
        Self {
            debian: debian.to_owned(),
            upstream: upstream.to_owned(),
        }
    }
}

impl Apt {
    /// Fetches the source package `name` into `folder` without unpacking it, and
    /// returns its version and its `.dsc` file. `choose` picks one of the versions in
    /// the index.
    ///
    /// # Errors
    /// There is no network or no such package, `choose` takes none, or a file differs
    /// from its hash.
    pub fn fetch_source(
        &self,
        out: &mut Output,
        name: &str,
        folder: &Path,
        choose: impl Fn(&[SourceVersion]) -> Result<SourceVersion>,
    ) -> Result<(SourceVersion, PathBuf)> {
        self.with_index(out, |out| {
            let chosen = choose(&self.source_versions(name)?)?;
            out.task
                .doing(&format!("fetching the source of {name} {}", chosen.debian));
            let mut get = self.program("apt-get");
            get.args([
                "source",
                "--download-only",
                &format!("{name}={}", chosen.debian),
            ])
            .current_dir(folder);
            out.log
                .run(&mut get, |_| ())
                .with_context(|| {
                    format!(
                        "the source of {name} {} could not be fetched",
                        chosen.debian
                    )
                })
                .advise(CHECK_NETWORK)?;
            Ok((chosen, find_dsc(folder)?))
        })
    }

    /// The versions of the source package `name` in the index.
    fn source_versions(&self, name: &str) -> Result<Vec<SourceVersion>> {
        let printed =
            process::output(
                self.program("apt-cache")
                    .args(["showsrc", "--only-source", name]),
            )?;
        let versions = printed
            .lines()
            .filter_map(|line| line.strip_prefix("Version: "));
        Ok(versions
            .map(|version| SourceVersion::parse(version.trim()))
            .collect())
    }
}

/// The one `.dsc` file in `folder`.
///
/// # Errors
/// There is none.
fn find_dsc(folder: &Path) -> Result<PathBuf> {
    let files = crate::hash::files_below(folder)?;
    let mut found = files
        .into_iter()
        .filter(|path| path.extension().is_some_and(|end| end == "dsc"));
    found
        .next()
        .with_context(|| format!("there is no .dsc file in {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debian_versions_split() {
        let upstream = |debian| SourceVersion::parse(debian).upstream;
        assert_eq!(upstream("1:10.0.13+ds-0+deb13u1"), "10.0.13");
        assert_eq!(upstream("1:10.0.2+ds-2+deb13u1~bpo12+1"), "10.0.2");
        assert_eq!(upstream("7.2"), "7.2");
    }
}
