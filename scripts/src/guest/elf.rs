//! Which shared libraries a program needs, and where they are.
//!
//! A Debian package's dependencies bring far more than one program needs: with
//! qemu-system-misc alone come 168 packages, unpacked 700 MB, of which one emulator
//! needs 60. So an image takes the programs it wants and, from their ELF files, the
//! libraries these name, and so on; the result is complete by construction.
//! Facts: the System V ABI, chapter 5 (DT_NEEDED, DT_SONAME, PT_INTERP).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use object::elf::{DT_NEEDED, FileHeader64, PT_INTERP};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, StringTable};

/// Folders of libraries in a tree of unpacked packages: Debian's, and the one of
/// packages that have not moved to the multiarch layout.
const LIBRARY_FOLDERS: [&str; 2] = ["usr/lib/loongarch64-linux-gnu", "usr/lib"];

/// What the loader must find for one program to start.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wants {
    /// Names of libraries.
    libraries: Vec<String>,
    /// Path of the dynamic loader, without the leading `/`.
    loader: Option<String>,
}

/// The files that some programs need to start: file name in an image → file on this
/// machine.
#[derive(Debug, Default)]
pub struct Closure {
    /// Libraries by the name that programs ask for them.
    pub libraries: BTreeMap<String, PathBuf>,
    /// Dynamic loaders by their absolute path, without the leading `/`.
    pub loaders: BTreeMap<String, PathBuf>,
}

impl Closure {
    /// Adds all that `program`, a file of `tree`, needs.
    ///
    /// # Errors
    /// `program` is no 64-bit little-endian ELF file, or a library that it needs isn't
    /// in `tree`: the error names it and who needs it.
    pub fn add(&mut self, tree: &Path, program: &Path) -> Result<()> {
        let mut left = vec![program.to_owned()];
        while let Some(file) = left.pop() {
            let bytes =
                fs::read(&file).with_context(|| format!("can't read {}", file.display()))?;
            let wants =
                wants(&bytes).with_context(|| format!("{} is no program", file.display()))?;
            for name in wants.libraries {
                if name.starts_with("ld-linux") || self.libraries.contains_key(&name) {
                    continue;
                }
                let library =
                    find(tree, &name).with_context(|| format!("{} needs it", file.display()))?;
                left.push(library.clone());
                self.libraries.insert(name, library);
            }
            if let Some(loader) = wants.loader {
                let name = Path::new(&loader)
                    .file_name()
                    .context("a loader needs a name")?;
                let found = find(tree, &name.to_string_lossy())?;
                self.loaders.insert(loader, found);
            }
        }
        Ok(())
    }
}

/// The library `name` in `tree`.
fn find(tree: &Path, name: &str) -> Result<PathBuf> {
    let places = LIBRARY_FOLDERS.map(|folder| tree.join(folder).join(name));
    match places.into_iter().find(|place| place.exists()) {
        Some(place) => Ok(place),
        None => bail!("no package that was fetched has the library {name}"),
    }
}

/// What the ELF file `bytes` asks its loader for; nothing if it is linked statically.
fn wants(bytes: &[u8]) -> Result<Wants> {
    let header = FileHeader64::<Endianness>::parse(bytes)?;
    let endian = header.endian()?;
    let mut wants = Wants::default();
    let segments = header.program_headers(endian, bytes)?;
    let sections = header.sections(endian, bytes)?;
    if let Some((entries, section)) = sections.dynamic(endian, bytes)? {
        let strings: StringTable<'_> = sections.strings(endian, bytes, section)?;
        for entry in entries
            .iter()
            .filter(|entry| entry.d_tag(endian) == u64::from(DT_NEEDED))
        {
            let name = entry.string(endian, strings)?;
            wants.libraries.push(String::from_utf8(name.to_vec())?);
        }
    }
    for segment in segments
        .iter()
        .filter(|segment| segment.p_type(endian) == PT_INTERP)
    {
        let path = segment
            .interpreter(endian, bytes)?
            .context("an empty interpreter segment")?;
        wants.loader = Some(
            String::from_utf8(path.to_vec())?
                .trim_start_matches('/')
                .to_owned(),
        );
    }
    Ok(wants)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_this_machine_names_its_c_library() {
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        let wants = wants(&own).unwrap();
        assert!(
            wants
                .libraries
                .iter()
                .any(|name| name.starts_with("libc.so")),
            "{wants:?}"
        );
        assert!(wants.loader.unwrap().contains("ld-linux"));
    }

    #[test]
    fn what_is_no_elf_file_is_an_error() {
        assert!(wants(b"#!/bin/sh\n").is_err());
    }

    #[test]
    fn a_missing_library_is_named_with_who_needs_it() {
        let tree = tempfile::tempdir().unwrap();
        let own = std::env::current_exe().unwrap();
        let error = format!(
            "{:#}",
            Closure::default().add(tree.path(), &own).unwrap_err()
        );
        assert!(
            error.contains("library lib") && error.contains("needs it"),
            "{error}"
        );
    }
}
