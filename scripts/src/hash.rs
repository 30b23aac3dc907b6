//! What a result depends on, as one hash.
//!
//! A step is skipped while the hash of its inputs is unchanged. Every item goes in
//! with its label and length, so that no two different lists of inputs look alike.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use sha2::{Digest, Sha256};

/// A running SHA-256 over labelled inputs.
#[derive(Default)]
pub struct Inputs {
    hash: Sha256,
}

impl Inputs {
    /// Adds `value` under `label`.
    pub fn add(&mut self, label: &str, value: impl AsRef<[u8]>) {
        for part in [label.as_bytes(), value.as_ref()] {
            self.hash.update((part.len() as u64).to_le_bytes());
            self.hash.update(part);
        }
    }

    /// Adds the content of the file `path` under `label`.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn add_file(&mut self, label: &str, path: &Path) -> Result<()> {
        let content = fs::read(path).with_context(|| format!("can't read {}", path.display()))?;
        self.add(label, content);
        Ok(())
    }

    /// Adds every file below `root`, by its path relative to `root` and its content. A
    /// folder that doesn't exist counts as an empty one.
    ///
    /// # Errors
    /// A folder or file in it can't be read.
    pub fn add_tree(&mut self, label: &str, root: &Path) -> Result<()> {
        for path in files_below(root)? {
            let relative = path.strip_prefix(root).unwrap_or(&path);
            self.add_file(&format!("{label}/{}", relative.display()), &path)?;
        }
        Ok(())
    }

    /// The hash so far, in hexadecimal.
    pub fn finish(self) -> String {
        hex(&self.digest())
    }

    /// The hash so far.
    pub fn digest(self) -> [u8; 32] {
        self.hash.finalize().into()
    }
}

/// The regular files below `root`, sorted; none if `root` doesn't exist.
///
/// # Errors
/// A folder can't be read.
pub fn files_below(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries.with_context(|| format!("can't read {}", folder.display()))?,
        };
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path)
            } else {
                found.push(path)
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The SHA-256 of the file `path`, in hexadecimal, read piece by piece.
///
/// # Errors
/// The file can't be read.
pub fn sha256_of_file(path: &Path) -> Result<String> {
    let open = || -> io::Result<String> {
        let mut file = File::open(path)?;
        let mut hash = HashWriter(Sha256::new());
        io::copy(&mut file, &mut hash)?;
        Ok(hex(&hash.0.finalize()))
    };
    open().with_context(|| format!("can't read {}", path.display()))
}

/// Lets `io::copy` feed a hash.
struct HashWriter(Sha256);

impl io::Write for HashWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// `bytes` in lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash_of(items: &[(&str, &str)]) -> String {
        let mut inputs = Inputs::default();
        items
            .iter()
            .for_each(|(label, value)| inputs.add(label, value));
        inputs.finish()
    }

    #[test]
    fn items_are_kept_apart() {
        assert_eq!(hash_of(&[("a", "bc")]), hash_of(&[("a", "bc")]));
        assert_ne!(hash_of(&[("a", "bc")]), hash_of(&[("ab", "c")]));
        assert_ne!(
            hash_of(&[("a", "b"), ("c", "d")]),
            hash_of(&[("a", "d"), ("c", "b")])
        );
    }

    #[test]
    fn a_tree_counts_names_and_contents() {
        let folder = tempfile::tempdir().unwrap();
        let tree = |label: &str| {
            let mut inputs = Inputs::default();
            inputs.add_tree(label, folder.path()).unwrap();
            inputs.finish()
        };
        let empty = tree("t");
        fs::create_dir(folder.path().join("sub")).unwrap();
        fs::write(folder.path().join("sub/one"), "1").unwrap();
        let one = tree("t");
        fs::rename(folder.path().join("sub/one"), folder.path().join("sub/two")).unwrap();
        let renamed = tree("t");
        fs::write(folder.path().join("sub/two"), "2").unwrap();
        let changed = tree("t");
        let mut all = vec![empty, one, renamed, changed];
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 4);
    }

    #[test]
    fn a_file_has_the_published_hash() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("abc");
        fs::write(&path, "abc").unwrap();
        // FIPS 180-2, appendix B.1.
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256_of_file(&path).unwrap(), expected);
    }
}
