//! Machines of several nodes, and addresses above 2⁴⁴: on boards of several sockets a
//! node's number is in bits 47:44 of its addresses.

use std::time::Duration;

use crate::hypervisor::{GuestVm, Hypervisor};
use crate::qemu::{Qemu, Timing};
use crate::suite::to_end;
use crate::test::{Options, Tally};
use anyhow::{Context as _, Result, ensure};

/// A run that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(120);

const TIMING: Timing = Timing::Deterministic { seed: 1 };

/// The machine's CPUs: two a node.
const CPUS: u32 = 4;

/// The first address that a board's node 1 has.
const HIGH: u64 = 1 << 44;

/// Where the hypervisor is put to run there: in the last node of [`HUGE`].
const PLACE: u64 = HIGH + (2 << 30);

/// Memory of two small nodes.
const SMALL: [&str; 2] = ["512M", "512M"];
/// Memory of two nodes, the second of which is above 2⁴⁴; next to nothing of it is used.
const HUGE: [&str; 2] = ["16T", "1T"];

/// Runs them all.
///
/// # Errors
/// A bundle or the hypervisor's file can't be made.
pub fn run(hypervisor: &Hypervisor, _: &Options, tally: &mut Tally) -> Result<()> {
    let vm = |name, more| GuestVm {
        more,
        ..GuestVm::new(name, 1, "only=cpucfg.")
    };
    let (near, far) = (vm("near", "cpus = 3"), vm("far", "cpus = 2\nmemory = 640M"));
    let machine = hypervisor.machine(&[near, far], CPUS, TIMING)?;
    let printed = to_end(&with_nodes(machine, SMALL, "1G"), LIMIT);
    tally.check("RAM comes from the CPUs' node", printed.and_then(own_node));

    let high = || GuestVm {
        command_line: "only=memory.".to_owned(),
        ..vm("high", "cpus = 3")
    };
    let machine = hypervisor.machine(&[high()], CPUS, TIMING)?;
    let printed = to_end(&with_nodes(machine, HUGE, "17T"), LIMIT);
    tally.check("RAM above 2^44", printed.and_then(above));

    let machine = hypervisor
        .machine(&[high()], CPUS, TIMING)?
        .append("log=debug console=lines");
    let machine = with_nodes(elsewhere(hypervisor, machine)?, HUGE, "17T");
    let printed = to_end(&machine, LIMIT);
    tally.check("the hypervisor above 2^44", printed.and_then(moved));
    Ok(())
}

/// The machine with two nodes of this memory.
fn with_nodes(machine: Qemu, memory: [&str; 2], all: &str) -> Qemu {
    let backend = |node: usize| {
        format!(
            "memory-backend-ram,id=m{node},size={},reserve=off",
            memory[node]
        )
    };
    let node = |node: usize| {
        let (first, last) = (2 * node, 2 * node + 1);
        format!("node,nodeid={node},memdev=m{node},cpus={first}-{last}")
    };
    machine
        .args(["-m", all])
        .args(["-object", &backend(0), "-object", &backend(1)])
        .args(["-numa", &node(0), "-numa", &node(1)])
}

/// The machine with the application's file at [`PLACE`], begun there instead of where
/// the loader has put the ELF.
fn elsewhere(hypervisor: &Hypervisor, machine: Qemu) -> Result<Qemu> {
    let file = hypervisor.efi()?;
    let bytes = std::fs::read(&file)?;
    // Linux's words: the entry and the load offset that it counts from.
    let word = |offset: usize| {
        let bytes = bytes.get(offset..offset + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    let (entry, offset) = word(8).zip(word(24)).context("a file without a header")?;
    let entry = PLACE + (entry - offset);
    let file = file.display();
    Ok(machine
        .args([
            "-device",
            &format!("loader,file={file},addr={PLACE:#x},force-raw=on"),
        ])
        .args(["-device", &format!("loader,addr={entry:#x},cpu-num=0")]))
}

/// Where the RAM of the VM `name` begins, as the hypervisor says.
fn ram_of(name: &str, nodes: &str, printed: &str) -> Result<u64> {
    let said = format!("VM {name}: its RAM is on nodes {nodes}, from 0x");
    let rest = printed.split_once(&said).map(|(_, rest)| rest);
    let rest = rest.with_context(|| format!("`{said}` isn't among:\n{printed}"))?;
    let digits = rest.split(' ').next().unwrap_or_default();
    Ok(u64::from_str_radix(digits, 16)?)
}

/// The guest of the VM `name` has passed.
fn passed(name: &str, printed: &str) -> Result<()> {
    let guest = printed.split_once(&format!("{name}| guest: "));
    let passed = guest.is_some_and(|(_, rest)| {
        let line = rest.lines().next().unwrap_or_default();
        line.ends_with(" 0 failed") && !line.starts_with("0 ")
    });
    ensure!(passed, "the guest in {name} hasn't passed:\n{printed}");
    Ok(())
}

fn own_node(printed: Vec<u8>) -> Result<()> {
    let printed = String::from_utf8_lossy(&printed);
    // Node 0 ends 256 MiB above where RAM goes on at 2 GiB.
    let start = ram_of("near", "[1]", &printed)?;
    ensure!(start >= 0x9000_0000, "the RAM at {start:#x} is node 0's");
    let said = "of its RAM aren't on its CPUs' nodes [1]";
    ensure!(printed.contains(said), "`{said}` isn't among:\n{printed}");
    passed("near", &printed)?;
    passed("far", &printed)
}

fn above(printed: Vec<u8>) -> Result<()> {
    let printed = String::from_utf8_lossy(&printed);
    let start = ram_of("high", "[1]", &printed)?;
    ensure!(start >= HIGH, "the RAM is at {start:#x}");
    passed("high", &printed)
}

fn moved(printed: Vec<u8>) -> Result<()> {
    let printed = String::from_utf8_lossy(&printed);
    let said = format!("the image is at {PLACE:#x}");
    ensure!(printed.contains(&said), "`{said}` isn't among:\n{printed}");
    ensure!(printed.contains(" 4 CPUs"), "CPUs are missing:\n{printed}");
    passed("high", &printed)
}
