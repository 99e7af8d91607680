//! Recovery: the repetition of committed changes, and the undoing of others.

use terrane_pmem::{Backend, Pool};

use super::layout::Layout;
use super::log::{self, Entries, Found};
use crate::Result;

/// Completes committed changes, and frees the blocks of other entries of the log. A crash inside of
/// it leaves entries with the same outcome.
pub(super) fn recover<const K: usize, const V: usize, B: Backend>(
    pool: &Pool<B>,
    layout: &Layout<K, V>,
    block: u64,
) -> Result<()> {
    let backend = pool.backend();
    let entries = Entries::new(layout, block);
    for index in 0..entries.count {
        let entry = entries.offset(index);
        let mut freed = pool.intent();
        match log::read(pool, layout, block, index)? {
            Found::Free => continue,
            Found::Announced(blocks) => {
                for (number, block) in blocks.into_iter().enumerate().filter(|(_, block)| *block != 0) {
                    freed.release(block, log::acquired_link(entry, number))?;
                }
            }
            Found::Committed(change) => {
                log::apply(pool, layout, &change)?;
                if change.released != 0 {
                    freed.release(change.released, log::released_link(entry))?;
                }
            }
        }
        // Its fence comes before anybody gets the blocks.
        log::clear(backend, entry);
        freed.finish();
    }
    Ok(())
}
