//! Random geometries of every kind on a coarse grid, so that places, edges and corners repeat. In
//! `lonlat` many of them lie at the antimeridian and the poles.

use rand::Rng;
use rand::rngs::SmallRng;
use terrane::{CoordinateSystem, Geometry};
use terrane_space::Point;
use terrane_space::geometry::from_wkt;

/// The kind of a dataset's geometries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Points, in a dataset of points only.
    Coordinates,
    Point,
    LineString,
    Polygon,
    MultiPoint,
    MultiLineString,
    MultiPolygon,
    Collection,
    /// Any of these kinds, and empty geometries.
    Mixed,
}

impl Shape {
    /// All kinds.
    pub const ALL: [Self; 9] = [
        Self::Coordinates,
        Self::Point,
        Self::LineString,
        Self::Polygon,
        Self::MultiPoint,
        Self::MultiLineString,
        Self::MultiPolygon,
        Self::Collection,
        Self::Mixed,
    ];

    /// Whether the dataset has columns of coordinates.
    pub fn is_coordinates(self) -> bool {
        self == Self::Coordinates
    }

    /// A random geometry.
    pub fn geometry(self, rng: &mut SmallRng, system: CoordinateSystem) -> Geometry {
        if self.is_coordinates() {
            let (x, y) = place(rng, system);
            return Geometry::Point(Point::new(x, y));
        }
        Geometry::Wkb(from_wkt(&self.wkt(rng, system)).unwrap())
    }

    /// The text of a random geometry.
    pub fn wkt(self, rng: &mut SmallRng, system: CoordinateSystem) -> String {
        let at = Steps::draw(rng, system);
        let p = |right, up| at.position(right, up);
        let triangle = format!("({},{},{},{})", p(0, 0), p(4, 0), p(4, 4), p(0, 0));
        match self {
            Self::Coordinates | Self::Point => format!("POINT({})", p(0, 0)),
            Self::LineString => match rng.random_range(0..3) {
                0 => format!("LINESTRING({},{},{})", p(0, 0), p(4, 2), p(0, 4)),
                _ => format!("LINESTRING({},{})", p(0, 0), p(4, 4)),
            },
            Self::Polygon => match rng.random_range(0..4) {
                0 => format!("POLYGON({},{})", ring(&at, 0, 4), ring(&at, 1, 2)),
                1 => format!("POLYGON({})", ring(&at, 0, 4)),
                _ => format!("POLYGON({triangle})"),
            },
            Self::MultiPoint => format!("MULTIPOINT(({}),({}))", p(0, 0), p(4, 1)),
            Self::MultiLineString => {
                format!("MULTILINESTRING(({},{}),({},{}))", p(0, 0), p(1, 4), p(3, 0), p(4, 4))
            }
            Self::MultiPolygon if system == CoordinateSystem::LonLat && rng.random_ratio(1, 3) => {
                // A geometry that was cut at the antimeridian.
                let (y, size) = (f64::from(rng.random_range(-20..20)) / 4.0, f64::from(rng.random_range(1..8)) / 4.0);
                let (x0, x1, y1) = (180.0 - size, size - 180.0, y + size);
                format!(
                    "MULTIPOLYGON((({x0} {y},180 {y},180 {y1},{x0} {y1},{x0} {y})),\
                     ((-180 {y},{x1} {y},{x1} {y1},-180 {y1},-180 {y})))"
                )
            }
            Self::MultiPolygon => format!("MULTIPOLYGON(({}),({}))", ring(&at, 0, 1), ring(&at, 3, 4)),
            Self::Collection => {
                format!("GEOMETRYCOLLECTION(POINT({}),LINESTRING({},{}))", p(4, 4), p(0, 0), p(0, 3))
            }
            Self::Mixed => match rng.random_range(0..8) {
                0 => "POLYGON EMPTY".to_owned(),
                kind => Self::ALL[kind].wkt(rng, system),
            },
        }
    }
}

fn ring(at: &Steps, from: u8, to: u8) -> String {
    let p = |right, up| at.position(right, up);
    format!("({},{},{},{},{})", p(from, from), p(to, from), p(to, to), p(from, to), p(from, from))
}

/// A corner, and four steps to the opposite one, within the coordinate system.
struct Steps {
    x: f64,
    y: f64,
    dx: f64,
    dy: f64,
}

impl Steps {
    fn draw(rng: &mut SmallRng, system: CoordinateSystem) -> Self {
        let (x, y) = place(rng, system);
        // Few are large, so that disjoint windows meet one geometry.
        let steps = if rng.random_ratio(1, 4) { 16 } else { 4 };
        let step = |rng: &mut SmallRng, from: f64, limit: f64| {
            let size = f64::from(rng.random_range(1..=steps)) / 4.0;
            if from + 4.0 * size > limit { -size } else { size }
        };
        let (limit_x, limit_y) = match system {
            CoordinateSystem::Planar => (f64::INFINITY, f64::INFINITY),
            CoordinateSystem::LonLat => (180.0, 90.0),
        };
        Self { x, y, dx: step(rng, x, limit_x), dy: step(rng, y, limit_y) }
    }

    fn position(&self, right: u8, up: u8) -> String {
        format!("{} {}", self.x + f64::from(right) * self.dx, self.y + f64::from(up) * self.dy)
    }
}

/// A random place on the grid.
pub fn place(rng: &mut SmallRng, system: CoordinateSystem) -> (f64, f64) {
    let mut near = |from: f64, quarters: i32| from + f64::from(rng.random_range(0..=quarters)) / 4.0;
    if system == CoordinateSystem::Planar {
        return (near(-10.0, 80), near(-10.0, 80));
    }
    let (west, middle, east) = (near(-180.0, 20), near(-10.0, 80), near(175.0, 20));
    let (south, centre, north) = (near(-90.0, 24), near(-10.0, 80), near(84.0, 24));
    let x = [west, middle, east][rng.random_range(0..3)];
    let y = [centre, centre, south, north][rng.random_range(0..4)];
    (x, y)
}
