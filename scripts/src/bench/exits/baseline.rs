//! The counts that no change may exceed, in a file of the repository.

use anyhow::{Context as _, Result};

use super::counted::Counts;
use super::rows::ROWS;
use crate::context::Context;
use crate::hint::failure;

/// What stands in front of the counts.
const HEAD: &str = "# The hypervisor's instructions an exit, which a test of part hv allows no more of.\n\
                    # `cargo xtask bench exits --renew` writes them anew.\n";

/// The file's place in the repository, and what is in it.
const FILE: &str = "scripts/src/bench/exits/baseline.toml";
const TEXT: &str = include_str!("baseline.toml");

/// Fails where a count is above the file's, or one of the two has a row more.
///
/// # Errors
/// That, or the file has something else in it.
pub fn check(counts: &Counts) -> Result<()> {
    let baseline = toml::from_str(TEXT).with_context(|| format!("{FILE} has no counts"))?;
    compare(&baseline, counts)
}

/// Writes the file.
///
/// # Errors
/// It can't be written.
pub fn write(cx: &Context, counts: &Counts) -> Result<()> {
    let text = HEAD.to_owned() + &toml::to_string(counts)?;
    crate::cache::write_atomically(&cx.repo(FILE), text.as_bytes())
}

fn compare(baseline: &Counts, counts: &Counts) -> Result<()> {
    let name = |name: &str| {
        let row = ROWS.iter().find(|row| row.name == name);
        row.map_or(name.to_owned(), |row| row.what.to_owned())
    };
    let worse = counts.iter().filter_map(|(row, count)| {
        let before = baseline.get(row);
        let more = before.is_none_or(|before| count > before);
        let before = before.map_or("nothing".to_owned(), u64::to_string);
        more.then(|| format!("{}: {count}, {before} before", name(row)))
    });
    let gone = baseline.keys().filter(|&row| !counts.contains_key(row));
    let gone = gone.map(|row| format!("{}: not counted", name(row)));
    let all: Vec<String> = worse.chain(gone).collect();
    if all.is_empty() {
        return Ok(());
    }
    Err(failure(
        format!("more instructions an exit: {}", all.join("; ")),
        "if they are worth it, `cargo xtask bench exits --renew` makes them the new measure",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(of: &[(&str, u64)]) -> Counts {
        of.iter().map(|&(name, n)| (name.to_owned(), n)).collect()
    }

    #[test]
    fn one_instruction_more_fails_and_one_less_does_not() {
        let baseline = counts(&[("call-null", 33), ("switch", 594)]);
        let same = |null, switch| {
            compare(
                &baseline,
                &counts(&[("call-null", null), ("switch", switch)]),
            )
        };
        assert!(same(33, 594).is_ok() && same(32, 500).is_ok());
        let error = format!("{:#}", same(33, 595).unwrap_err());
        assert!(error.contains("on a CPU: 595, 594 before"), "{error}");
    }

    #[test]
    fn rows_that_come_or_go_fail() {
        let (one, two) = (counts(&[("csr", 1)]), counts(&[("csr", 1), ("cpucfg", 1)]));
        assert!(compare(&one, &two).is_err() && compare(&two, &one).is_err());
        assert!(compare(&two, &two).is_ok());
    }
}
