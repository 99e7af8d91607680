//! The choice of what a query goes through for its candidates.
//!
//! Each index that can serve the conditions estimates how many candidates it would give, from what its components
//! know of themselves. The fewest win; where a look-up for each costs more than reading all records, these are read.

use terrane_lsm::memory::{ErasedMemory, MemoryBTree};
use terrane_lsm::partition::Version;
use terrane_lsm::search::{estimate, estimate_window, spatial_sources};
use terrane_space::Rect;

use super::attributes::{Serves, serves};
use super::explain::Considered;
use super::filter::Filters;
use super::spans::{KeySpan, of_keys};
use crate::Result;
use crate::secondary::{Content, PRIMARY, SPATIAL};
use crate::snapshot::Snapshot;

/// Records that are read in order in the time of one look-up, about.
const LOOKUP_RECORDS: u64 = 4;
/// Entries of memory components that are counted for an estimate.
const COUNTED_MAX: usize = 10_000;

/// What a query goes through.
pub(super) enum Path {
    /// The windows of its conditions on places, if it has any; else all records.
    Others,
    /// The records in these spans of keys.
    Keys(Vec<KeySpan>),
    /// An index on attributes or words.
    Attributes {
        place: usize,
        /// In front of the record's key in an entry.
        values: usize,
        spans: Vec<KeySpan>,
    },
}

/// The keys or the index on attributes to go through, if that is better than the others, than the windows and than all
/// records; and what was thought of each.
pub(super) fn choose_path(snapshot: &Snapshot, filters: &Filters) -> Result<(Path, Vec<Considered>)> {
    let mut considered = Vec::new();
    let Some(implied) = filters.implied() else { return Ok((Path::Others, considered)) };
    let version = snapshot.pinned.version_full();
    // What the best would cost, in records that are read in order, with its number among those considered.
    let mut best: Option<(u64, usize, Path)> = None;
    if let Some(keys) = &implied.key {
        let spans = of_keys(keys);
        let entries = estimate_spans(&version, PRIMARY as usize, &spans)?;
        let reason = "another way is cheaper".to_owned();
        considered.push(Considered {
            index: snapshot.indexes.name(PRIMARY as usize).to_owned(),
            entries: Some(entries),
            is_used: false,
            reason,
        });
        // Each span is sought for.
        let cost = entries.saturating_add(spans.len() as u64 * LOOKUP_RECORDS);
        best = Some((cost, 0, Path::Keys(spans)));
    }
    for (place, index) in snapshot.indexes.secondaries() {
        let Some(values) = index.content.values() else { continue };
        let mut note = |entries: Option<u64>, reason: &str| {
            let index = index.definition.name.clone();
            considered.push(Considered { index, entries, is_used: false, reason: reason.to_owned() });
        };
        let alternatives = match serves(index, &implied) {
            Serves::Never => continue,
            Serves::Nothing => {
                let what = if matches!(index.content, Content::Words(_)) { "no word" } else { "nothing" };
                note(None, &format!("{what} is demanded of {}, the first that it is on", index.definition.columns[0]));
                continue;
            }
            Serves::Spans(alternatives) => alternatives,
        };
        // A snapshot that is older than the index does not see it.
        match version.indexes.get(place) {
            Some(index) if index.is_whole() => {}
            Some(index) if index.damage().is_some() => {
                note(None, "it is damaged");
                continue;
            }
            _ => {
                note(None, "it is not built yet");
                continue;
            }
        }
        let mut fewest: Option<(u64, Vec<KeySpan>)> = None;
        for spans in alternatives {
            let entries = estimate_spans(&version, place, &spans)?;
            if fewest.as_ref().is_none_or(|(fewest, _)| entries < *fewest) {
                fewest = Some((entries, spans));
            }
        }
        let Some((entries, spans)) = fewest else { continue };
        note(Some(entries), "another way is cheaper");
        let cost = entries.saturating_add(spans.len() as u64).saturating_mul(LOOKUP_RECORDS);
        if best.as_ref().is_none_or(|(least, ..)| cost < *least) {
            best = Some((cost, considered.len() - 1, Path::Attributes { place, values, spans }));
        }
    }
    let Some((cost, number, path)) = best else { return Ok((Path::Others, considered)) };
    let chosen = &mut considered[number];
    if let Some(windows) = filters.windows()
        && version.indexes[SPATIAL as usize].is_whole()
    {
        let met = estimate_windows(snapshot, windows)?;
        if met.saturating_mul(LOOKUP_RECORDS) <= cost {
            chosen.reason = format!("the windows give fewer candidates, about {met}");
            return Ok((Path::Others, considered));
        }
    }
    let records = records_of(&version)?;
    if cost > records {
        chosen.reason = format!("to read all records, about {records}, is cheaper");
        return Ok((Path::Others, considered));
    }
    chosen.is_used = true;
    chosen.reason = "it gives the fewest candidates".to_owned();
    Ok((path, considered))
}

/// About how many entries lie in spans of the B-tree at a place.
fn estimate_spans(version: &Version, place: usize, spans: &[KeySpan]) -> Result<u64> {
    let mut entries = 0;
    for span in spans {
        entries += estimate(version, place, span.range(), COUNTED_MAX)?;
    }
    Ok(entries)
}

/// About how many records there are.
fn records_of(version: &Version) -> Result<u64> {
    let on_disk = version.components(PRIMARY as usize).iter().map(|part| part.file().meta().statistics.entries);
    let mut records = on_disk.sum();
    for memory in version.memories::<MemoryBTree>(PRIMARY as usize) {
        records += memory?.len() as u64;
    }
    Ok(records)
}

fn estimate_windows(snapshot: &Snapshot, windows: &[Rect]) -> Result<u64> {
    let version = snapshot.spatial_version()?;
    let sources = spatial_sources(&version, SPATIAL as usize)?;
    let mut met = 0;
    for window in windows {
        met += estimate_window(&sources, window, COUNTED_MAX as u64)?;
    }
    Ok(met)
}
