//! Building programs for the bare machine.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use object::Endianness;
use object::elf::{FileHeader64, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};
use serde_json::Value;

use crate::context::Context;
use crate::process;
use crate::setup::target::TARGET;

/// Builds the program of the workspace's crate `package` for the bare LoongArch machine
/// (release profile) and returns its ELF file.
///
/// # Errors
/// It doesn't compile (the compiler's words are on standard error), or the crate has no
/// program.
pub fn build(cx: &Context, package: &str) -> Result<PathBuf> {
    build_target(cx, package, &[])
}

/// Builds the example `name` of the crate `package`, likewise.
///
/// # Errors
/// As [`build`].
pub fn build_example(cx: &Context, package: &str, name: &str) -> Result<PathBuf> {
    build_target(cx, package, &["--example", name])
}

fn build_target(cx: &Context, package: &str, which: &[&str]) -> Result<PathBuf> {
    let mut cargo = process::command("cargo");
    cargo.args([
        "build",
        "--release",
        "--package",
        package,
        "--target",
        TARGET,
    ]);
    if let Some(config) = same_everywhere() {
        cargo.args(["--config", &config]);
    }
    cargo
        .args(which)
        .arg("--message-format=json-render-diagnostics")
        .current_dir(cx.repo(""));
    // What the compiler says goes to the terminal as it comes.
    cargo.stderr(std::process::Stdio::inherit());
    let printed =
        process::output(&mut cargo).with_context(|| format!("{package} could not be built"))?;
    executable(&printed).with_context(|| format!("{package} has no program for the bare machine"))
}

/// A setting by which the folder of cargo's downloads is called the same in whatever home
/// it lies: what a panic prints has its name, and equal sources give equal programs.
fn same_everywhere() -> Option<String> {
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(std::env::home_dir()?.join(".cargo")))?;
    let registry = home.join("registry/src");
    let sources = std::fs::read_dir(registry).ok()?.flatten();
    let flags: Vec<String> = sources
        .filter_map(|source| {
            let source = source.path().into_os_string().into_string().ok()?;
            Some(format!("--remap-path-prefix={source}=crates"))
        })
        .collect();
    let flags = serde_json::to_string(&flags).ok()?;
    Some(format!("target.{TARGET}.rustflags={flags}"))
}

/// The file of the last executable that cargo's messages name.
fn executable(messages: &str) -> Option<PathBuf> {
    let parsed = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut paths =
        parsed.filter_map(|message| Some(PathBuf::from(message["executable"].as_str()?)));
    paths.next_back()
}

/// Most bytes of a flat image.
const LARGEST_IMAGE: u64 = 16 << 20;

/// What the segments of `elf` hold, each at its physical address, from the lowest on:
/// the file that `objcopy -O binary` gives.
///
/// # Errors
/// It is no 64-bit ELF, or its segments are too far apart.
pub fn flat_image(elf: &[u8]) -> Result<Vec<u8>> {
    let header = FileHeader64::<Endianness>::parse(elf)?;
    let endian = header.endian()?;
    let segments = header.program_headers(endian, elf)?.iter();
    let loaded: Vec<_> = segments
        .filter(|segment| segment.p_type(endian) == PT_LOAD && segment.p_filesz(endian) > 0)
        .collect();
    let places = loaded.iter().map(|segment| segment.p_paddr(endian));
    let base = places.min().context("an ELF with nothing to load")?;
    let mut image = Vec::new();
    for segment in loaded {
        let bytes = segment.data(endian, elf).ok();
        let bytes = bytes.context("an ELF with a segment beyond its end")?;
        let start = segment.p_paddr(endian) - base;
        ensure!(start < LARGEST_IMAGE, "an ELF with segments far apart");
        let start = usize::try_from(start)?;
        image.resize(image.len().max(start + bytes.len()), 0);
        image[start..start + bytes.len()].copy_from_slice(bytes);
    }
    Ok(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF with segments of these physical addresses and bytes.
    fn elf(segments: &[(u64, &[u8])]) -> Vec<u8> {
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(16, 0);
        for half in [2u16, 258] {
            file.extend(half.to_le_bytes());
        }
        file.extend(1u32.to_le_bytes());
        for word in [0u64, 64, 0] {
            file.extend(word.to_le_bytes());
        }
        file.extend(0u32.to_le_bytes());
        for half in [64, 56, segments.len() as u16, 0, 0, 0] {
            file.extend(half.to_le_bytes());
        }
        let mut offset = 64 + 56 * segments.len() as u64;
        for (at, bytes) in segments {
            file.extend(1u32.to_le_bytes());
            file.extend(4u32.to_le_bytes());
            let length = bytes.len() as u64;
            for word in [offset, at + 0x9000, *at, length, length, 1] {
                file.extend(word.to_le_bytes());
            }
            offset += length;
        }
        segments.iter().for_each(|(_, bytes)| file.extend(*bytes));
        file
    }

    #[test]
    fn a_flat_image_has_every_segment_at_its_place() {
        let image = flat_image(&elf(&[(0x2008, b"data"), (0x2000, b"MZ"), (0x9000, b"")]));
        assert_eq!(image.unwrap(), b"MZ\0\0\0\0\0\0data");
    }

    #[test]
    fn elves_that_make_no_image_are_refused() {
        assert!(flat_image(b"MZ").is_err());
        assert!(flat_image(&elf(&[])).is_err());
        assert!(flat_image(&elf(&[(0, b"a"), (1 << 40, b"b")])).is_err());
    }

    #[test]
    fn the_executable_is_found_among_messages() {
        let messages = "{\"reason\":\"compiler-artifact\",\"executable\":null}\n\
                        {\"reason\":\"compiler-artifact\",\"executable\":\"/t/lvz-suite\"}\n\
                        {\"reason\":\"build-finished\",\"success\":true}\n";
        assert_eq!(executable(messages), Some("/t/lvz-suite".into()));
        assert_eq!(
            executable("{\"reason\":\"build-finished\"}\nnot json\n"),
            None
        );
    }
}
