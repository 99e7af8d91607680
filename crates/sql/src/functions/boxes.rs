//! Boxes and circles around geometries, and cells of a grid.

use std::f64::consts::TAU;

use datafusion::common::{Result, exec_err};
use geo::{ConvexHull, MinimumRotatedRect};
use terrane_space::Point;
use terrane_space::geometry::{Coordinates, Dimensions, GeometryKind, Tree, from_geo};

use super::Kind::{Bool as B, Geometry as G, Int as I, Number as N};
use super::access::bounds;
use super::measure::{distance, point};
use super::network::area_tree;
use super::overlay::convex_hull;
use super::tail::{Arg, Tail, Value, shape};
use crate::geometry::envelope_wkb;

/// The functions.
pub(super) const FUNCTIONS: &[Tail] = &[
    shape(&["st_expand"], &[G, N, N], 2, expanded),
    shape(&["st_boundingdiagonal"], &[G, B], 1, diagonal),
    shape(&["st_orientedenvelope"], &[G], 1, oriented),
    shape(&["st_minimumboundingcircle"], &[G, I], 1, circle_around),
    shape(&["st_square"], &[N, I, I, G], 3, |a| cell(a, square)),
    shape(&["st_hexagon"], &[N, I, I, G], 3, |a| cell(a, hexagon)),
];

/// The box of a geometry, larger by a distance on each side.
fn expanded(args: &[Arg<'_>]) -> Result<Value> {
    let x = args[1].number()?;
    let y = args.get(2).map_or(Ok(x), Arg::number)?;
    let Some([x0, y0, x1, y1]) = bounds(&args[0].tree()?) else {
        return Ok(Tree::empty(GeometryKind::Polygon, Dimensions::XY).into());
    };
    let sides = [x0 - x, y0 - y, x1 + x, y1 + y];
    if sides.iter().any(|side| !side.is_finite()) {
        return exec_err!("the coordinates of the result are not finite");
    }
    let [x0, y0, x1, y1] = sides;
    Ok(Value::Geometry(envelope_wkb(Point { x: x0, y: y0 }, Point { x: x1, y: y1 })))
}

/// The line from the least coordinates to the greatest. It is always the best fit.
fn diagonal(args: &[Arg<'_>]) -> Result<Value> {
    let tree = args[0].tree()?;
    let mut ends: Option<[Coordinates; 2]> = None;
    tree.visit(&mut |position| {
        let [least, most] = ends.unwrap_or([*position; 2]);
        ends = Some([
            std::array::from_fn(|axis| least[axis].min(position[axis])),
            std::array::from_fn(|axis| most[axis].max(position[axis])),
        ]);
    });
    let ends = ends.map_or_else(Vec::new, |ends| ends.to_vec());
    Ok(Tree::of_positions(GeometryKind::LineString, tree.dimensions, ends).into())
}

/// The smallest rectangle in any direction. A flat geometry gives a line or a point.
fn oriented(args: &[Arg<'_>]) -> Result<Value> {
    let hull = Tree::parse(match &convex_hull(args)? {
        Value::Geometry(wkb) => wkb,
        _ => args[0].wkb()?,
    })
    .map_err(super::relation::unreadable)?;
    if hull.is_empty() {
        return Ok(Tree::empty(GeometryKind::Polygon, Dimensions::XY).into());
    }
    if hull.kind != GeometryKind::Polygon {
        return Ok(hull.into());
    }
    match args[0].geo()?.minimum_rotated_rect() {
        Some(rectangle) => Ok(Value::Geometry(from_geo(&rectangle.into()))),
        None => exec_err!("the geometry has no rectangle around it"),
    }
}

struct Circle {
    centre: Coordinates,
    radius: f64,
}

impl Circle {
    fn has(&self, place: &Coordinates) -> bool {
        distance(&self.centre, place) <= self.radius * (1.0 + 1e-14)
    }

    /// With two places at the ends of its diameter.
    fn between(a: &Coordinates, b: &Coordinates) -> Self {
        let centre = super::measure::between(a, b, 0.5);
        Self { centre, radius: distance(&centre, a).max(distance(&centre, b)) }
    }

    /// Through three places. On one line, it is that of the farthest two.
    fn through(a: &Coordinates, b: &Coordinates, c: &Coordinates) -> Self {
        let (bx, by, cx, cy) = (b[0] - a[0], b[1] - a[1], c[0] - a[0], c[1] - a[1]);
        let twice = 2.0 * (bx * cy - by * cx);
        if twice == 0.0 {
            let pairs = [(a, b), (b, c), (a, c)].map(|(a, b)| Self::between(a, b));
            return pairs.into_iter().max_by(|a, b| a.radius.total_cmp(&b.radius)).unwrap_or(Self::between(a, b));
        }
        let (b2, c2) = (bx * bx + by * by, cx * cx + cy * cy);
        let (x, y) = ((cy * b2 - by * c2) / twice, (bx * c2 - cx * b2) / twice);
        Self { centre: [a[0] + x, a[1] + y, 0.0, 0.0], radius: x.hypot(y) }
    }

    /// The smallest circle around places (Welzl, 1991). A circle grows only with a place outside of
    /// it, which is seldom in a mixed order.
    fn around(places: &[Coordinates]) -> Option<Self> {
        let mut circle = Self { centre: *places.first()?, radius: 0.0 };
        for (i, a) in places.iter().enumerate() {
            if circle.has(a) {
                continue;
            }
            circle = Self { centre: *a, radius: 0.0 };
            for (j, b) in places[..i].iter().enumerate() {
                if circle.has(b) {
                    continue;
                }
                circle = Self::between(a, b);
                for c in &places[..j] {
                    if !circle.has(c) {
                        circle = Self::through(a, b, c);
                    }
                }
            }
        }
        Some(circle)
    }
}

/// Places in an order that looks like chance, but is always the same.
fn mixed(mut places: Vec<Coordinates>) -> Vec<Coordinates> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for number in (1..places.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let other = usize::try_from(state % (number as u64 + 1)).unwrap_or(0);
        places.swap(number, other);
    }
    places
}

/// A polygon around the smallest circle, with a number of edges for a quarter.
fn circle_around(args: &[Arg<'_>]) -> Result<Value> {
    /// Edges of a quarter where none are given, and most of them.
    const EDGES: i64 = 48;
    const EDGES_MAX: i64 = 10_000;
    let quarter = args.get(1).map_or(Ok(EDGES), Arg::int)?;
    if !(1..=EDGES_MAX).contains(&quarter) {
        return exec_err!("a quarter of a circle has from 1 to {EDGES_MAX} edges, not {quarter}");
    }
    let hull = args[0].geo()?.convex_hull();
    let places = hull.exterior().0.iter().map(|place| [place.x, place.y, 0.0, 0.0]).collect();
    let Some(Circle { centre, radius }) = Circle::around(&mixed(places)) else {
        return Ok(Tree::empty(GeometryKind::Polygon, Dimensions::XY).into());
    };
    if radius == 0.0 {
        return Ok(Tree::of_positions(GeometryKind::Point, Dimensions::XY, vec![centre]).into());
    }
    let count = 4 * quarter;
    let step = TAU / count as f64;
    let outer = radius * 1.0_f64.hypot((step / 2.0).tan());
    let corner = |number: i64| {
        let (sin, cos) = (number as f64 * step).sin_cos();
        [centre[0] + outer * sin, centre[1] + outer * cos, 0.0, 0.0]
    };
    let ring = (0..count).chain([0]).map(corner).collect();
    Ok(area_tree(vec![ring], Dimensions::XY).into())
}

/// A cell of a grid, by its column and row from an origin.
fn cell(args: &[Arg<'_>], of: fn(f64, i64, i64) -> Vec<Coordinates>) -> Result<Value> {
    let (size, column, row) = (args[0].number()?, args[1].int()?, args[2].int()?);
    let origin = match args.get(3) {
        None => Some([0.0; 4]),
        Some(origin) => point(origin, "the origin")?,
    };
    let Some(origin) = origin else { return exec_err!("the origin of a grid is empty") };
    if !size.is_finite() || size <= 0.0 {
        return exec_err!("{size} is not the size of a cell; use a number above 0");
    }
    let mut ring = of(size, column, row);
    for position in &mut ring {
        position[0] += origin[0];
        position[1] += origin[1];
    }
    if ring.iter().flatten().any(|number| !number.is_finite()) {
        return exec_err!("the coordinates of the result are not finite");
    }
    Ok(area_tree(vec![ring], Dimensions::XY).into())
}

/// A square with sides of a length.
pub(super) fn square(size: f64, column: i64, row: i64) -> Vec<Coordinates> {
    let [x0, x1] = [column as f64, column as f64 + 1.0].map(|number| size * number);
    let [y0, y1] = [row as f64, row as f64 + 1.0].map(|number| size * number);
    [[x0, y0], [x0, y1], [x1, y1], [x1, y0], [x0, y0]].map(|[x, y]| [x, y, 0.0, 0.0]).to_vec()
}

/// A hexagon with edges of a length. Odd columns are half a cell higher.
pub(super) fn hexagon(size: f64, column: i64, row: i64) -> Vec<Coordinates> {
    let height = size * 3.0_f64.sqrt();
    let (x, y) = (1.5 * size * column as f64, height * (row as f64 + 0.5 * (column & 1) as f64));
    let corners = [[-1.0, 0.0], [-0.5, -0.5], [0.5, -0.5], [1.0, 0.0], [0.5, 0.5], [-0.5, 0.5], [-1.0, 0.0]];
    corners.map(|[along, up]| [x + size * along, y + height * up, 0.0, 0.0]).to_vec()
}
