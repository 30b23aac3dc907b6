//! A writer of initramfs archives: the same content gives the same bytes.
//!
//! Entries are sorted by path, owned by root, dated 0, and numbered in order, so an
//! archive depends on nothing but what was put into it. The kernel unpacks archives
//! that follow each other as one, later entries over earlier ones: [`Archive::bytes`]
//! is padded so that two of them can simply be concatenated.
//! Format: "newc", Linux's Documentation/driver-api/early-userspace/buffer-format.rst.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};

/// Every archive's length is a multiple of this many bytes, as cpio(1) pads it.
const BLOCK: usize = 512;

/// Type and permission bits of an entry, as in stat(2).
mod mode {
    pub const FOLDER: u32 = 0o040_755;
    pub const FILE: u32 = 0o100_644;
    pub const PROGRAM: u32 = 0o100_755;
    pub const CHARACTER_DEVICE: u32 = 0o020_600;
}

/// The content of an initramfs.
#[derive(Debug, Default, Clone)]
pub struct Archive {
    entries: BTreeMap<String, Entry>,
}

/// One entry: its mode, the device it stands for, its content.
#[derive(Debug, Clone)]
struct Entry {
    mode: u32,
    device: (u32, u32),
    content: Vec<u8>,
}

impl Archive {
    /// A plain file.
    ///
    /// # Errors
    /// `path` isn't a clean relative path, or is 4 GiB or larger, which the format
    /// can't express. The same holds for the other entries.
    pub fn file(&mut self, path: &str, content: impl Into<Vec<u8>>) -> Result<()> {
        self.add(path, mode::FILE, (0, 0), content.into())
    }

    /// A file that can be run.
    ///
    /// # Errors
    /// As [`Archive::file`].
    pub fn program(&mut self, path: &str, content: impl Into<Vec<u8>>) -> Result<()> {
        self.add(path, mode::PROGRAM, (0, 0), content.into())
    }

    /// An empty folder. Folders that other entries lie in are made by themselves.
    ///
    /// # Errors
    /// As [`Archive::file`].
    pub fn folder(&mut self, path: &str) -> Result<()> {
        self.add(path, mode::FOLDER, (0, 0), Vec::new())
    }

    /// A character device.
    ///
    /// # Errors
    /// As [`Archive::file`].
    pub fn character_device(&mut self, path: &str, major: u32, minor: u32) -> Result<()> {
        self.add(path, mode::CHARACTER_DEVICE, (major, minor), Vec::new())
    }

    /// Adds an entry and the folders above it.
    fn add(&mut self, path: &str, mode: u32, device: (u32, u32), content: Vec<u8>) -> Result<()> {
        let clean =
            path.split('/').all(|name| !matches!(name, "" | "." | "..")) && !path.contains('\0');
        ensure!(clean, "{path:?} is no clean relative path");
        ensure!(
            u32::try_from(content.len()).is_ok(),
            "{path} is too large for an initramfs"
        );
        for (end, _) in path.match_indices('/') {
            let folder = Entry {
                mode: mode::FOLDER,
                device: (0, 0),
                content: Vec::new(),
            };
            self.entries.entry(path[..end].to_owned()).or_insert(folder);
        }
        self.entries.insert(
            path.to_owned(),
            Entry {
                mode,
                device,
                content,
            },
        );
        Ok(())
    }

    /// The paths of all entries, sorted.
    #[cfg(test)]
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// The archive, ready for a boot loader, or to be put before or behind another.
    pub fn bytes(&self) -> Vec<u8> {
        let size: usize = self
            .entries
            .iter()
            .map(|(path, entry)| path.len() + entry.content.len() + 128)
            .sum();
        let mut bytes = Vec::with_capacity(size + 2 * BLOCK);
        // Inode 0 means "none"; numbering starts at 1.
        for (inode, (path, entry)) in (1..).zip(&self.entries) {
            append(&mut bytes, inode, path, entry);
        }
        let end = Entry {
            mode: 0,
            device: (0, 0),
            content: Vec::new(),
        };
        append(&mut bytes, 0, "TRAILER!!!", &end);
        bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
        bytes
    }
}

/// Appends one entry: the header's 13 numbers, the path, the content, each part padded
/// to 4 bytes.
fn append(bytes: &mut Vec<u8>, inode: u32, path: &str, entry: &Entry) {
    let links = if entry.mode == mode::FOLDER { 2 } else { 1 };
    let content = u32::try_from(entry.content.len()).unwrap_or(u32::MAX);
    let name = u32::try_from(path.len()).unwrap_or(u32::MAX - 1) + 1;
    let (major, minor) = entry.device;
    let (user, group, time, checksum) = (0, 0, 0, 0);
    let fields = [
        inode, entry.mode, user, group, links, time, content, 0, 0, major, minor, name, checksum,
    ];
    bytes.extend_from_slice(b"070701");
    for field in fields {
        bytes.extend_from_slice(format!("{field:08x}").as_bytes());
    }
    bytes.extend_from_slice(path.as_bytes());
    bytes.push(0);
    pad(bytes);
    bytes.extend_from_slice(&entry.content);
    pad(bytes);
}

/// Pads to a multiple of 4 bytes.
fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    fn sample(order: &[usize]) -> Archive {
        let mut archive = Archive::default();
        for step in order {
            match step {
                0 => archive.file("etc/motd", "hello\n"),
                1 => archive.program("bin/tool", vec![0x7f; 1001]),
                2 => archive.folder("tmp"),
                _ => archive.character_device("dev/console", 5, 1),
            }
            .unwrap();
        }
        archive
    }

    #[test]
    fn the_order_of_adding_makes_no_difference() {
        let bytes = sample(&[0, 1, 2, 3]).bytes();
        assert_eq!(bytes, sample(&[3, 2, 1, 0]).bytes());
        assert_eq!(bytes.len() % BLOCK, 0);
        assert!(bytes.starts_with(b"07070100000001000041ed0000000000000000"));
    }

    #[test]
    fn folders_come_before_what_lies_in_them() {
        let archive = sample(&[0, 3]);
        let paths: Vec<&str> = archive.paths().collect();
        assert_eq!(paths, ["dev", "dev/console", "etc", "etc/motd"]);
    }

    #[test]
    fn a_later_entry_replaces_an_earlier_one_but_a_folder_never_does() {
        let mut archive = sample(&[0]);
        archive.file("etc/motd", "new").unwrap();
        archive.file("etc/other", "").unwrap();
        assert_eq!(archive.entries["etc/motd"].content, b"new");
        assert_eq!(archive.paths().count(), 3);
    }

    #[test]
    fn paths_that_would_lie_outside_are_refused() {
        for path in ["", "/bin/sh", "../x", "a//b", "a/./b", "a/"] {
            assert!(Archive::default().file(path, "").is_err(), "{path:?}");
        }
    }

    #[test]
    fn cpio_reads_what_was_written() {
        let mut cpio = Command::new("cpio");
        let started = cpio
            .args(["-itv", "--quiet"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        // Not every machine has cpio, and nothing of ours needs it.
        let Ok(mut child) = started else { return };
        child
            .stdin
            .take()
            .unwrap()
            .write_all(&sample(&[0, 1, 2, 3]).bytes())
            .unwrap();
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        let wanted = [
            "drwxr-xr-x   2 root",
            "1001 Jan  1  1970 bin/tool",
            "root     root            0 Jan  1  1970 tmp",
            "5,   1 Jan  1  1970 dev/console",
        ];
        for line in wanted {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
