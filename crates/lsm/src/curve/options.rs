//! Options of the curve-keyed kinds, as stored in catalogs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use terrane_space::grid::Grid;
use terrane_space::{CoordinateSystem, Rect};

use super::refused;
use crate::{Error, Result};

/// A rectangle no larger than a cell meets at most four cells, so it needs no more entries than
/// this.
const CELLS_PER_OBJECT: u32 = 4;

/// The largest permitted value.
const CELLS_PER_OBJECT_MAX: u32 = 1 << 10;

/// Levels of a grid whose smallest cells are two metres by one (section 4.3.1).
const LEVELS_OF_POINTS: [Density; 6] = [Density::High; 6];

/// The setting that was best for rectangles (section 5.3.2).
const LEVELS_OF_RECTANGLES: [Density; 6] =
    [Density::Low, Density::Low, Density::Low, Density::Low, Density::High, Density::Medium];

/// A curve-keyed kind with its options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum CurveOptions {
    /// Dynamic Hilbert B-tree.
    Dhb,
    /// Dynamic Hilbert value B-tree.
    Dhvb,
    /// Static Hilbert B-tree.
    Shb {
        /// The cells.
        grid: GridOptions,
        /// Most entries of a rectangle, unless it meets more cells of the coarsest level.
        cells_per_object_max: u32,
    },
    /// Spatial inverted file.
    Sif {
        /// The cells.
        grid: GridOptions,
    },
}

/// A static hierarchy of cells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GridOptions {
    /// Its levels, the coarsest first.
    pub levels: Levels,
    /// x0, y0, x1, y1 of the area that the cells divide, in planar datasets; `lonlat` divides the
    /// whole world. Objects outside are found too, but belong to the outermost cells.
    pub domain: Option<[f64; 4]>,
}

/// The number of cells into which a level divides a cell of the level above (section 5.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Density {
    /// 4 by 4, written `l`.
    Low,
    /// 8 by 8, written `m`.
    Medium,
    /// 16 by 16, written `h`.
    High,
}

impl Density {
    fn bits(self) -> u32 {
        match self {
            Self::Low => 2,
            Self::Medium => 3,
            Self::High => 4,
        }
    }

    fn letter(self) -> char {
        match self {
            Self::Low => 'l',
            Self::Medium => 'm',
            Self::High => 'h',
        }
    }
}

/// The levels of a grid, written as in the paper: `l,l,l,l,h,m`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Levels(pub Vec<Density>);

impl fmt::Display for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (level, density) in self.0.iter().enumerate() {
            write!(f, "{}{}", if level > 0 { "," } else { "" }, density.letter())?;
        }
        Ok(())
    }
}

impl FromStr for Levels {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let density = |letter: &str| match letter.trim() {
            "l" => Ok(Density::Low),
            "m" => Ok(Density::Medium),
            "h" => Ok(Density::High),
            _ => Err(refused(format!(
                "the levels of a grid are {text:?}; write one of l (4x4), m (8x8) and h (16x16) for each level, such as l,l,l,l,h,m"
            ))),
        };
        Ok(Self(text.split(',').map(density).collect::<Result<_>>()?))
    }
}

impl TryFrom<String> for Levels {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Levels> for String {
    fn from(levels: Levels) -> Self {
        levels.to_string()
    }
}

impl GridOptions {
    /// The paper's grid for points or for rectangles.
    pub fn of(points: bool, domain: Option<Rect>) -> Self {
        let levels = if points { LEVELS_OF_POINTS } else { LEVELS_OF_RECTANGLES };
        let domain = domain.map(|rect| [rect.x0, rect.y0, rect.x1, rect.y1]);
        Self { levels: Levels(levels.to_vec()), domain }
    }

    /// The grid.
    ///
    /// # Errors
    /// When a domain is missing, superfluous or without extent, or there are more levels than cell
    /// numbers allow.
    pub fn grid(&self, system: CoordinateSystem) -> Result<Grid> {
        let domain = match (system, self.domain) {
            (CoordinateSystem::LonLat, None) => Rect::new(-180.0, -90.0, 180.0, 90.0),
            (CoordinateSystem::Planar, Some([x0, y0, x1, y1])) => Rect::new(x0, y0, x1, y1),
            (CoordinateSystem::LonLat, Some(_)) => {
                return Err(refused("the grid of a lonlat dataset divides the whole world; leave the domain out"));
            }
            (CoordinateSystem::Planar, None) => {
                return Err(refused(
                    "the grid of a planar dataset needs a domain, x0,y0,x1,y1: the area of its cells cannot be \
                     derived from the data",
                ));
            }
        };
        let bits: Vec<u32> = self.levels.0.iter().map(|density| density.bits()).collect();
        Grid::new(domain, &bits).map_err(|error| refused(error.to_string()))
    }
}

impl CurveOptions {
    /// The default options; `domain` is that of a planar dataset. `None` if there is no kind of
    /// this name.
    pub fn of(kind: &str, points: bool, domain: Option<Rect>) -> Option<Self> {
        let grid = || GridOptions::of(points, domain);
        Some(match kind {
            "dhb" => Self::Dhb,
            "dhvb" => Self::Dhvb,
            "shb" => Self::Shb { grid: grid(), cells_per_object_max: CELLS_PER_OBJECT },
            "sif" => Self::Sif { grid: grid() },
            _ => return None,
        })
    }

    /// The name of the kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Dhb => "dhb",
            Self::Dhvb => "dhvb",
            Self::Shb { .. } => "shb",
            Self::Sif { .. } => "sif",
        }
    }

    /// Checks whether an index of this kind can hold points, or rectangles of any size.
    ///
    /// # Errors
    /// Why it cannot, and which kinds can; or that the grid is not possible.
    pub fn check(&self, system: CoordinateSystem, points: bool) -> Result<()> {
        if !points && !matches!(self, Self::Shb { .. }) {
            return Err(refused(format!(
                "an index of kind {} stores an object under one position and takes points only; kinds rtree and shb \
                 take geometries with an extent",
                self.kind()
            )));
        }
        match self {
            Self::Dhb | Self::Dhvb => Ok(()),
            Self::Sif { grid } => grid.grid(system).map(|_| ()),
            Self::Shb { grid, cells_per_object_max } => {
                if !(1..=CELLS_PER_OBJECT_MAX).contains(cells_per_object_max) {
                    return Err(refused(format!(
                        "an object in up to {cells_per_object_max} cells; 1 to {CELLS_PER_OBJECT_MAX} are possible"
                    )));
                }
                grid.grid(system).map(|_| ())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLANE: Rect = Rect::new(0.0, 0.0, 10.0, 20.0);

    #[test]
    fn what_a_kind_cannot_hold_is_refused_with_a_reason() {
        let (lonlat, planar) = (CoordinateSystem::LonLat, CoordinateSystem::Planar);
        for kind in ["dhb", "dhvb", "sif"] {
            let options = CurveOptions::of(kind, true, None).unwrap();
            options.check(lonlat, true).unwrap();
            let reason = options.check(lonlat, false).unwrap_err().to_string();
            assert!(reason.contains(kind) && reason.contains("points only") && reason.contains("rtree"), "{reason}");
        }
        CurveOptions::of("shb", false, None).unwrap().check(lonlat, false).unwrap();
        CurveOptions::of("shb", false, Some(PLANE)).unwrap().check(planar, false).unwrap();
        assert_eq!(CurveOptions::of("rtree", true, None), None);
        for (kind, system, domain, reason) in [
            ("shb", planar, None, "needs a domain"),
            ("sif", planar, None, "needs a domain"),
            ("shb", lonlat, Some(PLANE), "whole world"),
            ("sif", planar, Some(Rect::new(0.0, 0.0, 0.0, 1.0)), "width and a height"),
        ] {
            let error = CurveOptions::of(kind, true, domain).unwrap().check(system, true).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        let grid = GridOptions { levels: Levels(vec![Density::High; 8]), domain: None };
        let shb = |cells_per_object_max| CurveOptions::Shb { grid: GridOptions::of(false, None), cells_per_object_max };
        for options in [CurveOptions::Sif { grid }, shb(0), shb(CELLS_PER_OBJECT_MAX + 1)] {
            assert!(matches!(options.check(lonlat, true), Err(Error::Options(_))), "{options:?}");
        }
    }

    #[test]
    fn options_come_back_from_a_catalog() {
        for kind in ["dhb", "dhvb", "shb", "sif"] {
            for (points, domain) in [(true, None), (false, Some(PLANE))] {
                let options = CurveOptions::of(kind, points, domain).unwrap();
                let text = serde_json::to_string(&options).unwrap();
                assert!(text.contains(&format!("\"kind\":\"{kind}\"")), "{text}");
                assert_eq!(serde_json::from_str::<CurveOptions>(&text).unwrap(), options);
            }
        }
        let text = serde_json::to_string(&CurveOptions::of("shb", false, None)).unwrap();
        assert!(text.contains("\"l,l,l,l,h,m\""), "{text}");
        for wrong in ["", "l,,h", "x", "l h"] {
            let error = wrong.parse::<Levels>().unwrap_err().to_string();
            assert!(error.contains("l,l,l,l,h,m"), "{error}");
        }
        assert_eq!("h, m".parse::<Levels>().unwrap().to_string(), "h,m");
    }
}
