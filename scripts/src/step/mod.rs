//! The step engine of `setup`.
//!
//! A step makes one folder in the cache. It is skipped while the hash of its inputs
//! is the one in its stamp and what it made is still there. Otherwise it runs in a
//! folder beside the final one, which is moved in place by a rename once complete;
//! the stamp is removed before and written last, so a step that was interrupted at
//! any point, by an error, a signal or a power loss, is simply not done yet.
//!
//! Two calls at once take turns by a lock on the cache. A call that finds every step
//! done takes no lock.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

use crate::cache::{Cache, make_folder, remove, write_atomically};
use crate::context::Context;
use crate::hash::Inputs;
use crate::hint::failure;
use crate::process::{self, Log};
use crate::progress::{Task, seconds};

/// One thing that `setup` does.
pub trait Step {
    /// Its name: a folder's name and an argument of `cargo xtask setup`.
    fn name(&self) -> &'static str;

    /// What it brings, in a few words, for the list of steps.
    fn about(&self) -> &'static str;

    /// The steps that must be done before. Their results count among the inputs.
    fn needs(&self, _cx: &Context) -> Vec<&'static str> {
        Vec::new()
    }

    /// Whether `cargo xtask setup` without names does it for its own sake.
    fn is_wanted(&self) -> bool {
        true
    }

    /// To be raised when the code of [`Step::run`] changes what it makes.
    fn revision(&self) -> u32 {
        1
    }

    /// The disk space it takes, in MiB, checked before it runs.
    fn disk_mib(&self) -> u64 {
        0
    }

    /// Adds all that its result depends on to `inputs`. Called on every command, so it
    /// must be quick and use no network.
    ///
    /// # Errors
    /// An input can't be read.
    fn inputs(&self, cx: &Context, inputs: &mut Inputs) -> Result<()>;

    /// Whether what it made outside its folder is still there. Called on every command.
    ///
    /// # Errors
    /// It can't be told.
    fn intact(&self, _cx: &Context) -> Result<bool> {
        Ok(true)
    }

    /// Does the work, leaving what it makes in `out.folder()`.
    ///
    /// # Errors
    /// Whatever went wrong, with what to do about it; the folder is then thrown away.
    fn run(&self, cx: &Context, out: &mut Output) -> Result<()>;
}

/// Where a running step leaves its results.
pub struct Output {
    folder: PathBuf,
    result: Option<String>,
    /// Programs the step starts write here.
    pub log: Log,
    /// Where the step shows its progress.
    pub task: Task,
}

impl Output {
    /// An output for tests of what steps call.
    ///
    /// # Panics
    /// The folder can't be written.
    #[cfg(test)]
    pub fn for_tests(folder: &Path, progress: crate::progress::Progress) -> Self {
        make_folder(folder).expect("a test's own folder");
        let log = Log::create(folder.join("log")).expect("a test's own folder");
        Self {
            folder: folder.to_path_buf(),
            result: None,
            log,
            task: progress.task("test"),
        }
    }

    /// The folder to fill. It moves to [`Cache::output`] when the step is complete, so
    /// nothing in it may hold its path.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Says what came out, in one line (a version, the hash of a file): it is shown to
    /// the user, and it is what later steps see of this one: they run again when it
    /// changes. Without it they see the hash of the inputs.
    pub fn set_result(&mut self, result: impl Into<String>) {
        self.result = Some(result.into());
    }
}

/// The record of a complete step.
#[derive(Debug, Serialize, Deserialize)]
pub struct Stamp {
    /// The hash of its inputs.
    pub inputs: String,
    /// What came out, in one line.
    pub result: String,
    /// How long it took, in seconds.
    pub seconds: f64,
}

impl Stamp {
    /// The stamp of the step `name`; none if the step isn't complete.
    pub fn read(cache: &Cache, name: &str) -> Option<Self> {
        serde_json::from_slice(&fs::read(cache.stamp(name)).ok()?).ok()
    }
}

/// Makes sure that the steps `names` of `steps`, and all that they need, are done.
///
/// # Errors
/// A step fails, or there is no step of such a name.
pub fn ensure(cx: &Context, steps: &[Box<dyn Step>], names: &[&str]) -> Result<()> {
    let order = in_order(cx, steps, names)?;
    let mut all_done = true;
    for step in &order {
        all_done = all_done && is_done(cx, *step)?;
    }
    if all_done {
        return Ok(());
    }
    let _lock = lock(&cx.cache)?;
    for step in order {
        if !is_done(cx, step)? {
            run(cx, step).with_context(|| format!("the setup step `{}` failed", step.name()))?;
        }
    }
    Ok(())
}

/// The steps `names` and all they need, each after what it needs.
///
/// # Errors
/// No step has such a name, or steps need each other in a circle.
pub fn in_order<'a>(
    cx: &Context,
    steps: &'a [Box<dyn Step>],
    names: &[&str],
) -> Result<Vec<&'a dyn Step>> {
    let mut sorter = Sorter {
        cx,
        steps,
        order: Vec::new(),
        open: BTreeSet::new(),
    };
    for name in names {
        sorter.visit(name)?;
    }
    Ok(sorter.order)
}

/// A depth-first walk over what steps need.
struct Sorter<'a, 'b> {
    cx: &'b Context,
    steps: &'a [Box<dyn Step>],
    order: Vec<&'a dyn Step>,
    open: BTreeSet<String>,
}

impl Sorter<'_, '_> {
    fn visit(&mut self, name: &str) -> Result<()> {
        if self.order.iter().any(|step| step.name() == name) {
            return Ok(());
        }
        let found = self.steps.iter().find(|step| step.name() == name);
        let step = found.ok_or_else(|| {
            failure(
                format!("there is no setup step `{name}`"),
                "`cargo xtask setup --list` names the steps",
            )
        })?;
        if !self.open.insert(name.to_owned()) {
            bail!("the setup step `{name}` needs itself");
        }
        for need in step.needs(self.cx) {
            self.visit(need)?;
        }
        self.order.push(step.as_ref());
        Ok(())
    }
}

/// Whether `step` is complete, for the inputs it has now.
///
/// # Errors
/// An input can't be read.
pub fn is_done(cx: &Context, step: &dyn Step) -> Result<bool> {
    let Some(stamp) = Stamp::read(&cx.cache, step.name()) else {
        return Ok(false);
    };
    let made = cx.cache.output(step.name()).is_dir();
    Ok(made && stamp.inputs == inputs_of(cx, step)? && step.intact(cx)?)
}

/// The hash of `step`'s inputs.
fn inputs_of(cx: &Context, step: &dyn Step) -> Result<String> {
    let mut inputs = Inputs::default();
    inputs.add("step", step.name());
    inputs.add("revision", step.revision().to_le_bytes());
    for need in step.needs(cx) {
        let result = Stamp::read(&cx.cache, need).map(|stamp| stamp.result);
        inputs.add(need, result.unwrap_or_default());
    }
    let add = step.inputs(cx, &mut inputs);
    add.with_context(|| {
        format!(
            "the inputs of the setup step `{}` can't be read",
            step.name()
        )
    })?;
    Ok(inputs.finish())
}

/// Runs `step`, with the lock held.
fn run(cx: &Context, step: &dyn Step) -> Result<()> {
    let (name, cache) = (step.name(), &cx.cache);
    let inputs = inputs_of(cx, step)?;
    let folder = cache.unfinished(name);
    remove(&cache.stamp(name))?;
    cache.remove_unfinished(name);
    make_folder(&folder)?;
    need_space(cache.root(), step.disk_mib())?;
    let log = Log::create(cache.log(name))?;
    let mut out = Output {
        folder,
        result: None,
        log,
        task: cx.progress.task(name),
    };
    if let Err(error) = step.run(cx, &mut out) {
        cache.remove_unfinished(name);
        return Err(error);
    }
    put_in_place(cache, name)?;
    let result = out.result.unwrap_or_else(|| inputs.clone());
    let stamp = Stamp {
        inputs,
        result,
        seconds: out.task.elapsed().as_secs_f64(),
    };
    write_atomically(&cache.stamp(name), &serde_json::to_vec_pretty(&stamp)?)?;
    out.task.finish("done");
    Ok(())
}

/// Moves what a complete step made from its temporary to its final place, and makes
/// sure that it is on the disk.
fn put_in_place(cache: &Cache, name: &str) -> Result<()> {
    let (new, place) = (cache.unfinished(name), cache.output(name));
    // A file system that writes a rename before the data would leave empty files under
    // the final name after a power loss.
    process::output(process::command("sync").arg("-f").arg(&new))?;
    remove(&place)?;
    fs::rename(&new, &place).with_context(|| format!("can't make {}", place.display()))?;
    let parent = place.parent().context("a step's folder has a parent")?;
    File::open(parent)?.sync_all()?;
    Ok(())
}

/// Fails if the file system of `folder` has less than `mib` MiB left.
///
/// # Errors
/// There is less, or it can't be told.
pub fn need_space(folder: &Path, mib: u64) -> Result<()> {
    let space = rustix::fs::statvfs(folder)
        .with_context(|| format!("can't look at {}", folder.display()))?;
    let free = space.f_bavail.saturating_mul(space.f_frsize) / (1024 * 1024);
    if free >= mib {
        return Ok(());
    }
    let what = format!(
        "not enough disk space: {mib} MiB are needed, {free} MiB are left in {}",
        folder.display()
    );
    Err(failure(
        what,
        "free some space, or set LOONGVISOR_CACHE to a folder on a larger disk",
    ))
}

/// Takes the lock on the cache; waits, and says so, while another process has it. It
/// is released when the file is closed, so also when this process dies.
fn lock(cache: &Cache) -> Result<File> {
    let path = cache.root().join("lock");
    let mut file = File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(&path)?;
    if file.try_lock().is_err() {
        let mut holder = String::new();
        file.read_to_string(&mut holder)?;
        eprintln!(
            "waiting for process {}, which is setting up {}",
            holder.trim(),
            cache.root().display()
        );
        file.lock()
            .with_context(|| format!("can't lock {}", path.display()))?;
    }
    file.set_len(0)?;
    file.rewind()?;
    write!(file, "{}", std::process::id())?;
    Ok(file)
}

/// Prints the steps, whether each is done, what came out and how long it took.
///
/// # Errors
/// An input can't be read.
pub fn list(cx: &Context, steps: &[Box<dyn Step>]) -> Result<()> {
    for step in steps {
        let stamp = Stamp::read(&cx.cache, step.name());
        let state = match (is_done(cx, step.as_ref())?, &stamp) {
            (true, Some(stamp)) => format!("done in {}: {}", seconds_of(stamp), stamp.result),
            (_, Some(_)) => "out of date".to_owned(),
            (_, None) => "not done".to_owned(),
        };
        println!("{:14} {} [{state}]", step.name(), step.about());
    }
    Ok(())
}

/// The time a step took, for a person.
fn seconds_of(stamp: &Stamp) -> String {
    seconds(std::time::Duration::try_from_secs_f64(stamp.seconds).unwrap_or_default())
}

#[cfg(test)]
mod tests;
