//! Doing several things at once, on all of this machine's CPUs.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Does `work` with each of `items`, as many at a time as this machine has CPUs; gives the
/// results in the items' order. For runs that need one CPU each: of two with threads
/// neither would have what it needs.
pub fn at_once<T: Sync, R: Send + Sync>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let workers = thread::available_parallelism().map_or(1, |count| count.get());
    let results: Vec<OnceLock<R>> = items.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let take = || {
        let index = next.fetch_add(1, Ordering::Relaxed);
        items.get(index).zip(results.get(index))
    };
    thread::scope(|scope| {
        for _ in 0..workers.min(items.len()) {
            scope.spawn(|| {
                while let Some((item, place)) = take() {
                    place.get_or_init(|| work(item));
                }
            });
        }
    });
    results
        .into_iter()
        .filter_map(OnceLock::into_inner)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_done_once_and_results_are_in_order() {
        let items: Vec<u32> = (0..100).collect();
        let done = AtomicUsize::new(0);
        let doubled = at_once(&items, |item| {
            done.fetch_add(1, Ordering::Relaxed);
            2 * item
        });
        assert_eq!(
            doubled,
            items.iter().map(|item| 2 * item).collect::<Vec<_>>()
        );
        assert_eq!(done.into_inner(), items.len());
        assert!(at_once(&[], |item: &u32| *item).is_empty());
    }
}
