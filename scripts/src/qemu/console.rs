//! What a machine prints, as it comes.

use std::io::{PipeReader, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How many times its limit a wait takes at most where something is printed all the time.
const LONGEST: u32 = 4;

/// A wait's limit, which is counted anew from every sign of life: a machine that is slow
/// gets on, and one that hangs is silent.
#[derive(Debug)]
pub struct Patience {
    limit: Duration,
    until: Instant,
    end: Instant,
    signs: usize,
}

impl Patience {
    /// Patience for `limit` without a sign of life, and for [`LONGEST`] times that in all;
    /// `signs` is how many there have been.
    pub fn new(limit: Duration, signs: usize) -> Self {
        let now = Instant::now();
        Self {
            limit,
            until: now + limit,
            end: now + limit * LONGEST,
            signs,
        }
    }

    /// How much is left of it when there have been `signs` signs of life; none once it is
    /// at an end.
    pub fn left(&mut self, signs: usize) -> Option<Duration> {
        let now = Instant::now();
        if signs != self.signs {
            self.signs = signs;
            self.until = self.end.min(now + self.limit);
        }
        let left = self.until.saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }
}

/// Why a wait came back without what it waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Nothing has come for the time given; the machine still runs.
    Timeout,
    /// The machine has closed its output; all that it printed has been read.
    Closed,
}

/// How much is read at a time, in bytes.
const PIECE: usize = 4096;

/// Everything read so far.
#[derive(Default)]
struct Printed {
    bytes: Vec<u8>,
    closed: bool,
}

/// The output of a running machine; a thread reads it into memory all the time.
pub struct Console {
    shared: Arc<(Mutex<Printed>, Condvar)>,
    /// Who has it may read the machine's output.
    gate: Arc<Mutex<()>>,
    /// How many bytes the waits have gone past.
    seen: usize,
}

impl Console {
    /// Starts reading `pipe`.
    pub fn read_from(mut pipe: PipeReader) -> Self {
        let shared = Arc::new((Mutex::new(Printed::default()), Condvar::new()));
        let theirs = Arc::clone(&shared);
        let gate = Arc::new(Mutex::new(()));
        let way = Arc::clone(&gate);
        std::thread::spawn(move || {
            let mut piece = [0; PIECE];
            loop {
                drop(lock(&way));
                let length = pipe.read(&mut piece).unwrap_or(0);
                let mut printed = lock(&theirs.0);
                printed.bytes.extend_from_slice(&piece[..length]);
                printed.closed = length == 0;
                theirs.1.notify_all();
                if printed.closed {
                    return;
                }
            }
        });
        Self {
            shared,
            gate,
            seen: 0,
        }
    }

    /// Nobody reads what the machine prints, but for one piece of it, until what this
    /// gives is dropped: as when a user has stopped the terminal.
    pub fn stop(&self) -> MutexGuard<'_, ()> {
        lock(&self.gate)
    }

    /// The next line, without its end; waits for it while anything is printed, and for
    /// `limit` then. The last line of a closed output counts even without its end.
    ///
    /// # Errors
    /// No line came.
    pub fn next_line(&mut self, limit: Duration) -> Result<String, Ended> {
        self.wait(limit, |new, closed| {
            match new.iter().position(|byte| *byte == b'\n') {
                Some(end) => Some((end, end + 1)),
                None => (closed && !new.is_empty()).then_some((new.len(), new.len())),
            }
        })
        .map(|line| line.trim_end_matches('\r').to_owned())
    }

    /// Waits until `text` is printed, and goes past it; returns what came before it. It
    /// need not be a whole line: a prompt has no end of line. Gives up when nothing has
    /// been printed for `limit`, or something all the time for [`LONGEST`] times that.
    ///
    /// # Errors
    /// It didn't come; the error says what came instead.
    pub fn wait_for(&mut self, text: &str, limit: Duration) -> Result<String> {
        let find = |new: &[u8], _closed| {
            let at = new
                .windows(text.len())
                .position(|window| window == text.as_bytes())?;
            Some((at, at + text.len()))
        };
        let ended = match self.wait(limit, find) {
            Ok(before) => return Ok(before),
            Err(ended) => ended,
        };
        let why = match ended {
            Ended::Timeout => format!("{} s or more have passed", limit.as_secs()),
            Ended::Closed => "the machine has ended".to_owned(),
        };
        bail!(
            "{why} without `{text}`; the last lines were:\n{}",
            self.tail(15)
        )
    }

    /// Everything printed so far, from the start. Bytes that aren't UTF-8 are replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }

    /// Every byte of a machine that has ended, or is to end within `limit`.
    pub fn all(&mut self, limit: Duration) -> Vec<u8> {
        // It finds nothing by design: it waits for the end.
        let _ = self.wait(limit, |_, _| None);
        self.bytes()
    }

    /// How many bytes have been printed so far.
    pub fn length(&self) -> usize {
        lock(&self.shared.0).bytes.len()
    }

    /// Every byte printed so far, from the start.
    pub fn bytes(&self) -> Vec<u8> {
        lock(&self.shared.0).bytes.clone()
    }

    /// The last `lines` lines printed so far, indented.
    pub fn tail(&self, lines: usize) -> String {
        crate::process::tail(&self.text(), lines)
    }

    /// Waits until `find` finds a place in what is new: it gives the end of the text to
    /// return, and where the next wait goes on.
    fn wait(
        &mut self,
        limit: Duration,
        find: impl Fn(&[u8], bool) -> Option<(usize, usize)>,
    ) -> Result<String, Ended> {
        let mut printed = lock(&self.shared.0);
        let mut patience = Patience::new(limit, printed.bytes.len());
        loop {
            let new = &printed.bytes[self.seen..];
            if let Some((text, next)) = find(new, printed.closed) {
                let text = String::from_utf8_lossy(&new[..text]).into_owned();
                self.seen += next;
                return Ok(text);
            }
            if printed.closed {
                return Err(Ended::Closed);
            }
            let Some(left) = patience.left(printed.bytes.len()) else {
                return Err(Ended::Timeout);
            };
            let waited = self.shared.1.wait_timeout(printed, left);
            printed = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Locks; a reader that panicked leaves whole bytes behind, so its lock is still good.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    fn console(text: &[u8]) -> (Console, std::io::PipeWriter) {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(text).unwrap();
        (Console::read_from(reader), writer)
    }

    #[test]
    fn lines_come_one_by_one_and_the_last_without_an_end() {
        let (mut console, writer) = console(b"one\r\n\ntwo");
        assert_eq!(console.next_line(SOON).unwrap(), "one");
        assert_eq!(console.next_line(SOON).unwrap(), "");
        assert_eq!(
            console.next_line(Duration::from_millis(20)),
            Err(Ended::Timeout)
        );
        drop(writer);
        assert_eq!(console.next_line(SOON).unwrap(), "two");
        assert_eq!(console.next_line(SOON), Err(Ended::Closed));
    }

    #[test]
    fn a_prompt_needs_no_end_of_line() {
        let (mut console, mut writer) = console(b"boot\n/ # ");
        console.wait_for("/ # ", SOON).unwrap();
        writer.write_all(b"echo\nhello\n").unwrap();
        console.wait_for("echo\n", SOON).unwrap();
        assert_eq!(console.next_line(SOON).unwrap(), "hello");
        drop(writer);
        let error = console.wait_for("bye", SOON).unwrap_err().to_string();
        assert!(
            error.contains("has ended") && error.contains("    hello\n"),
            "{error}"
        );
    }

    #[test]
    fn next_to_nothing_is_read_while_it_is_stopped() {
        let (mut console, mut writer) = console(b"");
        {
            let _stopped = console.stop();
            writer.write_all(&[b'x'; 3 * PIECE]).unwrap();
            writer.write_all(b"end\n").unwrap();
            std::thread::sleep(Duration::from_millis(50));
            // The piece that the reader was waiting for when it was stopped.
            assert!(console.length() <= PIECE);
        }
        console.wait_for("end", SOON).unwrap();
    }

    #[test]
    fn a_sign_of_life_gives_more_time() {
        let limit = Duration::from_secs(1000);
        let mut patience = Patience::new(limit, 5);
        patience.until = Instant::now();
        assert_eq!(patience.left(5), None);
        assert!(patience.left(6).is_some_and(|left| left > limit / 2));
        patience.end = Instant::now();
        assert_eq!(patience.left(7), None);
    }

    #[test]
    fn odd_bytes_do_no_harm() {
        let (mut console, _writer) = console(b"a\xffb\n");
        assert_eq!(console.next_line(SOON).unwrap(), "a\u{fffd}b");
        assert_eq!(console.bytes(), b"a\xffb\n");
    }
}
