//! Queries answered by a linear scan. Each condition is evaluated separately, in the plane. Across
//! the antimeridian, it is evaluated on the geometry shifted by a whole turn.

use geo_types::Geometry as Geo;
use rand::Rng;
use rand::rngs::SmallRng;
use terrane::{CoordinateSystem, Filter, Geometry, Key, Query, Record};
use terrane_space::Point;
use terrane_space::geometry::{QueryGeometry, distance_bytes, from_geo, from_wkt, point_wkb, to_geo};

use super::shapes::{Shape, place};
use super::{Model, encoded};

/// The geometry in well-known binary.
pub fn wkb(geometry: &Geometry) -> Vec<u8> {
    match geometry {
        Geometry::Point(point) => point_wkb(*point).to_vec(),
        Geometry::Wkb(bytes) => bytes.clone(),
    }
}

/// A condition in the scan's form.
pub enum Test {
    Meets(Vec<QueryGeometry>),
    Within(Box<Within>),
    Near(CoordinateSystem, Point, f64),
}

/// The area that must contain a geometry.
pub struct Within {
    shape: QueryGeometry,
    /// For points in `lonlat`, the area with its copies a turn to the west and to the east. An area
    /// that was cut at the antimeridian is whole there.
    whole: Option<QueryGeometry>,
}

impl Within {
    fn new(wkb: &[u8], system: CoordinateSystem) -> Self {
        let whole = (system == CoordinateSystem::LonLat).then(|| {
            let turns = [-360.0, 0.0, 360.0].map(|degrees| {
                let mut geo = to_geo(wkb).unwrap();
                shift(&mut geo, degrees);
                geo
            });
            prepared(&from_geo(&Geo::GeometryCollection(turns.into_iter().collect())))
        });
        Self { shape: prepared(wkb), whole }
    }

    fn holds(&self, copies: &[Vec<u8>]) -> bool {
        match &self.whole {
            Some(whole) if is_of_points(&to_geo(&copies[0]).unwrap()) => whole.within(&copies[0]).unwrap(),
            _ => copies.iter().any(|copy| self.shape.within(copy).unwrap()),
        }
    }
}

fn is_of_points(geo: &Geo<f64>) -> bool {
    match geo {
        Geo::Point(_) | Geo::MultiPoint(_) => true,
        Geo::GeometryCollection(parts) => parts.0.iter().all(is_of_points),
        _ => false,
    }
}

fn prepared(wkb: &[u8]) -> QueryGeometry {
    QueryGeometry::new(wkb, CoordinateSystem::Planar).unwrap()
}

/// A closed rectangle as a geometry: an area, a line or a point.
fn rectangle(x0: f64, y0: f64, x1: f64, y1: f64) -> QueryGeometry {
    let text = match (x0 < x1, y0 < y1) {
        (true, true) => format!("POLYGON(({x0} {y0},{x1} {y0},{x1} {y1},{x0} {y1},{x0} {y0}))"),
        (false, false) => format!("POINT({x0} {y0})"),
        _ => format!("LINESTRING({x0} {y0},{x1} {y1})"),
    };
    prepared(&from_wkt(&text).unwrap())
}

impl Test {
    pub fn new(filter: &Filter, system: CoordinateSystem) -> Self {
        match filter {
            Filter::Window { x0, y0, x1, y1 } if x0 > x1 => {
                Self::Meets(vec![rectangle(*x0, *y0, 180.0, *y1), rectangle(-180.0, *y0, *x1, *y1)])
            }
            Filter::Window { x0, y0, x1, y1 } => Self::Meets(vec![rectangle(*x0, *y0, *x1, *y1)]),
            Filter::Circle { x, y, radius } => Self::Near(system, Point::new(*x, *y), *radius),
            Filter::Intersects(wkb) => Self::Meets(vec![prepared(wkb)]),
            Filter::Within(wkb) => Self::Within(Box::new(Within::new(wkb, system))),
        }
    }

    /// Whether a geometry with its shifted copies meets the condition.
    fn holds(&self, copies: &[Vec<u8>]) -> bool {
        match self {
            Self::Meets(shapes) => copies.iter().any(|copy| shapes.iter().any(|shape| shape.intersects(copy).unwrap())),
            Self::Within(shape) => shape.holds(copies),
            Self::Near(system, place, radius) => {
                distance_bytes(*system, *place, &copies[0]).unwrap().is_some_and(|distance| distance <= *radius)
            }
        }
    }
}

/// A geometry. In `lonlat`, also its copies a turn to the west and to the east.
fn copies(geometry: &Geometry, system: CoordinateSystem) -> Vec<Vec<u8>> {
    let bytes = wkb(geometry);
    let turned = |degrees: f64| {
        let mut geo = to_geo(&bytes).unwrap();
        shift(&mut geo, degrees);
        from_geo(&geo)
    };
    match system {
        CoordinateSystem::Planar => vec![bytes],
        CoordinateSystem::LonLat => {
            let (west, east) = (turned(-360.0), turned(360.0));
            vec![bytes, west, east]
        }
    }
}

fn shift(geo: &mut Geo<f64>, degrees: f64) {
    each_coord(geo, &mut |coord| coord.x += degrees);
}

/// Changes all coordinates of a geometry.
pub fn each_coord(geo: &mut Geo<f64>, change: &mut dyn FnMut(&mut geo_types::Coord<f64>)) {
    match geo {
        Geo::Point(point) => change(&mut point.0),
        Geo::LineString(line) => line.0.iter_mut().for_each(change),
        Geo::Polygon(polygon) => {
            polygon.exterior_mut(|ring| ring.0.iter_mut().for_each(&mut *change));
            polygon.interiors_mut(|rings| rings.iter_mut().flat_map(|ring| &mut ring.0).for_each(change));
        }
        Geo::MultiPoint(points) => points.0.iter_mut().for_each(|point| change(&mut point.0)),
        Geo::MultiLineString(lines) => lines.0.iter_mut().flat_map(|line| &mut line.0).for_each(change),
        Geo::MultiPolygon(polygons) => {
            for polygon in &mut polygons.0 {
                polygon.exterior_mut(|ring| ring.0.iter_mut().for_each(&mut *change));
                polygon.interiors_mut(|rings| rings.iter_mut().flat_map(|ring| &mut ring.0).for_each(&mut *change));
            }
        }
        Geo::GeometryCollection(parts) => parts.0.iter_mut().for_each(|part| each_coord(part, change)),
        other => panic!("no stored geometry is {other:?}"),
    }
}

/// The first position of a record's geometry.
pub fn position(record: &Record) -> Option<(f64, f64)> {
    let mut position = None;
    let mut geo = to_geo(&wkb(record.geometry.as_ref()?)).unwrap();
    each_coord(&mut geo, &mut |coord| position = position.or(Some((coord.x, coord.y))));
    position
}

/// The records of a model with their geometries, prepared for many queries.
pub struct Scan<'m> {
    system: CoordinateSystem,
    /// Without a geometry, there are no copies.
    records: Vec<(&'m Record, Vec<Vec<u8>>)>,
}

impl<'m> Scan<'m> {
    pub fn new(model: &'m Model, system: CoordinateSystem) -> Self {
        let prepared = |record: &'m Record| {
            (record, record.geometry.as_ref().map_or_else(Vec::new, |geometry| copies(geometry, system)))
        };
        Self { system, records: model.values().map(prepared).collect() }
    }

    /// The records with wanted numbers that meet all spatial conditions, in key order.
    pub fn matching(&self, filters: &[Filter], is_wanted: impl Fn(usize) -> bool) -> Vec<&'m Record> {
        let tests: Vec<Test> = filters.iter().map(|filter| Test::new(filter, self.system)).collect();
        let meets = |copies: &[Vec<u8>]| tests.iter().all(|test| !copies.is_empty() && test.holds(copies));
        let records = self.records.iter().enumerate();
        records
            .filter(|(number, (_, copies))| is_wanted(*number) && meets(copies))
            .map(|(_, (record, _))| *record)
            .collect()
    }

    /// The `k` of these records that are nearest to a place, nearest first.
    pub fn nearest(&self, records: Vec<&'m Record>, (x, y): (f64, f64), k: usize) -> Vec<&'m Record> {
        let distance =
            |record: &Record| distance_bytes(self.system, Point::new(x, y), &wkb(record.geometry.as_ref()?)).unwrap();
        let mut found: Vec<(f64, Vec<u8>, &Record)> =
            records.into_iter().filter_map(|record| Some((distance(record)?, encoded(&record.key), record))).collect();
        found.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
        found.into_iter().take(k).map(|(.., record)| record).collect()
    }
}

fn keys(records: Vec<&Record>) -> Vec<Key> {
    records.into_iter().map(|record| record.key.clone()).collect()
}

/// Keys of the records that have a geometry and meet all conditions, in key order.
pub fn matching(model: &Model, system: CoordinateSystem, filters: &[Filter]) -> Vec<Key> {
    let scan = Scan::new(model, system);
    keys(scan.matching(filters, |number| !scan.records[number].1.is_empty()))
}

/// Keys of the `k` nearest records that meet all conditions, nearest first.
pub fn nearest(model: &Model, system: CoordinateSystem, filters: &[Filter], place: (f64, f64), k: usize) -> Vec<Key> {
    let scan = Scan::new(model, system);
    keys(scan.nearest(scan.matching(filters, |_| true), place, k))
}

/// A query with these conditions.
pub fn query(filters: &[Filter]) -> Query {
    filters.iter().cloned().fold(Query::new(), Query::filter)
}

/// Random conditions, mostly around one place.
pub fn filters(rng: &mut SmallRng, system: CoordinateSystem, count: usize) -> Vec<Filter> {
    let middle = place(rng, system);
    let near =
        |rng: &mut SmallRng| if rng.random_ratio(1, 3) { filter(rng, system) } else { around(rng, system, middle) };
    (0..count).map(|_| near(rng)).collect()
}

/// A random condition around a place.
fn around(rng: &mut SmallRng, system: CoordinateSystem, (x, y): (f64, f64)) -> Filter {
    let mut size = || f64::from(rng.random_range(1..16)) / 4.0;
    let (limit_x, limit_y) = match system {
        CoordinateSystem::Planar => (f64::INFINITY, f64::INFINITY),
        CoordinateSystem::LonLat => (180.0, 90.0),
    };
    let (x0, x1) = ((x - size()).max(-limit_x), (x + size()).min(limit_x));
    let (y0, y1) = ((y - size()).max(-limit_y), (y + size()).min(limit_y));
    let area = from_wkt(&format!("POLYGON(({x0} {y0},{x1} {y0},{x1} {y1},{x0} {y1},{x0} {y0}))")).unwrap();
    let radius = size();
    match rng.random_range(0..4) {
        0 => Filter::Window { x0, y0, x1, y1 },
        1 => Filter::Intersects(area),
        2 => Filter::Within(area),
        _ => Filter::Circle { x, y, radius: if system == CoordinateSystem::LonLat { radius * 1e5 } else { radius } },
    }
}

/// A random condition.
fn filter(rng: &mut SmallRng, system: CoordinateSystem) -> Filter {
    let (x, y) = place(rng, system);
    let lonlat = system == CoordinateSystem::LonLat;
    match rng.random_range(0..5) {
        0 | 1 => {
            let size = |rng: &mut SmallRng| f64::from(rng.random_range(0..30)) / 4.0;
            let (mut x1, y1) = (x + size(rng), (y + size(rng)).min(if lonlat { 90.0 } else { f64::INFINITY }));
            if lonlat && x1 > 180.0 {
                x1 -= 360.0;
            }
            Filter::Window { x0: x, y0: y, x1, y1 }
        }
        2 => {
            let radius = f64::from(rng.random_range(0..24)) / 4.0;
            Filter::Circle { x, y, radius: if lonlat { radius * 100_000.0 } else { radius } }
        }
        3 => {
            let shape = Shape::ALL[rng.random_range(1..7)];
            Filter::Intersects(from_wkt(&shape.wkt(rng, system)).unwrap())
        }
        _ => {
            let shape = [Shape::Polygon, Shape::MultiPolygon, Shape::LineString][rng.random_range(0..3)];
            Filter::Within(from_wkt(&shape.wkt(rng, system)).unwrap())
        }
    }
}
