//! A disk with one EFI system partition, as the bytes of a file that `dd` writes.
//!
//! Equal files give equal bytes: every identifier is made of the content, and every
//! file has the same date.
//!
//! Sources: UEFI Specification 2.10, sections 5.3 (GPT) and 13.3 (the FAT of a system
//! partition); Microsoft's FAT specification 1.03 for what makes a volume FAT32.

mod dots;

use std::io::{Cursor, Write};
use std::ops::Range;

use anyhow::{Context as _, Result, ensure};
use fatfs::{Date, DateTime, FatType, FileSystem, FormatVolumeOptions, FsOptions, Time};
use gptman::{GPT, GPTPartitionEntry};

use crate::hash::Inputs;

/// A file of the partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Its path, with `/` between folders and none in front.
    pub path: &'static str,
    /// What it holds.
    pub content: Vec<u8>,
}

/// Bytes of a sector: of every USB stick, and of most disks.
const SECTOR: u64 = 512;
/// Where the partition begins, and the boundary that it ends on.
const MIB: u64 = 1 << 20;
/// The type of an EFI system partition.
const SYSTEM_PARTITION: uefi_raw::Guid = uefi_raw::guid!("c12a7328-f81f-11d2-ba4b-00a0c93ec93b");
/// The partition's and the volume's name.
const NAME: &str = "LOONGVISOR";
/// Fewer clusters make a volume FAT16; some more than that, for readers that are off by
/// a few.
const LEAST_CLUSTERS: u64 = 65_525 + 100;
/// The largest clusters, in bytes, that are used; others are powers of two below it.
const LARGEST_CLUSTER: u64 = 4096;
/// FAT32 keeps a file's length in 32 bits.
const LARGEST_FILE: u64 = u32::MAX as u64;

/// The disk with `files`.
///
/// # Errors
/// A file is larger than FAT32 allows, or the path isn't one that it can hold.
pub fn image(files: &[File]) -> Result<Vec<u8>> {
    for file in files {
        let (path, size) = (file.path, file.content.len() as u64);
        ensure!(
            size <= LARGEST_FILE,
            "{path}: {} MiB, and a file of an EFI partition is below 4096 MiB",
            size / MIB
        );
    }
    let shape = Shape::of(files.iter().map(|file| file.content.len() as u64).sum());
    let identity = Identity::of(files);
    let bytes = usize::try_from(shape.disk()).context("the disk is too large")?;
    let mut disk = vec![0; bytes];
    write_table(&mut disk, &shape, &identity).context("the partition table can't be made")?;
    let range = shape.partition();
    let volume = disk
        .get_mut(range.start as usize..range.end as usize)
        .context("the partition lies in the disk")?;
    write_volume(volume, &shape, &identity, files)?;
    Ok(disk)
}

/// How large everything is, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    cluster: u64,
    volume: u64,
}

impl Shape {
    /// The smallest partition for so many bytes of files with some room left, and
    /// clusters as large as it allows.
    fn of(content: u64) -> Self {
        let mut cluster = SECTOR;
        while cluster < LARGEST_CLUSTER && content / (2 * cluster) > LEAST_CLUSTERS {
            cluster *= 2;
        }
        // Two tables of 4 bytes a cluster, folders and unfilled clusters, and space to
        // change a file in place.
        let wanted = content + content / 32 + 8 * MIB;
        // Clusters, their tables, and the sectors before them.
        let least = LEAST_CLUSTERS * (cluster + 8) + 64 * SECTOR;
        Self {
            cluster,
            volume: wanted.max(least).next_multiple_of(MIB),
        }
    }

    /// The partition, in the disk.
    fn partition(&self) -> Range<u64> {
        MIB..MIB + self.volume
    }

    /// The disk: the tables lie in a MiB before the partition and one behind it.
    fn disk(&self) -> u64 {
        self.volume + 2 * MIB
    }
}

/// What tells this disk from others, made of its content.
struct Identity {
    disk: [u8; 16],
    partition: [u8; 16],
    volume: u32,
}

impl Identity {
    fn of(files: &[File]) -> Self {
        let mut inputs = Inputs::default();
        for file in files {
            inputs.add(file.path, &file.content);
        }
        let digest = inputs.digest();
        let part = |at: usize| {
            let mut guid = [0; 16];
            for (to, from) in guid.iter_mut().zip(digest.iter().skip(at)) {
                *to = *from;
            }
            guid
        };
        let (disk, partition) = (part(0), part(16));
        let [a, b, c, d, ..] = disk;
        Self {
            disk: guid(disk),
            partition: guid(partition),
            volume: u32::from_le_bytes([a, b, c, d]),
        }
    }
}

/// `bytes` as a GUID of version 8 (RFC 9562): one that is made by a rule of our own.
fn guid(mut bytes: [u8; 16]) -> [u8; 16] {
    bytes[7] = bytes[7] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    bytes
}

fn write_table(disk: &mut [u8], shape: &Shape, identity: &Identity) -> Result<()> {
    let mut disk = Cursor::new(disk);
    let mut table = GPT::new_from(&mut disk, SECTOR, identity.disk)?;
    let range = shape.partition();
    table[1] = GPTPartitionEntry {
        partition_type_guid: SYSTEM_PARTITION.to_bytes(),
        unique_partition_guid: identity.partition,
        starting_lba: range.start / SECTOR,
        ending_lba: range.end / SECTOR - 1,
        attribute_bits: 0,
        partition_name: NAME.into(),
    };
    GPT::write_protective_mbr_into(&mut disk, SECTOR)?;
    table.write_into(&mut disk)?;
    Ok(())
}

/// Every file's date: FAT can't do without one.
#[derive(Debug)]
struct OneDate;

impl fatfs::TimeProvider for OneDate {
    fn get_current_date(&self) -> Date {
        let (year, month, day) = (2026, 1, 1);
        Date { year, month, day }
    }

    fn get_current_date_time(&self) -> DateTime {
        let (hour, min, sec, millis) = (0, 0, 0, 0);
        let date = self.get_current_date();
        let time = Time {
            hour,
            min,
            sec,
            millis,
        };
        DateTime { date, time }
    }
}

fn write_volume(
    volume: &mut [u8],
    shape: &Shape,
    identity: &Identity,
    files: &[File],
) -> Result<()> {
    let mut label = [b' '; 11];
    for (to, from) in label.iter_mut().zip(NAME.bytes()) {
        *to = from;
    }
    let options = FormatVolumeOptions::new()
        .fat_type(FatType::Fat32)
        .bytes_per_cluster(shape.cluster as u32)
        .volume_id(identity.volume)
        .volume_label(label);
    fatfs::format_volume(Cursor::new(&mut *volume), options).context("no FAT32 can be made")?;
    fill(volume, files)?;
    dots::mend(volume)
}

/// Writes `files` into a new volume.
fn fill(volume: &mut [u8], files: &[File]) -> Result<()> {
    let options = FsOptions::new().time_provider(&OneDate);
    let system = FileSystem::new(Cursor::new(volume), options)?;
    for file in files {
        let write = || -> std::io::Result<()> {
            let mut folder = system.root_dir();
            let mut parts = file.path.split('/').peekable();
            while let Some(part) = parts.next() {
                if parts.peek().is_some() {
                    folder = folder.create_dir(part)?;
                    continue;
                }
                let mut new = folder.create_file(part)?;
                new.write_all(&file.content)?;
                new.flush()?;
            }
            Ok(())
        };
        write().with_context(|| format!("{} can't be written into the image", file.path))?;
    }
    system.unmount().context("the volume can't be finished")
}

/// The file `path` of the disk's first partition, as firmware would read it.
///
/// # Errors
/// These bytes have no partition table, no FAT, or no such file.
pub fn read(disk: &[u8], path: &str) -> Result<Vec<u8>> {
    let mut cursor = Cursor::new(disk);
    let table = GPT::find_from(&mut cursor).context("no GUID partition table")?;
    let range = table.get_partition_byte_range(1)?;
    let volume = disk
        .get(usize::try_from(*range.start())?..=usize::try_from(*range.end())?)
        .context("its first partition ends behind it")?;
    // The library only takes volumes that it could write to.
    let volume = Cursor::new(volume.to_vec());
    let system =
        FileSystem::new(volume, FsOptions::new()).context("its first partition has no FAT")?;
    let mut content = Vec::new();
    let read = system
        .root_dir()
        .open_file(path)
        .and_then(|mut file| std::io::Read::read_to_end(&mut file, &mut content));
    read.with_context(|| format!("it has no file {path}"))?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(size: usize) -> Vec<File> {
        let content: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
        vec![
            File {
                path: "EFI/BOOT/BOOTLOONGARCH64.EFI",
                content: b"MZ".to_vec(),
            },
            File {
                path: "loongvisor/bundle",
                content,
            },
            File {
                path: "loongvisor/options",
                content: Vec::new(),
            },
        ]
    }

    #[test]
    fn what_was_written_is_read() {
        let files = files(3_000_001);
        let disk = image(&files).unwrap();
        for file in &files {
            assert!(
                read(&disk, file.path).unwrap() == file.content,
                "{}",
                file.path
            );
        }
        assert!(read(&disk, "loongvisor/nothing").is_err());
        assert!(read(&disk[..4096], "loongvisor/bundle").is_err());
    }

    #[test]
    fn equal_files_give_equal_bytes_and_others_another_identity() {
        let (one, two) = (
            image(&files(70_000)).unwrap(),
            image(&files(70_000)).unwrap(),
        );
        assert!(one == two);
        let other = image(&files(70_001)).unwrap();
        let identity = |disk: &[u8]| {
            let table = GPT::find_from(&mut Cursor::new(disk)).unwrap();
            (table.header.disk_guid, table[1].unique_partition_guid)
        };
        assert_ne!(identity(&one).0, identity(&other).0);
        assert_ne!(identity(&one).1, identity(&other).1);
        assert_ne!(identity(&one).0, identity(&one).1);
    }

    #[test]
    fn both_tables_name_one_system_partition() {
        let mut disk = image(&files(1000)).unwrap();
        let check = |disk: &[u8]| {
            let table = GPT::find_from(&mut Cursor::new(disk)).unwrap();
            assert_eq!(table[1].partition_type_guid, SYSTEM_PARTITION.to_bytes());
            assert_eq!(table[1].partition_name.as_str(), NAME);
            assert_eq!(table[1].starting_lba * SECTOR, MIB);
            assert!(table.iter().skip(1).all(|(_, entry)| entry.is_unused()));
        };
        check(&disk);
        assert_eq!(disk[510..512], [0x55, 0xaa]);
        disk[512..1024].fill(0);
        check(&disk);
    }

    #[test]
    fn a_volume_of_any_size_is_fat32() {
        for mib in [0, 1, 33, 64, 130, 260, 520, 3000, 4095] {
            let shape = Shape::of(mib * MIB);
            let clusters = (shape.volume - 64 * SECTOR) / (shape.cluster + 8);
            assert!(clusters >= LEAST_CLUSTERS, "{mib} MiB: {clusters} clusters");
            assert!(shape.volume > mib * MIB + mib * MIB / 64 + MIB, "{mib} MiB");
        }
    }
}
