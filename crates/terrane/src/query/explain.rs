//! How a query was answered.

use std::fmt;

use serde::Serialize;

use super::Isolation;
use crate::condition::Condition;
use crate::words::counted;

/// Checking the query and choosing how to answer it.
pub(crate) const PLANNING: &str = "planning";
/// Candidates from the spatial index; of points, their exact conditions too.
pub(crate) const INDEX_SEARCH: &str = "index search";
/// The nearest records, with their conditions and the look-ups that these need.
pub(crate) const NEAREST_SEARCH: &str = "nearest search";
/// All records in the order of keys, with their conditions and their way into batches.
pub(crate) const PRIMARY_SCAN: &str = "primary scan";
/// Records of candidates from the primary index.
pub(crate) const PRIMARY_LOOKUPS: &str = "primary look-ups";
/// Exact conditions on records, and matches decoded into batches.
pub(crate) const CONDITIONS: &str = "conditions and decoding";

/// Where a condition is evaluated.
pub(super) const ON_RECORDS: &str = "records";
pub(super) const ON_ENTRIES: &str = "index entries";
pub(super) const ON_ENTRIES_AND_RECORDS: &str = "index entries, then records";

/// Plans of which it turns out that no record is needed.
pub(super) const SPATIAL_INDEX_ONLY: &str = "spatial index only";
pub(super) const ATTRIBUTE_INDEX_ONLY: &str = "attribute index only";
pub(super) const ATTRIBUTE_INDEXES_ONLY: &str = "attribute indexes only";

/// A step of a query and the time it took.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stage {
    /// What was done: `planning`, `index search`, `nearest search`, `primary scan` (with conditions
    /// and decoding), `primary look-ups`, or `conditions and decoding`.
    pub name: &'static str,
    /// Wall time in nanoseconds.
    pub time_ns: u64,
}

/// How the condition on attributes was evaluated.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConditionPlan {
    /// The condition, in its own language.
    pub text: String,
    /// `records`: on each record that the plan came to and that met the other conditions. `index entries`: on entries that
    /// have all that it asks for, and on records where an entry has a text cut off. `index entries, then records`: on entries
    /// as far as they have what it asks for.
    pub evaluated_on: &'static str,
}

impl ConditionPlan {
    pub(crate) fn on_records(condition: &Condition) -> Self {
        Self { text: condition.to_string(), evaluated_on: ON_RECORDS }
    }
}

/// What was thought of an index.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Considered {
    /// Its name.
    pub index: String,
    /// About how many entries it would give, where it could serve the condition.
    pub entries: Option<u64>,
    /// Whether the candidates came from it.
    pub is_used: bool,
    /// Why it was used, or was not.
    pub reason: String,
}

/// What a query did to find its answer. Complete when the last row has been taken.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// `spatial index`, `spatial index only`, `attribute index`, `attribute index only`, `attribute indexes` and `attribute
    /// indexes only` where the words of several columns are looked for together, `primary range`, `primary scan`, `nothing can match`, `nearest`,
    /// or `nearest by primary scan` where what the index has to note on the way does not fit in memory.
    pub plan: &'static str,
    /// Which states of the dataset the answer may rest on.
    pub isolation: Isolation,
    /// The condition on attributes, if there is one.
    pub condition: Option<ConditionPlan>,
    /// The indexes that were considered: on attributes where there is such a condition, spatial ones where there is a
    /// condition on places, the primary where the key is demanded; or the one that was asked for.
    pub considered: Vec<Considered>,
    /// Threads that found the rows, each in some of the dataset's partitions. Times are the sums of theirs.
    pub threads: usize,
    /// Windows that a spatial index was searched with.
    pub windows: usize,
    /// Components of the driving index that were searched.
    pub components_searched: u64,
    /// Components that were passed over by their bounds.
    pub components_pruned: u64,
    /// Pages read from files while this query worked. The cache counts for all: what others read
    /// at the same time is in it, what they read between two batches is not.
    pub pages_read: u64,
    /// Pages of a spatial index visited, in memory or not.
    pub pages_visited: u64,
    /// Entries of the driving index that were looked at.
    pub entries: u64,
    /// Entries that were candidates for the exact conditions.
    pub candidates: u64,
    /// Records looked up in the primary index.
    pub lookups: u64,
    /// Entries of the driving index that became rows without their records.
    pub answered_from_index: u64,
    /// Entries that would have, at read committed, but for a writer that held their keys: they were judged again by their records.
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
    /// Adds what was done to find other rows on the same path.
    pub(super) fn add(&mut self, other: &Self) {
        if !other.plan.is_empty() {
            // It may have turned out that the index alone is enough.
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
