//! Machines that are described or loaded in another way: by a device tree that lies
//! beside the bundle, and with the hypervisor above 4 GiB.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use hv::platform::board::Board;

use super::{LIMIT, Stage};
use crate::image::boot::{self, Disk};
use crate::image::content::{REMOVABLE, TREE};
use crate::image::disk::File;
use crate::qemu::Qemu;
use crate::setup::qemu::program;
use crate::suite::WITH_LVZ;
use crate::test::Tally;
use crate::vm::Room;

/// CPUs of the machines.
const CPUS: u32 = 2;

/// Where the RAM begins that firmware gives away only once the low 256 MiB are used up.
const FAR: u64 = 4 << 30;

/// Runs the checks.
pub fn run(stage: &Stage<'_>, tally: &mut Tally) {
    tally.check("a device tree beside the bundle counts", by_tree(stage));
    tally.check("firmware puts it above 4 GiB", far_away(stage));
}

/// A machine without ACPI, whose tree firmware keeps to itself.
fn by_tree(stage: &Stage<'_>) -> Result<()> {
    let (without_acpi, room) = ("virt,acpi=off", stage.linux(CPUS)?.1);
    let tree = stage.folder.path().join("tree");
    let dump = format!("{without_acpi},dumpdtb={}", tree.display());
    let machine = Qemu::new(
        &program(stage.cx),
        WITH_LVZ,
        room.cpus,
        room.memory_mib,
        stage.timing,
    );
    let status = machine.args(["-M", &dump]).spawn()?.wait(LIMIT)?;
    ensure!(status.success(), "QEMU gives no tree");
    let add = |files: &mut Vec<File>| -> Result<()> {
        files.push(File {
            path: TREE,
            content: fs::read(&tree)?,
        });
        Ok(())
    };
    let machine = stage.machine(room, add)?.args(["-M", without_acpi]);
    started(&machine).map(|_| ())
}

/// An image that says that it needs more memory than there is below 4 GiB.
fn far_away(stage: &Stage<'_>) -> Result<()> {
    let mut room = stage.linux(CPUS)?.1;
    room.memory_mib = 6 << 10;
    let grow = |files: &mut Vec<File>| {
        let mut applications = files.iter_mut().filter(|file| file.path == REMOVABLE);
        let application = applications.next().context("an application")?;
        grow(&mut application.content).context("a header")
    };
    let at = started(&stage.machine(room, grow)?)?;
    ensure!(at >= FAR, "firmware has put it at {at:#x}");
    Ok(())
}

/// Adds 256 MiB to what the application in `file` says that it needs: to the size of its
/// last section, and to its own (*PE Format*, sections 2 to 4).
fn grow(file: &mut [u8]) -> Option<()> {
    let header = word(file, 0x3c)? as usize;
    let sections = (word(file, header + 4)? >> 16) as usize;
    let optional = header + 24;
    let table = optional + (word(file, header + 20)? & 0xffff) as usize;
    for at in [optional + 56, table + 40 * sections.checked_sub(1)? + 8] {
        let grown = word(file, at)?.checked_add(256 << 20)?;
        let place = file.get_mut(at..at + 4)?;
        place.copy_from_slice(&grown.to_le_bytes());
    }
    Some(())
}

/// The little-endian word at `at`.
fn word(file: &[u8], at: usize) -> Option<u32> {
    let bytes = file.get(at..at + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

/// Waits until the VM starts on all CPUs; returns where the hypervisor's image is.
fn started(machine: &Qemu) -> Result<u64> {
    let mut running = machine.spawn()?;
    let replay = format!("to replay: {}", running.command_line());
    let mut next = |text: &str, limit: Duration| {
        let found = running.console.wait_for(text, limit);
        found.with_context(|| replay.clone())
    };
    next("the image is at 0x", LIMIT)?;
    let at = next("\n", LIMIT)?;
    next(&format!(" {CPUS} CPUs"), LIMIT)?;
    next("VM board: ", LIMIT)?;
    next("BusyBox", LIMIT)?;
    Ok(u64::from_str_radix(at.trim(), 16)?)
}

impl Stage<'_> {
    /// The machine that boots a stick whose files `change` has changed.
    fn machine(&self, room: Room, change: impl Fn(&mut Vec<File>) -> Result<()>) -> Result<Qemu> {
        let bundle = self.linux(room.cpus)?.0;
        let append = "log=debug console=lines";
        let parts = crate::image::parts(&self.hypervisor, Board::QemuVirt, &bundle, append)?;
        let mut files = parts.of_a_stick();
        change(&mut files)?;
        let image = self.image(&files)?;
        let (cpu, disk) = (WITH_LVZ, Disk::Virtio);
        Ok(boot::machine(self.cx, cpu, room, self.timing, &image, disk))
    }
}
