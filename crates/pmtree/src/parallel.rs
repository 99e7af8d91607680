//! Work on several parts by a thread each, for openings.

use terrane_storage::sync::thread;

use crate::Result;

/// Threads for this number of items: the wanted number, or one per CPU if that is 0. In the second
/// case each gets at least `share_min` items.
pub(crate) fn threads(wanted: usize, items: usize, share_min: usize) -> usize {
    match wanted {
        0 => std::thread::available_parallelism().map_or(1, usize::from).min(items / share_min.max(1)),
        wanted => wanted.min(items),
    }
    .max(1)
}

/// Calls `work` with each part, on a thread of its own if there are several. Gives the results in
/// the order of the parts.
pub(crate) fn on_threads<P: Send, T: Send>(
    parts: impl IntoIterator<Item = P>,
    work: impl Fn(P) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let mut parts = parts.into_iter();
    let Some(first) = parts.next() else { return Ok(Vec::new()) };
    let work = &work;
    thread::scope(|scope| {
        let others: Vec<_> = parts.map(|part| scope.spawn(move || work(part))).collect();
        let first = work(first);
        let join = |other: thread::ScopedJoinHandle<'_, _>| {
            other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        std::iter::once(first).chain(others.into_iter().map(join)).collect()
    })
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn results_come_in_the_order_of_the_parts_and_an_error_of_any_part_is_given() {
        let squares = on_threads(0..5, |number| Ok(number * number)).unwrap();
        assert_eq!(squares, [0, 1, 4, 9, 16]);
        let failing = |number| if number == 3 { Err(Error::LogCount { count: 3, most: 0 }) } else { Ok(number) };
        assert!(on_threads(0..5, failing).is_err());
        assert!(on_threads(std::iter::empty(), failing).unwrap().is_empty());
    }
}
