//! Maps of coordinates that preserve places, distances and conditions: the axes are exchanged or
//! reversed, and everything is scaled by a power of two and shifted. They are exact in floats for
//! coordinates with few digits.

use rand::Rng;
use rand::rngs::SmallRng;
use terrane::{CoordinateSystem, Filter, Geometry};
use terrane_space::Point;
use terrane_space::geometry::{from_geo, to_geo};

use super::oracle::each_coord;

/// Applied in this order: exchange of axes, reversal of each, scale, shift.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Affine {
    is_swapped: bool,
    /// 1 or -1 along each axis.
    direction: [f64; 2],
    scale: f64,
    shift: [f64; 2],
}

impl Affine {
    /// The identity map.
    pub const IDENTITY: Self = Self { is_swapped: false, direction: [1.0; 2], scale: 1.0, shift: [0.0; 2] };

    /// A random map. On the globe, it only exchanges east and west or north and south. Other maps
    /// would not preserve poles and the last digit of distances.
    pub fn draw(rng: &mut SmallRng, system: CoordinateSystem) -> Self {
        let mut direction = [0; 2].map(|_| if rng.random() { -1.0 } else { 1.0 });
        if system == CoordinateSystem::LonLat {
            if direction == [1.0; 2] {
                direction[0] = -1.0;
            }
            return Self { direction, ..Self::IDENTITY };
        }
        let scale = 2f64.powi([-300, -40, -3, 0, 1, 5, 40, 300][rng.random_range(0..8)]);
        // In quarters, like the coordinates.
        let shift = [0; 2].map(|_| scale * f64::from(rng.random_range(-1 << 20..1 << 20)) / 4.0);
        Self { is_swapped: rng.random(), direction, scale, shift }
    }

    fn along(&self, axis: usize, coordinate: f64) -> f64 {
        let turned = coordinate * self.direction[axis] * self.scale;
        let moved = turned + self.shift[axis];
        assert!(moved - self.shift[axis] == turned, "{coordinate} is not moved exactly by {self:?}");
        moved
    }

    fn interval(&self, axis: usize, [from, to]: [f64; 2]) -> [f64; 2] {
        let ends = [self.along(axis, from), self.along(axis, to)];
        if self.direction[axis] < 0.0 { [ends[1], ends[0]] } else { ends }
    }

    pub fn place(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let (x, y) = if self.is_swapped { (y, x) } else { (x, y) };
        (self.along(0, x), self.along(1, y))
    }

    pub fn distance(&self, distance: f64) -> f64 {
        distance * self.scale
    }

    /// x0, y0, x1, y1. On the globe, a rectangle with x0 > x1 crosses the antimeridian.
    pub fn rect(&self, [x0, y0, x1, y1]: [f64; 4]) -> [f64; 4] {
        let (x, y) = if self.is_swapped { ([y0, y1], [x0, x1]) } else { ([x0, x1], [y0, y1]) };
        let ([x0, x1], [y0, y1]) = (self.interval(0, x), self.interval(1, y));
        [x0, y0, x1, y1]
    }

    fn wkb(&self, wkb: &[u8]) -> Vec<u8> {
        let mut geo = to_geo(wkb).unwrap();
        each_coord(&mut geo, &mut |coord| (coord.x, coord.y) = self.place((coord.x, coord.y)));
        from_geo(&geo)
    }

    pub fn geometry(&self, geometry: &Geometry) -> Geometry {
        match geometry {
            Geometry::Point(point) => {
                let (x, y) = self.place((point.x, point.y));
                Geometry::Point(Point::new(x, y))
            }
            Geometry::Wkb(wkb) => Geometry::Wkb(self.wkb(wkb)),
        }
    }

    pub fn filter(&self, filter: &Filter) -> Filter {
        match filter {
            Filter::Window { x0, y0, x1, y1 } => {
                let [x0, y0, x1, y1] = self.rect([*x0, *y0, *x1, *y1]);
                Filter::Window { x0, y0, x1, y1 }
            }
            Filter::Circle { x, y, radius } => {
                let (x, y) = self.place((*x, *y));
                Filter::Circle { x, y, radius: self.distance(*radius) }
            }
            Filter::Intersects(wkb) => Filter::Intersects(self.wkb(wkb)),
            Filter::Within(wkb) => Filter::Within(self.wkb(wkb)),
        }
    }
}
