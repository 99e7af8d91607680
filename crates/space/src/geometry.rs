//! Geometries in their stored form: ISO well-known binary, little-endian, with Z and M, without
//! SRID. `parse_wkb` converts input to that form and is the only way in. Every other function takes
//! bytes in stored form, checks them again, and returns an error for damaged ones.
//!
//! Predicates treat edges as straight in the coordinates. In `lonlat`,
//! distances treat them as great-circle arcs.

mod antimeridian;
mod apart;
mod area;
mod band;
mod boxes;
mod convert;
mod dissolve;
mod distance;
mod edges;
mod error;
mod geojson;
mod kind;
mod lines;
mod parts;
mod pieces;
mod point;
mod predicate;
mod query;
mod replace;
mod segment;
mod shape;
mod summary;
#[cfg(test)]
mod tests;
mod tree;
mod validity;
mod walk;
mod wkb;
mod wkt;
mod work;
mod write;

pub use antimeridian::{AntimeridianError, cut_at_antimeridian};
pub use apart::{Edges, reach, reach_planar};
pub use convert::{from_geo, to_geo};
pub use dissolve::dissolve;
pub use distance::{distance, distance_bytes};
pub use error::GeometryError;
pub use geojson::{from_geojson, to_geojson};
pub use kind::{Dimensions, GeometryKind};
pub use point::{as_flat_point, as_point, point_wkb};
pub use predicate::{intersects, within};
pub use query::QueryGeometry;
pub use replace::{PathPlace, replace_positions};
pub use summary::{GeometrySummary, summarise};
pub use tree::{Coordinates, Tree, TreeBody};
pub use validity::{InvalidGeometry, Ring, check_valid};
pub use walk::NESTING_DEPTH_MAX;
pub use wkb::{ParsedWkb, normalise, parse_wkb};
pub use wkt::{from_wkt, to_wkt};
