//! How a join was executed.

use std::fmt;

use serde::Serialize;

use crate::query::Explanation;
use crate::query::plan::UNFIT;

/// What a join did to find its answer. Complete after the last pair.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JoinExplanation {
    /// The predicate of pairs.
    pub on: String,
    /// The wanted pairs of a self-join: `all`, `distinct` or `ordered`.
    pub wanted: &'static str,
    /// Number of outer geometries searched on the inner side.
    pub probes: u64,
    /// Number of these for which all inner records were read, although there is a spatial index.
    /// The deleted keys of their windows did not fit in memory.
    pub probes_of_records: u64,
    /// Number of pairs found.
    pub pairs: u64,
    /// How the outer rows were found.
    pub outer: Explanation,
    /// The work on the inner side, for all outer rows together: `spatial index`,
    /// `spatial index only`, or `primary scan` if all records are read for each outer row. Its
    /// matches are the pairs.
    pub inner: Explanation,
}

impl fmt::Display for JoinExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "join        {}, {} pairs wanted", self.on, self.wanted)?;
        write!(f, "probes      {}", self.probes)?;
        if self.probes_of_records > 0 {
            write!(f, ", {} of them through all records, as {UNFIT}", self.probes_of_records)?;
        }
        writeln!(f)?;
        write!(f, "pairs       {}", self.pairs)?;
        for (side, explanation) in [("outer", &self.outer), ("inner", &self.inner)] {
            for line in explanation.to_string().lines() {
                write!(f, "\n{side} {line}")?;
            }
        }
        Ok(())
    }
}
