//! Nearest-neighbour search by a scan of all records, in bounded memory.

use std::cmp::Ordering;
use std::ops::{ControlFlow, Range};

use super::execute::components_of;
use super::explain::Explanation;
use super::filter::Filters;
use super::keys::Keys;
use super::nearest::{Exact, Found};
use super::plan::records_of;
use crate::record::RecordView;
use crate::secondary::PRIMARY;
use crate::snapshot::Snapshot;
use crate::{Error, Result};

/// Name of the plan in explanations.
pub(super) const PLAN: &str = "nearest by primary scan";

/// Number of records kept beyond `k`, so that selection is rare.
const SURPLUS_MIN: usize = 1024;

/// A record that may be among the nearest. Its key is in the common list of keys.
struct Kept {
    distance: f64,
    key: Range<usize>,
}

/// The nearest records so far, and some others.
struct Nearest {
    k: usize,
    kept: Vec<Kept>,
    keys: Vec<u8>,
    /// Records beyond this distance are not among the nearest.
    farthest: f64,
    bytes_max: usize,
    /// Upper bound of the number of results.
    records: u64,
}

impl Nearest {
    fn bytes_held(&self) -> usize {
        self.keys.len() + self.kept.len() * size_of::<Kept>()
    }

    fn add(&mut self, key: &[u8], distance: f64) -> Result<()> {
        if distance.total_cmp(&self.farthest).is_gt() {
            return Ok(());
        }
        let start = self.keys.len();
        self.keys.extend_from_slice(key);
        self.kept.push(Kept { distance, key: start..self.keys.len() });
        let is_full = self.bytes_held() > self.bytes_max;
        if is_full || self.kept.len() >= self.k.saturating_mul(2).max(SURPLUS_MIN) {
            self.choose();
        }
        // Enough must be free after a selection for the next one to pay.
        if is_full && self.bytes_held() > self.bytes_max / 4 * 3 {
            // Assumes the same size for the remaining records as for those so far.
            let bytes_each = self.bytes_held() as u64 / self.kept.len().max(1) as u64;
            return Err(Error::Memory {
                what: format!("a search for the nearest {} records", self.k),
                needed_bytes: bytes_each.saturating_mul(self.records.min(self.k as u64)),
                available_bytes: self.bytes_max as u64,
            });
        }
        Ok(())
    }

    /// Removes all but the nearest.
    fn choose(&mut self) {
        if self.kept.len() > self.k && self.k > 0 {
            let keys = &self.keys;
            let (_, last, _) = self.kept.select_nth_unstable_by(self.k - 1, |a, b| order(keys, a, b));
            self.farthest = last.distance;
            self.kept.truncate(self.k);
            self.kept.sort_unstable_by_key(|kept| kept.key.start);
            let mut end = 0;
            for kept in &mut self.kept {
                self.keys.copy_within(kept.key.clone(), end);
                kept.key = end..end + kept.key.len();
                end = kept.key.end;
            }
            self.keys.truncate(end);
        }
    }

    fn into_found(mut self) -> Found {
        self.choose();
        let keys = &self.keys;
        self.kept.sort_unstable_by(|a, b| order(keys, a, b));
        let distances = self.kept.iter().map(|kept| kept.distance).collect();
        let spans = self.kept.into_iter().map(|kept| kept.key).collect();
        Found::of(Keys::from_parts(self.keys, spans), distances)
    }
}

/// Orders by distance, then by key.
fn order(keys: &[u8], a: &Kept, b: &Kept) -> Ordering {
    a.distance.total_cmp(&b.distance).then_with(|| keys[a.key.clone()].cmp(&keys[b.key.clone()]))
}

/// Finds the nearest records without the spatial index.
///
/// # Errors
/// [`Error::Memory`] if the results alone do not fit in memory; damage; storage.
pub(super) fn search(
    snapshot: &Snapshot,
    filters: &Filters,
    exact: &Exact,
    k: usize,
    explanation: &mut Explanation,
) -> Result<Found> {
    explanation.plan = PLAN;
    explanation.components_searched = components_of(&snapshot.versions(), PRIMARY as usize);
    // Growing lists take up to twice the size of their contents.
    let bytes_max = snapshot.work_bytes() / 2;
    let records = records_of(&snapshot.versions())?;
    let (kept, keys) = (Vec::new(), Vec::new());
    let mut nearest = Nearest { k, kept, keys, farthest: f64::INFINITY, bytes_max, records };
    snapshot.visit_records(&mut |key, stored| {
        explanation.entries += 1;
        explanation.candidates += 1;
        let record = RecordView::parse(stored, &snapshot.history)?;
        if filters.matches_record(key, &record)?
            && let Some(distance) = exact.to_record(&record)?
        {
            nearest.add(key, distance)?;
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(nearest.into_found())
}
