//! The seeded workload every comparison runs on: clustered points, windows of known hit counts,
//! nearest queries.
//!
//! The same size always gives the same points and queries. Points and queries come from separate
//! generators, so that asking for other queries never changes the points.

use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Normal};

use crate::neighbours::{Metric, NeighbourTree};

/// Seed of the points; every other generator derives its seed from it.
pub const SEED: u64 = 42;
/// Size of the full workload.
pub const POINTS_DEFAULT: usize = 1_000_000;
/// The smallest workload whose 100-hit windows are meaningful.
pub const POINTS_MIN: usize = 1_000;

/// All points lie in here: the contiguous United States.
pub const EXTENT: Window = Window { x0: -125.0, y0: 24.5, x1: -66.5, y1: 49.5 };

const CENTRES: usize = 200;
const QUERIES_MAX: usize = 10_000;
const START_US: i64 = 1_700_000_000_000_000;
const REDRAWS_MAX: usize = 1_000;

/// A position in the plane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Location {
    /// Longitude, or the planar x.
    pub x: f64,
    /// Latitude, or the planar y.
    pub y: f64,
}

/// A closed axis-parallel rectangle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// Smallest x.
    pub x0: f64,
    /// Smallest y.
    pub y0: f64,
    /// Largest x.
    pub x1: f64,
    /// Largest y.
    pub y1: f64,
}

impl Window {
    /// The square of the given half-width around a location.
    pub fn around(centre: Location, half_width: f64) -> Self {
        Self {
            x0: centre.x - half_width,
            y0: centre.y - half_width,
            x1: centre.x + half_width,
            y1: centre.y + half_width,
        }
    }

    /// Whether the location lies inside or on the border.
    pub fn contains(&self, location: Location) -> bool {
        (self.x0..=self.x1).contains(&location.x) && (self.y0..=self.y1).contains(&location.y)
    }
}

/// One record of the workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record {
    /// Primary key.
    pub id: i64,
    /// Time in microseconds since 1970.
    pub time_us: i64,
    /// Position.
    pub location: Location,
}

/// The records, column by column; all columns are equally long.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Points {
    /// Primary keys.
    pub id: Vec<i64>,
    /// Times in microseconds since 1970, never falling.
    pub time_us: Vec<i64>,
    /// Longitudes.
    pub x: Vec<f64>,
    /// Latitudes.
    pub y: Vec<f64>,
}

impl Points {
    /// The workload's points: ids 0.. in order, times rising by 0 to 2 s.
    pub fn generate(count: usize) -> Result<Self> {
        ensure!(count < u32::MAX as usize, "{count} points are too many for one workload");
        let mut random = StdRng::seed_from_u64(SEED);
        let mut centres = Vec::with_capacity(CENTRES);
        for _ in 0..CENTRES {
            let centre = uniform(&mut random);
            let sigma = random.random_range(0.05..0.4);
            centres.push((normal(centre.x, sigma)?, normal(centre.y, sigma)?));
        }
        let clustered = count / 5 * 4 + count % 5;
        let mut locations = Vec::with_capacity(count);
        for _ in 0..clustered {
            let (x, y) = &centres[random.random_range(0..CENTRES)];
            locations.push(Location {
                x: x.sample(&mut random).clamp(EXTENT.x0, EXTENT.x1),
                y: y.sample(&mut random).clamp(EXTENT.y0, EXTENT.y1),
            });
        }
        for _ in clustered..count {
            locations.push(uniform(&mut random));
        }
        locations.shuffle(&mut random);

        let mut points = Self::with_capacity(count);
        let mut time_us = START_US;
        for (id, location) in locations.into_iter().enumerate() {
            time_us += random.random_range(0..=2) * 1_000_000;
            points.push(Record { id: id as i64, time_us, location });
        }
        Ok(points)
    }

    /// Points uniform over the extent whose ids start at `first_id`, for clients to insert.
    pub fn generate_uniform(count: usize, first_id: i64) -> Self {
        let mut random = StdRng::seed_from_u64(SEED ^ 0x1e57);
        let mut points = Self::with_capacity(count);
        for row in 0..count as i64 {
            points.push(Record {
                id: first_id + row,
                time_us: START_US + row * 1_000_000,
                location: uniform(&mut random),
            });
        }
        points
    }

    /// Empty columns with room for `count` records.
    pub fn with_capacity(count: usize) -> Self {
        Self {
            id: Vec::with_capacity(count),
            time_us: Vec::with_capacity(count),
            x: Vec::with_capacity(count),
            y: Vec::with_capacity(count),
        }
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.id.len()
    }

    /// Appends one record.
    pub fn push(&mut self, record: Record) {
        self.id.push(record.id);
        self.time_us.push(record.time_us);
        self.x.push(record.location.x);
        self.y.push(record.location.y);
    }

    /// The record of a row below [`Points::len`].
    pub fn record(&self, row: usize) -> Record {
        Record { id: self.id[row], time_us: self.time_us[row], location: self.location(row) }
    }

    /// The position of a row below [`Points::len`].
    pub fn location(&self, row: usize) -> Location {
        Location { x: self.x[row], y: self.y[row] }
    }

    /// All records in order.
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ {
        (0..self.len()).map(|row| self.record(row))
    }

    /// Sum of all ids, wrapping.
    pub fn id_sum(&self) -> u64 {
        self.id.iter().fold(0, |sum, &id| sum.wrapping_add(id as u64))
    }

    /// The same records under distinct random 64-bit keys.
    pub fn with_random_keys(&self) -> Self {
        // Multiplying by an odd number permutes the 64-bit integers, so keys stay distinct.
        let id = self
            .id
            .iter()
            .map(|&id| {
                let mixed = (id as u64).wrapping_add(SEED).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                ((mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93)) as i64
            })
            .collect();
        Self { id, ..self.clone() }
    }

    /// The records dealt out at random into `parts` sets, each spread over the whole extent.
    pub fn deal(&self, parts: usize) -> Vec<Self> {
        let mut random = StdRng::seed_from_u64(SEED ^ 0xdea1);
        let mut rows: Vec<usize> = (0..self.len()).collect();
        rows.shuffle(&mut random);
        let size = self.len().div_ceil(parts.max(1)).max(1);
        rows.chunks_mut(size)
            .map(|chunk| {
                chunk.sort_unstable();
                let mut part = Self::with_capacity(chunk.len());
                for &mut row in chunk {
                    part.push(self.record(row));
                }
                part
            })
            .collect()
    }
}

/// Queries with the answers the reference gives.
#[derive(Clone, Debug)]
pub struct Queries<Q> {
    /// The queries.
    pub queries: Vec<Q>,
    /// Sum of the ids of each answer, wrapping.
    pub id_sums: Vec<u64>,
}

/// Number of queries for a workload of this many points.
pub fn query_count(points: usize) -> usize {
    (points / 10).clamp(100, QUERIES_MAX)
}

/// Square windows with exactly `hits` points each, where the data is dense.
///
/// Half-width: the Chebyshev distance to the `hits`-th neighbour + 1e-9. If a tie or that slack
/// adds points, the window is drawn again.
pub fn windows(points: &Points, tree: &NeighbourTree<'_>, hits: usize, count: usize) -> Result<Queries<Window>> {
    ensure!(points.len() > hits, "windows of {hits} hits need more than {} points", points.len());
    let mut random = StdRng::seed_from_u64(SEED ^ hits as u64);
    let noise = normal(0.0, 1e-3)?;
    let mut drawn = Queries::with_capacity(count);
    let mut redraws = 0;
    while drawn.queries.len() < count {
        let centre = near_random_point(points, &mut random, &noise);
        let neighbours = tree.nearest(centre, hits, Metric::Chebyshev);
        let reach = neighbours.last().context("no neighbour")?.distance;
        let window = Window::around(centre, reach + 1e-9);
        let rows = tree.window(&window);
        if rows.len() == hits {
            drawn.push(window, points, rows.into_iter());
        } else {
            redraws += 1;
            ensure!(redraws <= REDRAWS_MAX, "the points coincide too often to draw windows of {hits} hits");
        }
    }
    Ok(drawn)
}

/// Places of queries for `k` neighbours: four fifths near points, one fifth anywhere.
///
/// If the k-th and the next neighbour are equally far, there is no single answer, and the place is
/// drawn again.
pub fn nearest(points: &Points, tree: &NeighbourTree<'_>, k: usize, count: usize) -> Result<Queries<Location>> {
    ensure!(points.len() > k, "{k} neighbours need more than {} points", points.len());
    let mut random = StdRng::seed_from_u64(SEED ^ 0x0ea5 ^ ((k as u64) << 32));
    let noise = normal(0.0, 0.05)?;
    let mut drawn = Queries::with_capacity(count);
    let mut redraws = 0;
    while drawn.queries.len() < count {
        let place = if drawn.queries.len() < count / 5 * 4 {
            near_random_point(points, &mut random, &noise)
        } else {
            uniform(&mut random)
        };
        let neighbours = tree.nearest(place, k + 1, Metric::EuclideanSquared);
        if neighbours[k].distance > neighbours[k - 1].distance * (1.0 + 1e-12) {
            drawn.push(place, points, neighbours[..k].iter().map(|n| n.row));
        } else {
            redraws += 1;
            ensure!(redraws <= REDRAWS_MAX, "the points coincide too often to rank {k} neighbours");
        }
    }
    Ok(drawn)
}

impl<Q> Queries<Q> {
    fn with_capacity(count: usize) -> Self {
        Self { queries: Vec::with_capacity(count), id_sums: Vec::with_capacity(count) }
    }

    fn push(&mut self, query: Q, points: &Points, rows: impl Iterator<Item = u32>) {
        self.queries.push(query);
        self.id_sums.push(rows.fold(0, |sum: u64, row| sum.wrapping_add(points.id[row as usize] as u64)));
    }
}

fn normal(mean: f64, deviation: f64) -> Result<Normal<f64>> {
    Normal::new(mean, deviation).context("normal distribution of the workload")
}

fn uniform(random: &mut StdRng) -> Location {
    Location { x: random.random_range(EXTENT.x0..EXTENT.x1), y: random.random_range(EXTENT.y0..EXTENT.y1) }
}

fn near_random_point(points: &Points, random: &mut StdRng, noise: &Normal<f64>) -> Location {
    let near = points.location(random.random_range(0..points.len()));
    Location { x: near.x + noise.sample(random), y: near.y + noise.sample(random) }
}

#[cfg(test)]
#[path = "workload_tests.rs"]
mod tests;
