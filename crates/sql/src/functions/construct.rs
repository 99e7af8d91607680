//! Geometries from numbers, texts and bytes, and back.

use datafusion::common::{Result, exec_datafusion_err, exec_err};
use serde_json::Value as Json;
use terrane_space::geometry::{Coordinates, Dimensions, GeometryKind, Tree, from_geojson, normalise, to_wkt};

use super::Kind::{Bytes as B, Geometry as G, Number as N, Srid as S, Text as T};
use super::Returns;
use super::arguments::parse_text;
use super::relation::unreadable;
use super::tail::{Arg, Tail, Value, of};
use crate::geometry::as_postgis;

/// The functions.
pub(super) const FUNCTIONS: &[Tail] = &[
    of(&["st_pointz"], &[N, N, N, S], 3, Returns::Geometry, |a| point(a, Dimensions { has_z: true, has_m: false })),
    of(&["st_pointm"], &[N, N, N, S], 3, Returns::Geometry, |a| point(a, Dimensions { has_z: false, has_m: true })),
    of(&["st_pointzm"], &[N, N, N, N, S], 4, Returns::Geometry, |a| point(a, Dimensions { has_z: true, has_m: true })),
    of(&["st_makeline"], &[G, G], 2, Returns::Geometry, line),
    of(&["st_makepolygon", "st_polygon"], &[G, S], 1, Returns::Geometry, polygon),
    of(&["st_collect"], &[G, G], 2, Returns::Geometry, collected),
    of(&["st_geomfromewkt", "st_geogfromtext", "st_geographyfromtext"], &[T], 1, Returns::Geometry, from_text),
    of(&["st_pointfromtext"], &[T, S], 1, Returns::Geometry, |a| text_of(a, GeometryKind::Point)),
    of(&["st_linefromtext"], &[T, S], 1, Returns::Geometry, |a| text_of(a, GeometryKind::LineString)),
    of(&["st_polygonfromtext"], &[T, S], 1, Returns::Geometry, |a| text_of(a, GeometryKind::Polygon)),
    of(&["st_mpointfromtext"], &[T, S], 1, Returns::Geometry, |a| text_of(a, GeometryKind::MultiPoint)),
    of(&["st_mlinefromtext"], &[T, S], 1, Returns::Geometry, |a| text_of(a, GeometryKind::MultiLineString)),
    of(&["st_mpolyfromtext"], &[T, S], 1, Returns::Geometry, |a| text_of(a, GeometryKind::MultiPolygon)),
    of(&["st_geomcollfromtext"], &[T, S], 1, Returns::Geometry, |a| text_of(a, GeometryKind::GeometryCollection)),
    of(&["st_geomfromwkb", "st_geomfromewkb"], &[B, S], 1, Returns::Geometry, from_bytes),
    of(&["st_geomfromgeojson"], &[T], 1, Returns::Geometry, from_json),
    of(&[super::IN_SYSTEM], &[G, S], 2, Returns::Geometry, in_system),
    of(&["st_setsrid"], &[G, S], 2, Returns::Geometry, |a| Ok(Value::Geometry(a[0].wkb()?.to_vec()))),
    of(&["st_asbinary", "st_aswkb"], &[G], 1, Returns::Bytes, |a| Ok(Value::Bytes(a[0].wkb()?.to_vec()))),
    of(&["st_asewkb"], &[G], 1, Returns::Bytes, |a| Ok(Value::Bytes(extended(&a[0].tree()?, a[0].srid())))),
    of(&["st_ashexwkb"], &[G], 1, Returns::Text, |a| Ok(Value::Text(hex(a[0].wkb()?)))),
    of(&["st_ashexewkb"], &[G], 1, Returns::Text, |a| Ok(Value::Text(hex(&extended(&a[0].tree()?, a[0].srid()))))),
    of(&["st_asewkt"], &[G], 1, Returns::Text, extended_text),
];

/// A geometry for a column in a reference system.
fn in_system(args: &[Arg<'_>]) -> Result<Value> {
    let (found, wanted) = (args[0].srid(), args[1].int()?);
    match found == 0 || found == wanted {
        true => Ok(Value::Geometry(args[0].wkb()?.to_vec())),
        false => exec_err!(
            "a geometry is in the reference system {found}, and the column in {wanted}; convert it with ST_Transform"
        ),
    }
}

fn point(args: &[Arg<'_>], dimensions: Dimensions) -> Result<Value> {
    let numbers = args[..dimensions.count()].iter().map(Arg::number).collect::<Result<Vec<f64>>>()?;
    if numbers.iter().any(|number| !number.is_finite()) {
        return exec_err!("the coordinates of a point are not finite");
    }
    let third = numbers.get(2).copied().unwrap_or(0.0);
    let position = match (dimensions.has_z, dimensions.has_m) {
        (false, true) => [numbers[0], numbers[1], 0.0, third],
        _ => [numbers[0], numbers[1], third, numbers.get(3).copied().unwrap_or(0.0)],
    };
    Ok(Tree::of_positions(GeometryKind::Point, dimensions, vec![position]).into())
}

fn line(args: &[Arg<'_>]) -> Result<Value> {
    let trees = args.iter().map(Arg::tree).collect::<Result<Vec<Tree>>>()?;
    line_through(&trees).map(Value::from)
}

/// A line through points, multi-points and lines.
pub(super) fn line_through(trees: &[Tree]) -> Result<Tree> {
    let mut positions: Vec<Coordinates> = Vec::new();
    let mut dimensions = Dimensions::XY;
    for tree in trees {
        if !matches!(tree.kind, GeometryKind::Point | GeometryKind::MultiPoint | GeometryKind::LineString) {
            return exec_err!("st_makeline takes points and lines, not a {}", tree.kind);
        }
        dimensions.has_z |= tree.dimensions.has_z;
        dimensions.has_m |= tree.dimensions.has_m;
        let is_line = tree.kind == GeometryKind::LineString;
        let mut is_first = true;
        tree.visit(&mut |position| {
            // The end of the first part and the beginning of a line may be the same.
            if !(is_first && is_line && positions.last() == Some(position)) {
                positions.push(*position);
            }
            is_first = false;
        });
    }
    Ok(Tree::of_positions(GeometryKind::LineString, dimensions, positions))
}

fn polygon(args: &[Arg<'_>]) -> Result<Value> {
    let Some(line) = args[0].tree_of(GeometryKind::LineString)? else {
        return exec_err!("the outer ring of a polygon must be a line");
    };
    let mut polygon = Tree::empty(GeometryKind::Polygon, line.dimensions);
    let ring = line.positions().to_vec();
    if ring.len() < 4 || ring.first() != ring.last() {
        return exec_err!("the outer ring of a polygon must be closed and have at least four positions");
    }
    polygon.body = terrane_space::geometry::TreeBody::Rings(vec![ring]);
    Ok(polygon.into())
}

fn collected(args: &[Arg<'_>]) -> Result<Value> {
    Ok(collection_of(args.iter().map(Arg::tree).collect::<Result<Vec<Tree>>>()?).into())
}

/// A multi-geometry if all are of one simple kind, else a collection. It has the dimensions of any.
pub(super) fn collection_of(trees: Vec<Tree>) -> Tree {
    let first = trees.first().map(|tree| tree.kind).filter(|kind| trees.iter().all(|tree| tree.kind == *kind));
    let kind = match first {
        Some(GeometryKind::Point) => GeometryKind::MultiPoint,
        Some(GeometryKind::LineString) => GeometryKind::MultiLineString,
        Some(GeometryKind::Polygon) => GeometryKind::MultiPolygon,
        _ => GeometryKind::GeometryCollection,
    };
    let dimensions = Dimensions {
        has_z: trees.iter().any(|tree| tree.dimensions.has_z),
        has_m: trees.iter().any(|tree| tree.dimensions.has_m),
    };
    let mut tree = Tree::of_members(kind, dimensions, trees);
    tree.set_dimensions(dimensions);
    tree
}

fn from_text(args: &[Arg<'_>]) -> Result<Value> {
    parse_text(args[0].text()?).map(Value::Geometry)
}

/// The geometry in a text, which is null if it is of another kind.
fn text_of(args: &[Arg<'_>], kind: GeometryKind) -> Result<Value> {
    let wkb = parse_text(args[0].text()?)?;
    let found = Tree::parse(&wkb).map_err(unreadable)?.kind;
    Ok(if found == kind { Value::Geometry(wkb) } else { Value::Null })
}

fn from_bytes(args: &[Arg<'_>]) -> Result<Value> {
    let wkb = normalise(args[0].bytes()?);
    Ok(Value::Geometry(wkb.map_err(|error| exec_datafusion_err!("not a geometry: {error}"))?))
}

fn from_json(args: &[Arg<'_>]) -> Result<Value> {
    let refused = |error: &dyn std::fmt::Display| exec_datafusion_err!("not a geometry in GeoJSON: {error}");
    let json: Json = serde_json::from_str(args[0].text()?).map_err(|error| refused(&error))?;
    Ok(Value::Geometry(from_geojson(&json).map_err(|error| refused(&error))?))
}

/// Extended well-known binary, as PostGIS writes it.
fn extended(tree: &Tree, srid: i64) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_extended(tree, srid, &mut bytes);
    bytes
}

fn write_extended(tree: &Tree, srid: i64, bytes: &mut Vec<u8>) {
    use terrane_space::geometry::TreeBody;
    let Dimensions { has_z, has_m } = tree.dimensions;
    let kind: u32 = match tree.kind {
        GeometryKind::Point => 1,
        GeometryKind::LineString => 2,
        GeometryKind::Polygon => 3,
        GeometryKind::MultiPoint => 4,
        GeometryKind::MultiLineString => 5,
        GeometryKind::MultiPolygon => 6,
        GeometryKind::GeometryCollection => 7,
    };
    let flags = u32::from(has_z) << 31 | u32::from(has_m) << 30 | u32::from(srid != 0) << 29;
    bytes.push(1);
    bytes.extend((kind | flags).to_le_bytes());
    if srid != 0 {
        bytes.extend((srid as u32).to_le_bytes());
    }
    let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
    let write = |bytes: &mut Vec<u8>, [x, y, z, m]: &Coordinates| {
        let third = has_z.then_some(z);
        let fourth = has_m.then_some(m);
        [x, y].into_iter().chain(third).chain(fourth).for_each(|number| bytes.extend(number.to_le_bytes()));
    };
    match &tree.body {
        TreeBody::Positions(positions) if tree.kind == GeometryKind::Point => match positions.first() {
            Some(position) => write(bytes, position),
            None => write(bytes, &[f64::NAN; 4]),
        },
        TreeBody::Positions(positions) => {
            bytes.extend(count(positions.len()));
            positions.iter().for_each(|position| write(bytes, position));
        }
        TreeBody::Rings(rings) => {
            bytes.extend(count(rings.len()));
            for ring in rings {
                bytes.extend(count(ring.len()));
                ring.iter().for_each(|position| write(bytes, position));
            }
        }
        TreeBody::Members(members) => {
            bytes.extend(count(members.len()));
            members.iter().for_each(|member| write_extended(member, 0, bytes));
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

fn extended_text(args: &[Arg<'_>]) -> Result<Value> {
    let text = as_postgis(&to_wkt(args[0].wkb()?).map_err(unreadable)?);
    Ok(Value::Text(match args[0].srid() {
        0 => text,
        srid => format!("SRID={srid};{text}"),
    }))
}
