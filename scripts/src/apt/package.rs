//! Packages as apt names them, and their files.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::cache::make_folder;
use crate::hash::sha256_of_file;
use crate::process;

/// A package as apt resolved it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version, with the epoch.
    pub version: String,
    /// Its file in the cache.
    pub file: PathBuf,
    /// The file's SHA-256 in hexadecimal, as the signed index gives it.
    pub sha256: String,
}

impl Package {
    /// The package of a line that `apt-get download --print-uris` prints:
    /// `'uri' name_version_arch.deb size SHA256:hash`. Its file belongs into `folder`.
    ///
    /// # Errors
    /// The line is another one, or has no SHA-256.
    pub fn from_line(line: &str, folder: &Path) -> Result<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_uri, file, _size, hash] = words[..] else {
            bail!("apt-get printed a line that isn't understood: {line}");
        };
        let sha256 = hash
            .strip_prefix("SHA256:")
            .with_context(|| format!("no SHA-256 in: {line}"))?;
        let exact = exact_name(line).with_context(|| format!("no version in: {line}"))?;
        let (name, version) = exact
            .split_once('=')
            .context("an exact name has a version")?;
        Ok(Self {
            name: name.to_owned(),
            version: version.to_owned(),
            file: folder.join(file),
            sha256: sha256.to_owned(),
        })
    }

    /// Whether its file is in the cache and is what the signed index says.
    pub fn is_complete(&self) -> bool {
        self.file.is_file() && sha256_of_file(&self.file).is_ok_and(|hash| hash == self.sha256)
    }

    /// Unpacks its files into `folder`, which is made if it doesn't exist. Nothing of
    /// the package is run.
    ///
    /// # Errors
    /// The folder can't be written, or the file is damaged.
    pub fn extract(&self, folder: &Path) -> Result<()> {
        make_folder(folder)?;
        process::output(
            process::command("dpkg")
                .arg("-x")
                .arg(&self.file)
                .arg(folder),
        )?;
        Ok(())
    }
}

/// `name version (hash)` of all `packages`, sorted: what later steps should see of them.
pub fn summary(packages: &[Package]) -> String {
    let mut lines: Vec<String> = packages
        .iter()
        .map(|p| format!("{} {} ({})", p.name, p.version, &p.sha256[..12]))
        .collect();
    lines.sort();
    lines.join(", ")
}

/// `name=version` from a line that apt-get prints with `--print-uris`: its second word
/// is `name_version_arch.deb`, with the epoch's colon as `%3a`.
pub fn exact_name(line: &str) -> Option<String> {
    let mut words = line.strip_prefix('\'')?.split_whitespace();
    let mut parts = words.nth(1)?.strip_suffix(".deb")?.split('_');
    let (name, version) = (parts.next()?, parts.next()?);
    Some(format!("{name}={}", version.replace("%3a", ":")))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_line_of_apt_gives_name_and_version() {
        let line = "'http://mirror/pool/libtraceevent1_1.9.0-2_loong64.deb' \
                    libtraceevent1_1%3a1.9.0-2_loong64.deb 62912 MD5Sum:8b65";
        assert_eq!(
            exact_name(line).as_deref(),
            Some("libtraceevent1=1:1.9.0-2")
        );
        assert_eq!(
            exact_name("The following packages will be installed:"),
            None
        );
    }

    #[test]
    fn a_package_line_needs_a_sha256() {
        let line = "'http://mirror/p_1.0_all.deb' p_1.0_all.deb 3 SHA256:ab";
        let package = Package::from_line(line, Path::new("/d")).unwrap();
        assert_eq!(
            (package.file, package.sha256.as_str()),
            ("/d/p_1.0_all.deb".into(), "ab")
        );
        for other in [
            line.replace("SHA256", "MD5Sum"),
            "Err: something else".to_owned(),
        ] {
            assert!(Package::from_line(&other, Path::new("/d")).is_err());
        }
    }

    #[test]
    fn a_damaged_file_is_not_complete() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("p.deb");
        fs::write(&file, "abc").unwrap();
        let sha256 = sha256_of_file(&file).unwrap();
        let package = Package {
            name: "p".into(),
            version: "1".into(),
            file,
            sha256,
        };
        assert!(package.is_complete());
        fs::write(&package.file, "ab").unwrap();
        assert!(!package.is_complete());
        fs::remove_file(&package.file).unwrap();
        assert!(!package.is_complete());
    }
}
