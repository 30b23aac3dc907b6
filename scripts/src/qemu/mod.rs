//! QEMU: its command line, its serial port, its monitor.
//!
//! [`Qemu`] builds a command line for the `virt` machine with LVZ; [`Qemu::spawn`]
//! gives a [`Running`] machine whose serial output is read by a thread of its own, so
//! that nothing a guest prints is lost and every wait has a limit. A machine is killed
//! when its [`Running`] is dropped, and when this process dies.

mod console;
pub mod qmp;

pub use console::{Console, Ended, Patience};

use std::ffi::OsString;
use std::io::{PipeReader, PipeWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::pipe::fcntl_setpipe_size;
use rustix::process::Signal;

use crate::process::{command_line, dying_with_us};

/// What a terminal takes that nobody reads from.
const TERMINAL_BYTES: usize = 4096;

/// How virtual time and threads work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timing {
    /// One instruction is one virtual nanosecond, one thread runs all CPUs in turn, and
    /// equal seeds give equal runs (QEMU's `-icount shift=0,sleep=off`).
    Deterministic {
        /// The seed of QEMU's random numbers.
        seed: u64,
    },
    /// The same, with instructions that take longer: a slow machine, on which much
    /// virtual time costs little of this one's.
    Slow {
        /// The seed of QEMU's random numbers.
        seed: u64,
        /// An instruction is 2 to the power of this many virtual nanoseconds; at most 10.
        shift: u8,
    },
    /// Every CPU has a thread of its own; finds races, measures nothing.
    Threads,
}

impl Timing {
    /// A short name for lines of results.
    pub fn label(self) -> String {
        match self {
            Self::Deterministic { seed } => format!("icount seed {seed}"),
            Self::Slow { seed, shift } => format!("icount shift {shift} seed {seed}"),
            Self::Threads => "threads".to_owned(),
        }
    }
}

/// A QEMU command line in the making.
#[derive(Debug, Clone)]
pub struct Qemu {
    binary: PathBuf,
    args: Vec<OsString>,
}

impl Qemu {
    /// The `virt` machine with `cpus` CPUs of the model `cpu` (`la464,lvz=on`) and
    /// `memory_mib` MiB; its first serial port is this program's, it has no network and
    /// no display.
    pub fn new(binary: &Path, cpu: &str, cpus: u32, memory_mib: u32, timing: Timing) -> Self {
        let qemu = Self {
            binary: binary.to_path_buf(),
            args: Vec::new(),
        };
        let qemu = qemu
            .args([
                "-M",
                "virt",
                "-cpu",
                cpu,
                "-smp",
                &cpus.to_string(),
                "-m",
                &format!("{memory_mib}M"),
            ])
            .args([
                "-display", "none", "-vga", "none", "-serial", "stdio", "-monitor", "none",
            ])
            .args(["-nic", "none", "-no-reboot"]);
        match timing {
            Timing::Deterministic { seed } => qemu.counted(seed, 0),
            Timing::Slow { seed, shift } => qemu.counted(seed, shift),
            Timing::Threads => qemu.args(["-accel", "tcg,thread=multi"]),
        }
    }

    /// With time that instructions make.
    fn counted(self, seed: u64, shift: u8) -> Self {
        self.args(["-icount", &format!("shift={shift},sleep=off")])
            .args(["-rtc", "base=2026-01-01,clock=vm"])
            .args(["-seed", &seed.to_string()])
    }

    /// Adds arguments.
    pub fn args<S: Into<OsString>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Adds the kernel (an ELF or PE file) to start.
    pub fn kernel(self, image: &Path) -> Self {
        self.args(["-kernel".into(), OsString::from(image)])
    }

    /// Adds the initramfs of the kernel.
    pub fn initrd(self, image: &Path) -> Self {
        self.args(["-initrd".into(), OsString::from(image)])
    }

    /// Adds the kernel's command line.
    pub fn append(self, text: &str) -> Self {
        self.args(["-append", text])
    }

    /// The command line as one could type it into a shell.
    pub fn command_line(&self) -> String {
        command_line(&self.command())
    }

    fn command(&self) -> Command {
        let mut command = dying_with_us(&self.binary, Signal::KILL);
        command.args(&self.args);
        command
    }

    /// Runs it on this program's terminal, with QEMU's escape key (Ctrl-A) and monitor,
    /// and waits until it ends.
    ///
    /// # Errors
    /// The binary can't be started.
    pub fn on_terminal(mut self) -> Result<ExitStatus> {
        for arg in self.args.iter_mut().filter(|arg| *arg == "stdio") {
            *arg = "mon:stdio".into();
        }
        let status = self.command().status();
        status.with_context(|| format!("can't start {}", self.command_line()))
    }

    /// Starts it, with nobody at its keyboard.
    ///
    /// # Errors
    /// The binary can't be started.
    pub fn spawn(&self) -> Result<Running> {
        self.spawn_with(Stdio::null(), std::io::pipe()?)
    }

    /// Starts it; what [`Running::type_text`] gets is typed on its serial port.
    ///
    /// # Errors
    /// The binary can't be started.
    pub fn spawn_with_keyboard(&self) -> Result<Running> {
        self.spawn_with(Stdio::piped(), std::io::pipe()?)
    }

    /// The same; what nobody reads stays in the machine's serial port, where it would
    /// stop the whole machine otherwise.
    ///
    /// # Errors
    /// The binary can't be started.
    pub fn spawn_with_terminal(&self) -> Result<Running> {
        let pipe = std::io::pipe()?;
        let flags = fcntl_getfl(&pipe.1)?;
        fcntl_setfl(&pipe.1, flags | OFlags::NONBLOCK)?;
        fcntl_setpipe_size(&pipe.1, TERMINAL_BYTES)?;
        self.spawn_with(Stdio::piped(), pipe)
    }

    fn spawn_with(
        &self,
        stdin: Stdio,
        (reader, writer): (PipeReader, PipeWriter),
    ) -> Result<Running> {
        let mut command = self.command();
        command
            .stdin(stdin)
            .stdout(writer.try_clone()?)
            .stderr(writer);
        let line = self.command_line();
        let mut child = command
            .spawn()
            .with_context(|| format!("can't start {line}"))?;
        let keyboard = child.stdin.take();
        // With the last writer's end gone, the reader sees the end when QEMU ends.
        drop(command);
        Ok(Running {
            child,
            keyboard,
            console: Console::read_from(reader),
            line,
        })
    }
}

/// A started QEMU.
pub struct Running {
    child: Child,
    keyboard: Option<ChildStdin>,
    line: String,
    /// What the machine prints on its serial port, and QEMU itself on standard error.
    pub console: Console,
}

impl Running {
    /// The command line, to repeat the run by hand.
    pub fn command_line(&self) -> &str {
        &self.line
    }

    /// Types `text` on the machine's serial port.
    ///
    /// # Errors
    /// It has no keyboard, or has ended.
    pub fn type_text(&mut self, text: &str) -> Result<()> {
        let keyboard = self
            .keyboard
            .as_mut()
            .context("this machine has no keyboard")?;
        keyboard.write_all(text.as_bytes())?;
        keyboard.flush().context("the machine takes no input")
    }

    /// Waits until QEMU ends by itself: while anything is printed, and for `limit` then.
    ///
    /// # Errors
    /// The time is over; QEMU still runs.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let started = Instant::now();
        let mut patience = Patience::new(limit, self.console.length());
        while patience.left(self.console.length()).is_some() {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        bail!("QEMU still runs after {} s", started.elapsed().as_secs())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Errors mean that it has ended already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Qemu {
        Qemu {
            binary: "sh".into(),
            args: vec!["-c".into(), script.into()],
        }
    }

    #[test]
    fn the_command_line_can_be_typed() {
        let timing = Timing::Deterministic { seed: 7 };
        let qemu =
            Qemu::new(Path::new("/q"), "la464,lvz=on", 4, 1024, timing).append("mode=bench x");
        let line = qemu.command_line();
        assert!(
            line.starts_with("/q -M virt -cpu la464,lvz=on -smp 4 -m 1024M"),
            "{line}"
        );
        assert!(
            line.contains("-seed 7") && line.ends_with("-append 'mode=bench x'"),
            "{line}"
        );
    }

    #[test]
    fn what_the_program_prints_is_seen() {
        let mut running = shell("echo hello; echo oops >&2").spawn().unwrap();
        let limit = Duration::from_secs(10);
        running.console.wait_for("hello", limit).unwrap();
        running.console.wait_for("oops", limit).unwrap();
        assert!(running.wait(limit).unwrap().success());
    }

    #[test]
    fn what_is_typed_arrives() {
        let mut running = shell("read line; echo got $line")
            .spawn_with_keyboard()
            .unwrap();
        running.type_text("it\n").unwrap();
        let limit = Duration::from_secs(10);
        assert_eq!(running.console.wait_for(" it", limit).unwrap(), "got");
        assert!(shell("true").spawn().unwrap().type_text("x").is_err());
    }

    #[test]
    fn a_dropped_machine_is_dead() {
        let running = shell("echo $$; exec sleep 60").spawn().unwrap();
        let pid = running.child.id();
        drop(running);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn a_wait_has_an_end() {
        let mut running = shell("exec sleep 60").spawn().unwrap();
        assert!(running.wait(Duration::from_millis(50)).is_err());
    }
}
