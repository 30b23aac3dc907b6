//! The bundle: configurations and files, in one piece that any loader can
//! pass as an initrd.
//!
//! A header of 32 bytes (magic, version, number of files, length of it all,
//! CRC-32 of the table), a table of 64 bytes a file (name padded with zeros,
//! CRC-32, offset, length), and the files, each on a boundary of 16 bytes.
//! Numbers are little endian. The reader trusts none of it. A file that is
//! damaged is so alone: VMs that don't need it can start.

use crate::config::VmConfig;
use alloc::vec::Vec;

/// "LOONGVSR" in memory order.
const MAGIC: [u8; 8] = *b"LOONGVSR";
/// The format's version.
const VERSION: u32 = 2;
/// Bytes of the header.
const HEADER_BYTES: usize = 32;
/// Bytes of an entry of the table.
const ENTRY_BYTES: usize = 64;
/// Longest name, in bytes.
pub const MAX_NAME: usize = 44;
/// Where the rest of an entry lies in it: CRC-32, offset, length.
const FIELDS: [usize; 3] = [MAX_NAME, MAX_NAME + 4, MAX_NAME + 12];
/// Most files.
pub const MAX_FILES: usize = 256;
/// Boundary that a file begins on.
const ALIGN: usize = 16;

/// Why bytes aren't a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BundleError {
    /// They don't begin with the magic.
    NoBundle,
    /// The version isn't the one this hypervisor reads.
    Version(u32),
    /// They end before the bundle does.
    Truncated,
    /// The checksum of the table, or of a file, differs.
    Checksum,
    /// An entry of the table points outside, or its name isn't text.
    Entry(usize),
    /// More than [`MAX_FILES`] files, or a name longer than [`MAX_NAME`].
    TooLarge,
}

impl core::fmt::Display for BundleError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NoBundle => write!(f, "not a bundle"),
            Self::Version(found) => write!(f, "version {found}, not {VERSION}"),
            Self::Truncated => write!(f, "truncated"),
            Self::Checksum => write!(f, "bad checksum"),
            Self::Entry(index) => write!(f, "file {index} of the table is malformed"),
            Self::TooLarge => write!(f, "too many files, or too long a name"),
        }
    }
}

/// A file's bytes, if they are what was written.
pub type Content<'a> = Result<&'a [u8], BundleError>;

/// A bundle whose checksums and table have been checked.
#[derive(Clone, Debug)]
pub struct Bundle<'a> {
    files: Vec<(&'a str, Content<'a>)>,
}

impl<'a> Bundle<'a> {
    /// The bundle at the start of `bytes`; what follows it is ignored.
    ///
    /// # Errors
    /// See [`BundleError`].
    pub fn read(bytes: &'a [u8]) -> Result<Self, BundleError> {
        if !bytes.starts_with(&MAGIC) {
            return Err(BundleError::NoBundle);
        }
        let version = number(bytes, 8, 4).ok_or(BundleError::Truncated)? as u32;
        if version != VERSION {
            return Err(BundleError::Version(version));
        }
        let count = number(bytes, 12, 4).ok_or(BundleError::Truncated)? as usize;
        let length = number(bytes, 16, 8).ok_or(BundleError::Truncated)? as usize;
        let checksum = number(bytes, 24, 4).ok_or(BundleError::Truncated)? as u32;
        let whole = bytes.get(..length).ok_or(BundleError::Truncated)?;
        if count > MAX_FILES {
            return Err(BundleError::TooLarge);
        }
        let table = HEADER_BYTES..HEADER_BYTES + count * ENTRY_BYTES;
        if crc32(whole.get(table).ok_or(BundleError::Truncated)?) != checksum {
            return Err(BundleError::Checksum);
        }
        let entry = |index| entry(whole, index).ok_or(BundleError::Entry(index));
        let files = (0..count).map(entry).collect::<Result<_, _>>()?;
        Ok(Self { files })
    }

    /// The file called `name`, if there is one.
    #[must_use]
    pub fn file(&self, name: &str) -> Option<Content<'a>> {
        let mut files = self.files();
        files.find(|(n, _)| *n == name).map(|(_, file)| file)
    }

    /// Every file with its name, in the bundle's order.
    pub fn files(&self) -> impl Iterator<Item = (&'a str, Content<'a>)> + '_ {
        self.files.iter().copied()
    }

    /// The files that describe VMs: their names end in `.vm`.
    pub fn configurations(&self) -> impl Iterator<Item = (&'a str, Content<'a>)> + '_ {
        self.files().filter(|(name, _)| name.ends_with(".vm"))
    }

    /// Whether it is whole, or at least one VM could start all the same.
    #[must_use]
    pub fn is_of_use(&self) -> bool {
        let sound = |name: &str| !matches!(self.file(name), Some(Err(_)));
        let could_start = |text: &[u8]| {
            let config = core::str::from_utf8(text).map(VmConfig::read);
            let Ok(Ok(config)) = config else {
                return false;
            };
            sound(&config.kernel) && config.initramfs.is_none_or(|name| sound(&name))
        };
        let mut vms = self.configurations();
        self.files().all(|(_, file)| file.is_ok())
            || vms.any(|(_, text)| text.is_ok_and(could_start))
    }
}

/// A bundle of these files, for the host's tool.
///
/// # Errors
/// [`BundleError::TooLarge`].
pub fn write(files: &[(&str, &[u8])]) -> Result<Vec<u8>, BundleError> {
    if files.len() > MAX_FILES {
        return Err(BundleError::TooLarge);
    }
    let mut table = Vec::new();
    let mut data = Vec::new();
    let data_start = HEADER_BYTES + files.len() * ENTRY_BYTES;
    for (name, bytes) in files {
        if name.is_empty() || name.len() > MAX_NAME {
            return Err(BundleError::TooLarge);
        }
        let mut padded = [0; MAX_NAME];
        for (to, from) in padded.iter_mut().zip(name.bytes()) {
            *to = from;
        }
        table.extend(padded);
        table.extend(crc32(bytes).to_le_bytes());
        table.extend(((data_start + data.len()) as u64).to_le_bytes());
        table.extend((bytes.len() as u64).to_le_bytes());
        data.extend_from_slice(bytes);
        data.resize(data.len().next_multiple_of(ALIGN), 0);
    }
    let mut all = Vec::from(MAGIC);
    all.extend(VERSION.to_le_bytes());
    all.extend((files.len() as u32).to_le_bytes());
    all.extend(((data_start + data.len()) as u64).to_le_bytes());
    all.extend(crc32(&table).to_le_bytes());
    all.extend([0; 4]);
    all.append(&mut table);
    all.append(&mut data);
    Ok(all)
}

/// The little-endian number of `width` bytes at `offset`.
fn number(bytes: &[u8], offset: usize, width: usize) -> Option<u64> {
    let field = bytes.get(offset..offset.checked_add(width)?)?;
    Some(
        field
            .iter()
            .rev()
            .fold(0, |n, &byte| n << 8 | u64::from(byte)),
    )
}

fn entry(whole: &[u8], index: usize) -> Option<(&str, Content<'_>)> {
    let start = HEADER_BYTES + index * ENTRY_BYTES;
    let name = whole.get(start..start + MAX_NAME)?;
    let name = name.split(|&byte| byte == 0).next()?;
    let [checksum, offset, length] = FIELDS.map(|field| start + field);
    let offset = number(whole, offset, 8)?;
    let end = offset.checked_add(number(whole, length, 8)?)?;
    let bytes = whole.get(usize::try_from(offset).ok()?..usize::try_from(end).ok()?)?;
    let sound = number(whole, checksum, 4)? == u64::from(crc32(bytes));
    let content = sound.then_some(bytes).ok_or(BundleError::Checksum);
    Some((core::str::from_utf8(name).ok()?, content))
}

/// CRC-32 as in ISO 3309 and zlib.
#[must_use]
pub fn crc32(bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "loongarch64")]
    {
        let (words, rest) = bytes.as_chunks();
        if let Some(crc) = crate::arch::memory::crc32(u32::MAX, words) {
            return !crc_by_table(crc, rest);
        }
    }
    !crc_by_table(u32::MAX, bytes)
}

fn crc_by_table(crc: u32, bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = crc_table();
    let step = |crc: u32, &byte: &u8| TABLE[usize::from(crc as u8 ^ byte)] ^ crc >> 8;
    bytes.iter().fold(crc, step)
}

const fn crc_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = index as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 {
                0xedb8_8320 ^ crc >> 1
            } else {
                crc >> 1
            };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn two_files() -> Vec<u8> {
        write(&[("a.vm", b"name = a"), ("kernel", &[7; 100])]).unwrap()
    }

    #[test]
    fn what_was_written_is_read() {
        let bytes = two_files();
        let bundle = Bundle::read(&bytes).unwrap();
        assert_eq!(bundle.file("a.vm"), Some(Ok(b"name = a".as_slice())));
        assert_eq!(bundle.file("kernel"), Some(Ok([7; 100].as_slice())));
        assert_eq!(bundle.file("b.vm"), None);
        assert_eq!(bundle.files().count(), 2);
    }

    #[test]
    fn checksum_is_the_common_one() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn damage_is_named() {
        let good = two_files();
        let damaged = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            Bundle::read(&bytes).unwrap_err()
        };
        assert_eq!(Bundle::read(b"\x7fELF").unwrap_err(), BundleError::NoBundle);
        assert_eq!(
            Bundle::read(&good[..20]).unwrap_err(),
            BundleError::Truncated
        );
        let short = &good[..good.len() - 1];
        assert_eq!(Bundle::read(short).unwrap_err(), BundleError::Truncated);
        assert_eq!(damaged(8, 1), BundleError::Version(1));
        assert_eq!(damaged(HEADER_BYTES, b'x'), BundleError::Checksum);
        assert_eq!(damaged(13, 1), BundleError::TooLarge);
    }

    #[test]
    fn a_damaged_file_leaves_the_others() {
        let mut bytes = two_files();
        let place = bytes.iter().position(|&byte| byte == 7).unwrap();
        bytes[place + 99] ^= 1;
        let bundle = Bundle::read(&bytes).unwrap();
        assert_eq!(bundle.file("kernel"), Some(Err(BundleError::Checksum)));
        assert_eq!(bundle.file("a.vm"), Some(Ok(b"name = a".as_slice())));
    }

    #[test]
    fn damage_that_leaves_no_vm_makes_it_useless() {
        let vm = |kernel: &str| format!("name=a\nvcpus=1\nmemory=1M\nkernel={kernel}\n");
        let (a, b) = (vm("k"), vm("l"));
        let files = [
            ("a.vm", a.as_bytes()),
            ("b.vm", b.as_bytes()),
            ("k", b"kk"),
            ("l", b"ll"),
        ];
        let of_use = |damaged: &[&[u8]]| {
            let mut bytes = write(&files).unwrap();
            for file in damaged {
                let mut places = bytes.windows(file.len());
                let place = places.rposition(|window| window == *file).unwrap();
                bytes[place] ^= 1;
            }
            Bundle::read(&bytes).unwrap().is_of_use()
        };
        assert!(of_use(&[]) && of_use(&[b"kk"]) && of_use(&[a.as_bytes()]));
        assert!(!of_use(&[b"kk", b"ll"]) && !of_use(&[b"kk", b.as_bytes()]));
    }

    #[test]
    fn tables_that_point_outside_are_refused() {
        let mut bytes = two_files();
        let offset = HEADER_BYTES + FIELDS[1];
        bytes[offset..offset + 8].copy_from_slice(&u64::MAX.to_le_bytes());
        let table = HEADER_BYTES..HEADER_BYTES + 2 * ENTRY_BYTES;
        let checksum = crc32(&bytes[table]).to_le_bytes();
        bytes[24..28].copy_from_slice(&checksum);
        assert_eq!(Bundle::read(&bytes).unwrap_err(), BundleError::Entry(0));
    }

    #[test]
    fn too_much_is_refused() {
        let many = vec![("x", [].as_slice()); MAX_FILES + 1];
        assert_eq!(write(&many), Err(BundleError::TooLarge));
        let name = "n".repeat(MAX_NAME + 1);
        assert_eq!(write(&[(&name, &[])]), Err(BundleError::TooLarge));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 0..400), fix: bool,
        ) {
            if fix && bytes.len() > HEADER_BYTES {
                bytes[..8].copy_from_slice(&MAGIC);
                bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
                let length = bytes.len() as u64;
                let count = (length as usize - HEADER_BYTES) / ENTRY_BYTES;
                bytes[12..16].copy_from_slice(&(count as u32).to_le_bytes());
                bytes[16..24].copy_from_slice(&length.to_le_bytes());
                let checksum = crc32(&bytes[HEADER_BYTES..][..count * ENTRY_BYTES]);
                bytes[24..28].copy_from_slice(&checksum.to_le_bytes());
            }
            let _ = Bundle::read(&bytes);
        }
    }
}
