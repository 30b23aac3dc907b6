//! `cargo xtask bench lvz`: how fast the emulated CPU is in guest mode.
//!
//! The suite's mode `bench` runs the same loops in host and in guest mode and prints a
//! line `BENCH name key=value …` each; times are of the machine QEMU runs on, so
//! nothing else should run there meanwhile.

use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::{Map, Value};

use super::{Bench, Options};
use crate::context::Context;
use crate::qemu::Timing;
use crate::suite::{NEEDS, Suite, to_end};

/// The measurement `lvz`.
pub struct Lvz;

/// It takes a tenth of this.
const LIMIT: Duration = Duration::from_secs(600);

/// A guest slower than this part of the host counts as a fault of the emulation.
const ENOUGH: f64 = 0.9;

impl Bench for Lvz {
    fn name(&self) -> &'static str {
        "lvz"
    }

    fn about(&self) -> &'static str {
        "the emulated CPU's speed in guest mode, and its entries and exits a second"
    }

    fn needs(&self) -> Vec<&'static str> {
        NEEDS.to_vec()
    }

    fn run(&self, cx: &Context, _options: &Options) -> Result<Value> {
        let machine = Suite::build(cx)?.machine("bench", 1, Timing::Threads, 1);
        let printed = to_end(&machine, LIMIT)?;
        let rows = rows(&String::from_utf8_lossy(&printed));
        if rows.is_empty() {
            bail!(
                "the suite has measured nothing; to replay: {}",
                machine.command_line()
            );
        }
        for row in &rows {
            println!("{}", table_line(row));
        }
        Ok(Value::Array(rows.into_iter().map(Value::Object).collect()))
    }
}

/// The lines `BENCH name key=value …` of `printed`.
fn rows(printed: &str) -> Vec<Map<String, Value>> {
    printed
        .lines()
        .filter_map(|line| row(line.trim_end()))
        .collect()
}

fn row(line: &str) -> Option<Map<String, Value>> {
    let mut words = line.strip_prefix("BENCH ")?.split(' ');
    let mut row = Map::from_iter([("name".to_owned(), words.next()?.into())]);
    for (key, value) in words.filter_map(|word| word.split_once('=')) {
        let whole = value.parse::<u64>().map(Value::from);
        let number = whole.or_else(|_| value.parse::<f64>().map(Value::from));
        row.insert(key.to_owned(), number.unwrap_or_else(|_| value.into()));
    }
    Some(row)
}

/// A row as a line of a table. Times are in nanoseconds; a guest that is too slow is
/// marked.
fn table_line(row: &Map<String, Value>) -> String {
    let name = row.get("name").and_then(Value::as_str).unwrap_or_default();
    let cells = row
        .iter()
        .filter(|(key, _)| *key != "name")
        .map(|(key, value)| format!("{key} {value:>12}"));
    let slow = row
        .get("ratio")
        .and_then(Value::as_f64)
        .is_some_and(|ratio| ratio < ENOUGH);
    let mark = if slow { "  below 0.9 of the host" } else { "" };
    format!("{name:12} {}{mark}", cells.collect::<Vec<_>>().join("  "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_names_and_numbers() {
        let rows = rows(
            "boot\r\nBENCH plain host=200 guest=210 ratio=0.952\r\nBENCH exits count=3 per_second=9\n",
        );
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0]["name"], "plain");
        assert_eq!(rows[0]["host"], 200);
        assert_eq!(rows[0]["ratio"], 0.952);
        assert_eq!(rows[1]["per_second"], 9);
        assert!(super::rows("PASS a\nlvz: 1 passed, 0 failed\n").is_empty());
    }

    #[test]
    fn a_slow_guest_is_marked() {
        let line = |ratio: &str| {
            table_line(&row(&format!("BENCH plain host=1 guest=1 ratio={ratio}")).unwrap())
        };
        assert!(!line("0.9").contains("below"));
        assert!(line("0.899").contains("below 0.9"));
    }
}
