//! Building programs for the bare machine.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::context::Context;
use crate::process;
use crate::setup::target::TARGET;

/// Builds the program of the workspace's crate `package` for the bare LoongArch machine
/// (release profile) and returns its ELF file.
///
/// # Errors
/// It doesn't compile (the compiler's words are on standard error), or the crate has no
/// program.
pub fn build(cx: &Context, package: &str) -> Result<PathBuf> {
    build_target(cx, package, &[])
}

/// Builds the example `name` of the crate `package`, likewise.
///
/// # Errors
/// As [`build`].
pub fn build_example(cx: &Context, package: &str, name: &str) -> Result<PathBuf> {
    build_target(cx, package, &["--example", name])
}

fn build_target(cx: &Context, package: &str, which: &[&str]) -> Result<PathBuf> {
    let mut cargo = process::command("cargo");
    cargo.args([
        "build",
        "--release",
        "--package",
        package,
        "--target",
        TARGET,
    ]);
    cargo
        .args(which)
        .arg("--message-format=json-render-diagnostics")
        .current_dir(cx.repo(""));
    // What the compiler says goes to the terminal as it comes.
    cargo.stderr(std::process::Stdio::inherit());
    let printed =
        process::output(&mut cargo).with_context(|| format!("{package} could not be built"))?;
    executable(&printed).with_context(|| format!("{package} has no program for the bare machine"))
}

/// The file of the last executable that cargo's messages name.
fn executable(messages: &str) -> Option<PathBuf> {
    let parsed = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut paths =
        parsed.filter_map(|message| Some(PathBuf::from(message["executable"].as_str()?)));
    paths.next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_executable_is_found_among_messages() {
        let messages = "{\"reason\":\"compiler-artifact\",\"executable\":null}\n\
                        {\"reason\":\"compiler-artifact\",\"executable\":\"/t/lvz-suite\"}\n\
                        {\"reason\":\"build-finished\",\"success\":true}\n";
        assert_eq!(executable(messages), Some("/t/lvz-suite".into()));
        assert_eq!(
            executable("{\"reason\":\"build-finished\"}\nnot json\n"),
            None
        );
    }
}
