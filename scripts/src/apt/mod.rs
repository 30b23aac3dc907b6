//! Packages of any Debian suite and architecture, without touching the machine.
//!
//! apt-get does the work, with a configuration of its own in the cache: own lists of
//! sources, own indexes, and an empty list of installed packages, so that what it
//! resolves doesn't depend on the machine. The mirror is the one of the machine's own
//! apt sources; signatures are checked against Debian's archive keyring.
//! Facts: apt.conf(5), sources.list(5), apt-get(8), apt-cache(8).

mod mirror;
mod package;
mod source;

use package::exact_name;
pub use package::{Package, summary};
pub use source::SourceVersion;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};

use crate::cache::{make_folder, remove, write_atomically};
use crate::context::Context;
use crate::hint::{Advise, failure};
use crate::process;
use crate::step::Output;

/// An index older than this is fetched anew before anything is resolved with it.
const INDEX_AGE: Duration = Duration::from_secs(24 * 3600);

/// What to do when a fetch fails, whatever the reason.
const CHECK_NETWORK: &str =
    "check the network and the mirror in /etc/apt, then run the same command again";

/// Whose packages are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Packages for this machine's own architecture.
    Host,
    /// Packages for LoongArch, 64-bit: in Debian's forky and sid only.
    Loong64,
    /// Source packages.
    Source,
}

/// A private apt with an index of some suites.
#[derive(Debug)]
pub struct Apt {
    root: PathBuf,
    debs: PathBuf,
    suites: String,
}

impl Apt {
    /// An apt that sees `suites` (`trixie`, `sid`, …). Nothing is fetched yet.
    ///
    /// # Errors
    /// The machine isn't a Debian, its sources name no mirror, or the cache can't be
    /// written.
    pub fn open(cx: &Context, kind: Kind, suites: &[&str]) -> Result<Self> {
        if !process::in_path("apt-get") {
            let what = "there is no apt-get on this machine";
            return Err(failure(
                what,
                "use a Debian 12 or 13 machine: every package comes from there",
            ));
        }
        let (label, arch) = match kind {
            Kind::Loong64 => ("loong64", "loong64".to_owned()),
            Kind::Host => ("host", host_arch()?),
            Kind::Source => ("source", host_arch()?),
        };
        let apt = Self {
            root: cx
                .cache
                .kept(&format!("apt/{label}-{}", suites.join("-")))?,
            debs: cx.cache.kept(&format!("debs/{label}"))?,
            suites: suites.join(", "),
        };
        apt.configure(kind, &arch, suites)?;
        Ok(apt)
    }

    /// Writes the configuration.
    fn configure(&self, kind: Kind, arch: &str, suites: &[&str]) -> Result<()> {
        for folder in ["lists/partial", "cache/archives/partial", "none"] {
            make_folder(&self.root.join(folder))?;
        }
        let (mirror, keyring) = (mirror::of_this_machine()?, mirror::keyring()?);
        let word = if kind == Kind::Source {
            "deb-src"
        } else {
            "deb"
        };
        let lines = suites.iter().map(|suite| {
            let keyring = keyring.display();
            format!("{word} [signed-by={keyring}] {mirror} {suite} main\n")
        });
        write_atomically(
            &self.root.join("sources.list"),
            lines.collect::<String>().as_bytes(),
        )?;
        let config = configuration(&self.root, arch);
        write_atomically(&self.root.join("apt.conf"), config.as_bytes())
    }

    /// A program of apt's under the private configuration.
    fn program(&self, name: &str) -> Command {
        let mut command = process::command(name);
        command
            .env("APT_CONFIG", self.root.join("apt.conf"))
            .env("LC_ALL", "C.UTF-8");
        command
    }

    /// Fetches the index, unless there is one of the same sources younger than a day.
    ///
    /// # Errors
    /// There is no network, or a suite or its signature isn't right.
    fn index(&self, out: &mut Output) -> Result<()> {
        let sources = fs::read(self.root.join("sources.list"))?;
        let fetched = self.root.join("fetched");
        if is_young(&fetched) && fs::read(&fetched)? == sources {
            return Ok(());
        }
        out.task
            .doing(&format!("reading the index of {}", self.suites));
        // Without "any", a suite that can't be read is only a warning.
        let mut update = self.program("apt-get");
        out.log
            .run(update.args(["update", "--error-on=any"]), |_| ())
            .context("the index of Debian's packages could not be read")
            .advise(CHECK_NETWORK)?;
        write_atomically(&fetched, &sources)
    }

    /// Does `work`, which uses the index; if it fails, once more with a new index: a
    /// file that the index names but the mirror doesn't have any more (404) means that
    /// the index is stale.
    ///
    /// # Errors
    /// It fails both times, or there is no index to be had.
    fn with_index<T>(
        &self,
        out: &mut Output,
        work: impl Fn(&mut Output) -> Result<T>,
    ) -> Result<T> {
        let fresh = !is_young(&self.root.join("fetched"));
        self.index(out)?;
        let first = work(out);
        let Err(error) = first else { return first };
        if fresh {
            return Err(error);
        }
        out.task
            .line("the index may be out of date: trying again with a new one");
        // All of it: apt would keep a damaged list whose signed index hasn't changed.
        remove(&self.root.join("fetched"))?;
        remove(&self.root.join("lists"))?;
        make_folder(&self.root.join("lists/partial"))?;
        self.index(out)?;
        work(out)
    }

    /// Fetches the packages `names` into the cache. What is there already isn't fetched
    /// again.
    ///
    /// # Errors
    /// There is no network, no such package, or a file differs from its hash.
    pub fn fetch(&self, out: &mut Output, names: &[&str]) -> Result<Vec<Package>> {
        self.with_index(out, |out| self.download(out, names))
    }

    /// Fetches the packages `names` and all they depend on into the cache, as far as
    /// `keep` wants them by their names. What is there already isn't fetched again.
    ///
    /// # Errors
    /// There is no network, no such package, or a file differs from its hash.
    pub fn fetch_closure(
        &self,
        out: &mut Output,
        names: &[&str],
        keep: impl Fn(&str) -> bool,
    ) -> Result<Vec<Package>> {
        self.with_index(out, |out| {
            let mut install = self.program("apt-get");
            install
                .args([
                    "install",
                    "--print-uris",
                    "--yes",
                    "--no-install-recommends",
                ])
                .args(names);
            let printed = process::output(&mut install);
            let printed =
                printed.with_context(|| format!("{} can't be resolved", names.join(", ")))?;
            let wanted = |exact: &String| keep(exact.split('=').next().unwrap_or_default());
            let exact = printed.lines().filter_map(exact_name).filter(wanted);
            let exact: Vec<String> = exact.collect();
            self.download(out, &exact.iter().map(String::as_str).collect::<Vec<_>>())
        })
    }

    /// The versions of the package `name` in the index, newest first; none if there is
    /// no such package.
    ///
    /// # Errors
    /// There is no index to be had.
    pub fn versions(&self, out: &mut Output, name: &str) -> Result<Vec<String>> {
        self.index(out)?;
        let printed = process::output(self.program("apt-cache").args(["madison", name]))?;
        // "rust-src | 1.95.0+dfsg1-2 | <mirror> trixie/main amd64 Packages"
        let version = |line: &str| line.split('|').nth(1).map(|word| word.trim().to_owned());
        Ok(printed.lines().filter_map(version).collect())
    }

    /// Downloads `names` (`name` or `name=version`), without what they depend on.
    fn download(&self, out: &mut Output, names: &[&str]) -> Result<Vec<Package>> {
        let mut print = self.program("apt-get");
        print
            .args(["download", "--print-uris"])
            .args(names)
            .current_dir(self.root.join("none"));
        let printed = process::output(&mut print);
        let printed = printed.with_context(|| format!("{} can't be resolved", names.join(", ")))?;
        let packages = printed
            .lines()
            .map(|line| Package::from_line(line, &self.debs))
            .collect::<Result<Vec<_>>>()?;
        let wanted: Vec<&Package> = packages
            .iter()
            .filter(|package| !package.is_complete())
            .collect();
        if !wanted.is_empty() {
            self.get(out, &wanted)
                .with_context(|| format!("{} could not be fetched", names.join(", ")))
                .advise(CHECK_NETWORK)?;
        }
        match packages.iter().find(|package| !package.is_complete()) {
            None => Ok(packages),
            Some(package) => {
                let what = format!(
                    "{} differs from the hash in the signed index",
                    package.file.display()
                );
                Err(failure(
                    what,
                    "the mirror may be in the middle of an update: try again in an hour",
                ))
            }
        }
    }

    /// Runs `apt-get download` for `packages`, in the folder of packages.
    fn get(&self, out: &mut Output, packages: &[&Package]) -> Result<()> {
        let total = packages.len() as u64;
        let mut get = self.program("apt-get");
        get.arg("download").current_dir(&self.debs);
        for package in packages {
            remove(&package.file)?;
            get.arg(format!("{}={}", package.name, package.version));
        }
        let (log, task) = (&out.log, &mut out.task);
        let mut done = 0;
        task.count(0, total, "packages fetched");
        log.run(&mut get, |line| {
            if line.starts_with("Get:") {
                done += 1;
                task.count(done, total, "packages fetched");
            }
        })
    }
}

/// What `work` gives with the first of `suites` where it succeeds. If it does in none,
/// the error is the last one's; why the others failed is shown before.
///
/// # Errors
/// It fails in each, or `suites` is empty.
pub fn from_first_suite<T>(
    cx: &Context,
    kind: Kind,
    suites: &[&str],
    out: &mut Output,
    work: impl Fn(&Apt, &mut Output) -> Result<T>,
) -> Result<T> {
    let (last, others) = suites.split_last().context("no suite is named")?;
    for suite in others {
        match work(&Apt::open(cx, kind, &[suite])?, out) {
            Ok(done) => return Ok(done),
            Err(error) => out.task.line(&format!(
                "not from {suite} ({}): trying the next suite",
                error.root_cause()
            )),
        }
    }
    work(&Apt::open(cx, kind, &[last])?, out)
        .with_context(|| format!("none of {} has what is needed", suites.join(", ")))
}

/// The private configuration below `root`. The machine's own settings (a proxy, say)
/// are read before it and stay, except what would touch the machine or its choices.
fn configuration(root: &Path, arch: &str) -> String {
    let root = root.display();
    format!(
        r#"Dir::Etc::sourcelist "{root}/sources.list";
Dir::Etc::sourceparts "{root}/none";
Dir::Etc::preferences "{root}/none/preferences";
Dir::Etc::preferencesparts "{root}/none";
Dir::State::lists "{root}/lists";
Dir::State::status "/dev/null";
Dir::Cache "{root}/cache";
APT::Architecture "{arch}";
#clear APT::Architectures;
APT::Architectures "{arch}";
APT::Sandbox::User "";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Pre-Install-Pkgs;
#clear DPkg::Post-Invoke;
#clear Acquire::IndexTargets::deb::DEP-11;
Acquire::Languages "none";
Acquire::Retries "3";
Debug::NoLocking "true";
"#
    )
}

/// The architecture of this machine, by dpkg's name.
fn host_arch() -> Result<String> {
    let printed = process::output(process::command("dpkg").arg("--print-architecture"))?;
    Ok(printed.trim().to_owned())
}

/// Whether `path` was written less than [`INDEX_AGE`] ago.
fn is_young(path: &Path) -> bool {
    let written = fs::metadata(path).and_then(|found| found.modified());
    let age = written.map(|written| SystemTime::now().duration_since(written));
    matches!(age, Ok(Ok(age)) if age < INDEX_AGE)
}
