//! Laying the addition over a tree, changing it, and failing at it.

use std::time::SystemTime;

use super::*;
use crate::progress::Progress;

/// A pristine tree, an addition, and a build tree in a folder of their own.
struct Trees {
    folder: tempfile::TempDir,
}

impl Trees {
    fn new() -> Self {
        let trees = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        trees.write("pristine/target/cpu.c", "one\ntwo\nthree\n");
        trees.write("pristine/target/other.c", "other\n");
        trees.write("pristine/gone.c", "to be removed\n");
        trees.write("addition/files/target/lvz.c", "new\n");
        copy_tree(&trees.path("pristine"), &trees.path("tree"), "").unwrap();
        trees
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        make_folder(self.path(path).parent().unwrap()).unwrap();
        fs::write(self.path(path), text).unwrap();
    }

    fn patches(&self, patches: &[(&str, &str)]) {
        let names: String = patches
            .iter()
            .map(|(name, _)| format!("{name}\n"))
            .collect();
        self.write(
            "addition/patches/series",
            &format!("# in this order\n\n{names}"),
        );
        patches
            .iter()
            .for_each(|(name, text)| self.write(&format!("addition/patches/{name}"), text));
    }

    fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.path(path)).ok()
    }

    fn update(&self) -> Result<usize> {
        let mut out = Output::for_tests(&self.path("out"), Progress::plain());
        let (pristine, overlay) = (self.path("pristine"), self.path("overlay"));
        let paths = make(
            &self.path("addition"),
            &pristine,
            &self.path("wheels"),
            &overlay,
            &mut out,
        )?;
        lay_over(
            &paths,
            &overlay,
            &pristine,
            &self.path("tree"),
            &self.path("record"),
        )
    }
}

const TWO_TO_2: &str =
    "--- a/target/cpu.c\n+++ b/target/cpu.c\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n";
const THREE_TO_3: &str =
    "--- a/target/cpu.c\n+++ b/target/cpu.c\n@@ -1,3 +1,3 @@\n one\n 2\n-three\n+3\n";
const REMOVE: &str = "--- a/gone.c\n+++ /dev/null\n@@ -1 +0,0 @@\n-to be removed\n";

#[test]
fn files_and_patches_are_laid_over_and_taken_back() {
    let trees = Trees::new();
    trees.write("wheels/meson.whl", "wheel");
    trees.patches(&[
        ("1.patch", TWO_TO_2),
        ("2.patch", THREE_TO_3),
        ("3.patch", REMOVE),
    ]);
    trees.update().unwrap();
    assert_eq!(
        trees.text("tree/target/cpu.c").as_deref(),
        Some("one\n2\n3\n")
    );
    assert_eq!(trees.text("tree/target/lvz.c").as_deref(), Some("new\n"));
    assert_eq!(
        trees.text("tree/python/wheels/meson.whl").as_deref(),
        Some("wheel")
    );
    assert_eq!(
        trees.text("pristine/target/cpu.c").as_deref(),
        Some("one\ntwo\nthree\n")
    );
    trees.patches(&[]);
    fs::remove_file(trees.path("addition/files/target/lvz.c")).unwrap();
    assert_eq!(trees.update().unwrap(), 3);
    assert_eq!(
        trees.text("tree/target/cpu.c").as_deref(),
        Some("one\ntwo\nthree\n")
    );
    assert_eq!(trees.text("tree/target/lvz.c"), None);
}

#[test]
fn a_removed_file_is_removed_from_the_tree() {
    let trees = Trees::new();
    trees.patches(&[("3.patch", REMOVE)]);
    trees.update().unwrap();
    assert_eq!(trees.text("tree/gone.c"), None, "the patch removes it");
    trees.patches(&[]);
    trees.update().unwrap();
    assert_eq!(
        trees.text("tree/gone.c").as_deref(),
        Some("to be removed\n")
    );
}

#[test]
fn only_what_changes_gets_a_new_time() {
    let trees = Trees::new();
    trees.patches(&[("1.patch", TWO_TO_2)]);
    trees.update().unwrap();
    let old = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
    for path in [
        "tree/target/cpu.c",
        "tree/target/lvz.c",
        "tree/target/other.c",
    ] {
        fs::File::options()
            .write(true)
            .open(trees.path(path))
            .unwrap()
            .set_modified(old)
            .unwrap();
    }
    trees.write("addition/files/target/lvz.c", "newer\n");
    assert_eq!(trees.update().unwrap(), 1);
    let is_old = |path: &str| fs::metadata(trees.path(path)).unwrap().modified().unwrap() == old;
    assert!(
        is_old("tree/target/cpu.c")
            && is_old("tree/target/other.c")
            && !is_old("tree/target/lvz.c")
    );
}

#[test]
fn a_patch_that_does_not_apply_leaves_the_tree_alone() {
    let trees = Trees::new();
    trees.patches(&[("1.patch", TWO_TO_2)]);
    trees.update().unwrap();
    trees.patches(&[
        ("1.patch", TWO_TO_2),
        ("bad.patch", &THREE_TO_3.replace(" 2\n", " zwei\n")),
    ]);
    let text = crate::hint::report(&trees.update().unwrap_err());
    assert!(
        text.contains("bad.patch doesn't apply") && text.contains("what to do"),
        "{text}"
    );
    assert_eq!(
        trees.text("tree/target/cpu.c").as_deref(),
        Some("one\n2\nthree\n")
    );
}

#[test]
fn an_interrupted_update_is_made_good() {
    let trees = Trees::new();
    trees.patches(&[("1.patch", TWO_TO_2)]);
    // As after a kill: the record is written, one file half, the other not at all.
    trees.write("record", "target/cpu.c\ntarget/lvz.c\nold/stray.c\n");
    trees.write("tree/target/cpu.c", "one\n2");
    trees.write("tree/old/stray.c", "of an earlier addition\n");
    trees.update().unwrap();
    assert_eq!(
        trees.text("tree/target/cpu.c").as_deref(),
        Some("one\n2\nthree\n")
    );
    assert_eq!(trees.text("tree/old/stray.c"), None);
    assert_eq!(
        trees.text("record").as_deref(),
        Some("target/cpu.c\ntarget/lvz.c\n")
    );
}

#[test]
fn a_patch_outside_the_tree_is_refused() {
    assert!(touched_by("--- a/../../etc/passwd\n+++ b/../../etc/passwd\n").is_err());
    let touched =
        touched_by("--- /dev/null\n+++ b/new.c\t2026-01-01\nrename from x.c\nrename to y.c\n")
            .unwrap();
    assert_eq!(touched, ["new.c", "x.c", "y.c"].map(PathBuf::from).into());
}
