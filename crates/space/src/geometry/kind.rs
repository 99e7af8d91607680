//! The seven kinds of simple-features geometries and their coordinate dimensions.

use std::fmt;

/// Kind of a geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GeometryKind {
    /// One position, or none.
    Point,
    /// A path of positions.
    LineString,
    /// An area with one outer ring and any number of holes.
    Polygon,
    /// Points.
    MultiPoint,
    /// Paths.
    MultiLineString,
    /// Areas.
    MultiPolygon,
    /// Geometries of any kind.
    GeometryCollection,
}

impl GeometryKind {
    /// The kind of an ISO code without its dimension part.
    pub(super) fn from_code(code: u32) -> Option<Self> {
        Some(match code {
            1 => Self::Point,
            2 => Self::LineString,
            3 => Self::Polygon,
            4 => Self::MultiPoint,
            5 => Self::MultiLineString,
            6 => Self::MultiPolygon,
            7 => Self::GeometryCollection,
            _ => return None,
        })
    }

    /// The ISO code without its dimension part.
    pub(super) fn code(self) -> u32 {
        match self {
            Self::Point => 1,
            Self::LineString => 2,
            Self::Polygon => 3,
            Self::MultiPoint => 4,
            Self::MultiLineString => 5,
            Self::MultiPolygon => 6,
            Self::GeometryCollection => 7,
        }
    }

    /// The kind that the members of a multi-geometry must have.
    pub(super) fn member(self) -> Option<Self> {
        match self {
            Self::MultiPoint => Some(Self::Point),
            Self::MultiLineString => Some(Self::LineString),
            Self::MultiPolygon => Some(Self::Polygon),
            _ => None,
        }
    }

    /// The name that GeoJSON uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Point => "Point",
            Self::LineString => "LineString",
            Self::Polygon => "Polygon",
            Self::MultiPoint => "MultiPoint",
            Self::MultiLineString => "MultiLineString",
            Self::MultiPolygon => "MultiPolygon",
            Self::GeometryCollection => "GeometryCollection",
        }
    }

    /// The kind of a name in upper or lower case, as in well-known text.
    pub fn from_name_of_any_case(name: &str) -> Option<Self> {
        let mut kinds = (1..=7).filter_map(Self::from_code);
        kinds.find(|kind| kind.name().eq_ignore_ascii_case(name))
    }

    /// The kind of a GeoJSON name.
    pub fn from_name(name: &str) -> Option<Self> {
        (1..=7).filter_map(Self::from_code).find(|kind| kind.name() == name)
    }
}

impl fmt::Display for GeometryKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// The values of a position beside x and y.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Dimensions {
    /// A height.
    pub has_z: bool,
    /// A measure.
    pub has_m: bool,
}

impl Dimensions {
    /// Only x and y.
    pub const XY: Dimensions = Dimensions { has_z: false, has_m: false };

    /// Numbers in a position, 2 to 4.
    pub fn count(self) -> usize {
        2 + usize::from(self.has_z) + usize::from(self.has_m)
    }

    /// The number that ISO adds to the code of a kind.
    pub(super) fn code(self) -> u32 {
        1000 * u32::from(self.has_z) + 2000 * u32::from(self.has_m)
    }
}

/// One position: x, y and, depending on the dimensions, z and m.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    pub values: [f64; 4],
    pub dimensions: Dimensions,
}

impl Position {
    pub fn numbers(&self) -> &[f64] {
        &self.values[..self.dimensions.count()]
    }

    pub fn point(&self) -> crate::Point {
        crate::Point::new(self.values[0], self.values[1])
    }
}
