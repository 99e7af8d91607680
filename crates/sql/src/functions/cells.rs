//! Cells of the earth: geohashes, the hexagons of H3, and the tiles of web maps.

use std::str::FromStr;

use datafusion::common::{Result, exec_datafusion_err, exec_err};
use h3o::{CellIndex, LatLng, Resolution};
use terrane_space::Point;
use terrane_space::geometry::{Coordinates, Dimensions, GeometryKind, Tree, TreeBody, as_point, point_wkb, to_wkt};

use super::Kind::{Geometry as G, Int as I, Number as N, Text as T};
use super::Returns;
use super::relation::unreadable;
use super::tail::{Arg, Tail, Value, of};
use crate::geometry::{WEB_MERCATOR_SRID, WGS84_SRID, as_postgis, box_wkb};

/// Most characters of a geohash.
const GEOHASH_MAX: i64 = 12;
/// Highest level of tiles.
const LEVEL_MAX: i64 = 31;
/// Half of the width of web maps in metres.
const MERCATOR_HALF: f64 = 20_037_508.342_789_244;

const LONLAT: Returns = Returns::GeometryIn(WGS84_SRID);

/// The functions. Those of H3 have the names that DuckDB's extension gives them; geometries are
/// added.
pub(super) const FUNCTIONS: &[Tail] = &[
    of(&["st_geohash"], &[G, I], 1, Returns::Text, geohash),
    of(&["st_geomfromgeohash"], &[T], 1, LONLAT, |a| Ok(Value::Geometry(geohash_box(a[0].text()?)?))),
    of(&["st_pointfromgeohash"], &[T], 1, LONLAT, geohash_point),
    of(&["h3_latlng_to_cell"], &[N, N, I], 3, Returns::Int, |a| {
        Ok(Value::Int(number_of(cell_at(a[0].number()?, a[1].number()?, a[2].int()?)?)))
    }),
    of(&["h3_latlng_to_cell_string"], &[N, N, I], 3, Returns::Text, |a| {
        Ok(Value::Text(cell_at(a[0].number()?, a[1].number()?, a[2].int()?)?.to_string()))
    }),
    of(&["h3_geometry_to_cell"], &[G, I], 2, Returns::Int, |a| {
        let Some(place) = as_point(a[0].wkb()?) else { return exec_err!("h3_geometry_to_cell takes points") };
        Ok(Value::Int(number_of(cell_at(place.y, place.x, a[1].int()?)?)))
    }),
    of(&["h3_h3_to_string"], &[I], 1, Returns::Text, |a| Ok(Value::Text(cell(a)?.to_string()))),
    of(&["h3_string_to_h3"], &[T], 1, Returns::Int, |a| {
        let text = a[0].text()?;
        let cell =
            CellIndex::from_str(text).map_err(|error| exec_datafusion_err!("'{text}' is no cell of H3: {error}"))?;
        Ok(Value::Int(number_of(cell)))
    }),
    of(&["h3_cell_to_lat"], &[I], 1, Returns::Number, |a| Ok(Value::Number(LatLng::from(cell(a)?).lat()))),
    of(&["h3_cell_to_lng"], &[I], 1, Returns::Number, |a| Ok(Value::Number(LatLng::from(cell(a)?).lng()))),
    of(&["h3_cell_to_geometry"], &[I], 1, LONLAT, |a| {
        let place = LatLng::from(cell(a)?);
        Ok(Value::Geometry(point_wkb(Point { x: place.lng(), y: place.lat() }).to_vec()))
    }),
    of(&["h3_cell_to_boundary_geometry"], &[I], 1, LONLAT, |a| Ok(boundary(cell(a)?).into())),
    of(&["h3_cell_to_boundary_wkt"], &[I], 1, Returns::Text, |a| {
        let wkt = to_wkt(&boundary(cell(a)?).to_wkb()).map_err(unreadable)?;
        Ok(Value::Text(as_postgis(&wkt)))
    }),
    of(&["h3_cell_to_parent"], &[I, I], 2, Returns::Int, |a| {
        let parent = cell(a)?.parent(resolution(a[1].int()?)?);
        Ok(parent.map(|parent| Value::Int(number_of(parent))).into())
    }),
    of(&["h3_get_resolution"], &[I], 1, Returns::Int, |a| Ok(Value::Int(i64::from(u8::from(cell(a)?.resolution()))))),
    of(&["h3_is_valid_cell"], &[I], 1, Returns::Bool, |a| Ok(Value::Bool(cell(a).is_ok()))),
    of(&["h3_grid_distance"], &[I, I], 2, Returns::Int, |a| {
        let distance = cell(a)?.grid_distance(cell(&a[1..])?);
        Ok(distance.ok().map(|distance| Value::Int(i64::from(distance))).into())
    }),
    of(&["st_tileenvelope"], &[I, I, I], 3, Returns::GeometryIn(WEB_MERCATOR_SRID), tile),
    of(&["st_quadkey"], &[G, I], 2, Returns::Text, quadkey),
];

fn geohash(args: &[Arg<'_>]) -> Result<Value> {
    let length = args.get(1).map_or(Ok(GEOHASH_MAX), Arg::int)?;
    if !(1..=GEOHASH_MAX).contains(&length) {
        return exec_err!("a geohash has from 1 to {GEOHASH_MAX} characters, not {length}");
    }
    let wkb = args[0].wkb()?;
    let Some(place) = as_point(wkb) else {
        return match args[0].tree()?.is_empty() {
            true => Ok(Value::Null),
            false => exec_err!("ST_GeoHash takes points; use ST_Centroid(geometry)"),
        };
    };
    let place = geohash::Coord { x: place.x, y: place.y };
    let hash = geohash::encode(place, usize::try_from(length).unwrap_or(1));
    hash.map(Value::Text).map_err(|error| exec_datafusion_err!("the point has no geohash: {error}"))
}

fn geohash_rect(text: &str) -> Result<geo_types::Rect<f64>> {
    let no_hash = |error| exec_datafusion_err!("'{text}' is no geohash: {error}");
    geohash::decode_bbox(&text.to_lowercase()).map_err(no_hash)
}

fn geohash_box(text: &str) -> Result<Vec<u8>> {
    let rect = geohash_rect(text)?;
    Ok(box_wkb(Point { x: rect.min().x, y: rect.min().y }, Point { x: rect.max().x, y: rect.max().y }))
}

fn geohash_point(args: &[Arg<'_>]) -> Result<Value> {
    let middle = geohash_rect(args[0].text()?)?.center();
    Ok(Value::Geometry(point_wkb(Point { x: middle.x, y: middle.y }).to_vec()))
}

fn resolution(number: i64) -> Result<Resolution> {
    let resolution = u8::try_from(number).ok().and_then(|number| Resolution::try_from(number).ok());
    resolution.ok_or_else(|| exec_datafusion_err!("a resolution of H3 is a number from 0 to 15, not {number}"))
}

fn cell_at(lat: f64, lng: f64, number: i64) -> Result<CellIndex> {
    if !(-90.0..=90.0).contains(&lat) {
        return exec_err!("{lat} is no latitude; the latitude comes before the longitude");
    }
    let place = LatLng::new(lat, lng).map_err(|error| exec_datafusion_err!("{lat}, {lng} is no place: {error}"))?;
    Ok(place.to_cell(resolution(number)?))
}

fn cell(args: &[Arg<'_>]) -> Result<CellIndex> {
    let number = args[0].int()?;
    let cell = u64::try_from(number).ok().and_then(|number| CellIndex::try_from(number).ok());
    cell.ok_or_else(|| exec_datafusion_err!("{number} is no cell of H3"))
}

/// The highest bit of a cell's number is not set.
fn number_of(cell: CellIndex) -> i64 {
    u64::from(cell).cast_signed()
}

/// A cell across the antimeridian has longitudes beyond 180 degrees.
fn boundary(cell: CellIndex) -> Tree {
    let middle = LatLng::from(cell).lng();
    let near_middle = |lng: f64| lng + ((middle - lng) / 360.0).round() * 360.0;
    let boundary = cell.boundary();
    let mut ring: Vec<Coordinates> =
        boundary.iter().map(|place| [near_middle(place.lng()), place.lat(), 0.0, 0.0]).collect();
    ring.extend(ring.first().copied());
    Tree { kind: GeometryKind::Polygon, dimensions: Dimensions::XY, body: TreeBody::Rings(vec![ring]) }
}

/// A tile, counted from the north-west.
fn tile(args: &[Arg<'_>]) -> Result<Value> {
    let (level, x, y) = (args[0].int()?, args[1].int()?, args[2].int()?);
    if !(0..=LEVEL_MAX).contains(&level) {
        return exec_err!("the level of a tile is from 0 to {LEVEL_MAX}, not {level}");
    }
    let count = 1_i64 << level;
    if !(0..count).contains(&x) || !(0..count).contains(&y) {
        return exec_err!("there is no tile {x}, {y} on level {level}: columns and rows are from 0 to {}", count - 1);
    }
    let along = |number: i64| number as f64 / count as f64 * 2.0 * MERCATOR_HALF;
    let corner = |x: i64, y: i64| Point { x: along(x) - MERCATOR_HALF, y: MERCATOR_HALF - along(y) };
    let (from, to) = (corner(x, y + 1), corner(x + 1, y));
    Ok(Value::Geometry(box_wkb(from, to)))
}

/// The digits of the tile with a place, one for each level.
fn quadkey(args: &[Arg<'_>]) -> Result<Value> {
    let level = args[1].int()?;
    if !(1..=LEVEL_MAX).contains(&level) {
        return exec_err!("the level of a quadkey is from 1 to {LEVEL_MAX}, not {level}");
    }
    let Some(place) = as_point(args[0].wkb()?) else { return exec_err!("ST_QuadKey takes points") };
    if !(-180.0..=180.0).contains(&place.x) || !(-90.0..=90.0).contains(&place.y) {
        return exec_err!("ST_QuadKey takes longitudes and latitudes; use ST_Transform(geometry, {WGS84_SRID})");
    }
    let sine = place.y.to_radians().sin();
    let up = 0.5 - ((1.0 + sine) / (1.0 - sine)).ln() / (4.0 * std::f64::consts::PI);
    let count = (1_i64 << level) as f64;
    let number = |share: f64| (share * count).floor().clamp(0.0, count - 1.0) as i64;
    let (x, y) = (number((place.x + 180.0) / 360.0), number(up));
    let digit = |bit: i64| char::from(b'0' + (x >> bit & 1) as u8 + 2 * (y >> bit & 1) as u8);
    Ok(Value::Text((0..level).rev().map(digit).collect()))
}
