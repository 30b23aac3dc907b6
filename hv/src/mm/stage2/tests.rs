//! Second-stage tables against a plain map, over fake memory.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Fake memory for tables, from address `BASE`; a page is given once only.
#[derive(Debug)]
struct Fake {
    words: Vec<u64>,
    taken: Vec<bool>,
    left: u64,
}

const BASE: u64 = 0x1_0000_0000;

impl Fake {
    fn new(left: u64) -> Self {
        Self {
            words: Vec::new(),
            taken: Vec::new(),
            left,
        }
    }

    fn all_given_back(&self) -> bool {
        !self.taken.contains(&true)
    }

    /// Index of the word at `at`, which must lie in a table.
    fn index(&self, at: Hpa) -> usize {
        let offset = at.get() - BASE;
        assert!(
            self.taken[(offset / PAGE_BYTES) as usize],
            "not in a table: {at}"
        );
        (offset / 8) as usize
    }
}

impl TableSource for &mut Fake {
    fn take(&mut self, pages: u64) -> Option<Hpa> {
        self.left = self.left.checked_sub(pages)?;
        let first = (self.taken.len() as u64).next_multiple_of(pages);
        self.taken.resize(first as usize, false);
        self.taken.resize((first + pages) as usize, true);
        self.words.resize(
            ((first + pages) * PAGE_BYTES / 8) as usize,
            0xbad0_bad0_bad0_bad1,
        );
        Some(Hpa::new(BASE + first * PAGE_BYTES))
    }

    fn give(&mut self, table: Hpa, pages: u64) {
        self.left += pages;
        for page in 0..pages {
            let at = Hpa::new(table.get() + page * PAGE_BYTES);
            let index = self.index(at) * 8 / PAGE_BYTES as usize;
            self.taken[index] = false;
        }
    }

    fn read(&self, at: Hpa) -> u64 {
        self.words[self.index(at)]
    }

    fn write(&mut self, at: Hpa, value: u64) {
        let index = self.index(at);
        self.words[index] = value;
    }
}

/// Blocks of guest space that the property test works in: the last two of
/// one root entry and the first two of the next.
const WINDOW: u64 = (1 << ROOT_SHIFT) - 2 * BLOCK_BYTES;
const WINDOW_BLOCKS: u64 = 4;
const PAGES_A_BLOCK: u64 = BLOCK_BYTES / PAGE_BYTES;

#[derive(Clone, Copy, Debug)]
enum Op {
    Map(u64, u64, u64, Access),
    Unmap(u64, u64),
    Protect(u64, u64, Access),
    Reclaim,
}

/// A range in pages within the window: near block boundaries and of block
/// size more often than chance would have it.
fn range() -> impl Strategy<Value = (u64, u64)> {
    let all = WINDOW_BLOCKS * PAGES_A_BLOCK;
    let start = prop_oneof![
        0..all,
        (0..WINDOW_BLOCKS).prop_map(|b| b * PAGES_A_BLOCK),
        (1..WINDOW_BLOCKS).prop_map(|b| b * PAGES_A_BLOCK - 1),
    ];
    let pages = prop_oneof![1..4u64, Just(PAGES_A_BLOCK), 1..2 * PAGES_A_BLOCK];
    (start, pages).prop_map(move |(start, pages)| (start, pages.min(all - start)))
}

fn access() -> impl Strategy<Value = Access> {
    (any::<bool>(), any::<bool>()).prop_map(|(write, execute)| Access { write, execute })
}

fn op() -> impl Strategy<Value = Op> {
    // Half of the host ranges are aligned like the guest's, so that blocks
    // come about.
    let shift = prop_oneof![Just(0u64), 1..PAGES_A_BLOCK];
    prop_oneof![
        4 => (range(), shift, access()).prop_map(|((s, n), shift, a)| Op::Map(s, n, shift, a)),
        2 => range().prop_map(|(s, n)| Op::Unmap(s, n)),
        2 => (range(), access()).prop_map(|((s, n), a)| Op::Protect(s, n, a)),
        1 => Just(Op::Reclaim),
    ]
}

fn gpa(page: u64) -> Gpa {
    Gpa::new(WINDOW + page * PAGE_BYTES)
}

fn hpa(page: u64, shift: u64) -> Hpa {
    Hpa::new(0x2000_0000_0000 + WINDOW + (page + shift) * PAGE_BYTES)
}

fn apply(stage2: &mut Stage2<&mut Fake>, model: &mut BTreeMap<u64, (Hpa, Access)>, op: Op) {
    match op {
        Op::Map(start, pages, shift, access) => {
            let result = stage2.map(gpa(start), hpa(start, shift), pages * PAGE_BYTES, access);
            if (start..start + pages).any(|page| model.contains_key(&page)) {
                assert_eq!(result, Err(MapError::Mapped));
                return;
            }
            assert!(result.is_ok());
            for page in start..start + pages {
                model.insert(page, (hpa(page, shift), access));
            }
        }
        Op::Unmap(start, pages) => {
            assert!(stage2.unmap(gpa(start), pages * PAGE_BYTES).is_ok());
            model.retain(|page, _| !(start..start + pages).contains(page));
        }
        Op::Protect(start, pages, access) => {
            assert!(
                stage2
                    .protect(gpa(start), pages * PAGE_BYTES, access)
                    .is_ok()
            );
            for (_, entry) in model.range_mut(start..start + pages) {
                entry.1 = access;
            }
        }
        Op::Reclaim => stage2.reclaim(),
    }
}

fn compare(stage2: &Stage2<&mut Fake>, model: &BTreeMap<u64, (Hpa, Access)>) {
    for page in 0..WINDOW_BLOCKS * PAGES_A_BLOCK {
        let found = stage2.translate(gpa(page)).map(|t| (t.hpa, t.access));
        assert_eq!(found, model.get(&page).copied(), "page {page}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn tables_agree_with_a_plain_map(ops in prop::collection::vec(op(), 1..24)) {
        let mut fake = Fake::new(1000);
        let mut model = BTreeMap::new();
        let mut stage2 = Stage2::new(&mut fake, 48).unwrap();
        for op in ops {
            apply(&mut stage2, &mut model, op);
            compare(&stage2, &model);
        }
        drop(stage2);
        prop_assert!(fake.all_given_back(), "tables leaked");
    }

    #[test]
    fn running_out_of_frames_changes_nothing(left in 4u64..9, start in 0u64..PAGES_A_BLOCK) {
        let mut fake = Fake::new(left);
        if let Ok(mut stage2) = Stage2::new(&mut fake, 48) {
            let bytes = 3 * BLOCK_BYTES;
            match stage2.map(gpa(start), hpa(start, 1), bytes, Access::ALL) {
                Ok(_) => prop_assert!(stage2.translate(gpa(start)).is_some()),
                Err(error) => {
                    prop_assert_eq!(error, MapError::OutOfFrames);
                    compare(&stage2, &BTreeMap::new());
                }
            }
        }
        prop_assert!(fake.all_given_back(), "tables leaked");
    }
}

#[test]
fn aligned_ram_is_mapped_in_blocks() {
    let mut fake = Fake::new(100);
    let mut stage2 = Stage2::new(&mut fake, 48).unwrap();
    let bytes = 2 * BLOCK_BYTES + PAGE_BYTES;
    let done = stage2.map(Gpa::new(0), Hpa::new(BLOCK_BYTES), bytes, Access::ALL);
    assert_eq!(done, Ok(Invalidate::All));
    assert!(stage2.translate(Gpa::new(BLOCK_BYTES + 5)).unwrap().block);
    assert!(!stage2.translate(Gpa::new(2 * BLOCK_BYTES)).unwrap().block);
    assert_eq!(stage2.translate(Gpa::new(bytes)), None);
    // Root (2 pages), two shared tables, one directory, one page table.
    drop(stage2);
    assert_eq!(fake.taken.len(), 6);
}

#[test]
fn space_ends_at_its_width_and_nothing_aliases() {
    let mut fake = Fake::new(100);
    let mut stage2 = Stage2::new(&mut fake, 47).unwrap();
    assert_eq!(stage2.root_bits(), 11);
    let last = Gpa::new((1 << 47) - PAGE_BYTES);
    assert_eq!(
        stage2.map(last, Hpa::new(0), PAGE_BYTES, Access::READ),
        Ok(Invalidate::Pair(last.align_down(2 * PAGE_BYTES)))
    );
    assert!(stage2.translate(last).is_some());
    let beyond = Gpa::new(1 << 47);
    assert_eq!(stage2.translate(Gpa::new(last.get() | 1 << 47)), None);
    assert_eq!(
        stage2.map(beyond, Hpa::new(0), PAGE_BYTES, Access::ALL),
        Err(MapError::OutOfRange)
    );
    assert_eq!(
        stage2.map(last, Hpa::new(0), 2 * PAGE_BYTES, Access::ALL),
        Err(MapError::OutOfRange)
    );
}

#[test]
fn bad_ranges_are_refused() {
    let mut fake = Fake::new(100);
    assert!(matches!(
        Stage2::new(&mut fake, 36),
        Err(MapError::OutOfRange)
    ));
    assert!(matches!(
        Stage2::new(&mut fake, 49),
        Err(MapError::OutOfRange)
    ));
    let mut stage2 = Stage2::new(&mut fake, 48).unwrap();
    let page = Gpa::new(PAGE_BYTES);
    for (gpa, hpa, bytes, error) in [
        (Gpa::new(1), Hpa::new(0), PAGE_BYTES, MapError::Unaligned),
        (page, Hpa::new(8), PAGE_BYTES, MapError::Unaligned),
        (page, Hpa::new(0), 0, MapError::Unaligned),
        (page, Hpa::new(0), 100, MapError::Unaligned),
        (page, Hpa::new(1 << 48), PAGE_BYTES, MapError::OutOfRange),
        (
            page,
            Hpa::new(0),
            u64::MAX - PAGE_BYTES + 1,
            MapError::OutOfRange,
        ),
    ] {
        assert_eq!(stage2.map(gpa, hpa, bytes, Access::ALL), Err(error));
    }
}

#[test]
fn splitting_a_block_invalidates_everything() {
    let mut fake = Fake::new(100);
    let mut stage2 = Stage2::new(&mut fake, 48).unwrap();
    let _ = stage2
        .map(Gpa::new(0), Hpa::new(0), BLOCK_BYTES, Access::ALL)
        .unwrap();
    assert_eq!(
        stage2.protect(Gpa::new(0), PAGE_BYTES, Access::READ),
        Ok(Invalidate::All)
    );
    assert_eq!(
        stage2.unmap(Gpa::new(PAGE_BYTES), PAGE_BYTES),
        Ok(Invalidate::Pair(Gpa::new(0)))
    );
}
