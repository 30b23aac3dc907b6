//! The first two entries of each folder, as they should be.
//!
//! fatfs 0.3 gives "." and ".." a long name each, which the format forbids, and lets
//! the ".." of a folder in the root name the root's cluster, where it must say 0.
//! Firmware doesn't mind; other systems offer to repair the stick.
//!
//! Source: Microsoft's FAT specification 1.03, "FAT Directory Structure".

use anyhow::{Context as _, Result, ensure};

/// Bytes of an entry of a folder.
const ENTRY: usize = 32;
/// Offset of an entry's attributes, and two of their values.
const ATTRIBUTES: usize = 11;
const LONG_NAME: u8 = 0x0f;
const FOLDER: u8 = 0x10;
/// Offsets of the halves of an entry's first cluster.
const CLUSTER_HIGH: usize = 20;
const CLUSTER_LOW: usize = 26;
/// First byte of an entry that is free, and of one behind which all are.
const FREE: u8 = 0xe5;
const END: u8 = 0;
/// A cluster's entry in the table, from this value on: no other follows.
const LAST: u32 = 0x0fff_fff8;

/// A FAT32 volume's layout, from its first sector.
struct Layout {
    table: usize,
    data: usize,
    cluster: usize,
    root: u32,
}

/// Mends every folder of `volume`, none larger than a cluster.
///
/// # Errors
/// It isn't a volume as fatfs writes it.
pub fn mend(volume: &mut [u8]) -> Result<()> {
    let layout = Layout::of(volume).context("a volume without a first sector")?;
    let mut folders = vec![layout.root];
    while let Some(cluster) = folders.pop() {
        let entries = layout.folder(volume, cluster)?;
        let inner: Vec<u32> = subfolders(entries).collect();
        for &folder in &inner {
            let parent = if cluster == layout.root { 0 } else { cluster };
            mend_one(layout.folder(volume, folder)?, parent)?;
        }
        folders.extend(inner);
    }
    Ok(())
}

impl Layout {
    fn of(volume: &[u8]) -> Option<Self> {
        let sector = usize::from(half(volume, 11)?);
        let table = usize::from(half(volume, 14)?) * sector;
        let tables = usize::from(*volume.get(16)?) * word(volume, 36)? as usize * sector;
        Some(Self {
            table,
            data: table + tables,
            cluster: usize::from(*volume.get(13)?) * sector,
            root: word(volume, 44)?,
        })
    }

    /// The entries of the folder in `cluster`.
    fn folder<'a>(&self, volume: &'a mut [u8], cluster: u32) -> Result<&'a mut [u8]> {
        let next = word(volume, self.table + 4 * cluster as usize);
        ensure!(
            next.is_some_and(|next| next >= LAST),
            "a folder larger than a cluster"
        );
        let number = cluster
            .checked_sub(2)
            .context("a folder without a cluster")?;
        let start = self.data + number as usize * self.cluster;
        let bytes = volume.get_mut(start..start + self.cluster);
        bytes.context("a folder outside of the volume")
    }
}

/// Makes the four first entries of a folder, two of them long names, the two that they
/// should be.
fn mend_one(folder: &mut [u8], parent: u32) -> Result<()> {
    let (entries, _) = folder.as_chunks_mut::<ENTRY>();
    let [long, dot, long_2, dots, ..] = entries else {
        anyhow::bail!("a folder of less than four entries")
    };
    let is_as_known = [&*long, &*long_2]
        .iter()
        .all(|entry| entry[ATTRIBUTES] == LONG_NAME)
        && dot.starts_with(b".          ")
        && dots.starts_with(b"..         ");
    ensure!(
        is_as_known,
        "a folder that doesn't begin as fatfs 0.3 begins it"
    );
    let [a, b, c, d] = parent.to_le_bytes();
    dots[CLUSTER_LOW..CLUSTER_LOW + 2].copy_from_slice(&[a, b]);
    dots[CLUSTER_HIGH..CLUSTER_HIGH + 2].copy_from_slice(&[c, d]);
    (*long, *dot) = (*dot, *dots);
    for entry in [long_2, dots] {
        *entry = [0; ENTRY];
        entry[0] = FREE;
    }
    Ok(())
}

/// The clusters of the folders in the folder with these `entries`.
fn subfolders(entries: &[u8]) -> impl Iterator<Item = u32> {
    let (entries, _) = entries.as_chunks::<ENTRY>();
    let used = entries.iter().take_while(|entry| entry[0] != END);
    let named = used.filter(|entry| entry[0] != FREE && entry[0] != b'.');
    let folders = named.filter(|entry| entry[ATTRIBUTES] & (FOLDER | LONG_NAME) == FOLDER);
    folders.filter_map(|entry| {
        let (high, low) = (half(entry, CLUSTER_HIGH)?, half(entry, CLUSTER_LOW)?);
        Some(u32::from(high) << 16 | u32::from(low))
    })
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fatfs_writes_is_mended_and_nothing_else_taken_for_it() {
        let entry = |name: &[u8], attributes: u8, cluster: u8| {
            let mut entry = [0; ENTRY];
            entry[..11].fill(b' ');
            entry[..name.len()].copy_from_slice(name);
            entry[ATTRIBUTES] = attributes;
            entry[CLUSTER_LOW] = cluster;
            entry
        };
        let long = entry(b"A.", LONG_NAME, 0);
        let (dot, dots, file) = (
            entry(b".", FOLDER, 9),
            entry(b"..", FOLDER, 2),
            entry(b"X", 0, 7),
        );
        let mut folder = [long, dot, long, dots, file].concat();
        mend_one(&mut folder, 0).unwrap();
        assert_eq!(folder[..ENTRY], dot);
        assert_eq!(folder[ENTRY..2 * ENTRY], entry(b"..", FOLDER, 0));
        assert!(folder[2 * ENTRY] == FREE && folder[3 * ENTRY] == FREE);
        assert_eq!(folder[4 * ENTRY..], file);
        assert!(mend_one(&mut folder, 0).is_err());
    }
}
