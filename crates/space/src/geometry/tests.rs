//! Internals of the predicates: how much work they do, and the sides of a segment against a slower
//! method.

use geo_types::{Coord, Geometry, GeometryCollection, LineString, Polygon, Rect};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::area::Area;
use super::convert::from_geo;
use super::query::QueryGeometry;
use super::segment::{Segment, edges, orientation};
use super::validity::check_valid;
use super::work::steps_of;
use crate::{CoordinateSystem, Point};

/// The sides at the start of `segment`, from a ray along it that counts the crossed edges.
fn sides_by_ray(rings: &[Vec<Point>], segment: &Segment) -> [bool; 2] {
    use geo::kernels::Orientation;
    let Segment { a, b } = *segment;
    let mut inside = [false; 2];
    for edge in rings.iter().flat_map(|ring| edges(ring)) {
        let ends = [orientation(a, b, edge.a), orientation(a, b, edge.b)];
        let is_ahead = |vertex: Point| (vertex.x - a.x) * (b.x - a.x) + (vertex.y - a.y) * (b.y - a.y) > 0.0;
        let is_passed = match ends {
            [Orientation::Collinear, _] => is_ahead(edge.a),
            [_, Orientation::Collinear] => is_ahead(edge.b),
            [Orientation::CounterClockwise, _] => orientation(edge.a, edge.b, a) == Orientation::Clockwise,
            [Orientation::Clockwise, _] => orientation(edge.b, edge.a, a) == Orientation::Clockwise,
        };
        for (side, of_side) in [Orientation::CounterClockwise, Orientation::Clockwise].into_iter().enumerate() {
            inside[side] ^= is_passed && (ends[0] == of_side) != (ends[1] == of_side);
        }
    }
    inside
}

#[test]
fn the_sides_of_a_start_are_those_that_a_ray_finds() {
    let mut counts = [0; 4];
    for seed in 0..20_000 {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut point = || Point::new(f64::from(random.random_range(-3..4)), f64::from(random.random_range(-3..4)));
        let [a, b] = [point(), point()];
        let rings: Vec<Vec<Point>> = (0..2)
            .map(|ring| {
                let mut points: Vec<Point> = (0..4 + 8 * ring).map(|_| point()).collect();
                points.push(points[0]);
                points
            })
            .collect();
        if a != b {
            let found = Area::new(&rings).beside(&Segment { a, b });
            assert_eq!(found, sides_by_ray(&rings, &Segment { a, b }), "seed {seed}: {a:?} to {b:?} in {rings:?}");
            counts[usize::from(found[0]) + 2 * usize::from(found[1])] += 1;
        }
    }
    assert!(counts.iter().all(|count| *count > 300), "{counts:?}");
}

/// Powers of two from the least to the greatest that coordinates have. Scaling an axis changes no
/// digit and no side, whatever the products are.
#[test]
fn sides_are_the_same_on_axes_of_every_scale() {
    use geo::kernels::Orientation;
    let (mut random, mut counts) = (SmallRng::seed_from_u64(7), [0; 3]);
    for round in 0..100_000 {
        let [a, b, c] = std::array::from_fn(|_| [random.random_range(-9..10_i64), random.random_range(-9..10_i64)]);
        let scales = [0, 1].map(|_| {
            let exponent: i32 = random.random_range(-1074..=490);
            2f64.powi(exponent / 2) * 2f64.powi(exponent - exponent / 2)
        });
        let point = |of: [i64; 2]| Point::new(of[0] as f64 * scales[0], of[1] as f64 * scales[1]);
        let turn = (a[0] - c[0]) * (b[1] - c[1]) - (a[1] - c[1]) * (b[0] - c[0]);
        let expected = [Orientation::Clockwise, Orientation::Collinear, Orientation::CounterClockwise];
        let index = (turn.signum() + 1) as usize;
        let found = orientation(point(a), point(b), point(c));
        assert_eq!(found, expected[index], "round {round}: {:?} {:?} {:?}", point(a), point(b), point(c));
        counts[index] += 1;
    }
    assert!(counts.iter().all(|count| *count > 1_000), "{counts:?}");
}

/// Next to a long line, the least number there is decides. So does the last digit of a number whose
/// products with others overflow.
#[test]
fn the_least_number_is_a_side() {
    use geo::kernels::Orientation;
    let (a, b, near) = (Point::new(-1.0, 0.0), Point::new(1e150, 0.0), 3e-160_f64);
    for (y, last, expected) in [
        (5e-324, near.next_up(), Orientation::CounterClockwise),
        (0.0, near, Orientation::Collinear),
        (-5e-324, near.next_down(), Orientation::Clockwise),
    ] {
        assert_eq!(orientation(a, b, Point::new(5e-324, y)), expected, "{y:e}");
        let diagonal = Point::new(1e-160, 1e-160);
        assert_eq!(orientation(Point::new(0.0, 0.0), diagonal, Point::new(near, last)), expected, "{last:e}");
    }
}

fn polygon(coords: Vec<(f64, f64)>) -> Geometry<f64> {
    Geometry::Polygon(Polygon::new(LineString::from(coords), Vec::new()))
}

fn rectangle(x0: f64, y0: f64, x1: f64, y1: f64) -> Geometry<f64> {
    Geometry::Polygon(Rect::new(Coord { x: x0, y: y0 }, Coord { x: x1, y: y1 }).to_polygon())
}

/// A rectangle of 8 by 8 with positions all along its sides.
fn dense(count: usize) -> Geometry<f64> {
    let side = count / 4;
    let step = |index: usize| 8.0 * index as f64 / side as f64;
    let south = (0..side).map(|index| (step(index), 0.0));
    let east = (0..side).map(|index| (8.0, step(index)));
    let north = (0..side).map(|index| (step(side - index), 8.0));
    let west = (0..side).map(|index| (0.0, step(side - index)));
    polygon(south.chain(east).chain(north).chain(west).collect())
}

fn comb(count: usize) -> Geometry<f64> {
    let teeth = count / 4;
    let tooth = |index: usize| {
        let x = index as f64;
        [(x, 9.0), (x + 0.25, 9.0), (x + 0.25, 1.0), (x + 1.0, 1.0)]
    };
    let mut coords: Vec<(f64, f64)> = (0..teeth).flat_map(tooth).collect();
    coords.extend([(teeth as f64, 0.0), (0.0, 0.0)]);
    polygon(coords)
}

/// Squares side by side and lines, in no order.
fn mixture(count: usize) -> Geometry<f64> {
    let columns = (count as f64).sqrt() as usize;
    let mut random = SmallRng::seed_from_u64(1);
    let mut members: Vec<Geometry<f64>> = Vec::new();
    for index in 0..count / 8 {
        let (x, y) = ((index % columns) as f64, (index / columns) as f64);
        let end = (x + random.random_range(-1.0..1.0), y + random.random_range(-1.0..1.0));
        members.push(rectangle(x, y, x + 1.0, y + 1.0));
        members.push(Geometry::LineString(LineString::from(vec![(x, y), end])));
    }
    for index in (1..members.len()).rev() {
        members.swap(index, random.random_range(0..=index));
    }
    Geometry::GeometryCollection(GeometryCollection(members))
}

/// Holes that touch each other and the outer ring.
fn perforated(count: usize) -> Geometry<f64> {
    let columns = (count as f64).sqrt() as usize / 2;
    let hole = |index: usize| {
        let (x, y) = ((index % columns) as f64, (index / columns) as f64);
        LineString::from(vec![(x, y + 0.5), (x + 0.5, y), (x + 1.0, y + 0.5), (x + 0.5, y + 1.0)])
    };
    let width = columns as f64;
    let outer = LineString::from(vec![(0.0, 0.0), (width, 0.0), (width, width), (0.0, width)]);
    Geometry::Polygon(Polygon::new(outer, (0..columns * columns).map(hole).collect()))
}

/// Asserts that four times as many edges take far less than sixteen times the work.
fn assert_in_proportion(name: &str, work: impl Fn(usize) -> u64) {
    let [few, many] = [2_000, 8_000].map(work);
    assert!(many < 8 * few && few < 4_000_000, "{name}: {few} steps, {many} with four times as many edges");
}

#[test]
fn predicates_take_work_in_proportion_to_the_edges() {
    type Make = fn(usize) -> Geometry<f64>;
    let cases: [(&str, Make, Make); 8] = [
        ("edges along a side", dense, |_| rectangle(0.0, 0.0, 8.0, 8.0)),
        ("a side along edges", |_| rectangle(0.0, 0.0, 8.0, 8.0), dense),
        ("edges along edges", dense, dense),
        ("a comb beside a side", comb, |count| rectangle(0.0, 0.0, (count / 4) as f64, 9.0)),
        ("a comb in itself", comb, comb),
        ("a collection in itself", mixture, mixture),
        ("a collection in a square", mixture, |count| rectangle(-9.0, -9.0, count as f64, count as f64)),
        ("holes in themselves", perforated, perforated),
    ];
    for (name, stored, queried) in cases {
        let predicate = |count: usize, holds: fn(&QueryGeometry, &[u8]) -> bool| {
            let query = QueryGeometry::new(&from_geo(&queried(count)), CoordinateSystem::Planar).unwrap();
            let bytes = from_geo(&stored(count));
            steps_of(|| assert!(holds(&query, &bytes), "{name}"))
        };
        assert_in_proportion(name, |count| predicate(count, |query, bytes| query.within(bytes).unwrap()));
        assert_in_proportion(name, |count| predicate(count, |query, bytes| query.intersects(bytes).unwrap()) + 1_000);
    }
}

#[test]
fn parts_that_lie_in_holes_are_found_in_proportion_to_the_edges() {
    assert_in_proportion("apart", |count| {
        let Geometry::Polygon(holes) = perforated(count) else { unreachable!() };
        let inner = |hole: &LineString<f64>| {
            let Coord { x, y } = hole.0[0];
            rectangle(x + 0.4, y - 0.1, x + 0.6, y + 0.1)
        };
        let parts = GeometryCollection(holes.interiors().iter().map(inner).collect());
        let bytes = from_geo(&Geometry::GeometryCollection(parts));
        let query = QueryGeometry::new(&bytes, CoordinateSystem::Planar).unwrap();
        let holes = from_geo(&Geometry::Polygon(holes));
        steps_of(|| assert_eq!(query.intersects(&holes), Ok(false)))
    });
}

#[test]
fn validity_takes_work_in_proportion_to_the_edges() {
    for (name, make) in [("dense", dense as fn(usize) -> Geometry<f64>), ("comb", comb), ("perforated", perforated)] {
        assert_in_proportion(name, |count| {
            let geometry = make(count);
            steps_of(|| assert_eq!(check_valid(&geometry), Ok(()), "{name}"))
        });
    }
    // One long ring with many holes that touch it.
    assert_in_proportion("touching holes", |count| {
        let Geometry::Polygon(outer) = dense(count) else { unreachable!() };
        let hole = |corner: &Coord<f64>| {
            let height = 2.0 / count as f64;
            LineString::from(vec![(corner.x, 0.0), (corner.x + height, height), (corner.x - height, height)])
        };
        let holes = outer.exterior().0[1..count / 4].iter().map(hole).collect();
        let polygon = Geometry::Polygon(Polygon::new(outer.exterior().clone(), holes));
        steps_of(|| assert_eq!(check_valid(&polygon), Ok(())))
    });
}
