//! `cargo xtask test`: the parts, and the one list they stand in.

mod alone;
mod flash;
mod host;
mod hv;
mod ipi;
mod kvm;
mod lines;
mod linux;
mod lvz;
mod rig;
mod tally;
mod wake;

pub use rig::Rig;
pub use tally::Tally;

use std::time::Instant;

use anyhow::{Result, bail};

use crate::context::Context;
use crate::hint::{failure, report};
use crate::progress::seconds;
use crate::setup;

/// How the parts of a test should run.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Run the long form.
    pub long: bool,
    /// The first seed of deterministic runs; none means the part's own fixed ones.
    pub seed: Option<u64>,
    /// Run only the steps with this in their name.
    pub only: Option<String>,
}

impl Options {
    /// Whether the step `name` is to run.
    fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| name.contains(only))
    }

    /// Runs those of a part's `steps` that are wanted, and says how long each took.
    ///
    /// # Errors
    /// That of the first step that can't go on.
    pub fn run_steps<S>(
        &self,
        steps: &[(&str, S)],
        mut run: impl FnMut(&S) -> Result<()>,
    ) -> Result<()> {
        for (name, step) in steps.iter().filter(|(name, _)| self.wants(name)) {
            let started = Instant::now();
            run(step)?;
            eprintln!("{name} took {}", seconds(started.elapsed()));
        }
        Ok(())
    }
}

/// The names of `steps`.
fn names<S>(steps: &[(&'static str, S)]) -> Vec<&'static str> {
    steps.iter().map(|(name, _)| *name).collect()
}

/// One part of the test.
pub trait Part {
    /// Its name, an argument of `cargo xtask test`.
    fn name(&self) -> &'static str;

    /// What it tests, in a few words.
    fn about(&self) -> &'static str;

    /// The names of its steps, which [`Options::only`] chooses from.
    fn steps(&self) -> Vec<&'static str>;

    /// The setup steps that must be done before.
    fn needs(&self) -> Vec<&'static str>;

    /// Runs its checks, and counts each in `tally`.
    ///
    /// # Errors
    /// It can't go on; that counts as one failed check of its own.
    fn run(&self, cx: &Context, options: &Options, tally: &mut Tally) -> Result<()>;
}

/// All parts, in the order they run in: the quick ones first; a new one is a line here.
pub fn parts() -> Vec<Box<dyn Part>> {
    vec![
        Box::new(host::Host),
        Box::new(lvz::Lvz),
        Box::new(hv::Hv),
        Box::new(ipi::Ipi),
        Box::new(linux::Linux),
        Box::new(flash::Flash),
        Box::new(wake::Wake),
        Box::new(kvm::Kvm),
    ]
}

/// Runs the parts `names`, or all of them if none is named, but for those without a step
/// that is wanted; the last line printed is the sum. Returns whether everything passed.
///
/// # Errors
/// There is no part of such a name, or no such step in any of them.
pub fn run(cx: &Context, names: &[String], options: &Options) -> Result<bool> {
    let parts = parts();
    if let Some(name) = names
        .iter()
        .find(|name| !parts.iter().any(|part| part.name() == name.as_str()))
    {
        let what = format!("there is no test part `{name}`");
        return Err(failure(what, "`cargo xtask test --list` names the parts"));
    }
    let named = |part: &&dyn Part| names.is_empty() || names.iter().any(|name| name == part.name());
    let chosen: Vec<&dyn Part> = parts.iter().map(Box::as_ref).filter(named).collect();
    let (wanted, others): (Vec<&dyn Part>, Vec<_>) = chosen
        .into_iter()
        .partition(|part| part.steps().iter().any(|step| options.wants(step)));
    if wanted.is_empty() {
        let what = format!(
            "no step has `{}` in its name",
            options.only.as_deref().unwrap_or_default()
        );
        let steps: Vec<&str> = others.iter().flat_map(|part| part.steps()).collect();
        return Err(failure(what, format!("there are {}", steps.join(", "))));
    }
    let tallies: Vec<Tally> = wanted
        .into_iter()
        .map(|part| run_part(cx, part, options))
        .collect();
    Ok(tally::summarize(&tallies))
}

/// Runs one part, with what it needs.
fn run_part(cx: &Context, part: &dyn Part, options: &Options) -> Tally {
    let mut tally = Tally::new(part.name());
    let ready = setup::ensure(cx, &part.needs());
    let ran = ready
        .and_then(|()| part.run(cx, options, &mut tally))
        .and_then(|()| match tally.is_empty() {
            true => bail!("it made no check at all"),
            false => Ok(()),
        });
    if let Err(error) = ran {
        tally.fail(part.name(), &report(&error));
    }
    tally.close();
    tally
}

/// Prints the parts, and the names of their steps.
pub fn list() {
    for part in parts() {
        println!("{:8} {}", part.name(), part.about());
        println!("         {}", part.steps().join(", "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_wanted_runs() {
        let steps = [("boot", 1), ("reboots", 2), ("load", 3)];
        for (only, expected) in [(None, vec![1, 2, 3]), (Some("boot"), vec![1, 2])] {
            let options = Options {
                only: only.map(str::to_owned),
                ..Options::default()
            };
            let mut ran = Vec::new();
            let run = options.run_steps(&steps, |step| {
                ran.push(*step);
                Ok(())
            });
            assert!(run.is_ok());
            assert_eq!(ran, expected);
        }
    }

    #[test]
    fn every_part_has_steps_and_a_wrong_name_is_refused() {
        assert!(parts().iter().all(|part| !part.steps().is_empty()));
        let folder = tempfile::tempdir().unwrap();
        let cx = Context::for_tests(folder.path());
        let options = Options {
            only: Some("nothing".to_owned()),
            ..Options::default()
        };
        let refused = run(&cx, &["lvz".to_owned()], &options).unwrap_err();
        assert!(report(&refused).contains("vmstate"), "{refused:#}");
    }
}
