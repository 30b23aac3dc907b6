//! QEMU's machine protocol, as far as tests need it.
//!
//! One JSON object a line, over a Unix socket. Facts: QEMU's docs/interop/qmp-spec.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

/// How long a single answer may take.
const ANSWER: Duration = Duration::from_secs(60);

/// A connection to the monitor of a running QEMU.
pub struct Qmp {
    stream: UnixStream,
    lines: std::io::Lines<BufReader<UnixStream>>,
}

impl Qmp {
    /// The arguments that make QEMU listen on `socket` for [`Qmp::connect`].
    pub fn args(socket: &Path) -> [String; 2] {
        [
            "-qmp".to_owned(),
            format!("unix:{},server=on,wait=off", socket.display()),
        ]
    }

    /// Connects to the QEMU that listens on `socket`, which may have to start yet.
    ///
    /// # Errors
    /// Nobody listens there within `limit`, or what does isn't QEMU.
    pub fn connect(socket: &Path, limit: Duration) -> Result<Self> {
        let end = Instant::now() + limit;
        let stream = loop {
            match UnixStream::connect(socket) {
                Ok(stream) => break stream,
                Err(error) if Instant::now() >= end => {
                    return Err(error)
                        .with_context(|| format!("QEMU doesn't listen on {}", socket.display()));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        stream.set_read_timeout(Some(ANSWER))?;
        let lines = BufReader::new(stream.try_clone()?).lines();
        let mut qmp = Self { stream, lines };
        if qmp.read()?.get("QMP").is_none() {
            bail!("the monitor's greeting isn't QEMU's");
        }
        qmp.execute("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// Runs `command` and returns its result. Events that come in between are skipped.
    ///
    /// # Errors
    /// QEMU refuses the command, or has ended.
    pub fn execute(&mut self, command: &str, arguments: Value) -> Result<Value> {
        let request = json!({ "execute": command, "arguments": arguments });
        writeln!(self.stream, "{request}").with_context(|| format!("QEMU takes no `{command}`"))?;
        loop {
            let answer = self.read()?;
            if let Some(error) = answer.get("error") {
                bail!("QEMU refused `{command}`: {error}");
            }
            if let Some(result) = answer.get("return") {
                return Ok(result.clone());
            }
        }
    }

    /// Waits for the job `id` to conclude and dismisses it.
    ///
    /// # Errors
    /// The job failed, isn't done within a minute, or QEMU has ended.
    pub fn finish_job(&mut self, id: &str) -> Result<()> {
        let end = Instant::now() + ANSWER;
        while Instant::now() < end {
            let jobs = self.execute("query-jobs", json!({}))?;
            let job = jobs
                .as_array()
                .into_iter()
                .flatten()
                .find(|job| job["id"] == id);
            let job = job.with_context(|| format!("QEMU knows no job `{id}`"))?;
            if let Some(error) = job.get("error") {
                bail!("the job `{id}` failed: {error}");
            }
            if job["status"] == "concluded" {
                self.execute("job-dismiss", json!({ "id": id }))?;
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("the job `{id}` isn't done after {} s", ANSWER.as_secs())
    }

    /// The next object.
    fn read(&mut self) -> Result<Value> {
        let line = self.lines.next().context("QEMU has closed its monitor")?;
        let line = line.context("QEMU's monitor doesn't answer")?;
        serde_json::from_str(&line).with_context(|| format!("QEMU's monitor sent no JSON: {line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A monitor that answers each request by the next of `answers`.
    fn fake<const N: usize>(answers: [&'static str; N]) -> (tempfile::TempDir, Result<Qmp>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("qmp");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut requests = BufReader::new(stream.try_clone().unwrap()).lines();
            writeln!(stream, "{}", answers[0]).unwrap();
            for answer in &answers[1..] {
                requests.next().unwrap().unwrap();
                writeln!(stream, "{answer}").unwrap();
            }
        });
        let qmp = Qmp::connect(&path, Duration::from_secs(10));
        (folder, qmp)
    }

    const GREETING: &str = r#"{"QMP": {"version": {}}}"#;
    const DONE: &str = r#"{"return": {}}"#;

    #[test]
    fn events_are_skipped_and_results_returned() {
        let answer = "{\"event\": \"STOP\"}\n{\"return\": {\"status\": \"paused\"}}";
        let (_folder, qmp) = fake([GREETING, DONE, answer]);
        assert_eq!(
            qmp.unwrap().execute("query-status", json!({})).unwrap()["status"],
            "paused"
        );
    }

    #[test]
    fn a_refusal_and_an_end_are_errors() {
        let (_folder, qmp) = fake([GREETING, DONE, r#"{"error": {"desc": "no such thing"}}"#]);
        let mut qmp = qmp.unwrap();
        assert!(
            qmp.execute("x", json!({}))
                .unwrap_err()
                .to_string()
                .contains("no such thing")
        );
        assert!(qmp.execute("y", json!({})).is_err());
        let (_folder, other) = fake([r#"{"hello": 1}"#, DONE]);
        assert!(other.is_err());
    }

    #[test]
    fn jobs_are_waited_for_and_their_errors_told() {
        let running = r#"{"return": [{"id": "j", "status": "running"}]}"#;
        let concluded = r#"{"return": [{"id": "j", "status": "concluded"}]}"#;
        let (_folder, qmp) = fake([GREETING, DONE, running, concluded, DONE]);
        qmp.unwrap().finish_job("j").unwrap();
        let failed = r#"{"return": [{"id": "j", "status": "concluded", "error": "disk full"}]}"#;
        let (_folder, qmp) = fake([GREETING, DONE, failed]);
        assert!(
            qmp.unwrap()
                .finish_job("j")
                .unwrap_err()
                .to_string()
                .contains("disk full")
        );
    }
}
