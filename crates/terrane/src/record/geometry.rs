//! The geometry of a record: as given, as stored, and in spatial indexes.

use terrane_space::geometry::{as_point, parse_wkb, point_wkb, summarise};
use terrane_space::{CoordinateSystem, Point, Rect, check_coordinates};

use super::RowError;
use super::encode::geometry_column;
use crate::schema::{GeometryColumn, SRID_WGS84, Schema};

/// SRID that means none.
const SRID_UNKNOWN: u32 = 0;
/// Length in bytes of a 2-D point as WKB.
const POINT_WKB_BYTES: usize = 21;

/// A geometry. Datasets with a geometry column return every geometry as WKB.
#[derive(Clone, Debug, PartialEq)]
pub enum Geometry {
    /// A point.
    Point(Point),
    /// Any geometry in well-known binary. The form is ISO; EWKB is accepted and converted.
    Wkb(Vec<u8>),
}

/// The geometry in a stored record. Every two-dimensional point is stored as a point, in whatever
/// form it was given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GeometryRef<'a> {
    /// A point with finite coordinates.
    Point(Point),
    /// Any other geometry as little-endian ISO WKB.
    Wkb(&'a [u8]),
}

impl GeometryRef<'_> {
    /// Appends the geometry as WKB.
    pub fn write_wkb(self, out: &mut Vec<u8>) {
        match self {
            Self::Point(point) => out.extend_from_slice(&point_wkb(point)),
            Self::Wkb(bytes) => out.extend_from_slice(bytes),
        }
    }

    /// The geometry as WKB.
    pub fn to_wkb(self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write_wkb(&mut out);
        out
    }
}

/// The parts of a record that spatial indexes hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RowGeometry {
    /// No geometry or an empty one: no spatial index has it.
    None,
    /// A point. Its Z and M are not indexed.
    Point(Point),
    /// The box of a geometry; in `lonlat` it also encloses the great-circle arcs of the edges.
    Shape(Rect),
}

impl RowGeometry {
    /// The indexed part of a geometry in its stored form; an error with the reason if it is
    /// invalid.
    pub fn of(geometry: Option<GeometryRef<'_>>, system: CoordinateSystem) -> Result<Self, String> {
        match geometry {
            None => Ok(Self::None),
            Some(GeometryRef::Point(point)) => Ok(Self::Point(point)),
            Some(GeometryRef::Wkb(bytes)) => check_normal(bytes, system),
        }
    }

    /// The box in the indexes, if the record is in them.
    pub fn rect(self) -> Option<Rect> {
        match self {
            Self::None => None,
            Self::Point(point) => Some(Rect::from_point(point)),
            Self::Shape(rect) => Some(rect),
        }
    }
}

/// Refuses a point outside the schema's coordinate system. The error names the column.
pub(crate) fn check_point(point: Point, schema: &Schema) -> Result<RowGeometry, RowError> {
    let Err(error) = check_coordinates(schema.system, point.x, point.y) else { return Ok(RowGeometry::Point(point)) };
    let x_fits = match schema.system {
        CoordinateSystem::LonLat => (-180.0..=180.0).contains(&point.x),
        CoordinateSystem::Planar => point.x.is_finite(),
    };
    let column = match &schema.geometry {
        GeometryColumn::Point { y, .. } if x_fits => y,
        _ => geometry_column(schema),
    };
    Err(RowError::new(column, error))
}

/// Validates external WKB, and writes its normal form into `normal`. Returns the reason if it is
/// invalid.
pub(crate) fn check_wkb(wkb: &[u8], system: CoordinateSystem, normal: &mut Vec<u8>) -> Result<RowGeometry, String> {
    if as_point(wkb).is_some() {
        // It is already in normal form.
        normal.clear();
        normal.extend_from_slice(wkb);
        return check_normal(wkb, system);
    }
    let parsed = parse_wkb(wkb).map_err(|error| error.to_string())?;
    if let (CoordinateSystem::LonLat, Some(srid)) = (system, parsed.srid)
        && srid != SRID_WGS84
        && srid != SRID_UNKNOWN
    {
        return Err(format!("the geometry declares SRID {srid}; a lonlat dataset takes {SRID_WGS84}, so reproject it"));
    }
    *normal = parsed.bytes;
    check_normal(normal, system)
}

/// Checks the positions of a geometry in normal form against the coordinate system.
fn check_normal(normal: &[u8], system: CoordinateSystem) -> Result<RowGeometry, String> {
    if let Some(point) = as_point(normal) {
        return match check_coordinates(system, point.x, point.y) {
            Ok(()) => Ok(RowGeometry::Point(point)),
            Err(error) => Err(error.to_string()),
        };
    }
    let summary = summarise(normal, system).map_err(|error| error.to_string())?;
    Ok(if summary.is_empty { RowGeometry::None } else { RowGeometry::Shape(summary.index_rect) })
}

/// The stored form of a geometry in normal form: 2-D points become compact.
pub(crate) fn compact(normal: &[u8], row: RowGeometry) -> GeometryRef<'_> {
    match row {
        RowGeometry::Point(point) if normal.len() == POINT_WKB_BYTES => GeometryRef::Point(point),
        _ => GeometryRef::Wkb(normal),
    }
}
