//! Debian's kernel file, opened up.
//!
//! `vmlinuz` is an "EFI zboot" image: a small EFI program that carries the compressed
//! kernel. A boot loader without EFI needs what is inside: a PE image with Linux's own
//! header for direct booting. Unpacking it here, once, also spares every emulated
//! machine the work.
//! Facts: Linux's drivers/firmware/efi/libstub/zboot-header.S (the outer header),
//! arch/loongarch/kernel/head.S (the inner one).

use std::io::Read;

use anyhow::{Context as _, Result, bail, ensure};

/// Where the outer header has its mark: the bytes `zimg`.
const ZBOOT_MARK: usize = 4;
/// Offset of the payload in the file, u32.
const PAYLOAD_OFFSET: usize = 8;
/// Size of the payload, u32.
const PAYLOAD_SIZE: usize = 12;
/// Name of the compression, a C string.
const COMPRESSION: usize = 24;
/// Where Linux's own header (LoongArch) has its mark, the 32-bit number 0x818223cd.
const LINUX_MARK: usize = 56;
/// Linux's mark for a directly bootable PE image.
const LINUX_PE_MAGIC: u32 = 0x8182_23cd;

/// Returns the directly bootable kernel in `vmlinuz`: the payload of a zboot image,
/// decompressed, or `vmlinuz` itself where it is not one.
///
/// # Errors
/// The file is cut off, compressed in a way that isn't known here (zstd and gzip are),
/// or holds something else than a LoongArch kernel.
pub fn unpack(vmlinuz: &[u8]) -> Result<Vec<u8>> {
    let kernel = if is_zboot(vmlinuz) {
        decompress(vmlinuz)?
    } else {
        vmlinuz.to_vec()
    };
    let mark = word(&kernel, LINUX_MARK)?;
    ensure!(
        kernel.starts_with(b"MZ") && mark == LINUX_PE_MAGIC,
        "this is no LoongArch kernel image (mark {mark:#x})"
    );
    Ok(kernel)
}

/// Whether the outer header is there.
pub fn is_zboot(file: &[u8]) -> bool {
    file.starts_with(b"MZ") && file.get(ZBOOT_MARK..ZBOOT_MARK + 4) == Some(b"zimg".as_slice())
}

/// The payload of the zboot image `file`, decompressed.
fn decompress(file: &[u8]) -> Result<Vec<u8>> {
    let offset = word(file, PAYLOAD_OFFSET)? as usize;
    let size = word(file, PAYLOAD_SIZE)? as usize;
    let payload = file
        .get(offset..)
        .and_then(|rest| rest.get(..size))
        .context("the kernel file is cut off")?;
    let name = file
        .get(COMPRESSION..)
        .context("the kernel file is cut off")?;
    let name: Vec<u8> = name
        .iter()
        .copied()
        .take_while(|&byte| byte != 0)
        .take(16)
        .collect();
    let mut kernel = Vec::new();
    match name.as_slice() {
        b"zstd" => ruzstd::decoding::StreamingDecoder::new(payload)?.read_to_end(&mut kernel),
        b"gzip" => flate2::read::GzDecoder::new(payload).read_to_end(&mut kernel),
        other => bail!(
            "the kernel is compressed by {:?}",
            String::from_utf8_lossy(other)
        ),
    }
    .context("the kernel in the file can't be decompressed")?;
    Ok(kernel)
}

/// The little-endian 32-bit number at `offset`.
fn word(bytes: &[u8], offset: usize) -> Result<u32> {
    let four = bytes
        .get(offset..)
        .and_then(<[u8]>::first_chunk::<4>)
        .context("the kernel file is cut off")?;
    Ok(u32::from_le_bytes(*four))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn kernel() -> Vec<u8> {
        let mut kernel = vec![0; 5000];
        kernel[..2].copy_from_slice(b"MZ");
        kernel[LINUX_MARK..LINUX_MARK + 4].copy_from_slice(&LINUX_PE_MAGIC.to_le_bytes());
        kernel
    }

    fn zboot(compression: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut file = vec![0; 100];
        file[..8].copy_from_slice(b"MZ\0\0zimg");
        file[PAYLOAD_OFFSET] = 100;
        file[PAYLOAD_SIZE..PAYLOAD_SIZE + 4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        file[COMPRESSION..COMPRESSION + compression.len()].copy_from_slice(compression);
        file.extend_from_slice(payload);
        file.extend_from_slice(b"what follows the payload");
        file
    }

    #[test]
    fn both_compressions_and_a_bare_kernel() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&kernel()).unwrap();
        assert_eq!(
            unpack(&zboot(b"gzip", &gzip.finish().unwrap())).unwrap(),
            kernel()
        );
        let level = ruzstd::encoding::CompressionLevel::Fastest;
        let zstd = ruzstd::encoding::compress_to_vec(kernel().as_slice(), level);
        assert_eq!(unpack(&zboot(b"zstd", &zstd)).unwrap(), kernel());
        assert_eq!(unpack(&kernel()).unwrap(), kernel());
    }

    #[test]
    fn damaged_files_are_errors() {
        let whole = zboot(b"gzip", &[1; 64]);
        assert!(unpack(&whole).is_err(), "not gzip");
        assert!(unpack(&whole[..120]).is_err(), "cut off");
        assert!(unpack(&whole[..20]).is_err(), "cut off in the header");
        assert!(
            unpack(&zboot(b"lzma", &[]))
                .unwrap_err()
                .to_string()
                .contains("lzma")
        );
        assert!(unpack(&[0; 64]).is_err(), "no kernel");
    }
}
