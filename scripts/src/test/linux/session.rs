//! Somebody at the console of the hypervisor.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::LIMIT;
use crate::qemu::{Qemu, Running};

/// What the shell in the images shows when it waits.
const SHELL: &str = "/ # ";
/// What the monitor shows when it waits.
const MONITOR: &str = "loongvisor> ";
/// Ctrl-A.
const ESCAPE: char = '\u{1}';

/// A machine with somebody at its console.
pub struct Session {
    running: Running,
    commands: u32,
}

/// What a command has printed, and its status.
#[derive(Debug)]
pub struct Answer {
    /// Its lines.
    pub text: String,
    /// Its exit status.
    pub status: u32,
}

impl Session {
    /// Starts `machine`.
    ///
    /// # Errors
    /// It can't be started.
    pub fn start(machine: &Qemu) -> Result<Self> {
        Ok(Self::with(machine.spawn_with_keyboard()?))
    }

    /// Starts `machine` on a terminal that can be stopped.
    ///
    /// # Errors
    /// It can't be started.
    pub fn start_with_terminal(machine: &Qemu) -> Result<Self> {
        Ok(Self::with(machine.spawn_with_terminal()?))
    }

    fn with(running: Running) -> Self {
        Self {
            running,
            commands: 0,
        }
    }

    /// Types `text`.
    ///
    /// # Errors
    /// The machine has ended.
    pub fn keys(&mut self, text: &str) -> Result<()> {
        self.running.type_text(text)
    }

    /// Waits for `text`; returns what came before.
    ///
    /// # Errors
    /// It didn't come.
    pub fn wait_for(&mut self, text: &str) -> Result<String> {
        let found = self.running.console.wait_for(text, LIMIT);
        found.with_context(|| format!("to replay: {}", self.running.command_line()))
    }

    /// Waits for the shell's prompt, sees that it echoes what is typed, and then makes
    /// it print nothing but what commands print.
    ///
    /// # Errors
    /// There is no prompt, or no echo.
    pub fn log_in(&mut self) -> Result<()> {
        self.wait_for(SHELL)?;
        self.keys("echo se''en\n")?;
        self.wait_for("echo se''en")?;
        self.wait_for("seen")?;
        self.wait_for(SHELL)?;
        // Without a terminal for its errors a shell shows no prompt and edits no line.
        self.keys("stty -echo; exec sh 2> /dev/null\n")?;
        let answer = self.run(". /job.d/lib.sh")?;
        ensure!(answer.status == 0, "the library isn't there");
        Ok(())
    }

    /// Waits until the VMs `names` have started, and logs in to each; the last one is
    /// shown then.
    ///
    /// # Errors
    /// One of them doesn't start, or gives no shell.
    pub fn log_in_to(&mut self, names: &[&str]) -> Result<()> {
        for name in names {
            self.wait_for(&format!("VM {name}: "))?;
        }
        for vm in 0..names.len() {
            self.show(vm)?;
            self.log_in()?;
        }
        Ok(())
    }

    /// Runs `command` in the shell.
    ///
    /// # Errors
    /// It doesn't end.
    pub fn run(&mut self, command: &str) -> Result<Answer> {
        self.commands += 1;
        let end = format!("end-{}", self.commands);
        self.keys(&format!("{command}\necho e''nd-{} $?\n", self.commands))?;
        let text = self.wait_for(&end)?;
        let status = self.wait_for("\n")?;
        Ok(Answer {
            text: text.replace('\r', ""),
            status: status.trim().parse().context("a status")?,
        })
    }

    /// What `command` prints, in one line; it must succeed.
    ///
    /// # Errors
    /// It fails, or doesn't end.
    pub fn line(&mut self, command: &str) -> Result<String> {
        let answer = self.run(command)?;
        ensure!(answer.status == 0, "`{command}` failed");
        let last = answer.text.lines().rfind(|line| !line.trim().is_empty());
        Ok(last.unwrap_or_default().trim().to_owned())
    }

    /// Runs a command of the monitor, and comes back to VM `vm`; returns what it printed.
    ///
    /// # Errors
    /// The monitor doesn't answer.
    pub fn monitor(&mut self, command: &str, vm: usize) -> Result<String> {
        self.keys(&format!("{ESCAPE}m"))?;
        self.wait_for(MONITOR)?;
        self.keys(&format!("{command}\r"))?;
        self.wait_for(&format!("{command}\r\n"))?;
        let text = self.wait_for(MONITOR)?;
        self.show(vm)?;
        Ok(text.replace('\r', ""))
    }

    /// Shows VM `vm`.
    ///
    /// # Errors
    /// The hypervisor doesn't answer.
    pub fn show(&mut self, vm: usize) -> Result<()> {
        self.keys(&format!("{ESCAPE}{vm}"))?;
        self.wait_for("helps]").map(|_| ())
    }

    /// Waits until the machine has switched itself off.
    ///
    /// # Errors
    /// It goes on, or QEMU has failed.
    pub fn ended(&mut self) -> Result<()> {
        self.wait_for("switching off")?;
        let status = self.running.wait(Duration::from_secs(60))?;
        ensure!(status.success(), "QEMU ended with {status}");
        Ok(())
    }

    /// Stops the terminal for `time`, so that the machine can't get rid of what it prints.
    pub fn stop_terminal(&self, time: Duration) {
        let _stopped = self.running.console.stop();
        std::thread::sleep(time);
    }

    /// Everything printed so far.
    pub fn text(&self) -> String {
        self.running.console.text()
    }
}
