//! How a query was executed.

use std::fmt;

use serde::Serialize;

use super::Isolation;
use crate::condition::Condition;
use crate::words::counted;

/// Checking the query and choosing its plan.
pub(crate) const PLANNING: &str = "planning";
/// Candidates from the spatial index. For points, with exact conditions.
pub(crate) const INDEX_SEARCH: &str = "index search";
/// The nearest records, with conditions and the necessary look-ups.
pub(crate) const NEAREST_SEARCH: &str = "nearest search";
/// All records in key order, with conditions and conversion to batches.
pub(crate) const PRIMARY_SCAN: &str = "primary scan";
/// Look-ups of candidates in the primary index.
pub(crate) const PRIMARY_LOOKUPS: &str = "primary look-ups";
/// Exact conditions on records, and decoding of matches into batches.
pub(crate) const CONDITIONS: &str = "conditions and decoding";

/// Where a condition is evaluated.
pub(super) const ON_RECORDS: &str = "records";
pub(super) const ON_ENTRIES: &str = "index entries";
pub(super) const ON_ENTRIES_AND_RECORDS: &str = "index entries, then records";

/// Plans that turn out to need no record.
pub(super) const SPATIAL_INDEX_ONLY: &str = "spatial index only";
pub(super) const ATTRIBUTE_INDEX_ONLY: &str = "attribute index only";
pub(super) const ATTRIBUTE_INDEXES_ONLY: &str = "attribute indexes only";

/// A step of a query and the time it took.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stage {
    /// One of `planning`, `index search`, `nearest search`, `primary scan` (with conditions and
    /// decoding), `primary look-ups`, `conditions and decoding`.
    pub name: &'static str,
    /// Wall time in nanoseconds.
    pub time_ns: u64,
}

/// How the condition on attributes was evaluated.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConditionPlan {
    /// The condition, in its own language.
    pub text: String,
    /// Where the condition was evaluated:
    /// - `records`: on each record that the plan read and that met the other conditions.
    /// - `index entries`: on entries with all necessary attributes, and on the record if the entry
    ///   has a truncated text.
    /// - `index entries, then records`: on entries as far as they have the attributes.
    pub evaluated_on: &'static str,
}

impl ConditionPlan {
    pub(crate) fn on_records(condition: &Condition) -> Self {
        Self { text: condition.to_string(), evaluated_on: ON_RECORDS }
    }
}

/// An index that was considered for a query.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Considered {
    /// Its name.
    pub index: String,
    /// Approximate number of its entries for the condition, if it could serve it.
    pub entries: Option<u64>,
    /// Whether it provided the candidates.
    pub is_used: bool,
    /// Why it was used or not.
    pub reason: String,
}

/// What a query did to find its answer. Complete after the last row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The plan, one of these.
    /// - `spatial index`, `spatial index only`.
    /// - `attribute index`, `attribute index only`.
    /// - `attribute indexes`, `attribute indexes only`. The word indexes of several columns are
    ///   searched together.
    /// - `primary range`, `primary scan`.
    /// - `nothing can match`.
    /// - `nearest`.
    /// - `nearest by primary scan`. The deleted keys or other intermediate results did not fit in
    ///   memory.
    pub plan: &'static str,
    /// The isolation level of the answer.
    pub isolation: Isolation,
    /// The condition on attributes, if any.
    pub condition: Option<ConditionPlan>,
    /// The indexes that were considered. These are attribute indexes for a condition on attributes,
    /// spatial ones for a spatial condition, and the primary if the key is restricted. If the query
    /// names an index, it is the only one.
    pub considered: Vec<Considered>,
    /// Number of threads that found the rows, each in some of the dataset's partitions. Times are
    /// sums over the threads.
    pub threads: usize,
    /// Number of windows searched in a spatial index.
    pub windows: usize,
    /// Components of the driving index that were searched.
    pub components_searched: u64,
    /// Number of components skipped because of their bounds.
    pub components_pruned: u64,
    /// Pages read from files while this query worked. The cache has one counter for all queries. So
    /// this includes the pages that others read at the same time, and excludes reads between two
    /// batches.
    pub pages_read: u64,
    /// Pages of a spatial index visited, in memory or not.
    pub pages_visited: u64,
    /// Number of entries read from the driving index.
    pub entries: u64,
    /// Entries that were candidates for the exact conditions.
    pub candidates: u64,
    /// Records looked up in the primary index.
    pub lookups: u64,
    /// Number of entries of the driving index that became rows without their records.
    pub answered_from_index: u64,
    /// Number of entries, at read committed, that were judged by their records because writers held
    /// their keys.
    pub held_by_writers: u64,
    /// Records that match.
    pub matches: u64,
    /// The steps with their times.
    pub stages: Vec<Stage>,
}

impl Default for Explanation {
    fn default() -> Self {
        Self {
            plan: "",
            isolation: Isolation::Snapshot,
            condition: None,
            considered: Vec::new(),
            threads: 1,
            windows: 0,
            components_searched: 0,
            components_pruned: 0,
            pages_read: 0,
            pages_visited: 0,
            entries: 0,
            candidates: 0,
            lookups: 0,
            answered_from_index: 0,
            held_by_writers: 0,
            matches: 0,
            stages: Vec::new(),
        }
    }
}

impl Explanation {
    /// Adds the work for other rows on the same path.
    pub(super) fn add(&mut self, other: &Self) {
        if !other.plan.is_empty() {
            // The index alone may have turned out to be enough.
            self.plan = other.plan;
        }
        self.components_searched += other.components_searched;
        self.components_pruned += other.components_pruned;
        self.pages_visited += other.pages_visited;
        self.entries += other.entries;
        self.candidates += other.candidates;
        self.lookups += other.lookups;
        self.answered_from_index += other.answered_from_index;
        self.held_by_writers += other.held_by_writers;
        other.stages.iter().for_each(|stage| self.add_time(stage.name, stage.time_ns));
    }

    pub(crate) fn add_time(&mut self, name: &'static str, time_ns: u64) {
        match self.stages.iter_mut().find(|stage| stage.name == name) {
            Some(stage) => stage.time_ns += time_ns,
            None => self.stages.push(Stage { name, time_ns }),
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "plan        {}", self.plan)?;
        writeln!(f, "isolation   {}", self.isolation)?;
        if let Some(ConditionPlan { text, evaluated_on }) = &self.condition {
            writeln!(f, "condition   {text} (evaluated on {evaluated_on})")?;
        }
        for Considered { index, entries, is_used, reason } in &self.considered {
            let entries =
                entries.map_or(String::new(), |entries| format!(", about {}", counted(entries, "entry", "entries")));
            let used = if *is_used { "used" } else { "not used" };
            writeln!(f, "index       {index}{entries}: {used}, as {reason}")?;
        }
        if self.threads > 1 {
            writeln!(f, "threads     {}", self.threads)?;
        }
        if self.windows > 0 {
            writeln!(f, "windows     {}", self.windows)?;
        }
        writeln!(f, "components  {} searched, {} pruned", self.components_searched, self.components_pruned)?;
        writeln!(
            f,
            "pages       {} visited in the spatial index, {} read from files",
            self.pages_visited, self.pages_read
        )?;
        writeln!(f, "entries     {}", self.entries)?;
        writeln!(f, "candidates  {}, {} looked up in the primary index", self.candidates, self.lookups)?;
        if self.answered_from_index + self.held_by_writers > 0 {
            writeln!(
                f,
                "index only  {} answered from the index, {} held by writers and judged by their records",
                self.answered_from_index, self.held_by_writers
            )?;
        }
        write!(f, "matches     {}", self.matches)?;
        for stage in &self.stages {
            write!(f, "\ntime        {:>10.3} ms  {}", stage.time_ns as f64 / 1e6, stage.name)?;
        }
        Ok(())
    }
}
