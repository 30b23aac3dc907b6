//! A VM that prints without end, on the CPU that another one shares with it.

use std::ops::Range;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::session::Session;
use crate::guest::images::Image;
use crate::hypervisor::{lines_of, whole};
use crate::test::{Rig, Tally};
use crate::vm::LinuxVm;

/// What it prints.
const FLOOD: &str = "all work and no play";
/// How many lines the other one prints meanwhile, at least.
const LINES: u32 = 100;
/// The VMs.
const NAMES: [&str; 2] = ["left", "right"];
/// How long the terminal takes nothing.
const STOPPED: Duration = Duration::from_secs(4);
/// How long the other one may not run at a time, in hundredths of a second of its clock:
/// some of the slices that the two get in turn.
const LONGEST_GAP: u32 = 10;

/// Runs the checks.
///
/// # Errors
/// The machine can't be made.
pub fn run(rig: &Rig<'_>, tally: &mut Tally) -> Result<()> {
    let vms = NAMES.map(|name| LinuxVm::new(name, 1, 256));
    let machine = rig.linux(Image::Shell, None, &vms, 1, rig.timing())?;
    let result = Session::start_with_terminal(&machine).and_then(|mut session| flood(&mut session));
    tally.check("a VM that floods the console", result);
    Ok(())
}

fn flood(session: &mut Session) -> Result<()> {
    session.log_in_to(&NAMES)?;
    session.run("watch_gaps > /tmp/gaps &")?;
    session.run(
        "tick() { while [ ! -e /tmp/enough ]; do echo tick $((n += 1)); usleep 10000; done; }",
    )?;
    session.run("tick &")?;
    session.show(0)?;
    session.keys(&format!("yes {FLOOD} &\n"))?;
    session.keys("\u{1}l")?;
    session.wait_for(&format!("left| {FLOOD}\r\n"))?;
    // Of what the other one has printed before, part may be lost.
    let from = session.text().len();
    session.stop_terminal(STOPPED);
    session.wait_for("\r\nright| tick ")?;
    let first: u32 = session.wait_for("\r\n")?.parse().context("a number")?;
    let ticks = first..first + LINES;
    session.wait_for(&format!("\r\nright| tick {}\r\n", ticks.end))?;
    // The monitor can be used, and what it prints stands alone.
    session.keys("\u{1}h")?;
    session.wait_for("\r\nCtrl-A l    every VM, line by line\r\n")?;
    whole_lines(&session.text()[from..], ticks)?;
    session.show(1)?;
    session.run("touch /tmp/enough; wait")?;
    let gap: u32 = session.line("cat /tmp/gaps")?.parse().context("a gap")?;
    ensure!(gap <= LONGEST_GAP, "the other VM stood still for {gap}0 ms");
    session.keys("poweroff -f\n")?;
    session.wait_for("it switched itself off")?;
    session.show(0)?;
    session.monitor("stop 0", 0)?;
    session.keys("\u{1}x")?;
    session.ended()
}

/// Nothing stands inside a line of somebody else's, but for the first and the last, which
/// may be parts of one, and nothing is lost.
fn whole_lines(text: &str, ticks: Range<u32>) -> Result<()> {
    let (right, after_prompt) = [" ", " # "]
        .map(|mark| format!("left|{mark}{FLOOD}\r\n"))
        .into();
    let broken = whole(text)
        .skip(1)
        .find(|line| line.contains(FLOOD) && *line != right && !line.ends_with(&after_prompt));
    ensure!(broken.is_none(), "a line was broken: {broken:?}");
    let ticks: String = ticks.map(|n| format!("tick {n}\n")).collect();
    ensure!(
        lines_of("right", text).contains(&ticks),
        "lines of the other VM were lost"
    );
    ensure!(!text.contains(" printed is lost)"), "something was lost");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is printed, cut off before the last `less` bytes.
    fn printed(middle: &str, less: usize) -> String {
        let flood = format!("left| {FLOOD}\r\n");
        let text = format!("k\r\n{flood}right| tick 7\r\n{middle}right| tick 8\r\n{flood}");
        text[..text.len() - less].to_owned()
    }

    #[test]
    fn a_text_may_end_anywhere_but_no_line_may_be_broken() {
        for less in 0..10 {
            assert!(whole_lines(&printed("", less), 7..9).is_ok(), "{less}");
        }
        let broken = format!("left| {FLOOD}\r\r\n");
        assert!(whole_lines(&printed(&broken, 0), 7..9).is_err());
        let broken = format!("left| all [hv INFO ] {FLOOD}\r\n");
        assert!(whole_lines(&printed(&broken, 0), 7..9).is_err());
        assert!(whole_lines(&printed("", 0), 7..10).is_err());
    }
}
