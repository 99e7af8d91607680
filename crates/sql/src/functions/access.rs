//! Parts and properties of a geometry.

use datafusion::common::Result;
use terrane_space::geometry::{Coordinates, Dimensions, GeometryKind, Tree, TreeBody};

use super::Kind::{Geometry as G, Int as I};
use super::Returns;
use super::tail::{Arg, Tail, Value};
use crate::geometry::as_postgis_name;

/// The functions.
pub(super) const FUNCTIONS: &[Tail] = &[
    Tail { names: &["st_geometrytype"], kinds: &[G], required: 1, returns: Returns::Text, call: geometry_type },
    Tail { names: &["geometrytype"], kinds: &[G], required: 1, returns: Returns::Text, call: upper_type },
    Tail { names: &["st_dimension"], kinds: &[G], required: 1, returns: Returns::Int, call: dimension },
    Tail { names: &["st_ndims", "st_coorddim"], kinds: &[G], required: 1, returns: Returns::Int, call: coordinates },
    Tail { names: &["st_zmflag"], kinds: &[G], required: 1, returns: Returns::Int, call: zm_flag },
    Tail { names: &["st_hasz"], kinds: &[G], required: 1, returns: Returns::Bool, call: has_z },
    Tail { names: &["st_hasm"], kinds: &[G], required: 1, returns: Returns::Bool, call: has_m },
    Tail { names: &["st_isempty"], kinds: &[G], required: 1, returns: Returns::Bool, call: is_empty },
    Tail { names: &["st_iscollection"], kinds: &[G], required: 1, returns: Returns::Bool, call: is_collection },
    Tail { names: &["st_isclosed"], kinds: &[G], required: 1, returns: Returns::Bool, call: is_closed },
    Tail { names: &["st_srid"], kinds: &[G], required: 1, returns: Returns::Int, call: srid },
    Tail { names: &["st_numgeometries"], kinds: &[G], required: 1, returns: Returns::Int, call: count_members },
    Tail { names: &["st_geometryn"], kinds: &[G, I], required: 2, returns: Returns::Geometry, call: member },
    Tail { names: &["st_npoints"], kinds: &[G], required: 1, returns: Returns::Int, call: count_positions },
    Tail { names: &["st_numpoints"], kinds: &[G], required: 1, returns: Returns::Int, call: count_line },
    Tail { names: &["st_nrings"], kinds: &[G], required: 1, returns: Returns::Int, call: count_rings },
    Tail { names: &["st_pointn"], kinds: &[G, I], required: 2, returns: Returns::Geometry, call: point_n },
    Tail { names: &["st_startpoint"], kinds: &[G], required: 1, returns: Returns::Geometry, call: start },
    Tail { names: &["st_endpoint"], kinds: &[G], required: 1, returns: Returns::Geometry, call: end },
    Tail { names: &["st_exteriorring"], kinds: &[G], required: 1, returns: Returns::Geometry, call: exterior },
    Tail {
        names: &["st_numinteriorrings", "st_numinteriorring"],
        kinds: &[G],
        required: 1,
        returns: Returns::Int,
        call: count_interior,
    },
    Tail { names: &["st_interiorringn"], kinds: &[G, I], required: 2, returns: Returns::Geometry, call: interior },
    Tail { names: &["st_boundary"], kinds: &[G], required: 1, returns: Returns::Geometry, call: boundary },
    Tail { names: &["st_points"], kinds: &[G], required: 1, returns: Returns::Geometry, call: points },
    Tail { names: &["st_envelope"], kinds: &[G], required: 1, returns: Returns::Geometry, call: envelope },
    Tail { names: &["st_z"], kinds: &[G], required: 1, returns: Returns::Number, call: z },
    Tail { names: &["st_m"], kinds: &[G], required: 1, returns: Returns::Number, call: m },
    Tail { names: &["st_xmin"], kinds: &[G], required: 1, returns: Returns::Number, call: |a| extreme(a, 0, f64::min) },
    Tail { names: &["st_ymin"], kinds: &[G], required: 1, returns: Returns::Number, call: |a| extreme(a, 1, f64::min) },
    Tail { names: &["st_zmin"], kinds: &[G], required: 1, returns: Returns::Number, call: |a| extreme(a, 2, f64::min) },
    Tail { names: &["st_mmin"], kinds: &[G], required: 1, returns: Returns::Number, call: |a| extreme(a, 3, f64::min) },
    Tail { names: &["st_xmax"], kinds: &[G], required: 1, returns: Returns::Number, call: |a| extreme(a, 0, f64::max) },
    Tail { names: &["st_ymax"], kinds: &[G], required: 1, returns: Returns::Number, call: |a| extreme(a, 1, f64::max) },
    Tail { names: &["st_zmax"], kinds: &[G], required: 1, returns: Returns::Number, call: |a| extreme(a, 2, f64::max) },
    Tail { names: &["st_mmax"], kinds: &[G], required: 1, returns: Returns::Number, call: |a| extreme(a, 3, f64::max) },
];

fn geometry_type(args: &[Arg<'_>]) -> Result<Value> {
    Ok(Value::Text(as_postgis_name(args[0].tree()?.kind)))
}

fn upper_type(args: &[Arg<'_>]) -> Result<Value> {
    Ok(Value::Text(args[0].tree()?.kind.name().to_uppercase()))
}

fn dimension(args: &[Arg<'_>]) -> Result<Value> {
    Ok(Value::Int(dimension_of(&args[0].tree()?)))
}

pub(super) fn dimension_of(tree: &Tree) -> i64 {
    match tree.kind {
        GeometryKind::Point | GeometryKind::MultiPoint => 0,
        GeometryKind::LineString | GeometryKind::MultiLineString => 1,
        GeometryKind::Polygon | GeometryKind::MultiPolygon => 2,
        GeometryKind::GeometryCollection => tree.members().iter().map(dimension_of).max().unwrap_or(0),
    }
}

fn coordinates(args: &[Arg<'_>]) -> Result<Value> {
    Ok(Value::Int(args[0].tree()?.dimensions.count() as i64))
}

fn zm_flag(args: &[Arg<'_>]) -> Result<Value> {
    let Dimensions { has_z, has_m } = args[0].tree()?.dimensions;
    Ok(Value::Int(i64::from(has_m) + 2 * i64::from(has_z)))
}

fn has_z(args: &[Arg<'_>]) -> Result<Value> {
    Ok(Value::Bool(args[0].tree()?.dimensions.has_z))
}

fn has_m(args: &[Arg<'_>]) -> Result<Value> {
    Ok(Value::Bool(args[0].tree()?.dimensions.has_m))
}

fn is_empty(args: &[Arg<'_>]) -> Result<Value> {
    Ok(Value::Bool(args[0].tree()?.is_empty()))
}

fn is_collection(args: &[Arg<'_>]) -> Result<Value> {
    Ok(Value::Bool(matches!(args[0].tree()?.body, TreeBody::Members(_))))
}

fn is_closed(args: &[Arg<'_>]) -> Result<Value> {
    fn closed(tree: &Tree) -> bool {
        match (&tree.body, tree.kind) {
            (TreeBody::Positions(line), GeometryKind::LineString) => line.first() == line.last(),
            (TreeBody::Members(members), _) => members.iter().all(closed),
            _ => true,
        }
    }
    let tree = args[0].tree()?;
    Ok(Value::Bool(!tree.is_empty() && closed(&tree)))
}

fn srid(args: &[Arg<'_>]) -> Result<Value> {
    Ok(Value::Int(args[0].srid()))
}

fn count_members(args: &[Arg<'_>]) -> Result<Value> {
    let tree = args[0].tree()?;
    Ok(Value::Int(match &tree.body {
        TreeBody::Members(members) => members.len() as i64,
        _ => i64::from(!tree.is_empty()),
    }))
}

/// The element at a position from 1; a negative one counts from the end if `from_end`.
fn element<T>(elements: &[T], position: i64, from_end: bool) -> Option<&T> {
    let index = match position {
        0 => return None,
        position if position < 0 && from_end => (elements.len() as i64).checked_add(position)?,
        position => position - 1,
    };
    elements.get(usize::try_from(index).ok()?)
}

fn member(args: &[Arg<'_>]) -> Result<Value> {
    let tree = args[0].tree()?;
    if !matches!(tree.body, TreeBody::Members(_)) && tree.is_empty() {
        return Ok(Value::Null);
    }
    Ok(element(tree.members(), args[1].int()?, false).cloned().map(Value::from).into())
}

fn count_positions(args: &[Arg<'_>]) -> Result<Value> {
    let mut count = 0;
    args[0].tree()?.visit(&mut |_| count += 1);
    Ok(Value::Int(count))
}

fn count_line(args: &[Arg<'_>]) -> Result<Value> {
    let line = args[0].tree_of(GeometryKind::LineString)?;
    Ok(line.map(|line| Value::Int(line.positions().len() as i64)).into())
}

fn count_rings(args: &[Arg<'_>]) -> Result<Value> {
    fn rings(tree: &Tree) -> usize {
        match &tree.body {
            TreeBody::Rings(rings) => rings.len(),
            TreeBody::Members(members) => members.iter().map(rings).sum(),
            TreeBody::Positions(_) => 0,
        }
    }
    Ok(Value::Int(rings(&args[0].tree()?) as i64))
}

fn point(dimensions: Dimensions, position: &Coordinates) -> Value {
    Tree::of_positions(GeometryKind::Point, dimensions, vec![*position]).into()
}

fn point_n(args: &[Arg<'_>]) -> Result<Value> {
    let Some(line) = args[0].tree_of(GeometryKind::LineString)? else { return Ok(Value::Null) };
    let found = element(line.positions(), args[1].int()?, true);
    Ok(found.map(|position| point(line.dimensions, position)).into())
}

fn start(args: &[Arg<'_>]) -> Result<Value> {
    /// The first position of a geometry or of its first member.
    fn first(tree: &Tree) -> Option<&Coordinates> {
        match &tree.body {
            TreeBody::Positions(positions) => positions.first(),
            TreeBody::Rings(rings) => rings.first()?.first(),
            TreeBody::Members(members) => first(members.first()?),
        }
    }
    let tree = args[0].tree()?;
    Ok(first(&tree).map(|position| point(tree.dimensions, position)).into())
}

fn end(args: &[Arg<'_>]) -> Result<Value> {
    let line = args[0].tree_of(GeometryKind::LineString)?;
    Ok(line.and_then(|line| line.positions().last().map(|last| point(line.dimensions, last))).into())
}

fn line(dimensions: Dimensions, positions: &[Coordinates]) -> Tree {
    Tree::of_positions(GeometryKind::LineString, dimensions, positions.to_vec())
}

fn exterior(args: &[Arg<'_>]) -> Result<Value> {
    let Some(polygon) = args[0].tree_of(GeometryKind::Polygon)? else { return Ok(Value::Null) };
    Ok(line(polygon.dimensions, polygon.rings().first().map_or(&[], Vec::as_slice)).into())
}

fn count_interior(args: &[Arg<'_>]) -> Result<Value> {
    let polygon = args[0].tree_of(GeometryKind::Polygon)?;
    Ok(polygon.map(|polygon| Value::Int(polygon.rings().len().saturating_sub(1) as i64)).into())
}

fn interior(args: &[Arg<'_>]) -> Result<Value> {
    let Some(polygon) = args[0].tree_of(GeometryKind::Polygon)? else { return Ok(Value::Null) };
    let position = args[1].int()?;
    let ring = polygon.rings().get(1..).and_then(|rings| element(rings, position, false));
    Ok(ring.map(|ring| Value::from(line(polygon.dimensions, ring))).into())
}

fn boundary(args: &[Arg<'_>]) -> Result<Value> {
    let tree = args[0].tree()?;
    Ok(boundary_of(&tree).into())
}

/// The boundary. That of a collection is made of those of its members.
pub(super) fn boundary_of(tree: &Tree) -> Tree {
    let dimensions = tree.dimensions;
    let lines = |rings: Vec<Tree>, kind: GeometryKind| match (rings.len(), kind) {
        (1, GeometryKind::Polygon) => rings.into_iter().next().unwrap_or_else(|| Tree::empty(kind, dimensions)),
        _ => Tree::of_members(GeometryKind::MultiLineString, dimensions, rings),
    };
    match tree.kind {
        GeometryKind::Point | GeometryKind::MultiPoint => Tree::empty(GeometryKind::GeometryCollection, dimensions),
        GeometryKind::LineString | GeometryKind::MultiLineString => {
            let mut ends: Vec<(Coordinates, usize)> = Vec::new();
            for line in tree.members() {
                for end in line.positions().first().into_iter().chain(line.positions().last()) {
                    match ends.iter_mut().find(|(known, _)| known[..2] == end[..2]) {
                        Some((_, count)) => *count += 1,
                        None => ends.push((*end, 1)),
                    }
                }
            }
            ends.retain(|(_, count)| count % 2 == 1);
            ends.sort_by(|(a, _), (b, _)| {
                a.iter()
                    .zip(b)
                    .map(|(a, b)| a.total_cmp(b))
                    .find(|order| order.is_ne())
                    .unwrap_or(std::cmp::Ordering::Equal)
            });
            let members =
                ends.into_iter().map(|(end, _)| Tree::of_positions(GeometryKind::Point, dimensions, vec![end]));
            Tree::of_members(GeometryKind::MultiPoint, dimensions, members.collect())
        }
        GeometryKind::Polygon => lines(tree.rings().iter().map(|ring| line(dimensions, ring)).collect(), tree.kind),
        GeometryKind::MultiPolygon => {
            let rings = tree.members().iter().flat_map(|polygon| polygon.rings());
            lines(rings.map(|ring| line(dimensions, ring)).collect(), tree.kind)
        }
        GeometryKind::GeometryCollection => boundary_of_members(tree),
    }
}

fn boundary_of_members(tree: &Tree) -> Tree {
    fn add(tree: &Tree, points: &mut Vec<Tree>, lines: &mut Vec<Tree>) {
        if tree.kind == GeometryKind::GeometryCollection {
            return tree.members().iter().for_each(|member| add(member, points, lines));
        }
        let boundary = boundary_of(tree);
        for part in boundary.members().iter().filter(|part| !part.is_empty()) {
            if part.kind == GeometryKind::Point { points.push(part.clone()) } else { lines.push(part.clone()) }
        }
    }
    let (mut points, mut lines) = (Vec::new(), Vec::new());
    add(tree, &mut points, &mut lines);
    let gather = |mut parts: Vec<Tree>, kind| match parts.len() {
        0 => None,
        1 => parts.pop(),
        _ => Some(Tree::of_members(kind, tree.dimensions, parts)),
    };
    let points = gather(points, GeometryKind::MultiPoint);
    let mut members: Vec<Tree> = points.into_iter().chain(gather(lines, GeometryKind::MultiLineString)).collect();
    match members.len() {
        1 => members.remove(0),
        _ => Tree::of_members(GeometryKind::GeometryCollection, tree.dimensions, members),
    }
}

fn points(args: &[Arg<'_>]) -> Result<Value> {
    let tree = args[0].tree()?;
    let mut members = Vec::new();
    tree.visit(&mut |position| {
        members.push(Tree::of_positions(GeometryKind::Point, tree.dimensions, vec![*position]));
    });
    Ok(Tree::of_members(GeometryKind::MultiPoint, tree.dimensions, members).into())
}

/// The least and the greatest x and y.
pub(super) fn bounds(tree: &Tree) -> Option<[f64; 4]> {
    let mut found: Option<[f64; 4]> = None;
    tree.visit(&mut |position| {
        let [x0, y0, x1, y1] = found.unwrap_or([position[0], position[1], position[0], position[1]]);
        found = Some([x0.min(position[0]), y0.min(position[1]), x1.max(position[0]), y1.max(position[1])]);
    });
    found
}

fn envelope(args: &[Arg<'_>]) -> Result<Value> {
    let tree = args[0].tree()?;
    let corner = |x, y| terrane_space::Point { x, y };
    Ok(match bounds(&tree) {
        Some([x0, y0, x1, y1]) => Value::Geometry(crate::geometry::box_wkb(corner(x0, y0), corner(x1, y1))),
        None => Tree::empty(tree.kind, Dimensions::XY).into(),
    })
}

fn ordinate(args: &[Arg<'_>], index: usize, has: fn(Dimensions) -> bool) -> Result<Value> {
    let point = args[0].tree_of(GeometryKind::Point)?.filter(|point| has(point.dimensions));
    Ok(point.and_then(|point| point.positions().first().map(|position| Value::Number(position[index]))).into())
}

fn z(args: &[Arg<'_>]) -> Result<Value> {
    ordinate(args, 2, |dimensions| dimensions.has_z)
}

fn m(args: &[Arg<'_>]) -> Result<Value> {
    ordinate(args, 3, |dimensions| dimensions.has_m)
}

fn extreme(args: &[Arg<'_>], index: usize, of: fn(f64, f64) -> f64) -> Result<Value> {
    let tree = args[0].tree()?;
    let Dimensions { has_z, has_m } = tree.dimensions;
    if index == 2 && !has_z || index == 3 && !has_m {
        return Ok(Value::Null);
    }
    let mut found: Option<f64> = None;
    tree.visit(&mut |position| found = Some(found.map_or(position[index], |known| of(known, position[index]))));
    Ok(found.map(Value::Number).into())
}
