//! The data sets of section 5.1, or what stands for them here.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use arrow_array::cast::AsArray;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Zipf};
use terrane_formats::ReadOptions;
use terrane_pmtree::Rect;

use super::RandomBoxes;
use crate::experiments::lsm::{Objects, Source, sample_file};

/// Boundaries of American postal code areas.
const BOUNDARIES: &str = "us_zcta_2010s_simplified.parquet";

/// The skew of the paper's section 5.9.
const ZIPF_PLACES: f64 = 1000.0;
const ZIPF_EXPONENT: f64 = 1.5;

/// Degrees from a found place to the borders of its window.
const WINDOW_HALF: f64 = 0.05;
/// Random boxes contain a point near their common lower bound seldom.
const RANDOM_QUERY_MAX: f64 = 0.3;

/// A data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataSet {
    /// Boxes that all contain one point.
    Random,
    /// Points of fires.
    Fires,
    /// Boxes around boundaries.
    Boundaries,
    /// Random boxes, some much more often than others.
    Zipf,
}

/// Entries to insert, and windows to ask for.
pub struct Data {
    /// The boxes. Those of planar data have 0 on the third axis.
    pub boxes: Vec<Rect<3>>,
    /// The windows.
    pub queries: Vec<Rect<3>>,
    /// Where they come from.
    pub origin: String,
}

impl DataSet {
    /// All of them, in the paper's order.
    pub const ALL: [Self; 4] = [Self::Random, Self::Fires, Self::Boundaries, Self::Zipf];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "Random",
            Self::Fires => "fires",
            Self::Boundaries => "boundaries",
            Self::Zipf => "Zipf",
        }
    }

    /// Up to `count` entries; `None` if there is no file of them.
    pub fn load(self, count: u64, queries: usize, seed: u64) -> Result<Option<Data>> {
        let length = usize::try_from(count)?;
        let mut random = StdRng::seed_from_u64(seed ^ 0x9_0e21);
        let (boxes, origin) = match self {
            Self::Random => (RandomBoxes::new(seed).take(length).collect(), "drawn by the paper's rule".to_owned()),
            Self::Zipf => {
                let places: Vec<Rect<3>> = RandomBoxes::new(seed).take(ZIPF_PLACES as usize).collect();
                let ranks = Zipf::new(ZIPF_PLACES, ZIPF_EXPONENT)?;
                let drawn = (0..length).map(|_| places[ranks.sample(&mut random) as usize - 1]);
                (drawn.collect(), format!("{ZIPF_PLACES} Random boxes, drawn with exponent {ZIPF_EXPONENT}"))
            }
            Self::Fires => {
                let objects = Objects::load(Source::Points, count, seed)?;
                let boxes = (0..objects.len()).map(|number| {
                    let (x, y) = objects.centre(number);
                    Rect::point([x, y, 0.0])
                });
                (boxes.collect::<terrane_pmtree::Result<_>>()?, objects.origin)
            }
            Self::Boundaries => {
                let Some(path) = sample_file(BOUNDARIES) else { return Ok(None) };
                let mut boxes = read_boundaries(&path).with_context(|| path.display().to_string())?;
                boxes.truncate(length);
                (boxes, format!("the first boxes of {BOUNDARIES}, in its order"))
            }
        };
        ensure!(!boxes.is_empty(), "{} has no entries", self.name());
        let around = |rect: &Rect<3>| {
            let [x, y, _] = *rect.min();
            Rect::new([x - WINDOW_HALF, y - WINDOW_HALF, 0.0], [x + WINDOW_HALF, y + WINDOW_HALF, 0.0])
        };
        let queries = (0..queries).map(|_| match self {
            Self::Random | Self::Zipf => {
                Rect::point(std::array::from_fn(|_| random.random_range(0.0..RANDOM_QUERY_MAX)))
            }
            Self::Fires | Self::Boundaries => around(&boxes[random.random_range(0..boxes.len())]),
        });
        let queries = queries.collect::<terrane_pmtree::Result<_>>()?;
        Ok(Some(Data { boxes, queries, origin }))
    }
}

/// The boxes around the polygons of a GeoParquet file.
fn read_boundaries(path: &Path) -> Result<Vec<Rect<3>>> {
    let mut source = terrane_formats::open(path, &ReadOptions::default())?;
    let mut boxes = Vec::new();
    while let Some(batch) = source.next_batch()? {
        let column = batch.batch.column_by_name("geometry").context("no column geometry")?;
        let column = column.as_binary_opt::<i32>().context("geometry is no WKB")?;
        for wkb in column.iter().flatten() {
            let mut bounds = ([f64::INFINITY; 2], [f64::NEG_INFINITY; 2]);
            Wkb(wkb).geometry(&mut bounds)?;
            let ([x0, y0], [x1, y1]) = bounds;
            boxes.push(Rect::new([x0, y0, 0.0], [x1, y1, 0.0])?);
        }
    }
    Ok(boxes)
}

/// The rest of a geometry in little-endian WKB.
struct Wkb<'a>(&'a [u8]);

impl Wkb<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk().context("a geometry ends too early")?;
        self.0 = rest;
        Ok(*first)
    }

    fn number(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    /// Extends bounds by a polygon, or by the polygons of a collection.
    fn geometry(&mut self, bounds: &mut ([f64; 2], [f64; 2])) -> Result<()> {
        const POLYGON: u32 = 3;
        const MULTI_POLYGON: u32 = 6;
        ensure!(self.take::<1>()? == [1], "a geometry is not little-endian");
        let kind = self.number()?;
        ensure!([POLYGON, MULTI_POLYGON].contains(&kind), "a geometry is no polygon");
        for _ in 0..self.number()? {
            if kind == MULTI_POLYGON {
                self.geometry(bounds)?;
                continue;
            }
            for _ in 0..self.number()? {
                for axis in 0..2 {
                    let coordinate = f64::from_le_bytes(self.take()?);
                    bounds.0[axis] = bounds.0[axis].min(coordinate);
                    bounds.1[axis] = bounds.1[axis].max(coordinate);
                }
            }
        }
        Ok(())
    }
}
