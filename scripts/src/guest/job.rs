//! A script to run inside a machine.
//!
//! A job is a small archive that is put before an image: its script is `/job`, what
//! the script uses lies in `/job.d`. Nothing is typed into the machine, so a
//! deterministic run stays one: typed characters come at the host's time.

use std::fs;

use anyhow::{Context as _, Result};

use super::cpio::Archive;
use crate::context::Context;
use crate::process::quoted;

/// A script and the files it uses.
#[derive(Debug, Clone)]
pub struct Job {
    archive: Archive,
}

impl Job {
    /// The script `name` of tests/linux, with `variables` set.
    ///
    /// # Errors
    /// There is no such script.
    pub fn new(cx: &Context, name: &str, variables: &[(&str, String)]) -> Result<Self> {
        Self::from_text(cx, &script(cx, name)?, variables)
    }

    /// The shell script `text`, with `variables` set; `/job.d/lib.sh` is there for it.
    ///
    /// # Errors
    /// tests/linux can't be read.
    pub fn from_text(cx: &Context, text: &str, variables: &[(&str, String)]) -> Result<Self> {
        let settings = variables
            .iter()
            .map(|(name, value)| format!("{name}={}\n", quoted(value)));
        let mut archive = Archive::default();
        archive.file("job", settings.collect::<String>() + text)?;
        archive.file("job.d/lib.sh", script(cx, "lib.sh")?)?;
        Ok(Self { archive })
    }

    /// No script, but what scripts use: `/job.d/lib.sh` alone.
    ///
    /// # Errors
    /// tests/linux can't be read.
    pub fn library(cx: &Context) -> Result<Self> {
        let mut archive = Archive::default();
        archive.file("job.d/lib.sh", script(cx, "lib.sh")?)?;
        Ok(Self { archive })
    }

    /// Adds the file `/job.d/<name>`.
    ///
    /// # Errors
    /// `name` is no file name.
    pub fn with_file(mut self, name: &str, content: impl Into<Vec<u8>>) -> Result<Self> {
        self.archive.file(&format!("job.d/{name}"), content)?;
        Ok(self)
    }

    /// The archive, to be put before an image.
    pub fn bytes(&self) -> Vec<u8> {
        self.archive.bytes()
    }
}

/// The text of the script `name` of tests/linux.
fn script(cx: &Context, name: &str) -> Result<String> {
    let path = cx.repo("tests/linux").join(name);
    fs::read_to_string(&path).with_context(|| format!("can't read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_come_before_the_script_and_are_quoted() {
        let cache = tempfile::tempdir().unwrap();
        let cx = Context::for_tests(cache.path());
        let variables = [("APPEND", "a 'b' c".to_owned()), ("N", "4".to_owned())];
        let job = Job::from_text(&cx, "echo $N\n", &variables).unwrap();
        let bytes = job.with_file("guest.cpio", *b"x").unwrap().bytes();
        let text = String::from_utf8_lossy(&bytes);
        assert!(
            text.contains("APPEND='a '\\''b'\\'' c'\nN=4\necho $N\n"),
            "{text}"
        );
        assert!(
            text.contains("job.d/guest.cpio") && text.contains("snapshot()"),
            "{text}"
        );
    }
}
