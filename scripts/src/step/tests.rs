//! The step engine with steps that fail, are interrupted, and change.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::*;

/// What a [`Fake`] does when it runs.
#[derive(Clone, Copy, PartialEq)]
enum Act {
    Succeed,
    Fail,
    /// Leaves the process's work as a kill would: half-made, with nothing cleaned up.
    Panic,
}

/// A step that writes the value of its input into a file.
struct Fake {
    name: &'static str,
    needs: Vec<&'static str>,
    input: RefCell<String>,
    result: RefCell<Option<String>>,
    intact: Cell<bool>,
    act: Cell<Act>,
    runs: Cell<u32>,
    disk_mib: u64,
}

impl Fake {
    fn new(name: &'static str, needs: &[&'static str]) -> Rc<Self> {
        Rc::new(Self::plain(name, needs))
    }

    fn plain(name: &'static str, needs: &[&'static str]) -> Self {
        Self {
            name,
            needs: needs.to_vec(),
            input: RefCell::new("first".to_owned()),
            result: RefCell::new(None),
            intact: Cell::new(true),
            act: Cell::new(Act::Succeed),
            runs: Cell::new(0),
            disk_mib: 0,
        }
    }
}

impl Step for Rc<Fake> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        "a step of a test"
    }

    fn needs(&self, _cx: &Context) -> Vec<&'static str> {
        self.needs.clone()
    }

    fn disk_mib(&self) -> u64 {
        self.disk_mib
    }

    fn inputs(&self, _cx: &Context, inputs: &mut Inputs) -> Result<()> {
        inputs.add("input", self.input.borrow().as_bytes());
        Ok(())
    }

    fn intact(&self, _cx: &Context) -> Result<bool> {
        Ok(self.intact.get())
    }

    fn run(&self, _cx: &Context, out: &mut Output) -> Result<()> {
        self.runs.set(self.runs.get() + 1);
        assert_eq!(
            fs::read_dir(out.folder()).unwrap().count(),
            0,
            "a step starts with an empty folder"
        );
        fs::write(out.folder().join("half"), "half-made").unwrap();
        match self.act.get() {
            Act::Fail => {
                return Err(failure(
                    "the fake step was told to fail",
                    "tell it to succeed",
                ));
            }
            Act::Panic => panic!("the fake step was interrupted"),
            Act::Succeed => fs::remove_file(out.folder().join("half")).unwrap(),
        }
        fs::write(out.folder().join("value"), self.input.borrow().as_bytes()).unwrap();
        if let Some(result) = self.result.borrow().as_ref() {
            out.set_result(result.clone());
        }
        Ok(())
    }
}

/// A cache of its own and some fakes.
struct Bench {
    _folder: tempfile::TempDir,
    cx: Context,
    fakes: Vec<Rc<Fake>>,
}

impl Bench {
    fn new(fakes: &[&Rc<Fake>]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let cx = Context::for_tests(folder.path());
        Self {
            _folder: folder,
            cx,
            fakes: fakes.iter().map(|fake| Rc::clone(fake)).collect(),
        }
    }

    fn steps(&self) -> Vec<Box<dyn Step>> {
        self.fakes
            .iter()
            .map(|fake| Box::new(Rc::clone(fake)) as Box<dyn Step>)
            .collect()
    }

    fn ensure(&self, name: &str) -> Result<()> {
        ensure(&self.cx, &self.steps(), &[name])
    }

    fn value(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.cx.cache.output(name).join("value")).ok()
    }
}

#[test]
fn a_done_step_is_skipped_until_its_inputs_change() {
    let a = Fake::new("a", &[]);
    let bench = Bench::new(&[&a]);
    bench.ensure("a").unwrap();
    bench.ensure("a").unwrap();
    assert_eq!(
        (a.runs.get(), bench.value("a").as_deref()),
        (1, Some("first"))
    );
    a.input.replace("second".to_owned());
    bench.ensure("a").unwrap();
    assert_eq!(
        (a.runs.get(), bench.value("a").as_deref()),
        (2, Some("second"))
    );
}

#[test]
fn a_step_runs_again_when_what_it_made_is_gone() {
    let a = Fake::new("a", &[]);
    let bench = Bench::new(&[&a]);
    bench.ensure("a").unwrap();
    fs::remove_dir_all(bench.cx.cache.output("a")).unwrap();
    bench.ensure("a").unwrap();
    assert_eq!(a.runs.get(), 2);
    a.intact.set(false);
    bench.ensure("a").unwrap();
    assert_eq!(a.runs.get(), 3);
}

#[test]
fn a_failed_step_leaves_nothing_that_looks_done() {
    let a = Fake::new("a", &[]);
    let bench = Bench::new(&[&a]);
    a.act.set(Act::Fail);
    let error = bench.ensure("a").unwrap_err();
    let text = crate::hint::report(&error);
    assert!(
        text.contains("the setup step `a` failed")
            && text.ends_with("what to do: tell it to succeed\n"),
        "{text}"
    );
    assert!(!bench.cx.cache.output("a").exists() && !bench.cx.cache.unfinished("a").exists());
    assert!(!is_done(&bench.cx, &a).unwrap());
    a.act.set(Act::Succeed);
    bench.ensure("a").unwrap();
    assert_eq!(bench.value("a").as_deref(), Some("first"));
}

#[test]
fn a_failed_renewal_is_not_taken_for_the_old_result() {
    let a = Fake::new("a", &[]);
    let bench = Bench::new(&[&a]);
    bench.ensure("a").unwrap();
    a.input.replace("second".to_owned());
    a.act.set(Act::Fail);
    bench.ensure("a").unwrap_err();
    // Back to the first input: the old output may still be there, but nobody may say so.
    a.input.replace("first".to_owned());
    assert!(!is_done(&bench.cx, &a).unwrap());
}

#[test]
fn an_interrupted_step_starts_over() {
    let a = Fake::new("a", &[]);
    let bench = Bench::new(&[&a]);
    a.act.set(Act::Panic);
    let interrupted = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| bench.ensure("a")));
    assert!(interrupted.is_err());
    assert!(
        bench.cx.cache.unfinished("a").join("half").exists(),
        "the kill left its half-made folder"
    );
    assert!(!is_done(&bench.cx, &a).unwrap());
    let other = bench.cx.cache.output("a.unfinished-1");
    fs::create_dir(&other).unwrap();
    a.act.set(Act::Succeed);
    bench.ensure("a").unwrap();
    assert_eq!(a.runs.get(), 2);
    assert!(!other.exists(), "what another process left is removed too");
    assert!(!bench.cx.cache.unfinished("a").exists());
    assert!(!bench.cx.cache.output("a").join("half").exists());
}

#[test]
fn a_damaged_stamp_counts_as_none() {
    let a = Fake::new("a", &[]);
    let bench = Bench::new(&[&a]);
    bench.ensure("a").unwrap();
    fs::write(bench.cx.cache.stamp("a"), "{ \"inputs\": \"").unwrap();
    bench.ensure("a").unwrap();
    assert_eq!(a.runs.get(), 2);
}

#[test]
fn needs_come_first_and_their_results_count() {
    let (a, b) = (Fake::new("a", &[]), Fake::new("b", &["a"]));
    let bench = Bench::new(&[&b, &a]);
    bench.ensure("b").unwrap();
    assert_eq!((a.runs.get(), b.runs.get()), (1, 1));
    // Without a stated result, `b` sees the hash of `a`'s inputs.
    a.input.replace("second".to_owned());
    bench.ensure("b").unwrap();
    assert_eq!((a.runs.get(), b.runs.get()), (2, 2));
    // A stated result that stays the same stops the chain: `b` has run once for the
    // new result, and `a`'s next change doesn't concern it.
    a.result.replace(Some("version 1".to_owned()));
    a.input.replace("third".to_owned());
    bench.ensure("b").unwrap();
    a.input.replace("fourth".to_owned());
    bench.ensure("b").unwrap();
    assert_eq!((a.runs.get(), b.runs.get()), (4, 3));
}

#[test]
fn circles_and_unknown_names_are_errors() {
    let (a, b) = (Fake::new("a", &["b"]), Fake::new("b", &["a"]));
    let bench = Bench::new(&[&a, &b]);
    assert!(format!("{:#}", bench.ensure("a").unwrap_err()).contains("needs itself"));
    assert!(format!("{:#}", bench.ensure("c").unwrap_err()).contains("no setup step `c`"));
}

#[test]
fn a_step_too_large_for_the_disk_does_not_start() {
    let mut huge = Fake::plain("huge", &[]);
    huge.disk_mib = u64::MAX;
    let huge = Rc::new(huge);
    let bench = Bench::new(&[&huge]);
    let text = crate::hint::report(&bench.ensure("huge").unwrap_err());
    assert!(
        text.contains("not enough disk space") && text.contains("LOONGVISOR_CACHE"),
        "{text}"
    );
    assert_eq!(huge.runs.get(), 0);
}

#[test]
fn two_calls_take_turns() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::at(folder.path().to_path_buf()).unwrap();
    let first = lock(&cache).unwrap();
    assert_eq!(
        fs::read_to_string(cache.root().join("lock")).unwrap(),
        std::process::id().to_string()
    );
    let second = {
        let cache = cache.clone();
        std::thread::spawn(move || lock(&cache).map(|_| std::time::Instant::now()))
    };
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert!(!second.is_finished(), "the second call must wait");
    let released = std::time::Instant::now();
    drop(first);
    assert!(second.join().unwrap().unwrap() >= released);
}
