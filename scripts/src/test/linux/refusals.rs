//! Kernels and files that can't be loaded, in a bundle that the host's tool would not
//! have made: each is refused by name, and the good VM beside them runs.

use std::fs;
use std::ops::Range;

use anyhow::{Context as _, Result, anyhow, ensure};

use super::LIMIT;
use crate::guest::images::{self, Image};
use crate::guest::job::Job;
use crate::qemu::Timing;
use crate::suite::to_end;
use crate::test::{Rig, Tally};

/// Names of VMs, their kernel and initramfs, more lines, and what is said.
const BAD: [(&str, &str, &str, &str, &str); 12] = [
    (
        "arm",
        "arm",
        "",
        "",
        "arm: a kernel for another machine (PE number 0xaa64)",
    ),
    ("half", "half", "", "", "half: truncated"),
    (
        "x86",
        "x86",
        "",
        "",
        "x86: an ELF for another machine (number 0x3e)",
    ),
    (
        "short",
        "short",
        "",
        "",
        "short: not a 64-bit ELF, or damaged",
    ),
    ("rotten", "rotten", "", "", "rotten: bad checksum"),
    ("rotten-rd", "kernel", "rotten", "", "rotten: bad checksum"),
    (
        "text",
        "rd",
        "",
        "",
        "rd: neither an ELF nor a Linux kernel image",
    ),
    (
        "zboot",
        "zboot",
        "",
        "",
        "zboot: still compressed (EFI zboot)",
    ),
    ("none", "kernel", "none", "", "no file none in the bundle"),
    (
        "large",
        "kernel",
        "large",
        "memory = 96M",
        "large: no room for 40 MiB beside the kernel",
    ),
    (
        "small",
        "kernel",
        "",
        "memory = 16M",
        "kernel: it wants 0x200000 to",
    ),
    (
        "greedy",
        "kernel",
        "",
        "cpus = 0",
        "CPU 0 is the VM good's too",
    ),
];

/// A file that is damaged once the bundle has been written.
const ROTTEN: &[u8] = b"what is in the file that is spoilt";

/// Where an ELF has its machine's number, and that of x86-64.
const ELF_MACHINE: Range<usize> = 18..20;
const EM_X86_64: u16 = 62;

/// Runs the checks.
///
/// # Errors
/// The bundle can't be made.
pub fn run(rig: &Rig<'_>, tally: &mut Tally) -> Result<()> {
    let bundle = bundle(rig)?;
    let hypervisor = &rig.hypervisor;
    let machine = hypervisor.with_initrd(&bundle, 2, Timing::Deterministic { seed: 1 })?;
    let printed = to_end(&machine, LIMIT)?;
    let printed = String::from_utf8_lossy(&printed);
    for (name, _, _, _, why) in BAD {
        let said = format!("{name}.vm: {why}");
        let result = printed.contains(&said).then_some(());
        let result = result.ok_or_else(|| anyhow!("`{said}` isn't among:\n{printed}"));
        tally.check(&format!("the VM `{name}` is refused"), result);
    }
    let runs = || {
        ensure!(
            printed.contains("good| good runs"),
            "it printed:\n{printed}"
        );
        Ok(())
    };
    tally.check("the good VM runs beside them", runs());
    Ok(())
}

/// The bundle of the good VM and the bad ones.
fn bundle(rig: &Rig<'_>) -> Result<Vec<u8>> {
    let kernel = fs::read(images::kernel(rig.cx))?;
    let mut rd = Job::from_text(rig.cx, "echo go''od runs\n", &[])?.bytes();
    rd.extend(fs::read(Image::Shell.path(rig.cx))?);
    let half = kernel.get(..kernel.len() / 2).unwrap_or_default();
    let (arm, zboot, large) = (
        foreign(&kernel),
        b"MZ\0\0zimg".as_slice(),
        vec![1; 40 << 20],
    );
    let mut x86 = fs::read(rig.hypervisor.image())?;
    let short = x86.get(..x86.len() / 2).unwrap_or_default().to_vec();
    x86.get_mut(ELF_MACHINE)
        .context("an ELF")?
        .copy_from_slice(&EM_X86_64.to_le_bytes());
    let texts = texts();
    let texts = texts.iter();
    let mut files: Vec<(&str, &[u8])> = texts
        .map(|(name, text)| (name.as_str(), text.as_bytes()))
        .collect();
    files.extend([
        ("kernel", kernel.as_slice()),
        ("rd", &rd),
        ("half", half),
        ("arm", &arm),
        ("zboot", zboot),
        ("large", &large),
        ("x86", &x86),
        ("short", &short),
        ("rotten", ROTTEN),
    ]);
    let mut bundle = hv::bundle::write(&files).map_err(|error| anyhow!("{error}"))?;
    spoil(&mut bundle)?;
    Ok(bundle)
}

/// The configurations of the good VM and of the bad ones, with their files' names.
fn texts() -> Vec<(String, String)> {
    let more = "memory = 128M\nexclusive = true\ncpus = 0";
    let good = ("good", "kernel", "rd", more, "");
    let all = [good].into_iter().chain(BAD);
    let text = |(name, kernel, initramfs, more, _)| {
        let text = text(name, kernel, initramfs, more);
        (format!("{name}.vm"), text)
    };
    all.map(text).collect()
}

fn text(name: &str, kernel: &str, initramfs: &str, more: &str) -> String {
    let memory = if more.contains("memory") {
        ""
    } else {
        "memory = 64M\n"
    };
    let initramfs = if initramfs.is_empty() {
        String::new()
    } else {
        format!("initramfs = {initramfs}\n")
    };
    format!(
        "name = {name}\nvcpus = 1\n{memory}kernel = {kernel}\n{initramfs}\
         command_line = loglevel=4\ndevice = uart\ndevice = pch-pic\ndevice = power\n\
         device = ports\npv_ipi = true\n{more}\n"
    )
}

/// Changes [`ROTTEN`] in `bundle`.
fn spoil(bundle: &mut [u8]) -> Result<()> {
    let mut windows = bundle.windows(ROTTEN.len());
    let at = windows.rposition(|window| window == ROTTEN);
    let byte = at.and_then(|at| bundle.get_mut(at));
    *byte.context("the file isn't in the bundle")? ^= 1;
    Ok(())
}

/// `kernel`, with another machine's number in its PE header.
fn foreign(kernel: &[u8]) -> Vec<u8> {
    let mut kernel = kernel.to_vec();
    let at = kernel.get(60..64).and_then(<[u8]>::first_chunk::<4>);
    let machine = at.map_or(0, |at| u32::from_le_bytes(*at) as usize) + 4;
    if let Some(place) = kernel.get_mut(machine..machine + 2) {
        place.copy_from_slice(&0xaa64u16.to_le_bytes());
    }
    kernel
}
