//! What an index is told when it is created, besides its kind and columns.

use std::fmt;

use serde::{Deserialize, Serialize};
use terrane_lsm::curve::{CurveOptions, GridOptions, Levels};

use super::definition::{IndexDefinition, IndexKind};
use super::stop_words::StopWords;
use crate::schema::Schema;
use crate::words::counted;
use crate::{Error, Result};

/// Options of an index. What is left out is as in the LSM paper (sections 4.3.1 and 5.3.2): six
/// levels of 16 by 16 for points; `l,l,l,l,h,m` and at most four cells for other geometries.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct IndexOptions {
    /// Levels of the grid of `shb` and `sif`, the coarsest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub levels: Option<Levels>,
    /// x0, y0, x1, y1 of what the grid of `shb` and `sif` divides. Planar datasets need one;
    /// `lonlat` has the whole world. Objects beyond it are found as well, but fall into the
    /// outermost cells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<[f64; 4]>,
    /// Most cells under which `shb` files a geometry that is no point, unless it meets more of the
    /// coarsest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cells_per_object_max: Option<u32>,
    /// Words that `inverted` leaves out; none if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_words: Option<StopWords>,
}

impl IndexOptions {
    /// Sets the levels of the grid.
    pub fn levels(mut self, levels: Levels) -> Self {
        self.levels = Some(levels);
        self
    }

    /// Sets what the grid divides.
    pub fn domain(mut self, x0: f64, y0: f64, x1: f64, y1: f64) -> Self {
        self.domain = Some([x0, y0, x1, y1]);
        self
    }

    /// Sets the most cells of a geometry.
    pub fn cells_per_object_max(mut self, cells: u32) -> Self {
        self.cells_per_object_max = Some(cells);
        self
    }

    /// Sets the words that are left out.
    pub fn stop_words(mut self, words: StopWords) -> Self {
        self.stop_words = Some(words);
        self
    }

    /// The options of an index of `points`, or of other geometries, as far as its kind has any.
    pub(crate) fn of(definition: &IndexDefinition, points: bool) -> Option<Self> {
        let of_grid = |grid: GridOptions| Self { levels: Some(grid.levels), domain: grid.domain, ..Self::default() };
        let options = definition.options.as_ref()?;
        // That they can be read was found when the index was opened.
        if definition.kind == IndexKind::Inverted.name() {
            return StopWords::of(definition).ok().map(|words| Self::default().stop_words(words));
        }
        match CurveOptions::deserialize(options).ok()? {
            CurveOptions::Dhb | CurveOptions::Dhvb => None,
            CurveOptions::Sif { grid } => Some(of_grid(grid)),
            CurveOptions::Shb { grid, cells_per_object_max } => {
                let cells_per_object_max = (!points).then_some(cells_per_object_max);
                Some(Self { cells_per_object_max, ..of_grid(grid) })
            }
        }
    }

    /// The options of a kind on a dataset, as the catalog keeps them; `None` of a kind that has
    /// none.
    ///
    /// # Errors
    /// Options that the kind does not have, a grid that is not possible, and a kind that cannot
    /// hold the dataset's geometries: with the reason, and what to do.
    pub(super) fn resolve(&self, kind: IndexKind, schema: &Schema) -> Result<Option<serde_json::Value>> {
        let (has_grid, has_cells) = match kind {
            IndexKind::Shb => (true, !schema.holds_points()),
            IndexKind::Sif => (true, false),
            _ => (false, false),
        };
        for (is_given, is_known, what) in [
            (self.levels.is_some(), has_grid, "levels of a grid"),
            (self.domain.is_some(), has_grid, "a domain"),
            (
                self.cells_per_object_max.is_some(),
                has_cells,
                "a most number of cells, which shb has for geometries other than points",
            ),
            (self.stop_words.is_some(), kind == IndexKind::Inverted, "words to leave out"),
        ] {
            if is_given && !is_known {
                return Err(Error::usage(format!("an index of kind {kind} does not take {what}; leave it out")));
            }
        }
        if kind == IndexKind::Inverted {
            return Ok(self.stop_words.as_ref().and_then(StopWords::to_options));
        }
        let Some(mut options) = CurveOptions::of(kind.name(), schema.holds_points(), None) else { return Ok(None) };
        match &mut options {
            CurveOptions::Dhb | CurveOptions::Dhvb => {}
            CurveOptions::Sif { grid } => self.set(grid),
            CurveOptions::Shb { grid, cells_per_object_max } => {
                self.set(grid);
                *cells_per_object_max = self.cells_per_object_max.unwrap_or(*cells_per_object_max);
            }
        }
        options.check(schema.system, schema.holds_points())?;
        let value = serde_json::to_value(&options);
        value.map(Some).map_err(|error| Error::Failed(format!("the catalog cannot be written: {error}")))
    }

    fn set(&self, grid: &mut GridOptions) {
        grid.domain = self.domain;
        if let Some(levels) = &self.levels {
            grid.levels = levels.clone();
        }
    }
}

/// Refuses options, as the catalog keeps them, that do not fit the geometries of a schema.
pub(super) fn check_options(kind: IndexKind, options: Option<&serde_json::Value>, schema: &Schema) -> Result<()> {
    match options {
        Some(options) if kind != IndexKind::Inverted => {
            let options = CurveOptions::deserialize(options).map_err(|error| Error::usage(error.to_string()))?;
            Ok(options.check(schema.system, schema.holds_points())?)
        }
        _ => Ok(()),
    }
}

impl fmt::Display for IndexOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let levels = self.levels.as_ref().map(|levels| format!("levels {levels}"));
        let cells = self.cells_per_object_max.map(|cells| format!("at most {cells} cells"));
        let domain = self.domain.map(|[x0, y0, x1, y1]| format!("domain {x0},{y0},{x1},{y1}"));
        let words = self.stop_words.as_ref();
        let words = words.map(|words| format!("without {}", counted(words.iter().len() as u64, "word", "words")));
        f.write_str(&[levels, cells, domain, words].into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}
