//! Running other programs.
//!
//! Every program this tool starts dies with it (a killed `setup` must not leave a
//! build running that the next one would collide with), and everything it prints
//! goes into a log file whose end is shown when it fails.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::cache::make_folder;

/// How many lines of a failed program's output an error shows.
const SHOWN: usize = 15;

/// A command for `program` that gets SIGTERM when the thread that starts it ends.
///
/// Start it from a thread that lives as long as the program may: the kernel looks at
/// the parent *thread* (prctl(2), PR_SET_PDEATHSIG).
pub fn command(program: impl AsRef<OsStr>) -> Command {
    dying_with_us(program, Signal::TERM)
}

/// Like [`command`], with the signal to send.
pub fn dying_with_us(program: impl AsRef<OsStr>, signal: Signal) -> Command {
    let mut command = Command::new(program);
    let die_with_parent = move || Ok(set_parent_process_death_signal(Some(signal))?);
    // SAFETY: the closure only makes one system call, prctl(2), and turns its errno
    // into an error: it neither allocates nor takes a lock, as code between fork and
    // exec must not.
    unsafe { command.pre_exec(die_with_parent) };
    command
}

/// Runs `command` to its end and returns its standard output.
///
/// # Errors
/// It can't be started, or ends with another code than 0: the error has the command
/// line and the end of what it printed.
pub fn output(command: &mut Command) -> Result<String> {
    command.stdin(Stdio::null());
    let line = command_line(command);
    let output = command
        .output()
        .with_context(|| format!("can't start {line}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!(
            "`{line}` failed ({}):\n{}",
            output.status,
            tail(&format!("{text}{errors}"), SHOWN)
        );
    }
    Ok(text)
}

/// A log file that programs write to, and from which errors quote.
#[derive(Debug, Clone)]
pub struct Log {
    path: PathBuf,
}

impl Log {
    /// A new, empty log at `path`.
    ///
    /// # Errors
    /// The file can't be made.
    pub fn create(path: PathBuf) -> Result<Self> {
        make_folder(path.parent().context("a log needs a folder")?)?;
        File::create(&path).with_context(|| format!("can't write {}", path.display()))?;
        Ok(Self { path })
    }

    /// Where the log is.
    #[cfg(test)]
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Runs `command` to its end; standard output and error go to the log, and line by
    /// line to `each`.
    ///
    /// # Errors
    /// It can't be started, or ends with another code than 0: the error has the command
    /// line, the end of what it printed, and the log's path.
    pub fn run(&self, command: &mut Command, mut each: impl FnMut(&str)) -> Result<()> {
        let line = command_line(command);
        let mut file = OpenOptions::new().append(true).open(&self.path)?;
        writeln!(file, "$ {line}")?;
        let (reader, writer) = std::io::pipe()?;
        command
            .stdin(Stdio::null())
            .stdout(writer.try_clone()?)
            .stderr(writer);
        let mut child = command
            .spawn()
            .with_context(|| format!("can't start {line}"))?;
        // The command keeps its ends of the pipe until they are replaced; without this
        // the loop below would never see the end.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut printed = Vec::new();
        for text in lossy_lines(BufReader::new(reader)) {
            writeln!(file, "{text}")?;
            each(&text);
            printed.push(text);
        }
        let status = child.wait()?;
        if !status.success() {
            let end = tail(&printed.join("\n"), SHOWN);
            bail!(
                "`{line}` failed ({status}); the whole log is {}:\n{end}",
                self.path.display()
            );
        }
        Ok(())
    }
}

/// The lines of `reader`, whatever bytes are in them.
fn lossy_lines(reader: impl BufRead) -> impl Iterator<Item = String> {
    let pieces = reader.split(b'\n').map_while(Result::ok);
    pieces.map(|bytes| {
        String::from_utf8_lossy(&bytes)
            .trim_end_matches('\r')
            .to_owned()
    })
}

/// The last `shown` lines of `text`, indented.
pub fn tail(text: &str, shown: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(shown);
    lines[from..]
        .iter()
        .map(|line| format!("    {line}\n"))
        .collect()
}

/// `command` as one could type it into a shell.
pub fn command_line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| quoted(&word.to_string_lossy()))
        .collect::<Vec<_>>()
        .join(" ")
}

/// `word` quoted for a POSIX shell, where it needs to be.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Whether `program` can be found in `PATH`.
pub fn in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> (tempfile::TempDir, Log) {
        let folder = tempfile::tempdir().unwrap();
        let log = Log::create(folder.path().join("logs/x.log")).unwrap();
        (folder, log)
    }

    #[test]
    fn a_run_logs_both_streams_and_calls_back() {
        let (_folder, log) = log();
        let mut seen = Vec::new();
        let mut sh = command("sh");
        log.run(sh.args(["-c", "echo one; echo two >&2"]), |line| {
            seen.push(line.to_owned())
        })
        .unwrap();
        assert_eq!(seen, ["one", "two"]);
        let text = std::fs::read_to_string(log.path()).unwrap();
        assert_eq!(text, "$ sh -c 'echo one; echo two >&2'\none\ntwo\n");
    }

    #[test]
    fn a_failed_run_quotes_the_end_of_the_output() {
        let (_folder, log) = log();
        let mut sh = command("sh");
        let error = log
            .run(sh.args(["-c", "seq 100; exit 3"]), |_| ())
            .unwrap_err()
            .to_string();
        assert!(error.contains("exit status: 3"), "{error}");
        assert!(
            error.contains("    100\n") && !error.contains("    85\n"),
            "{error}"
        );
    }

    #[test]
    fn output_needs_success() {
        assert_eq!(output(command("echo").arg("hello")).unwrap(), "hello\n");
        assert!(output(&mut command("false")).is_err());
        assert!(output(&mut command("/nonexistent/program")).is_err());
    }

    #[test]
    fn a_child_is_told_when_its_parent_thread_dies() {
        let started = std::thread::spawn(|| command("sleep").arg("60").spawn().unwrap());
        let mut child = started.join().unwrap();
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("-cpu"), "-cpu");
        assert_eq!(quoted("la464,lvz=on"), "la464,lvz=on");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
