//! The objects of the experiments: points, and rectangles around them of the sizes of houses and
//! lakes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{ArrayRef, BinaryArray, Float64Array, Int64Array, RecordBatch};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Normal};
use terrane::schema::{Column, ColumnType, GeometryColumn, KeyColumn, KeyType, Schema};
use terrane::{CoordinateSystem, Store};
use terrane_formats::{CoordinateOptions, ReadOptions};

use crate::workload::Points;

/// Folder of sample data.
const DATA: &str = "TERRANE_DATA";
/// Places of fires that satellites saw in a year, over the whole earth.
const FILE: &str = "firms_modis_fires_2020.parquet";
/// Rows of a batch.
const BATCH_ROWS: usize = 8192;
/// A degree of latitude in metres, about.
const DEGREE_M: f64 = 111_195.0;

/// The kind of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Points.
    Points,
    /// Squares whose areas are those of American houses: Gaussian, 2000 square feet with a
    /// deviation of 1000.
    Houses,
    /// Squares whose areas are those of the world's lakes: Zipf with exponent 4, from 0.001 to
    /// 80000 square kilometres.
    Lakes,
}

impl Source {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Points => "points",
            Self::Houses => "houses",
            Self::Lakes => "lakes",
        }
    }

    /// Half of the edge of an object in metres.
    fn half_edge_m(self, random: &mut StdRng) -> Result<f64> {
        const SQUARE_FOOT_M2: f64 = 0.092_903_04;
        Ok(match self {
            Self::Points => 0.0,
            Self::Houses => {
                let area = Normal::new(2000.0_f64, 1000.0)?.sample(random).max(100.0) * SQUARE_FOOT_M2;
                area.sqrt() / 2.0
            }
            Self::Lakes => {
                // If a density falls with the fourth power, the share above a value falls with the
                // third.
                let share: f64 = random.random_range(1e-24..1.0);
                let area_km2 = (0.001 * share.powf(-1.0 / 3.0)).min(80_000.0);
                (area_km2 * 1e6).sqrt() / 2.0
            }
        })
    }
}

/// Objects by number.
pub struct Objects {
    source: Source,
    /// Origin of the centres.
    pub origin: String,
    x: Vec<f64>,
    y: Vec<f64>,
    half: Vec<f64>,
}

impl Objects {
    /// Loads `count` objects around positions from the folder of sample data, or around random ones
    /// if there is none.
    pub fn load(source: Source, count: u64, seed: u64) -> Result<Self> {
        let count = usize::try_from(count)?;
        let (x, y, origin) = match sample_file(FILE) {
            Some(path) => {
                let (x, y) = read(&path, count)?;
                (x, y, format!("a uniform sample of {FILE}"))
            }
            None => {
                let points = Points::generate(count)?;
                let why = match std::env::var_os(DATA) {
                    Some(folder) => format!("there is no {FILE} in {} ({DATA})", folder.display()),
                    None => format!("{DATA} is not set"),
                };
                (points.x, points.y, format!("clusters that are drawn, as {why}"))
            }
        };
        let mut random = StdRng::seed_from_u64(seed ^ 0x0b_1ec7);
        let half: Result<Vec<f64>> = x.iter().map(|_| source.half_edge_m(&mut random)).collect();
        Ok(Self { source, origin, x, y, half: half?.into_iter().map(|metres| metres / DEGREE_M).collect() })
    }

    pub fn len(&self) -> usize {
        self.x.len()
    }

    /// The centre of an object.
    pub fn centre(&self, number: usize) -> (f64, f64) {
        (self.x[number], self.y[number])
    }

    /// Areas in square metres.
    #[cfg(test)]
    pub fn areas_m2(&self) -> Vec<f64> {
        self.half.iter().map(|half| (2.0 * half * DEGREE_M).powi(2)).collect()
    }

    fn is_points(&self) -> bool {
        self.source == Source::Points
    }

    /// The schema of their dataset.
    pub fn schema(&self) -> Result<Schema> {
        let geometry = match self.is_points() {
            true => GeometryColumn::Point { x: "x".into(), y: "y".into() },
            false => GeometryColumn::Geometry { name: "shape".into() },
        };
        let key = KeyColumn { name: "id".into(), key_type: KeyType::Int64, generated: false };
        let columns = vec![Column::new("value", ColumnType::Int64)];
        Ok(Schema::new(key, geometry, CoordinateSystem::Planar, columns)?)
    }

    /// Rows of some of them, with their numbers.
    pub fn batch(&self, rows: std::ops::Range<usize>) -> Result<RecordBatch> {
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.clone().map(|row| row as i64)));
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.clone().map(value)));
        let geometry: Vec<(&str, ArrayRef)> = match self.is_points() {
            true => vec![
                ("x", Arc::new(Float64Array::from(self.x[rows.clone()].to_vec()))),
                ("y", Arc::new(Float64Array::from(self.y[rows].to_vec()))),
            ],
            false => vec![("shape", Arc::new(BinaryArray::from_iter_values(rows.map(|row| self.wkb(row)))))],
        };
        let columns = [vec![("id", ids)], geometry, vec![("value", values)]].concat();
        Ok(RecordBatch::try_from_iter(columns)?)
    }

    /// All batches, one after the other.
    pub fn batches(&self) -> impl Iterator<Item = Result<RecordBatch>> + '_ {
        let starts = (0..self.len()).step_by(BATCH_ROWS);
        starts.map(|start| self.batch(start..self.len().min(start + BATCH_ROWS)))
    }

    /// Imports them into a dataset of a store; one component of each index results.
    pub fn import(&self, store: &Store, dataset: &str, count: usize) -> Result<()> {
        let mut importer = store.importer(dataset, self.schema()?)?;
        for start in (0..count).step_by(BATCH_ROWS) {
            let refused = importer.push(&self.batch(start..count.min(start + BATCH_ROWS))?)?;
            ensure!(refused.is_empty(), "rows were refused");
        }
        importer.finish(&mut |refused| Err(refused.error))?;
        Ok(())
    }

    /// A square as a polygon.
    fn wkb(&self, row: usize) -> Vec<u8> {
        let (x, y, half) = (self.x[row], self.y[row], self.half[row]);
        let mut bytes = vec![1];
        bytes.extend_from_slice(&3_u32.to_le_bytes());
        bytes.extend_from_slice(&1_u32.to_le_bytes());
        bytes.extend_from_slice(&5_u32.to_le_bytes());
        for (right, up) in [(-half, -half), (half, -half), (half, half), (-half, half), (-half, -half)] {
            bytes.extend_from_slice(&(x + right).to_le_bytes());
            bytes.extend_from_slice(&(y + up).to_le_bytes());
        }
        bytes
    }
}

/// The attribute of an object: in no order, never negative.
fn value(row: usize) -> i64 {
    ((row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as i64
}

/// A file of sample data, if it is there.
pub fn sample_file(name: &str) -> Option<PathBuf> {
    let path = Path::new(&std::env::var_os(DATA)?).join(name);
    path.is_file().then_some(path)
}

/// Reads `count` positions from the file, at equal steps, in an order that is independent of their
/// places.
fn read(path: &Path, count: usize) -> Result<(Vec<f64>, Vec<f64>)> {
    let columns = ReadOptions {
        x: Some("lon".into()),
        y: Some("lat".into()),
        coordinates: CoordinateOptions::planar(),
        ..ReadOptions::default()
    };
    let mut source = terrane_formats::open(path, &columns)?;
    let (mut x, mut y) = (Vec::<f64>::new(), Vec::<f64>::new());
    while let Some(batch) = source.next_batch()? {
        for (name, values) in [("lon", &mut x), ("lat", &mut y)] {
            let column = batch.batch.column_by_name(name).with_context(|| format!("{}: no {name}", path.display()))?;
            let column = column.as_primitive_opt::<Float64Type>().with_context(|| format!("{name} is no float64"))?;
            values.extend(column.values());
        }
    }
    ensure!(count <= x.len(), "{} has {} positions; --count is {count}", path.display(), x.len());
    // Every position once, by a step that shares no divisor with their number.
    let step = (1..).map(|more| x.len() / 2 + more).find(|step| gcd(*step, x.len()) == 1).unwrap_or(1);
    let places = (0..count).map(|number| (number as u64 * step as u64 % x.len() as u64) as usize);
    Ok(places.map(|place| (x[place], y[place])).unzip())
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
