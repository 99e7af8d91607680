//! The choice of a query's access path.
//!
//! Each index that can serve the conditions estimates its number of candidates from the statistics
//! of its components. The cheapest path wins. That is the one with the fewest candidates, unless
//! only some paths need a look-up for each of them. A scan of all records is used if it is cheaper.
//! A restricted key gives spans of the primary, whose records are read in order. Each span of any
//! index costs a look-up.
//!
//! All spatial indexes give the same candidates for windows. The number is estimated by the R-tree
//! that every dataset has, because its entries are whole objects. It is also the first choice.
//! Others are used if it is damaged, or if the query names them. If most records meet the windows,
//! all records are scanned.

use std::sync::Arc;

use terrane_lsm::memory::{ErasedMemory, MemoryBTree};
use terrane_lsm::partition::{IndexVersion, Version};
use terrane_lsm::search::{estimate, estimate_window, spatial_sources};
use terrane_space::Rect;

use super::attributes::{Serves, Union, serves, union_of};
use super::entries::EntryFilter;
use super::explain::Considered;
use super::filter::Filters;
use super::index::antimatter_fits;
use super::spans::{KeySpan, of_keys};
use crate::condition::Implied;
use crate::schema::SchemaHistory;
use crate::secondary::{Content, DatasetIndex, PRIMARY, SPATIAL};
use crate::snapshot::Snapshot;
use crate::{Error, Result};

/// Approximate number of records read in order in the time of one look-up.
const LOOKUP_RECORDS: u64 = 4;
/// Up to this number of records, windows are searched without an estimate, which would take too
/// long.
const UNESTIMATED_MAX: u64 = 16 << 10;
/// Maximal number of entries in memory components that are counted for an estimate.
const COUNTED_MAX: usize = 10_000;
/// Maximal number of inner pages per component that are read for an estimate of windows.
const ESTIMATE_PAGES: usize = 32;

const ASKED_FOR: &str = "it was asked for";
const CHEAPER: &str = "another way is cheaper";
const FEWEST: &str = "it gives the fewest candidates";
const FEWEST_TOGETHER: &str = "those of all columns give the fewest candidates together";
const CHEAPEST: &str = "it costs least, as look-ups are counted";
const CHEAPEST_TOGETHER: &str = "those of all columns cost least together, as look-ups are counted";
const SCATTERED: &str = "a word may also be in another column";
const COLUMN_SERVED: &str = "another index of the words of its column comes first";
pub(crate) const UNFIT: &str = "its deleted keys do not fit in memory";
const NO_BOXES: &str = "its components are not trees of boxes, which a nearest-neighbour search needs";

/// The access path of a query.
#[derive(Clone)]
pub(crate) enum Path {
    /// No record can match.
    Nothing,
    /// All records.
    Records,
    /// The records in these spans of keys.
    Keys(Vec<KeySpan>),
    /// The windows of the spatial conditions, in the spatial index with this slot.
    Windows(usize),
    /// An index on attributes or words, or the union of several.
    Attributes {
        indexes: Vec<IndexSpans>,
        /// The conditions evaluated on the entries.
        filter: EntryFilter,
    },
}

/// Entries of an index keyed by bytes.
#[derive(Clone, Debug)]
pub(crate) struct IndexSpans {
    /// Its slot.
    pub place: usize,
    pub spans: Vec<KeySpan>,
}

impl Path {
    /// Name of the plan in explanations.
    pub fn plan(&self) -> &'static str {
        match self {
            Self::Nothing => "nothing can match",
            Self::Records => "primary scan",
            Self::Keys(_) => "primary range",
            Self::Windows(_) => "spatial index",
            Self::Attributes { indexes, .. } if indexes.len() > 1 => "attribute indexes",
            Self::Attributes { .. } => "attribute index",
        }
    }

    /// The slots of its indexes.
    pub fn places(&self) -> Vec<usize> {
        match self {
            Self::Windows(place) => vec![*place],
            Self::Attributes { indexes, .. } => indexes.iter().map(|index| index.place).collect(),
            Self::Nothing | Self::Records | Self::Keys(_) => vec![PRIMARY as usize],
        }
    }

    /// Whether the components' statistics may have the number of its records.
    pub fn is_answered_by_statistics(&self) -> bool {
        matches!(self, Self::Records)
    }
}

/// Approximate number of entries on a path.
pub(super) fn expected_entries(snapshot: &Snapshot, filters: &Filters, path: &Path) -> Result<u64> {
    let versions = snapshot.versions_full();
    match path {
        Path::Nothing => Ok(0),
        Path::Records => records_of(&versions),
        Path::Keys(spans) => estimate_spans(&versions, PRIMARY as usize, spans),
        Path::Windows(place) => {
            estimate_windows(&versions, *place, filters.windows().unwrap_or_default(), ESTIMATE_PAGES)
        }
        Path::Attributes { indexes, .. } => {
            let entries = indexes.iter().map(|index| estimate_spans(&versions, index.place, &index.spans));
            entries.sum()
        }
    }
}

/// Describes an index that was considered.
fn considered(index: &DatasetIndex, entries: Option<u64>, reason: impl Into<String>) -> Considered {
    Considered { index: index.definition.name.clone(), entries, is_used: false, reason: reason.into() }
}

/// Chooses the path, through the index `named` if there is one. Returns also the considered
/// indexes. `reads_records` says whether rows need more of a record than its key.
pub(crate) fn choose_path(
    snapshot: &Snapshot,
    filters: &Filters,
    named: Option<&str>,
    reads_records: bool,
) -> Result<(Path, Vec<Considered>)> {
    if let Some(name) = named {
        let (path, considered) = path_through(snapshot, filters, name)?;
        return Ok((path, vec![considered]));
    }
    let Keyed { path, mut considered, windows_met } = choose_keyed(snapshot, filters, reads_records)?;
    let Some(windows) = filters.windows() else { return Ok((path.unwrap_or(Path::Records), considered)) };
    if let Some(path) = path {
        let spatial = snapshot.indexes.secondaries().filter(|(_, index)| index.spatial.is_some());
        // All spatial indexes give the same candidates.
        considered.extend(spatial.map(|(_, index)| self::considered(index, windows_met, CHEAPER)));
        return Ok((path, considered));
    }
    let fits = |place: usize, _: &DatasetIndex| {
        Ok((!antimatter_fits(snapshot, &snapshot.versions(), place, windows)?).then_some(UNFIT))
    };
    let Some(place) = choose_spatial(snapshot, &fits, &mut considered)? else { return Ok((Path::Records, considered)) };
    // Points without other conditions are answered from the entries.
    let is_decided = snapshot.history.newest().holds_points() && !filters.needs_record();
    if (reads_records || !is_decided)
        && let Some((entries, records)) = most_records_meet(snapshot, place, windows)?
        && let Some(chosen) = considered.iter_mut().find(|considered| considered.is_used)
    {
        (chosen.is_used, chosen.entries) = (false, Some(entries));
        chosen.reason = cheaper_to_read_all(records);
        return Ok((Path::Records, considered));
    }
    Ok((Path::Windows(place), considered))
}

fn cheaper_to_read_all(records: u64) -> String {
    format!("to read all records, about {records}, is cheaper")
}

/// The approximate numbers of entries that meet the windows and of all records, if look-ups of the
/// former cost more than reading the latter.
fn most_records_meet(snapshot: &Snapshot, place: usize, windows: &[Rect]) -> Result<Option<(u64, u64)>> {
    let versions = snapshot.versions_full();
    let records = records_of(&versions)?;
    if records <= UNESTIMATED_MAX {
        return Ok(None);
    }
    let is_cheaper = |entries: u64| entries.saturating_mul(LOOKUP_RECORDS) > records;
    // One page shows whether windows are small. They should not wait for a longer estimate.
    if !is_cheaper(estimate_windows(&versions, place, windows, 1)?) {
        return Ok(None);
    }
    let entries = estimate_windows(&versions, place, windows, ESTIMATE_PAGES)?;
    Ok(is_cheaper(entries).then_some((entries, records)))
}

/// The spatial index for a nearest-neighbour search, or `None` for a scan of the records; and the
/// considered indexes.
pub(super) fn choose_nearest(snapshot: &Snapshot, named: Option<&str>) -> Result<(Option<usize>, Vec<Considered>)> {
    if let Some(name) = named {
        let (place, index) = snapshot.find_index(name)?;
        let used = Considered { is_used: true, ..considered(index, None, ASKED_FOR) };
        if index.definition.id == PRIMARY {
            return Ok((None, vec![used]));
        }
        check_whole(snapshot, place, index)?;
        return match &index.spatial {
            Some(spatial) if spatial.has_boxes() => Ok((Some(place), vec![used])),
            Some(_) => Err(cannot_serve(index, &format!("{NO_BOXES}; use one of kind rtree"))),
            None => Err(cannot_serve(index, "it is not spatial; use one of kind rtree to find the nearest")),
        };
    }
    let has_boxes = |_: usize, index: &DatasetIndex| {
        Ok(index.spatial.as_ref().is_none_or(|index| !index.has_boxes()).then_some(NO_BOXES))
    };
    let mut considered = Vec::new();
    let place = choose_spatial(snapshot, &has_boxes, &mut considered)?;
    Ok((place, considered))
}

/// The spatial index that a join probes, or `None` for a scan of the records; and the considered
/// indexes.
pub(crate) fn choose_probed(snapshot: &Snapshot, named: Option<&str>) -> Result<(Option<usize>, Vec<Considered>)> {
    let Some(name) = named else {
        let mut considered = Vec::new();
        let place = choose_spatial(snapshot, &|_, _| Ok(None), &mut considered)?;
        return Ok((place, considered));
    };
    let (place, index) = snapshot.find_index(name)?;
    let used = Considered { is_used: true, ..considered(index, None, ASKED_FOR) };
    if index.definition.id == PRIMARY {
        return Ok((None, vec![used]));
    }
    check_whole(snapshot, place, index)?;
    match index.spatial {
        Some(_) => Ok((Some(place), vec![used])),
        None => Err(cannot_serve(index, "it is not spatial; a join needs a spatial index")),
    }
}

/// The first suitable spatial index whose components are all readable.
fn choose_spatial(
    snapshot: &Snapshot,
    against: &dyn Fn(usize, &DatasetIndex) -> Result<Option<&'static str>>,
    considered: &mut Vec<Considered>,
) -> Result<Option<usize>> {
    let versions = snapshot.versions();
    let mut chosen: Option<(usize, &str)> = None;
    let mut is_damaged = false;
    for (place, index) in snapshot.indexes.secondaries().filter(|(_, index)| index.spatial.is_some()) {
        let reason = match chosen {
            Some((_, first)) => format!("{first} comes first"),
            None => match (unusable(&versions, place), against(place, index)) {
                (Some(reason), _) => {
                    is_damaged |= place == SPATIAL as usize;
                    reason.to_owned()
                }
                (None, against) => match against? {
                    Some(reason) => reason.to_owned(),
                    None => {
                        chosen = Some((place, &index.definition.name));
                        "it is the first usable spatial index".to_owned()
                    }
                },
            },
        };
        let is_used = chosen.is_some_and(|(chosen, _)| chosen == place);
        considered.push(Considered { is_used, ..self::considered(index, None, reason) });
    }
    match chosen {
        None if is_damaged => Err(snapshot.damaged_index(SPATIAL as usize)),
        chosen => Ok(chosen.map(|(place, _)| place)),
    }
}

/// Why an index cannot be searched, if it cannot. An index created after the snapshot is invisible
/// to it.
pub(super) fn unusable(versions: &[Arc<Version>], place: usize) -> Option<&'static str> {
    if is_damaged(versions, place) {
        return Some("it is damaged");
    }
    let is_whole = |version: &Arc<Version>| version.indexes.get(place).is_some_and(IndexVersion::is_whole);
    (!versions.iter().all(is_whole)).then_some("it is not built yet")
}

/// Whether some components of an index could not be opened.
fn is_damaged(versions: &[Arc<Version>], place: usize) -> bool {
    let mut indexes = versions.iter().filter_map(|version| version.indexes.get(place));
    indexes.any(|index| index.damage().is_some())
}

/// Refuses an index with missing components.
fn check_whole(snapshot: &Snapshot, place: usize, index: &DatasetIndex) -> Result<()> {
    let versions = snapshot.versions();
    match unusable(&versions, place) {
        None => Ok(()),
        Some(_) if is_damaged(&versions, place) => Err(snapshot.damaged_index(place)),
        Some(reason) => Err(cannot_serve(index, reason)),
    }
}

fn cannot_serve(index: &DatasetIndex, reason: &str) -> Error {
    let (name, kind) = (&index.definition.name, &index.definition.kind);
    Error::usage(format!("the query cannot go through the index {name:?}, of kind {kind}: {reason}"))
}

/// The path through the index that the query names.
fn path_through(snapshot: &Snapshot, filters: &Filters, name: &str) -> Result<(Path, Considered)> {
    let (place, index) = snapshot.find_index(name)?;
    check_whole(snapshot, place, index)?;
    let implied = filters.implied();
    let (path, entries) = match &index.content {
        Content::Records => (implied.and_then(|implied| implied.key).map(|keys| Path::Keys(of_keys(&keys))), None),
        Content::Boxes => {
            let Some(windows) = filters.windows() else {
                return Err(cannot_serve(index, "the query has no condition on places, such as a window"));
            };
            if !antimatter_fits(snapshot, &snapshot.versions(), place, windows)? {
                return Ok((Path::Records, considered(index, None, UNFIT)));
            }
            (Some(Path::Windows(place)), None)
        }
        Content::Attributes(_) | Content::Words { .. } => {
            let versions = snapshot.versions_full();
            let implied = implied.unwrap_or_default();
            let serves = serves(index, &snapshot.history, &implied);
            let fewest = if let Serves::Spans(spans) = serves { fewest(&versions, place, spans)? } else { None };
            let Some((entries, spans)) = fewest else {
                let reason = match asks_for_scattered(index, &snapshot.history, &implied) {
                    true => format!("{SCATTERED}; without an index name, the indexes of all columns are used together"),
                    false => nothing_demanded(index, &snapshot.history, filters),
                };
                return Err(cannot_serve(index, &reason));
            };
            let filter = EntryFilter::new(index, &snapshot.history, filters);
            (Some(Path::Attributes { indexes: vec![IndexSpans { place, spans }], filter }), Some(entries))
        }
    };
    let used = Considered { is_used: true, ..considered(index, entries, ASKED_FOR) };
    Ok((path.unwrap_or(Path::Records), used))
}

/// Why an index on attributes or words cannot serve the conditions.
fn nothing_demanded(index: &DatasetIndex, history: &SchemaHistory, filters: &Filters) -> String {
    let column = &index.definition.columns[0];
    let asks_for = |id| {
        let condition = filters.condition().zip(history.position(id));
        condition.is_some_and(|(condition, position)| condition.asks_for(position))
    };
    let what = match &index.content {
        Content::Words { stop_words, .. } if stop_words.is_empty() => "no word",
        Content::Words { .. } => "only stop words",
        Content::Attributes(columns) if columns.first().is_some_and(|column| asks_for(*column)) => {
            return format!(
                "the condition on its first column, {column}, is not a value, range or list that `and` joins, \
                 and it serves no others"
            );
        }
        _ => "nothing",
    };
    format!("the condition demands {what} of its first column, {column}")
}

/// The alternative with the fewest estimated entries, among lists of spans in the B-trees with a
/// slot.
fn fewest(
    versions: &[Arc<Version>],
    place: usize,
    alternatives: Vec<Vec<KeySpan>>,
) -> Result<Option<(u64, Vec<KeySpan>)>> {
    let mut fewest: Option<(u64, Vec<KeySpan>)> = None;
    for spans in alternatives {
        let entries = estimate_spans(versions, place, &spans)?;
        if fewest.as_ref().is_none_or(|(fewest, _)| entries < *fewest) {
            fewest = Some((entries, spans));
        }
    }
    Ok(fewest)
}

/// The result of choosing among keys and indexes on attributes.
struct Keyed {
    /// The chosen path, if any.
    path: Option<Path>,
    considered: Vec<Considered>,
    /// Approximate number of entries that meet the windows, if it was estimated.
    windows_met: Option<u64>,
}

/// Chooses keys or an index on attributes, if one of them is cheaper than the windows and a full
/// scan. Returns also the considered indexes.
fn choose_keyed(snapshot: &Snapshot, filters: &Filters, reads_records: bool) -> Result<Keyed> {
    let (mut considered, mut windows_met) = (Vec::new(), None);
    let Some(implied) = filters.implied() else { return Ok(Keyed { path: None, considered, windows_met }) };
    let versions = snapshot.versions_full();
    let cheapest = cheapest(snapshot, &versions, filters, &implied, reads_records, &mut considered)?;
    let Some(Cheapest { cost, numbers, path }) = cheapest else {
        return Ok(Keyed { path: None, considered, windows_met });
    };
    let reason = why_cheapest(&considered, &numbers);
    let mut conclude = |is_used: bool, reason: &str| {
        for number in &numbers {
            (considered[*number].is_used, considered[*number].reason) = (is_used, reason.to_owned());
        }
    };
    if let Some(windows) = filters.windows()
        && unusable(&versions, SPATIAL as usize).is_none()
    {
        let met = estimate_windows(&versions, SPATIAL as usize, windows, ESTIMATE_PAGES)?;
        windows_met = Some(met);
        if met.saturating_mul(LOOKUP_RECORDS) <= cost {
            conclude(false, &format!("the windows cost no more, with about {met} candidates"));
            return Ok(Keyed { path: None, considered, windows_met });
        }
    }
    let records = records_of(&versions)?;
    if cost > records {
        conclude(false, &cheaper_to_read_all(records));
        return Ok(Keyed { path: None, considered, windows_met });
    }
    conclude(true, reason);
    Ok(Keyed { path: Some(path), considered, windows_met })
}

/// Why these of the considered indexes cost least, together.
fn why_cheapest(considered: &[Considered], numbers: &[usize]) -> &'static str {
    let entries_of = |is_meant: bool| {
        let meant = considered.iter().enumerate().filter(move |(number, _)| numbers.contains(number) == is_meant);
        meant.filter_map(|(_, considered)| considered.entries)
    };
    let of_all: u64 = entries_of(true).sum();
    let is_fewest = entries_of(false).all(|entries| entries >= of_all);
    match (is_fewest, numbers) {
        (true, [_]) => FEWEST,
        (true, _) => FEWEST_TOGETHER,
        (false, [_]) => CHEAPEST,
        (false, _) => CHEAPEST_TOGETHER,
    }
}

/// The cheapest path through keys or indexes on attributes and words.
struct Cheapest {
    /// In units of records read in order.
    cost: u64,
    /// Positions of its indexes in the list of considered ones.
    numbers: Vec<usize>,
    path: Path,
}

impl Cheapest {
    /// The cheaper of two paths.
    fn or(self, other: Option<Self>) -> Self {
        other.filter(|other| other.cost <= self.cost).unwrap_or(self)
    }
}

/// The cheapest path through keys or indexes on attributes and words.
fn cheapest(
    snapshot: &Snapshot,
    versions: &[Arc<Version>],
    filters: &Filters,
    implied: &Implied,
    reads_records: bool,
    considered: &mut Vec<Considered>,
) -> Result<Option<Cheapest>> {
    let mut best: Option<Cheapest> = None;
    let cost_of = |filter: &EntryFilter, entries: u64, spans: usize| {
        let of_entry = if filter.decides_all() && !reads_records { 1 } else { LOOKUP_RECORDS };
        // Each span costs a look-up.
        entries.saturating_mul(of_entry).saturating_add((spans as u64).saturating_mul(LOOKUP_RECORDS))
    };
    let union = scattered_union(snapshot, versions, implied)?;
    let mut numbers_of_union = Vec::new();
    if let (Some(keys), Some(primary)) = (&implied.key, snapshot.indexes.get(PRIMARY as usize)) {
        let spans = of_keys(keys);
        let entries = estimate_spans(versions, PRIMARY as usize, &spans)?;
        considered.push(self::considered(primary, Some(entries), CHEAPER));
        let cost = entries.saturating_add(spans.len() as u64 * LOOKUP_RECORDS);
        best = Some(Cheapest { cost, numbers: vec![0], path: Path::Keys(spans) });
    }
    for (place, index) in snapshot.indexes.secondaries() {
        if index.content.values().is_none() {
            continue;
        }
        let mut note = |entries: Option<u64>, reason: &str| {
            considered.push(self::considered(index, entries, reason));
        };
        let alternatives = match serves(index, &snapshot.history, implied) {
            Serves::Never => continue,
            Serves::Nothing => {
                match union.as_ref().filter(|_| asks_for_scattered(index, &snapshot.history, implied)) {
                    Some(union) => {
                        let (entries, reason) = share_of(union, versions, place);
                        note(entries, reason);
                        numbers_of_union.extend(entries.map(|_| considered.len() - 1));
                    }
                    None => note(None, &nothing_demanded(index, &snapshot.history, filters)),
                }
                continue;
            }
            Serves::Spans(alternatives) => alternatives,
        };
        if let Some(reason) = unusable(versions, place) {
            note(None, reason);
            continue;
        }
        let Some((entries, spans)) = fewest(versions, place, alternatives)? else { continue };
        note(Some(entries), CHEAPER);
        let is_in_union = matches!(&union, Some(Ok(union)) if union.share_of(place).is_some());
        numbers_of_union.extend(is_in_union.then_some(considered.len() - 1));
        let filter = EntryFilter::new(index, &snapshot.history, filters);
        let cost = cost_of(&filter, entries, spans.len());
        let path = Path::Attributes { indexes: vec![IndexSpans { place, spans }], filter };
        best = Some(Cheapest { cost, numbers: vec![considered.len() - 1], path }.or(best));
    }
    if let Some(Ok(Union { entries, indexes })) = union {
        let filter = EntryFilter::of_union(filters);
        let cost = cost_of(&filter, entries, indexes.len());
        let indexes = indexes.into_iter().map(|(_, spans)| spans).collect();
        best = Some(Cheapest { cost, numbers: numbers_of_union, path: Path::Attributes { indexes, filter } }.or(best));
    }
    Ok(best)
}

/// The approximate number of entries of an index in a union, or the reason why it is in none.
fn share_of<'u>(
    union: &'u std::result::Result<Union, String>,
    versions: &[Arc<Version>],
    place: usize,
) -> (Option<u64>, &'u str) {
    match (unusable(versions, place), union) {
        (Some(reason), _) => (None, reason),
        (None, Err(reason)) => (None, reason),
        (None, Ok(union)) => match union.share_of(place) {
            None => (None, COLUMN_SERVED),
            entries => (entries, CHEAPER),
        },
    }
}

/// Whether a condition demands words that may be in an index's column or in another.
fn asks_for_scattered(index: &DatasetIndex, history: &SchemaHistory, implied: &Implied) -> bool {
    let Content::Words { column, .. } = &index.content else { return false };
    let position = history.position(*column);
    let attributes = implied.scattered.as_ref().map(|words| &words.attributes);
    attributes.is_some_and(|attributes| attributes.iter().any(|attribute| Some(*attribute) == position))
}

/// The union for words that may be in any of several columns, or the reason why there is none;
/// `None` without such words.
fn scattered_union(
    snapshot: &Snapshot,
    versions: &[Arc<Version>],
    implied: &Implied,
) -> Result<Option<std::result::Result<Union, String>>> {
    let Some(words) = &implied.scattered else { return Ok(None) };
    let usable = |(place, _): &(usize, _)| unusable(versions, *place).is_none();
    let usable: Vec<_> = snapshot.indexes.secondaries().filter(usable).collect();
    let estimate = |place: usize, span: &KeySpan| estimate_spans(versions, place, std::slice::from_ref(span));
    union_of(words, &snapshot.history, &usable, &estimate).map(Some)
}

/// Approximate number of entries in spans of the B-trees with a slot.
fn estimate_spans(versions: &[Arc<Version>], place: usize, spans: &[KeySpan]) -> Result<u64> {
    let mut entries = 0;
    // The entries counted in memory are divided among the partitions.
    let counted_max = (COUNTED_MAX / versions.len().max(1)).max(1);
    for version in versions {
        for span in spans {
            entries += estimate(version, place, span.range(), counted_max)?;
        }
    }
    Ok(entries)
}

/// Approximate number of records.
pub(super) fn records_of(versions: &[Arc<Version>]) -> Result<u64> {
    let mut records = 0;
    for version in versions {
        let parts = version.components(PRIMARY as usize).iter();
        records += parts.map(|part| part.file().meta().statistics.entries).sum::<u64>();
        for memory in version.memories::<MemoryBTree>(PRIMARY as usize) {
            records += memory?.len() as u64;
        }
    }
    Ok(records)
}

/// Approximate number of entries of a spatial index that meet the windows. Reads at most
/// `pages_max` pages per component.
fn estimate_windows(versions: &[Arc<Version>], place: usize, windows: &[Rect], pages_max: usize) -> Result<u64> {
    let sources = spatial_sources(versions, place)?;
    let counted_max = (COUNTED_MAX / versions.len().max(1)).max(1);
    let mut met = 0;
    for window in windows {
        met += estimate_window(&sources, window, counted_max as u64, pages_max)?;
    }
    Ok(met)
}
