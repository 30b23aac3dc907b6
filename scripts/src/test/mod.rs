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
mod tally;
mod wake;

pub use tally::Tally;

use anyhow::{Result, bail};

use crate::context::Context;
use crate::hint::{failure, report};
use crate::setup;

/// How the parts of a test should run.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Run the long form.
    pub long: bool,
    /// The first seed of deterministic runs; none means the part's own fixed ones.
    pub seed: Option<u64>,
    /// Run only the steps with this in their name, where a part's steps have names.
    pub only: Option<String>,
}

/// One part of the test.
pub trait Part {
    /// Its name, an argument of `cargo xtask test`.
    fn name(&self) -> &'static str;

    /// What it tests, in a few words.
    fn about(&self) -> &'static str;

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

/// Runs the parts `names`, or all of them if none is named; the last line printed is
/// the sum. Returns whether everything passed.
///
/// # Errors
/// There is no part of such a name.
pub fn run(cx: &Context, names: &[String], options: &Options) -> Result<bool> {
    let parts = parts();
    if let Some(name) = names
        .iter()
        .find(|name| !parts.iter().any(|part| part.name() == name.as_str()))
    {
        let what = format!("there is no test part `{name}`");
        return Err(failure(what, "`cargo xtask test --list` names the parts"));
    }
    let chosen = parts
        .iter()
        .filter(|part| names.is_empty() || names.iter().any(|name| name == part.name()));
    let tallies: Vec<Tally> = chosen
        .map(|part| run_part(cx, part.as_ref(), options))
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

/// Prints the parts.
pub fn list() {
    for part in parts() {
        println!("{:8} {}", part.name(), part.about());
    }
}
