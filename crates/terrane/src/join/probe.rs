//! The search for the inner matches of one outer geometry.

use std::ops::ControlFlow;

use terrane_space::{Point, Rect};

use crate::Result;
use crate::query::Explanation;
use crate::query::index::{IndexScan, antimatter_fits};
use crate::record::stored_rect;
use crate::schema::{GeometryColumn, Schema};
use crate::secondary::PRIMARY;
use crate::snapshot::{ScanPosition, Snapshot};

/// A window that contains all entries.
pub(super) const EVERYWHERE: Rect =
    Rect { x0: f64::NEG_INFINITY, y0: f64::NEG_INFINITY, x1: f64::INFINITY, y1: f64::INFINITY };

/// The inner side of the search.
pub(super) struct Probed {
    /// Slot of the spatial index; `None` if all records are read for each outer geometry.
    pub index: Option<usize>,
    /// Whether the deleted keys fit in memory for any windows.
    always_fits: bool,
}

impl Probed {
    pub fn new(snapshot: &Snapshot, index: Option<usize>) -> Result<Self> {
        let always_fits = match index {
            Some(slot) => antimatter_fits(snapshot, &snapshot.versions(), slot, &[EVERYWHERE])?,
            None => false,
        };
        Ok(Self { index, always_fits })
    }

    /// Begins a search of some windows.
    pub fn probe(&self, snapshot: &Snapshot, windows: Vec<Rect>) -> Result<Probe> {
        let versions = snapshot.versions();
        Ok(match self.index {
            Some(slot) if self.always_fits || antimatter_fits(snapshot, &versions, slot, &windows)? => {
                Probe::Index(IndexScan::new(snapshot, &versions, slot, &windows))
            }
            _ => {
                let (partition, position) = (snapshot.scope().start, ScanPosition::default());
                Probe::Records { partition, position, windows }
            }
        })
    }
}

/// The search for candidates of one outer geometry, step by step.
pub(super) enum Probe {
    Index(IndexScan),
    /// The records, whose boxes are compared.
    Records {
        partition: usize,
        position: ScanPosition,
        windows: Vec<Rect>,
    },
}

/// Number of records whose boxes are compared in one step.
const RECORDS_STEP: usize = 1024;

impl Probe {
    /// Whether all memory components have been searched, so that the search holds none.
    pub fn is_past_memory(&mut self) -> Result<bool> {
        match self {
            Self::Index(scan) => scan.is_past_memory(),
            Self::Records { .. } => Ok(true),
        }
    }

    /// Visits the boxes and keys of the next candidates; false at the end.
    pub fn advance(
        &mut self,
        snapshot: &Snapshot,
        explanation: &mut Explanation,
        visit: &mut impl FnMut(Rect, &[u8]) -> Result<()>,
    ) -> Result<bool> {
        match self {
            Self::Index(scan) => scan.advance(explanation, &mut |hit| visit(hit.rect(), &hit.key())),
            Self::Records { partition, position, windows } => {
                let system = snapshot.history.newest().system;
                let mut seen = 0;
                snapshot.visit_btree_from(*partition, PRIMARY as usize, position, &mut |key, stored| {
                    let rect = stored_rect(stored, system).map_err(|error| snapshot.name_record(error, key))?;
                    if let Some(rect) = rect
                        && windows.iter().any(|window| window.intersects(&rect))
                    {
                        visit(rect, key)?;
                    }
                    seen += 1;
                    Ok(if seen == RECORDS_STEP { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
                })?;
                explanation.entries += seen as u64;
                if position.ended {
                    (*partition, *position) = (*partition + 1, ScanPosition::default());
                }
                Ok(*partition < snapshot.scope().end)
            }
        }
    }
}

/// The point of an entry in a point dataset. Its box has no extent.
pub(super) fn point_of(rect: &Rect) -> Point {
    Point { x: rect.x0, y: rect.y0 }
}

/// The coordinate columns that are wanted as they are stored. An index stores them except for the
/// sign of zero: its entries have +0.0 for -0.0.
#[derive(Clone, Copy, Debug)]
pub(super) struct WantedCoordinates {
    x: bool,
    y: bool,
}

impl WantedCoordinates {
    /// Those among the given columns, or among all.
    pub fn among(columns: Option<&[String]>, schema: &Schema) -> Self {
        let is_wanted = |name: &String| columns.is_none_or(|columns| columns.contains(name));
        match &schema.geometry {
            GeometryColumn::Point { x, y } => Self { x: is_wanted(x), y: is_wanted(y) },
            GeometryColumn::Geometry { .. } | GeometryColumn::None => Self { x: false, y: false },
        }
    }

    /// Whether only the record has the wanted coordinates of a point.
    pub fn are_in_record_alone(self, point: Point) -> bool {
        (self.x && point.x == 0.0) || (self.y && point.y == 0.0)
    }
}
