//! Keys that are pressed before the machine is on: the UART's set-up loses none of what
//! its receiver has room for.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use crate::hypervisor::{GuestVm, Hypervisor};
use crate::qemu::Timing;
use crate::qemu::qmp::Qmp;
use crate::test::{Options, Tally};

/// What one step takes at most.
const LIMIT: Duration = Duration::from_secs(60);

/// What is asked for, its keys, and how the answer ends. The receiver has room for the
/// first key; the others stay in QEMU until there is room for them.
const KEYS: [(&str, &str, &str); 3] = [
    ("help", "\u{1}h", "Ctrl-A x    switch the machine off"),
    ("the monitor", "\u{1}m", "loongvisor> "),
    (
        "a command of the monitor",
        "\u{1}mmemory\r",
        " bytes of heap in use",
    ),
];

/// Runs them.
///
/// # Errors
/// A bundle can't be made.
pub fn run(hypervisor: &Hypervisor, options: &Options, tally: &mut Tally) -> Result<()> {
    let seed = options.seed.unwrap_or(1);
    for (what, keys, answer) in KEYS {
        for append in ["console=lines", "console=lines console=poll"] {
            let name = format!("{what}, asked for before power-on, {append}");
            let answered = press(hypervisor, append, seed, keys, answer);
            tally.check(&name, answered);
        }
    }
    Ok(())
}

/// Presses `keys`, switches the machine on, and waits for `answer`.
fn press(hypervisor: &Hypervisor, append: &str, seed: u64, keys: &str, answer: &str) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("qmp");
    let vms = [GuestVm::new("a", 1, "mode=evil kind=spin")];
    let machine = hypervisor
        .machine(&vms, 1, Timing::Deterministic { seed })?
        .append(append)
        .args(Qmp::args(&socket))
        .args(["-S"]);
    let mut running = machine.spawn_with_keyboard()?;
    running.type_text(keys)?;
    let mut monitor = Qmp::connect(&socket, LIMIT)?;
    // QEMU takes what is typed and what its monitor gets in the same loop.
    monitor.execute("query-status", json!({}))?;
    monitor.execute("cont", json!({}))?;
    running.console.wait_for(answer, LIMIT)?;
    Ok(())
}
