//! Brute-force evaluation, record by record: spatial conditions by the `geo` crate and plain
//! comparisons, distances on the sphere one by one, attributes by their values. It uses no indexes,
//! components or plans.

use std::collections::BTreeMap;

use geo::{Contains, Geometry as Geo, Intersects, LineString, Point as GeoPoint, Polygon, Relate, Translate};
use terrane::{CoordinateSystem, Filter, Value};
use terrane_space::Point;
use terrane_space::geometry::{distance_bytes, to_geo};
use unicode_segmentation::UnicodeSegmentation;

use super::tables::Row;
use crate::support::oracle::wkb;

/// Shifts of longitudes: a geometry at the antimeridian continues on its other side.
const TURNS: [f64; 3] = [0.0, -360.0, 360.0];

/// A geometry with its box, to be compared with many rows.
pub struct Shape {
    geo: Geo<f64>,
    rect: [f64; 4],
}

impl Shape {
    pub fn new(geo: Geo<f64>, rect: [f64; 4]) -> Self {
        Self { geo, rect }
    }

    /// A closed window as a geometry: an area, a line or a point.
    fn window([x0, y0, x1, y1]: [f64; 4]) -> Self {
        let geo = match (x0 < x1, y0 < y1) {
            (true, true) => {
                let ring = LineString::from(vec![(x0, y0), (x1, y0), (x1, y1), (x0, y1), (x0, y0)]);
                Geo::Polygon(Polygon::new(ring, Vec::new()))
            }
            (false, false) => Geo::Point(GeoPoint::new(x0, y0)),
            _ => Geo::LineString(LineString::from(vec![(x0, y0), (x1, y1)])),
        };
        Self { geo, rect: [x0, y0, x1, y1] }
    }

    /// Whether a predicate holds for a shifted copy of a row whose box meets this one.
    fn any_turn(&self, row: &Row, holds: impl Fn(&Geo<f64>) -> bool) -> bool {
        TURNS.iter().any(|turn| {
            let [x0, y0, x1, y1] = row.rect;
            let meets =
                x0 + turn <= self.rect[2] && self.rect[0] <= x1 + turn && y0 <= self.rect[3] && self.rect[1] <= y1;
            meets && if *turn == 0.0 { holds(&row.geo) } else { holds(&row.geo.translate(*turn, 0.0)) }
        })
    }

    pub fn intersects(&self, row: &Row) -> bool {
        self.any_turn(row, |geo| self.geo.intersects(geo))
    }

    /// Whether the row lies within this.
    pub fn contains(&self, row: &Row) -> bool {
        self.any_turn(row, |geo| match (&self.geo, geo) {
            (Geo::Polygon(area), Geo::Point(point)) => area.contains(point),
            (Geo::MultiPolygon(area), Geo::Point(point)) => area.contains(point),
            (shape, geo) => shape.relate(geo).is_contains(),
        })
    }
}

/// The distance from a place to a row, in metres on the sphere.
pub fn distance(place: (f64, f64), row: &Row) -> Option<f64> {
    distance_bytes(CoordinateSystem::LonLat, Point::new(place.0, place.1), &wkb(&row.geometry)).unwrap()
}

/// A prepared spatial condition.
pub enum Test {
    /// Any of these windows.
    Windows(Vec<Shape>),
    Circle((f64, f64), f64),
    Intersects(Shape),
    Within(Shape),
}

impl Test {
    pub fn new(filter: &Filter) -> Self {
        let shape = |bytes: &[u8]| {
            let geo = to_geo(bytes).unwrap();
            let rect = geo::BoundingRect::bounding_rect(&geo).unwrap();
            Shape::new(geo, [rect.min().x, rect.min().y, rect.max().x, rect.max().y])
        };
        match filter {
            Filter::Window { x0, y0, x1, y1 } if x0 > x1 => {
                Self::Windows(vec![Shape::window([*x0, *y0, 180.0, *y1]), Shape::window([-180.0, *y0, *x1, *y1])])
            }
            Filter::Window { x0, y0, x1, y1 } => Self::Windows(vec![Shape::window([*x0, *y0, *x1, *y1])]),
            Filter::Circle { x, y, radius } => Self::Circle((*x, *y), *radius),
            Filter::Intersects(bytes) => Self::Intersects(shape(bytes)),
            Filter::Within(bytes) => Self::Within(shape(bytes)),
        }
    }

    pub fn holds(&self, row: &Row) -> bool {
        match self {
            Self::Windows(windows) => windows.iter().any(|window| match row.geo {
                Geo::Point(_) => window.any_turn(row, |_| true),
                _ => window.intersects(row),
            }),
            Self::Circle(place, radius) => distance(*place, row).is_some_and(|distance| distance <= *radius),
            Self::Intersects(shape) => shape.intersects(row),
            Self::Within(shape) => shape.contains(row),
        }
    }
}

/// A demand on an attribute. Null meets none.
#[derive(Clone, Debug)]
pub enum Clause {
    Equals(usize, Value),
    Between(usize, Value, Value),
    Word(usize, String),
}

impl Clause {
    pub fn holds(&self, row: &Row) -> bool {
        let order = |column: usize, other: &Value| match (&row.values[column], other) {
            (Value::Int(value), Value::Int(other)) => Some(value.cmp(other)),
            (Value::Float32(value), Value::Float32(other)) => value.partial_cmp(other),
            (Value::Float64(value), Value::Float64(other)) => value.partial_cmp(other),
            (Value::Utf8(value), Value::Utf8(other)) => Some(value.as_bytes().cmp(other.as_bytes())),
            _ => None,
        };
        match self {
            Self::Equals(column, value) => order(*column, value).is_some_and(|order| order.is_eq()),
            Self::Between(column, low, high) => {
                order(*column, low).is_some_and(|order| order.is_ge())
                    && order(*column, high).is_some_and(|order| order.is_le())
            }
            Self::Word(column, word) => match &row.values[*column] {
                Value::Utf8(text) => words(text).any(|found| found == *word),
                _ => false,
            },
        }
    }
}

/// The words of a text, in lower case.
pub fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.unicode_words().map(str::to_lowercase)
}

/// Keys and rows of a dataset.
pub type Rows<'r> = BTreeMap<i64, &'r Row>;

/// The keys of the rows that meet all conditions.
pub fn matching(rows: &Rows<'_>, filters: &[Filter], clauses: &[Clause]) -> Vec<i64> {
    let tests: Vec<Test> = filters.iter().map(Test::new).collect();
    let meets = |row: &Row| clauses.iter().all(|clause| clause.holds(row)) && tests.iter().all(|test| test.holds(row));
    rows.iter().filter(|(_, row)| meets(row)).map(|(key, _)| *key).collect()
}

/// The `k` keys whose rows are nearest to a place, ties by key.
pub fn nearest(rows: &Rows<'_>, keys: Vec<i64>, place: (f64, f64), k: usize) -> Vec<i64> {
    let mut found: Vec<(f64, i64)> =
        keys.into_iter().filter_map(|key| Some((distance(place, rows[&key])?, key))).collect();
    found.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    found.into_iter().take(k).map(|(_, key)| key).collect()
}

/// The predicate of a join.
#[derive(Clone, Copy, Debug)]
pub enum On {
    Intersects,
    /// The inner geometry lies within the outer one.
    Within,
    /// The outer geometry lies within the inner one.
    Contains,
    /// Their distance is at most this many metres. One side has points only.
    Near(f64),
}

/// The pairs of two sets of rows. Every outer row is compared with each inner row whose box is
/// close enough.
pub fn pairs(outer: &Rows<'_>, inner: &Rows<'_>, on: On) -> Vec<(i64, i64)> {
    let mut sorted: Vec<(i64, &Row)> = inner.iter().map(|(key, row)| (*key, *row)).collect();
    sorted.sort_by(|(_, a), (_, b)| a.rect[0].total_cmp(&b.rect[0]));
    let width_max = sorted.iter().map(|(_, row)| row.rect[2] - row.rect[0]).fold(0.0, f64::max);
    let mut pairs = Vec::new();
    for (key, row) in outer {
        let shape = Shape::new(row.geo.clone(), row.rect);
        let [x0, y0, x1, y1] = reach(row.rect, on);
        let mut visit = |turn: f64| {
            let first = sorted.partition_point(|(_, inner)| inner.rect[0] < x0 + turn - width_max);
            for (inner_key, inner) in sorted[first..].iter().take_while(|(_, inner)| inner.rect[0] <= x1 + turn) {
                let near = inner.rect[2] >= x0 + turn && inner.rect[1] <= y1 && inner.rect[3] >= y0;
                if near && holds(row, &shape, inner, on) {
                    pairs.push((*key, *inner_key));
                }
            }
        };
        TURNS.iter().for_each(|turn| visit(*turn));
    }
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

/// A box that meets the box of every match of a row.
fn reach([x0, y0, x1, y1]: [f64; 4], on: On) -> [f64; 4] {
    let On::Near(metres) = on else { return [x0, y0, x1, y1] };
    let degrees = metres / 111_000.0;
    let (south, north) = (y0 - degrees, y1 + degrees);
    // Twice the extent at the farther latitude, so that it includes bulging edges.
    let narrowest = south.abs().max(north.abs()).min(89.9).to_radians().cos();
    let sides = if south.abs().max(north.abs()) > 89.0 { 360.0 } else { 2.0 * degrees / narrowest };
    [x0 - sides, south - degrees, x1 + sides, north + degrees]
}

fn holds(outer: &Row, outer_shape: &Shape, inner: &Row, on: On) -> bool {
    match on {
        On::Intersects => outer_shape.intersects(inner),
        On::Within => outer_shape.contains(inner),
        On::Contains => Shape::new(inner.geo.clone(), inner.rect).contains(outer),
        On::Near(metres) => {
            let distance = match (&outer.geo, &inner.geo) {
                (Geo::Point(place), _) => distance((place.x(), place.y()), inner),
                (_, Geo::Point(place)) => distance((place.x(), place.y()), outer),
                _ => panic!("a join on distances has a side of points"),
            };
            distance.is_some_and(|distance| distance <= metres)
        }
    }
}
