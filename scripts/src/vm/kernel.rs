//! A VM's kernel: what it is in, what it is, whether it is whole.

use std::io::Read;

use anyhow::{Context as _, Result, ensure};
use hv::boot::linux::Image;
use object::{Architecture, Object, ObjectSegment};

use crate::guest::zboot;

/// What gzip files begin with.
const GZIP: &[u8] = &[0x1f, 0x8b];
/// What zstd files begin with.
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// What ELF files begin with.
const ELF: &[u8] = b"\x7fELF";

/// The kernel in `file`, ready to be loaded: an ELF or a Linux image for LoongArch,
/// unpacked where it was compressed.
///
/// # Errors
/// It is something else, or damaged.
pub fn prepare(file: Vec<u8>) -> Result<Vec<u8>> {
    let kernel = unpack(file)?;
    if kernel.starts_with(ELF) {
        check_elf(&kernel)?;
    } else {
        Image::parse(&kernel).map_err(|error| anyhow::anyhow!("{error}"))?;
    }
    Ok(kernel)
}

/// Whether `kernel`, which has been prepared, is a Linux image.
pub fn is_linux(kernel: &[u8]) -> bool {
    !kernel.starts_with(ELF)
}

fn unpack(file: Vec<u8>) -> Result<Vec<u8>> {
    let mut inner = Vec::new();
    if file.starts_with(GZIP) {
        let read = flate2::read::GzDecoder::new(file.as_slice()).read_to_end(&mut inner);
        read.context("it can't be unpacked (gzip)")?;
    } else if file.starts_with(ZSTD) {
        let mut decoder = ruzstd::decoding::StreamingDecoder::new(file.as_slice())?;
        let read = decoder.read_to_end(&mut inner);
        read.context("it can't be unpacked (zstd)")?;
    } else {
        inner = file;
    }
    if zboot::is_zboot(&inner) {
        return zboot::unpack(&inner);
    }
    Ok(inner)
}

fn check_elf(kernel: &[u8]) -> Result<()> {
    let file = object::File::parse(kernel).context("damaged, or no ELF that can be read")?;
    ensure!(
        file.architecture() == Architecture::LoongArch64,
        "an ELF for {:?}, not for LoongArch64",
        file.architecture()
    );
    for segment in file.segments() {
        let (offset, bytes) = segment.file_range();
        let end = offset.checked_add(bytes);
        ensure!(
            bytes == 0 || end.is_some_and(|end| end <= kernel.len() as u64),
            "truncated"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn why(file: &[u8]) -> String {
        format!("{:#}", prepare(file.to_vec()).unwrap_err())
    }

    /// An ELF header for `machine`, with one segment of `bytes` bytes at its end.
    fn elf(machine: u16, bytes: u64) -> Vec<u8> {
        let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0".to_vec();
        file.extend(machine.to_le_bytes());
        file.extend([1, 0, 0, 0]);
        for value in [0x4000u64, 64, 0] {
            file.extend(value.to_le_bytes());
        }
        file.extend([0; 4]);
        for value in [64u16, 56, 1, 0, 0, 0] {
            file.extend(value.to_le_bytes());
        }
        file.extend([1, 0, 0, 0, 7, 0, 0, 0]);
        for value in [120, 0x4000, 0x4000, bytes, bytes, 16] {
            file.extend(value.to_le_bytes());
        }
        file.extend(b"guest");
        file
    }

    #[test]
    fn compressed_kernels_are_unpacked() {
        let kernel = elf(258, 5);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&kernel).unwrap();
        assert_eq!(prepare(gzip.finish().unwrap()).unwrap(), kernel);
        let level = ruzstd::encoding::CompressionLevel::Fastest;
        let zstd = ruzstd::encoding::compress_to_vec(kernel.as_slice(), level);
        assert_eq!(prepare(zstd).unwrap(), kernel);
        assert_eq!(prepare(kernel.clone()).unwrap(), kernel);
    }

    #[test]
    fn zeros_have_no_place_in_the_file() {
        let mut file = elf(258, 0);
        file[72..80].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(prepare(file.clone()).unwrap(), file);
    }

    #[test]
    fn other_files_are_refused() {
        assert!(why(&elf(62, 5)).contains("X86_64"), "{}", why(&elf(62, 5)));
        assert_eq!(why(&elf(258, 6)), "truncated");
        assert!(why(&elf(258, 5)[..70]).contains("damaged"));
        assert!(why(b"#!/bin/sh").contains("neither"));
        assert!(why(&[0x1f, 0x8b, 8, 0]).contains("gzip"));
        assert!(why(b"MZ").contains("truncated"));
    }
}
