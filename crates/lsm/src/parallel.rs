//! Parallel work on several items, in threads that last as long as the call.

use std::panic::resume_unwind;

use terrane_storage::sync::thread;

/// Calls `work` for every item, and returns the results in the order of the items. There are as
/// many threads as `threads_max` and the items allow, including the caller's. Items are assigned to
/// threads at the start, so the assignment does not depend on their speed. If a thread cannot be
/// started, the caller's thread does its work.
///
/// # Panics
/// When `work` does, once all threads have ended.
pub fn map<T: Sync, R: Send>(threads_max: usize, items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = threads_of(threads_max, items.len());
    if threads == 1 {
        return items.iter().map(work).collect();
    }
    let share = |number: usize| items.iter().skip(number).step_by(threads).map(&work).collect::<Vec<R>>();
    let shares: Vec<Vec<R>> = thread::scope(|scope| {
        let share = &share;
        let start = |number: usize| thread::spawn_scoped(scope, move || share(number)).ok();
        let started: Vec<_> = (1..threads).map(|number| (number, start(number))).collect();
        let own = share(0);
        let others = started.into_iter().map(|(number, thread)| match thread {
            Some(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            None => share(number),
        });
        std::iter::once(own).chain(others).collect()
    });
    let mut shares: Vec<_> = shares.into_iter().map(Vec::into_iter).collect();
    (0..items.len()).filter_map(|item| shares[item % threads].next()).collect()
}

/// Number of threads for `count` items.
pub fn threads_of(threads_max: usize, items: usize) -> usize {
    threads_max.min(items).max(1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_items_whatever_the_threads() {
        let items: Vec<usize> = (0..7).collect();
        for threads in [0, 1, 2, 3, 7, 20] {
            assert_eq!(map(threads, &items, |item| item * 10), [0, 10, 20, 30, 40, 50, 60], "{threads} threads");
        }
        assert!(map(3, &[0; 0], |item| *item).is_empty());
    }

    #[test]
    fn each_thread_has_its_share() {
        let items = [(); 7];
        let threads = |threads: usize| {
            let seen = map(threads, &items, |()| format!("{:?}", thread::current().id()));
            assert_eq!(seen[0], seen[threads_of(threads, 7) % 7], "the first has what comes after the last");
            seen.into_iter().collect::<BTreeSet<_>>().len()
        };
        assert_eq!((threads(1), threads(3), threads(9)), (1, 3, 7));
    }
}
