//! Which versions of QEMU the addition fits.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use super::{GIVEN_SOURCE, addition_folder};
use crate::apt::SourceVersion;
use crate::context::Context;
use crate::hint::failure;

/// What addition.toml says.
#[derive(Debug, Deserialize)]
pub struct Addition {
    /// The versions of QEMU it was made for and tried with, oldest first.
    pub versions: Vec<String>,
    /// The series (`10.0`) whose other versions are taken with a warning.
    pub series: String,
}

/// How well a version of QEMU fits the addition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fit {
    /// Another series: the addition can't be expected to apply.
    No,
    /// Of the same series, but not tried.
    Untried,
    /// The addition was made for it.
    Yes,
}

impl Addition {
    /// Reads boards/qemu-virt/qemu/addition.toml.
    ///
    /// # Errors
    /// It can't be read.
    pub fn read(cx: &Context) -> Result<Self> {
        Self::read_from(&addition_folder(cx).join("addition.toml"))
    }

    fn read_from(path: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(path).with_context(|| format!("can't read {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("{} isn't understood", path.display()))
    }

    /// How well QEMU `version` fits.
    pub fn fit(&self, version: &str) -> Fit {
        let of_series = version
            .strip_prefix(&self.series)
            .is_some_and(|rest| rest.starts_with('.'));
        match (
            self.versions.iter().any(|known| known == version),
            of_series,
        ) {
            (true, _) => Fit::Yes,
            (false, true) => Fit::Untried,
            (false, false) => Fit::No,
        }
    }

    /// Refuses a version of another series; returns the warning to show for one that is
    /// only close.
    ///
    /// # Errors
    /// The version is of another series.
    pub fn accept(&self, version: &str) -> Result<Option<String>> {
        match self.fit(version) {
            Fit::Yes => Ok(None),
            Fit::Untried => Ok(Some(format!(
                "warning: QEMU {version} is close to, but not one of the versions the addition was made for ({})",
                self.versions.join(", ")
            ))),
            Fit::No => Err(self.refusal(&format!("QEMU {version}"))),
        }
    }

    /// The best of the versions in an index: one the addition was made for, else one of
    /// the series; of equals the highest.
    ///
    /// # Errors
    /// None is of the series.
    pub fn choose(&self, offered: &[SourceVersion]) -> Result<SourceVersion> {
        let best = offered
            .iter()
            .max_by_key(|version| (self.fit(&version.upstream), numbers(&version.upstream)));
        let fitting = best.filter(|version| self.fit(&version.upstream) != Fit::No);
        fitting.cloned().ok_or_else(|| {
            let names: Vec<&str> = offered
                .iter()
                .map(|version| version.upstream.as_str())
                .collect();
            self.refusal(&format!("what Debian offers ({})", names.join(", ")))
        })
    }

    fn refusal(&self, what: &str) -> anyhow::Error {
        let what = format!(
            "the LVZ addition was made for QEMU {} and not for {what}",
            self.versions.join(", ")
        );
        failure(
            what,
            format!(
                "name the source of a QEMU {}.x by {GIVEN_SOURCE}=<.dsc or tarball>",
                self.series
            ),
        )
    }
}

/// The numbers of a version, for comparing.
fn numbers(version: &str) -> Vec<u64> {
    version
        .split('.')
        .map(|part| part.parse().unwrap_or(0))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addition() -> Addition {
        toml::from_str("versions = [\"10.0.2\", \"10.0.13\"]\nseries = \"10.0\"").unwrap()
    }

    fn offered(versions: &[&str]) -> Vec<SourceVersion> {
        versions
            .iter()
            .map(|version| SourceVersion::parse(version))
            .collect()
    }

    #[test]
    fn versions_fit_by_list_and_series() {
        let addition = addition();
        assert_eq!(addition.fit("10.0.13"), Fit::Yes);
        assert_eq!(addition.fit("10.0.9"), Fit::Untried);
        assert_eq!(addition.fit("10.1.0"), Fit::No);
        assert_eq!(addition.fit("10.01"), Fit::No);
        assert!(addition.accept("10.0.13").unwrap().is_none());
        assert!(
            addition
                .accept("10.0.14")
                .unwrap()
                .unwrap()
                .contains("10.0.14")
        );
        let text = crate::hint::report(&addition.accept("11.1.0").unwrap_err());
        assert!(
            text.contains("made for QEMU 10.0.2, 10.0.13 and not for QEMU 11.1.0"),
            "{text}"
        );
    }

    #[test]
    fn the_best_offer_is_a_known_one_then_the_highest_of_the_series() {
        let choose = |versions: &[&str]| {
            addition()
                .choose(&offered(versions))
                .map(|chosen| chosen.debian)
        };
        assert_eq!(
            choose(&["1:10.0.2+ds-2~bpo12+1", "1:10.0.13+ds-0+deb13u1"]).unwrap(),
            "1:10.0.13+ds-0+deb13u1"
        );
        assert_eq!(
            choose(&["1:10.0.14+ds-1", "1:10.0.2+ds-2", "1:11.1.0+ds-1"]).unwrap(),
            "1:10.0.2+ds-2"
        );
        assert_eq!(
            choose(&["1:10.0.9+ds-1", "1:10.0.14+ds-1"]).unwrap(),
            "1:10.0.14+ds-1"
        );
        assert!(choose(&["1:11.1.0+ds-1"]).is_err());
        assert!(choose(&[]).is_err());
    }

    #[test]
    fn the_repository_has_a_readable_addition() {
        let folder = tempfile::tempdir().unwrap();
        let addition = Addition::read(&Context::for_tests(folder.path())).unwrap();
        assert!(
            addition
                .versions
                .iter()
                .all(|version| addition.fit(version) == Fit::Yes)
        );
        assert!(!addition.versions.is_empty());
    }
}
