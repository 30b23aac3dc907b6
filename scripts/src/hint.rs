//! Errors that say what to do.
//!
//! An error of this tool is an `anyhow` chain: what failed, then why. A hint in the
//! chain is what the user can do about it; [`report`] prints it last, on a line of
//! its own, so that it is never lost between causes.

/// Marks a message of a chain as a hint. A mark in the text, not a type: anyhow
/// finds a context by its type only from the outside, one of each.
const MARK: &str = "what to do: ";

/// Adds a hint to the error of a `Result`.
pub trait Advise<T> {
    /// Returns the same error with `what_to_do`, a sentence or a command to type, as
    /// its hint. Of several hints in a chain the outermost is the one shown.
    fn advise(self, what_to_do: impl AsRef<str>) -> anyhow::Result<T>;
}

impl<T, E: Into<anyhow::Error>> Advise<T> for Result<T, E> {
    fn advise(self, what_to_do: impl AsRef<str>) -> anyhow::Result<T> {
        self.map_err(|error| {
            error
                .into()
                .context(format!("{MARK}{}", what_to_do.as_ref()))
        })
    }
}

/// An error that says `what` failed and what to do about it.
pub fn failure(what: impl Into<String>, what_to_do: impl AsRef<str>) -> anyhow::Error {
    anyhow::Error::msg(what.into()).context(format!("{MARK}{}", what_to_do.as_ref()))
}

/// The text of `error` for a person: what failed, why, and what to do.
pub fn report(error: &anyhow::Error) -> String {
    let messages: Vec<String> = error.chain().map(ToString::to_string).collect();
    let causes = messages.iter().filter(|text| !text.starts_with(MARK));
    let mut text = String::new();
    for cause in causes {
        let lead = if text.is_empty() {
            "error"
        } else {
            "  because"
        };
        text.push_str(&format!("{lead}: {}\n", cause.trim_end()));
    }
    if let Some(hint) = messages.iter().find(|text| text.starts_with(MARK)) {
        text.push_str(&format!("  {hint}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn the_hint_comes_last_and_the_outermost_wins() {
        let inner: anyhow::Result<()> = Err(failure("no such host", "look at the cable"));
        let error = inner
            .context("the index could not be read")
            .advise("connect to the network and try again")
            .context("step qemu-source failed")
            .unwrap_err();
        let expected = "error: step qemu-source failed\n  \
                        because: the index could not be read\n  \
                        because: no such host\n  \
                        what to do: connect to the network and try again\n";
        assert_eq!(report(&error), expected);
    }

    #[test]
    fn an_error_without_a_hint_has_no_hint_line() {
        assert_eq!(report(&anyhow::Error::msg("broken")), "error: broken\n");
    }
}
