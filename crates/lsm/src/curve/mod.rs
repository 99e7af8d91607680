//! The curve-keyed kinds of spatial indexes (the LSM paper, sections 4.2 and 5.2): the positions on
//! a curve under which an object is stored, and the positions that a window search examines.
//!
//! - `dhb`: under the Hilbert value of the point, computed when needed. A window search computes
//!   the next value in the window on the fly.
//! - `dhvb`: the same, with the value stored in every entry.
//! - `shb`: under the number of the lowest-level cell of a point, or of each cell of a rectangle's
//!   cover. A window search uses ranges of numbers, computed before any page is read.
//! - `sif`: under the token of the point's cell at every level. A window search uses the tokens of
//!   the cells that cover the window.
//!
//! An object with several entries is reported by one of them. The object and the window alone
//! determine which one, so a search need not remember anything ([`Curve::reports`]).
//!
//! Nothing here does I/O or keeps state.

mod options;
mod probe;

use smallvec::SmallVec;
use terrane_space::grid::{Cell, Grid};
use terrane_space::{CoordinateSystem, Point, Rect, hilbert};

use crate::{Error, Result};
pub use options::{CurveOptions, Density, GridOptions, Levels};
pub use probe::Probe;

/// Most ranges of cell numbers, before the cells above them, in a window search. More ranges fit
/// the window better, and cost a descent each.
const RANGES_MAX: usize = 32;

/// Most tokens in a window search, unless the window meets more cells of the coarsest level.
const TOKENS_MAX: usize = 256;

/// Positions of one object.
pub type Positions = SmallVec<[u64; 8]>;

/// A kind with its options, ready for use.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    filing: Filing,
    points: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Filing {
    Hilbert { system: CoordinateSystem, stored: bool },
    Cells { grid: Grid, cells_per_object_max: usize },
    Tokens { grid: Grid },
}

/// Which entry of an object represents it in a window search that finds entries by their boxes
/// alone.
#[derive(Clone, Debug, PartialEq)]
pub enum Representative {
    /// Every object has one entry.
    Only,
    /// The entry of the cell that holds the lower left corner of the intersection of object and
    /// window.
    OfCell(Grid),
    /// The first entry whose position is at least this.
    From(u64),
}

impl Curve {
    /// Prepares a kind for `points`, or for rectangles of any size.
    ///
    /// # Errors
    /// When the kind cannot hold such objects, or the grid is not possible. The error tells the
    /// reason and the remedy.
    pub fn new(options: &CurveOptions, system: CoordinateSystem, points: bool) -> Result<Self> {
        options.check(system, points)?;
        let filing = match options {
            CurveOptions::Dhb => Filing::Hilbert { system, stored: false },
            CurveOptions::Dhvb => Filing::Hilbert { system, stored: true },
            CurveOptions::Shb { grid, cells_per_object_max } => {
                Filing::Cells { grid: grid.grid(system)?, cells_per_object_max: *cells_per_object_max as usize }
            }
            CurveOptions::Sif { grid } => Filing::Tokens { grid: grid.grid(system)? },
        };
        Ok(Self { filing, points })
    }

    /// The name of the kind, in catalogs and in descriptions of components.
    pub fn kind(&self) -> &'static str {
        match self.filing {
            Filing::Hilbert { stored: false, .. } => "dhb",
            Filing::Hilbert { stored: true, .. } => "dhvb",
            Filing::Cells { .. } => "shb",
            Filing::Tokens { .. } => "sif",
        }
    }

    /// Whether all objects are points.
    pub fn points(&self) -> bool {
        self.points
    }

    /// Whether entries store their positions. A position of `dhb` is computed from the coordinates.
    pub fn stores_positions(&self) -> bool {
        !matches!(self.filing, Filing::Hilbert { stored: false, .. })
    }

    /// Whether an object may have several entries.
    pub fn has_several(&self) -> bool {
        match self.filing {
            Filing::Hilbert { .. } => false,
            Filing::Cells { .. } => !self.points,
            Filing::Tokens { .. } => true,
        }
    }

    /// The positions under which an object is stored, ascending. The object must be a point if the
    /// kind holds points only.
    ///
    /// They are part of the file format: anti-matter finds the entries that it deletes by them.
    pub fn positions(&self, rect: &Rect) -> Positions {
        // Not the centre: halving the smallest numbers rounds them.
        let point = Point::new(rect.x0, rect.y0);
        match &self.filing {
            Filing::Hilbert { system, .. } => Positions::from_slice(&[hilbert::position(*system, point)]),
            Filing::Cells { grid, .. } if self.points => Positions::from_slice(&[grid.cell_of(point).number()]),
            Filing::Cells { grid, cells_per_object_max } => {
                grid.cover(*rect, *cells_per_object_max).into_iter().map(Cell::number).collect()
            }
            Filing::Tokens { grid } => grid.cells_of(point).map(|cell| grid.token(cell)).collect(),
        }
    }

    /// The position of an entry that does not store it.
    #[inline]
    pub fn computed_position(&self, rect: &Rect) -> u64 {
        match &self.filing {
            Filing::Hilbert { system, .. } => hilbert::position(*system, Point::new(rect.x0, rect.y0)),
            _ => 0,
        }
    }

    /// The positions that a search of a window examines. The window must not be empty.
    pub fn probe(&self, window: &Rect) -> Probe {
        match &self.filing {
            Filing::Hilbert { system, .. } => Probe::Window(hilbert::grid_rect(*system, *window)),
            Filing::Cells { grid, .. } if self.points => Probe::ranges(grid.ranges(*window, RANGES_MAX)),
            Filing::Cells { grid, .. } => Probe::ranges(grid.ranges_with_ancestors(*window, RANGES_MAX)),
            Filing::Tokens { grid } => {
                Probe::tokens(grid.cover(*window, TOKENS_MAX).into_iter().map(|cell| grid.token(cell)).collect())
            }
        }
    }

    /// Whether the entry at `position` represents its object in the search with this probe. The
    /// object must meet the window. If its kind allows several entries, exactly one of them does.
    ///
    /// Of the cells that cover a rectangle, one holds the lower left corner of the intersection of
    /// rectangle and window, and a probe leads there (Dittrich and Seeger, "Data redundancy and
    /// duplicate detection in spatial join processing", ICDE 2000). Of a point's cells, exactly one
    /// is among the cells that cover the window, as these do not overlap.
    #[inline]
    pub fn reports(&self, position: u64, rect: &Rect, window: &Rect, probe: &Probe) -> bool {
        match &self.filing {
            Filing::Hilbert { .. } => true,
            Filing::Cells { grid, .. } => self.points || holds_reference(grid, position, rect, window),
            Filing::Tokens { .. } => probe.contains(position),
        }
    }

    /// Whether all entries at a position represent their objects, as far as that is known without
    /// reading them.
    #[inline]
    pub fn reports_all(&self, position: u64, probe: &Probe) -> bool {
        match &self.filing {
            Filing::Hilbert { .. } => true,
            Filing::Cells { .. } => self.points,
            Filing::Tokens { .. } => probe.contains(position),
        }
    }

    /// The rule by which searches that use boxes alone report each object once.
    pub fn representative(&self) -> Representative {
        match &self.filing {
            Filing::Cells { grid, .. } if !self.points => Representative::OfCell(*grid),
            Filing::Tokens { grid } => Representative::From(grid.first_token(grid.levels() - 1)),
            _ => Representative::Only,
        }
    }
}

/// Whether the cell with this number holds the lower left corner of the intersection of a rectangle
/// and a window.
#[inline]
pub(crate) fn holds_reference(grid: &Grid, position: u64, rect: &Rect, window: &Rect) -> bool {
    let corner = Point::new(rect.x0.max(window.x0), rect.y0.max(window.y0));
    grid.holds(Cell::from_number(position), corner)
}

fn refused(reason: impl Into<String>) -> Error {
    Error::Options(reason.into())
}
