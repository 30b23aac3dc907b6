//! Progress on a terminal, plain lines elsewhere.
//!
//! On a terminal each task is a line of its own that moves, with a bar when its
//! length is known. Anywhere else (CI, a pipe) the same facts come as plain lines, at
//! most one in [`QUIET`] seconds. All of it goes to standard error: standard output
//! belongs to results.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Plain lines of one task come no closer together than this.
const QUIET: Duration = Duration::from_secs(15);

/// How this run shows progress.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    interactive: bool,
}

impl Progress {
    /// Moving lines if standard error is a terminal, plain ones otherwise.
    pub fn detect() -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self {
            interactive: std::io::stderr().is_terminal() && !dumb,
        }
    }

    /// No moving lines, whatever standard error is.
    #[cfg(test)]
    pub fn plain() -> Self {
        Self { interactive: false }
    }

    /// Starts showing the task `name`; it ends when the [`Task`] is finished or dropped.
    pub fn task(&self, name: &str) -> Task {
        let target = match self.interactive {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(None, target);
        bar.set_style(style("{spinner} {prefix}: {wide_msg} {elapsed}"));
        bar.set_prefix(name.to_owned());
        bar.enable_steady_tick(Duration::from_millis(200));
        let now = Instant::now();
        Task {
            name: name.to_owned(),
            plain: !self.interactive,
            bar,
            started: now,
            said: now,
        }
    }
}

/// One task being shown.
pub struct Task {
    name: String,
    plain: bool,
    bar: ProgressBar,
    started: Instant,
    said: Instant,
}

impl Task {
    /// Says what the task is doing now.
    pub fn doing(&mut self, what: &str) {
        self.bar.set_message(what.to_owned());
        self.say(what);
    }

    /// Says that `done` of `total` pieces are done; `what` names the present one.
    pub fn count(&mut self, done: u64, total: u64, what: &str) {
        if self.bar.length() != Some(total) {
            self.bar.set_style(style(
                "{spinner} {prefix}: {bar:30} {pos} of {len} {wide_msg} {elapsed}",
            ));
            self.bar.set_length(total);
        }
        self.bar.set_position(done);
        self.bar.set_message(what.to_owned());
        self.say(&format!("{done} of {total} {what}"));
    }

    /// Prints a line that stays, above the moving one.
    pub fn line(&self, text: &str) {
        self.bar.suspend(|| eprintln!("{text}"));
    }

    /// How long the task has run.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Ends the task with a line that stays: its name, `outcome` and the time it took.
    pub fn finish(self, outcome: &str) {
        self.bar.finish_and_clear();
        eprintln!(
            "{}: {outcome} ({})",
            self.name,
            seconds(self.started.elapsed())
        );
    }

    /// A plain line with the time so far, unless the last one is too recent.
    fn say(&mut self, what: &str) {
        if self.plain && self.said.elapsed() >= QUIET {
            self.said = Instant::now();
            eprintln!(
                "{}: {what} ({})",
                self.name,
                seconds(self.started.elapsed())
            );
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A span of time as a person reads it: `0.4 s`, `12 s`, `3 min 05 s`.
pub fn seconds(span: Duration) -> String {
    let whole = span.as_secs();
    match whole {
        0..10 => format!("{:.1} s", span.as_secs_f64()),
        10..60 => format!("{whole} s"),
        _ => format!("{} min {:02} s", whole / 60, whole % 60),
    }
}

/// A style from a template of ours; a template that doesn't parse gives the default.
fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_readable() {
        assert_eq!(seconds(Duration::from_millis(430)), "0.4 s");
        assert_eq!(seconds(Duration::from_secs(12)), "12 s");
        assert_eq!(seconds(Duration::from_secs(185)), "3 min 05 s");
    }
}
