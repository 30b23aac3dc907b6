//! Images that must not start: one clear message on firmware's console, and the machine
//! is firmware's again.

use anyhow::{Context as _, Result, ensure};
use hv::platform::board::Board;

use super::{LIMIT, Stage};
use crate::image::boot::{self, Disk};
use crate::image::content::{BUNDLE, TREE};
use crate::image::disk::File;
use crate::suite::{WITH_LVZ, WITHOUT_LVZ};
use crate::test::{Options, Tally};

/// How every message begins.
const REFUSES: &str = "Loongvisor doesn't start: ";

/// What firmware says when what it started has come back with an error.
const CAME_BACK: &str = "failed to start Boot";

/// What it says when nothing boots, and what it shows once a key is pressed.
const NOTHING_BOOTS: &str = "Press any key to enter the Boot Manager Menu";
const MENU: &str = "Boot Maintenance Manager";

/// An image that must not start.
struct Bad {
    name: &'static str,
    cpu: &'static str,
    board: Board,
    append: &'static str,
    /// What is changed of its files.
    change: fn(&mut Vec<File>),
    /// What is said.
    said: &'static str,
    /// Only in the long form.
    long: bool,
}

/// An image that would start, to change one thing of.
const GOOD: Bad = Bad {
    name: "",
    cpu: WITH_LVZ,
    board: Board::QemuVirt,
    append: "",
    change: |_| (),
    said: "",
    long: false,
};

const BAD: [Bad; 9] = [
    Bad {
        name: "another board's image",
        board: Board::Ls3c5000,
        said: "this image is for the board 3c5000 (processor 3C5000), and this machine's \
               processor is 3A5000",
        ..GOOD
    },
    Bad {
        name: "a damaged bundle",
        change: |files| {
            edit(files, |bundle| {
                bundle
                    .iter_mut()
                    .skip(5000)
                    .take(1)
                    .for_each(|byte| *byte ^= 1)
            })
        },
        said: "the bundle of VMs: bad checksum",
        ..GOOD
    },
    Bad {
        name: "no bundle",
        change: |files| files.retain(|file| file.path != BUNDLE),
        said: "no bundle of VMs: ",
        ..GOOD
    },
    Bad {
        name: "no LVZ",
        cpu: WITHOUT_LVZ,
        said: "this CPU has no LVZ (CPUCFG word 2, bit 10)",
        ..GOOD
    },
    Bad {
        name: "a fault of its own",
        append: "crash=firmware",
        said: "panicked at hv/src/efi/mod.rs",
        long: true,
        ..GOOD
    },
    Bad {
        name: "a truncated device tree",
        change: |files| {
            files.push(File {
                path: TREE,
                content: b"\xd0\x0d\xfe\xed\0\0\x10\0".repeat(2),
            });
        },
        said: "\\loongvisor\\devicetree holds no whole device tree",
        long: true,
        ..GOOD
    },
    Bad {
        name: "a truncated bundle",
        change: |files| edit(files, |bundle| bundle.truncate(bundle.len() / 2)),
        said: "the bundle of VMs: truncated",
        long: true,
        ..GOOD
    },
    Bad {
        name: "something else as bundle",
        change: |files| edit(files, |bundle| *bundle = b"\x7fELF".repeat(100)),
        said: "the bundle of VMs: not a bundle",
        long: true,
        ..GOOD
    },
    Bad {
        name: "an empty bundle",
        change: |files| edit(files, Vec::clear),
        said: "the bundle of VMs: not a bundle",
        long: true,
        ..GOOD
    },
];

fn edit(files: &mut [File], change: impl Fn(&mut Vec<u8>)) {
    let bundles = files.iter_mut().filter(|file| file.path == BUNDLE);
    bundles.for_each(|file| change(&mut file.content));
}

/// Runs the checks.
///
/// # Errors
/// None: an image that can't be made is a failed check.
pub fn run(stage: &Stage<'_>, options: &Options, tally: &mut Tally) -> Result<()> {
    for bad in BAD.iter().filter(|bad| options.long || !bad.long) {
        let name = format!("{} is refused, firmware goes on", bad.name);
        tally.check(&name, refused(stage, bad));
    }
    Ok(())
}

fn refused(stage: &Stage<'_>, bad: &Bad) -> Result<()> {
    let (bundle, room) = stage.linux(1)?;
    let parts = crate::image::parts(&stage.hypervisor, bad.board, &bundle, bad.append)?;
    let mut files = parts.of_a_stick();
    (bad.change)(&mut files);
    let image = stage.image(&files)?;
    let machine = boot::machine(stage.cx, bad.cpu, room, stage.timing, &image, Disk::Virtio);
    let mut running = machine.spawn_with_keyboard()?;
    let replay = format!("to replay: {}", running.command_line());
    let before = running.console.wait_for(CAME_BACK, LIMIT).context(replay)?;
    // Firmware's console breaks lines at 80 columns.
    let before = before.replace(['\r', '\n'], "");
    let count = before.matches(REFUSES).count();
    ensure!(count == 1, "{count} messages: {before}");
    let message = format!("{REFUSES}{}", bad.said);
    ensure!(before.contains(&message), "not `{message}`: {before}");
    running.console.wait_for(NOTHING_BOOTS, LIMIT)?;
    running.type_text("\r")?;
    running.console.wait_for(MENU, LIMIT).map(|_| ())
}
