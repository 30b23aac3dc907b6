//! The Debian mirror of this machine, from its own apt sources.
//!
//! Both formats of sources.list(5) are read: one-line `.list` files and deb822
//! `.sources` files. The first entry for a suite of Debian's own with the component
//! `main` gives the address; security archives don't count, since they hold no whole
//! suite. `LOONGVISOR_MIRROR` overrides it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::hint::failure;

/// Where the package debian-archive-keyring puts its keys, by Debian 12 and 13.
const KEYRINGS: [&str; 2] = [
    "/usr/share/keyrings/debian-archive-keyring.gpg",
    "/usr/share/keyrings/debian-archive-keyring.pgp",
];

/// Debian's suites, by code name and role, that share one archive.
const SUITES: [&str; 9] = [
    "bookworm",
    "trixie",
    "forky",
    "sid",
    "oldstable",
    "stable",
    "testing",
    "unstable",
    "duke",
];

/// The address of this machine's Debian mirror.
///
/// # Errors
/// No apt source of this machine names a Debian archive.
pub fn of_this_machine() -> Result<String> {
    if let Some(mirror) = std::env::var("LOONGVISOR_MIRROR")
        .ok()
        .filter(|value| !value.is_empty())
    {
        return Ok(mirror);
    }
    in_folder(Path::new("/etc/apt"))?.ok_or_else(|| {
        failure(
            "the apt sources of this machine name no Debian mirror",
            "add one to /etc/apt/sources.list, or set LOONGVISOR_MIRROR to its address",
        )
    })
}

/// The keyring that Debian's archives are signed with.
///
/// # Errors
/// It isn't installed.
pub fn keyring() -> Result<PathBuf> {
    let found = KEYRINGS
        .iter()
        .map(PathBuf::from)
        .find(|path| path.is_file());
    found.ok_or_else(|| {
        failure(
            "Debian's archive keyring is missing",
            "apt-get install debian-archive-keyring",
        )
    })
}

/// The first mirror in the sources below `folder`.
fn in_folder(folder: &Path) -> Result<Option<String>> {
    let mut files = vec![folder.join("sources.list")];
    files.extend(crate::hash::files_below(&folder.join("sources.list.d"))?);
    for path in files.iter().filter(|path| path.is_file()) {
        let text =
            fs::read_to_string(path).with_context(|| format!("can't read {}", path.display()))?;
        let found = match path.extension().and_then(|end| end.to_str()) {
            Some("list") => text.lines().find_map(in_line),
            Some("sources") => text.split("\n\n").find_map(in_stanza),
            _ => None,
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// The mirror of a one-line entry: `deb [options] uri suite component…`.
fn in_line(line: &str) -> Option<String> {
    let entry = line.trim().strip_prefix("deb ")?.trim_start();
    let rest = match entry.strip_prefix('[') {
        Some(options) => options.split_once(']')?.1,
        None => entry,
    };
    let mut words = rest.split_whitespace();
    let (uri, suite) = (words.next()?, words.next()?);
    (is_debian(suite) && words.any(|word| word == "main")).then(|| uri.to_owned())
}

/// The mirror of a deb822 stanza: `Types:`, `URIs:`, `Suites:` and `Components:`.
fn in_stanza(stanza: &str) -> Option<String> {
    let words = |key: &str| -> Vec<String> {
        let value = field(stanza, key).unwrap_or_default();
        value.split_whitespace().map(str::to_owned).collect()
    };
    let has = |key: &str, word: &str| words(key).iter().any(|found| found == word);
    let off = words("Enabled")
        .iter()
        .any(|word| word.eq_ignore_ascii_case("no"));
    let ours = words("Suites").iter().any(|suite| is_debian(suite));
    let fits = !off && ours && has("Types", "deb") && has("Components", "main");
    words("URIs").into_iter().next().filter(|_| fits)
}

/// The value of the field `key` of a deb822 stanza. Keys are in any case; a line that
/// starts with white space goes on with the field before; `#` starts a comment line.
fn field(stanza: &str, key: &str) -> Option<String> {
    let mut value: Option<String> = None;
    let mut inside = false;
    for line in stanza.lines().filter(|line| !line.starts_with('#')) {
        let more = match line.split_once(':') {
            _ if line.starts_with([' ', '\t']) => inside.then_some(line),
            Some((name, rest)) => {
                inside = name.trim().eq_ignore_ascii_case(key);
                inside.then_some(rest)
            }
            None => None,
        };
        if let Some(more) = more {
            let value = value.get_or_insert_default();
            value.push(' ');
            value.push_str(more.trim());
        }
    }
    value
}

/// Whether `suite` is one of Debian's own, and not of its security archive.
fn is_debian(suite: &str) -> bool {
    let base = suite.split('-').next().unwrap_or(suite);
    SUITES.contains(&base) && !suite.contains("security")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_entries() {
        let mirror = Some("http://mirror.test/debian".to_owned());
        assert_eq!(
            in_line("deb http://mirror.test/debian trixie main contrib"),
            mirror
        );
        assert_eq!(
            in_line("deb [arch=amd64 signed-by=/k.gpg] http://mirror.test/debian bookworm main"),
            mirror
        );
        assert_eq!(in_line("# deb http://mirror.test/debian trixie main"), None);
        assert_eq!(
            in_line("deb-src http://mirror.test/debian trixie main"),
            None
        );
        assert_eq!(
            in_line("deb http://mirror.test/debian-security trixie-security main"),
            None
        );
        assert_eq!(
            in_line("deb http://packages.test/apt cloud-sdk-bookworm main"),
            None
        );
    }

    #[test]
    fn stanzas() {
        let stanza = "Types: deb\n# a comment\nURIs: http://mirror.test/debian\nSuites: bookworm\n bookworm-updates\n\
                      Components: main\nSigned-By: /k.gpg\n";
        assert_eq!(
            in_stanza(stanza).as_deref(),
            Some("http://mirror.test/debian")
        );
        assert_eq!(in_stanza(&format!("{stanza}Enabled: no\n")), None);
        assert_eq!(in_stanza(&stanza.replace("deb\n", "deb-src\n")), None);
        assert_eq!(
            in_stanza(
                &stanza
                    .replace("bookworm-updates", "")
                    .replace("bookworm", "nodistro")
            ),
            None
        );
        assert_eq!(
            in_stanza(
                &stanza
                    .replace("bookworm-updates", "")
                    .replace("bookworm", "bookworm-security")
            ),
            None
        );
        assert_eq!(
            in_stanza(&stanza.to_uppercase().replace("DEB\n", "deb\n")),
            None,
            "values have a case"
        );
    }

    #[test]
    fn a_folder_of_sources_is_searched_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let parts = folder.path().join("sources.list.d");
        fs::create_dir(&parts).unwrap();
        assert_eq!(in_folder(folder.path()).unwrap(), None);
        fs::write(
            parts.join("z.sources"),
            "Types: deb\nURIs: http://z.test/\nSuites: sid\nComponents: main\n",
        )
        .unwrap();
        fs::write(
            parts.join("a.list.disabled"),
            "deb http://a.test/ sid main\n",
        )
        .unwrap();
        assert_eq!(
            in_folder(folder.path()).unwrap().as_deref(),
            Some("http://z.test/")
        );
        fs::write(
            folder.path().join("sources.list"),
            "deb http://one.test/ trixie main\n",
        )
        .unwrap();
        assert_eq!(
            in_folder(folder.path()).unwrap().as_deref(),
            Some("http://one.test/")
        );
    }
}
