//! The hypervisor's options: words of its command line, as `log=debug`.

/// The values that `line` gives to the option `name`, in their order.
pub fn values<'a>(line: &'a str, name: &'a str) -> impl DoubleEndedIterator<Item = &'a str> {
    let words = line.split_ascii_whitespace();
    words.filter_map(move |word| word.strip_prefix(name)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_option_itself_is_found() {
        let of = |line| values(line, "log").collect::<Vec<_>>();
        assert_eq!(of("log=a board=b\tlog= log=c=d\n"), ["a", "", "c=d"]);
        assert!(of("catalog=a log logs=b").is_empty());
        assert!(of("").is_empty());
    }
}
