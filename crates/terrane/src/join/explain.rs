//! How a join was answered.

use std::fmt;

use serde::Serialize;

use crate::query::Explanation;
use crate::query::plan::UNFIT;

/// What a join did to find its answer. Complete when the last pair has been taken.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JoinExplanation {
    /// What makes a pair.
    pub on: String,
    /// Which pairs of a self-join are wanted: `all`, `distinct` or `ordered`.
    pub wanted: &'static str,
    /// Outer geometries that were looked for on the inner side.
    pub probes: u64,
    /// Of these, those for which all inner records were gone through although there is a spatial index, as what it has to note as
    /// deleted does not fit in memory.
    pub probes_of_records: u64,
    /// Pairs found.
    pub pairs: u64,
    /// How the outer rows were found.
    pub outer: Explanation,
    /// What was done on the inner side, for all outer rows together: `spatial index`, `spatial index only`, or
    /// `primary scan` where the records are gone through for each of them. Its matches are the pairs.
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
