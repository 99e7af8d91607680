//! The positions that a search examines.

use terrane_space::grid::CellRange;
use terrane_space::hilbert::{self, GridRect};

/// Positions on a curve. The next one after a given position is found without reading entries.
#[derive(Clone, Debug)]
pub enum Probe {
    /// All Hilbert values of cells in a window.
    Window(GridRect),
    /// Positions in ranges, ascending and disjoint.
    Ranges(Vec<CellRange>),
}

impl Probe {
    /// Positions in ascending and disjoint ranges.
    pub(super) fn ranges(ranges: Vec<CellRange>) -> Self {
        Self::Ranges(ranges)
    }

    /// Single positions.
    pub(super) fn tokens(mut tokens: Vec<u64>) -> Self {
        tokens.sort_unstable();
        Self::Ranges(tokens.into_iter().map(|token| CellRange { first: token, last: token }).collect())
    }

    /// The least of these positions that is at least `position`.
    #[inline]
    pub fn next(&self, position: u64) -> Option<u64> {
        match self {
            Self::Window(window) => hilbert::next_in_window(position, *window),
            Self::Ranges(ranges) => {
                let range = ranges.get(ranges.partition_point(|range| range.last < position))?;
                Some(range.first.max(position))
            }
        }
    }

    /// Whether a position is one of these.
    #[inline]
    pub fn contains(&self, position: u64) -> bool {
        self.next(position) == Some(position)
    }
}
