//! Nearest-neighbour search, with the conditions inside the traversal.
//!
//! The index returns candidates ordered by a lower bound of their distance. A candidate that meets
//! all conditions is held, with its exact distance, until no candidate at a smaller or equal
//! distance can follow. So ties are in key order. If the intermediate results, above all the
//! deleted keys, do not fit in memory, the records are scanned.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use terrane_lsm::search::{Metric, NearestPoints, NearestSearch, Next, nearest_points, spatial_sources};
use terrane_space::geometry::distance_bytes;
use terrane_space::sphere::{PreparedPoint, distance_m_from_chord};
use terrane_space::{CoordinateSystem, Point};

use super::execute::lookup;
use super::explain::Explanation;
use super::filter::{Filters, damaged};
use super::keys::Keys;
use super::metric::{PlanarMetric, SphereMetric};
use super::nearest_scan;
use super::plan::choose_nearest;
use super::{Nearest, check_place};
use crate::key::EncodedKey;
use crate::record::{GeometryRef, RecordView};
use crate::schema::GeometryColumn;
use crate::snapshot::Snapshot;
use crate::{Error, Result};

/// The keys that were found, nearest first, with their distances.
#[derive(Default)]
pub(crate) struct Found {
    /// The result of a search for points only.
    points: Option<NearestPoints>,
    /// The result of any other search.
    keys: Keys,
    distances: Vec<f64>,
    taken: usize,
}

impl Found {
    /// The result of another algorithm.
    pub fn of(keys: Keys, distances: Vec<f64>) -> Self {
        Self { points: None, keys, distances, taken: 0 }
    }

    /// All keys, with their distances.
    pub fn into_parts(self) -> (Keys, Vec<f64>) {
        let Self { points, mut keys, mut distances, .. } = self;
        let mut index = 0;
        while let Some((distance, key)) = points.as_ref().and_then(|points| points.get(index)) {
            keys.push(key);
            distances.push(distance);
            index += 1;
        }
        (keys, distances)
    }

    pub fn take(&mut self) -> Option<(&[u8], f64)> {
        let index = self.taken;
        self.taken += 1;
        if let Some(points) = &self.points {
            return points.get(index).map(|(distance, key)| (key, distance));
        }
        let distance = *self.distances.get(index)?;
        self.keys.get(index).map(|key| (key, distance))
    }
}

/// A record that meets all conditions and is held until its turn.
#[derive(Debug, PartialEq)]
struct Waiting {
    distance: f64,
    key: EncodedKey,
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> Ordering {
        self.distance.total_cmp(&other.distance).then_with(|| self.key.cmp(&other.key))
    }
}

/// Finds the nearest records, within the limit, through an index that may be named.
pub(crate) fn search(
    snapshot: &Snapshot,
    filters: &Filters,
    nearest: &Nearest,
    limit: Option<u64>,
    index: Option<&str>,
    explanation: &mut Explanation,
) -> Result<Found> {
    let nearest = Nearest {
        k: limit.map_or(nearest.k, |limit| nearest.k.min(usize::try_from(limit).unwrap_or(usize::MAX))),
        ..*nearest
    };
    let (place, considered) = choose_nearest(snapshot, index)?;
    explanation.considered = considered;
    let found = search_at(snapshot, filters, &nearest, place, explanation)?;
    if explanation.plan == nearest_scan::PLAN {
        // The search took too much memory.
        for considered in explanation.considered.iter_mut().filter(|index| place.is_some() && index.is_used) {
            considered.is_used = false;
            considered.reason = "its intermediate results do not fit in memory".into();
        }
    }
    Ok(found)
}

/// Finds the nearest records through the spatial index in a slot, or by a scan of the records.
pub(crate) fn search_at(
    snapshot: &Snapshot,
    filters: &Filters,
    nearest: &Nearest,
    index: Option<usize>,
    explanation: &mut Explanation,
) -> Result<Found> {
    let system = snapshot.schema().system;
    check_place(system, nearest.x, nearest.y)?;
    let place = Point { x: nearest.x, y: nearest.y };
    let exact = Exact { system, place, prepared: PreparedPoint::new(place) };
    explanation.plan = "nearest";
    let search = |index| Search { snapshot, index, filters, exact: &exact, k: nearest.k };
    let found = match (index, system) {
        (None, _) => None,
        (Some(index), CoordinateSystem::Planar) => {
            search(index).run(PlanarMetric(place), planar_lower_bound, explanation)?
        }
        (Some(index), CoordinateSystem::LonLat) => {
            search(index).run(SphereMetric::new(place), sphere_lower_bound, explanation)?
        }
    };
    match found {
        Some(found) => Ok(found),
        None => nearest_scan::search(snapshot, filters, &exact, nearest.k, explanation),
    }
}

/// A lower bound of the distance with the square `measure`, for every way of computing it.
fn planar_lower_bound(measure: f64) -> f64 {
    // An infinite measure means at least the root of the largest float. A tiny measure has lost
    // digits.
    let root = measure.min(f64::MAX).sqrt();
    (root * (1.0 - 1e-14) - 1e-150).max(0.0)
}

/// A lower bound of the distance with a squared chord, for every way of computing it. Near the
/// antipode, chords are less exact.
fn sphere_lower_bound(measure: f64) -> f64 {
    let distance_m = distance_m_from_chord(measure);
    let slack_m = if distance_m > 19.0e6 { 10.0 } else { 1e-6 };
    (distance_m * (1.0 - 1e-12) - slack_m).max(0.0)
}

/// A search in progress.
struct Search<'q> {
    snapshot: &'q Snapshot,
    /// Slot of the index.
    index: usize,
    filters: &'q Filters,
    exact: &'q Exact,
    k: usize,
}

impl Search<'_> {
    /// Searches the index; `None` if that needs more memory than available.
    fn run<M: Metric>(
        self,
        metric: M,
        lower_bound: fn(f64) -> f64,
        explanation: &mut Explanation,
    ) -> Result<Option<Found>> {
        let Self { snapshot, index, filters, exact, k } = self;
        let versions = snapshot.versions_full();
        let sources = spatial_sources(&versions, index)?;
        let note_searched = |explanation: &mut Explanation, searched: u64| {
            explanation.components_searched = searched;
            explanation.components_pruned = sources.len() as u64 - searched;
        };
        let points = matches!(snapshot.history.newest().geometry, GeometryColumn::Point { .. });
        // The search can forget farther entries only if every entry is a result.
        if points
            && filters.is_empty()
            && let Some(nearest) =
                nearest_points(&sources, &metric, &|point| exact.to_point(point), snapshot.sequence(), k)?
        {
            note_searched(explanation, nearest.components_searched);
            explanation.candidates = nearest.measured;
            explanation.pages_visited = nearest.pages;
            explanation.entries = nearest.measured;
            return Ok(Some(Found { points: Some(nearest), ..Found::default() }));
        }
        let mut search = NearestSearch::new(&sources, metric, snapshot.sequence(), filters.windows());
        let mut waiting: BinaryHeap<Reverse<Waiting>> = BinaryHeap::new();
        let mut found = Found::default();
        let (mut seen, mut long_key_bytes) = (0u64, 0);
        let memory_max = snapshot.work_bytes();
        while found.distances.len() < k {
            let bound = search.peek().map(lower_bound);
            if let Some(Reverse(first)) = waiting.peek()
                && bound.is_none_or(|bound| first.distance < bound)
            {
                found.keys.push(&first.key);
                found.distances.push(first.distance);
                long_key_bytes -= first.key.heap_bytes();
                waiting.pop();
                continue;
            }
            let results = found.keys.memory_used() + size_of::<f64>() * found.distances.capacity();
            let held = waiting.capacity() * size_of::<Waiting>() + long_key_bytes + results;
            let candidate = match search.advance(memory_max.saturating_sub(held))? {
                Next::Candidate(candidate) => candidate,
                Next::End if waiting.is_empty() => break,
                Next::End => continue,
                Next::MemoryFull => {
                    explanation.pages_visited = search.pages;
                    return Ok(None);
                }
            };
            seen += 1;
            let (rect, key) = (candidate.rect, EncodedKey::new(candidate.key)?);
            let found_distance = if points && !filters.needs_record() {
                let point = Point { x: rect.x0, y: rect.y0 };
                filters.matches_point(point)?.then(|| exact.to_point(point))
            } else {
                explanation.lookups += 1;
                let stored = lookup(snapshot, &versions, &key)?;
                let distance = RecordView::parse(&stored, &snapshot.history).map_err(Error::from).and_then(|record| {
                    if filters.matches_record(&key, &record)? { exact.to_record(&record) } else { Ok(None) }
                });
                distance.map_err(|error| snapshot.name_record(error, &key))?
            };
            if let Some(distance) = found_distance {
                long_key_bytes += key.heap_bytes();
                waiting.push(Reverse(Waiting { distance, key }));
            }
        }
        note_searched(explanation, search.components_searched);
        explanation.candidates = seen;
        explanation.pages_visited = search.pages;
        explanation.entries = search.entries;
        Ok(Some(found))
    }
}

/// Computes the reported distances.
pub(super) struct Exact {
    system: CoordinateSystem,
    place: Point,
    prepared: PreparedPoint,
}

impl Exact {
    fn to_point(&self, point: Point) -> f64 {
        match self.system {
            CoordinateSystem::Planar => self.place.planar_distance(point),
            CoordinateSystem::LonLat => self.prepared.distance_m(point),
        }
    }

    /// The distance of a record, if it has a geometry.
    pub fn to_record(&self, record: &RecordView<'_>) -> Result<Option<f64>> {
        match record.geometry() {
            None => Ok(None),
            Some(GeometryRef::Point(point)) => Ok(Some(self.to_point(point))),
            Some(GeometryRef::Wkb(bytes)) => {
                let distance = distance_bytes(self.system, self.place, bytes);
                distance.map_err(damaged)
            }
        }
    }
}
