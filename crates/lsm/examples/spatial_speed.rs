//! Time of window searches in the spatial kinds, compared with range scans of a B-tree on an
//! attribute. The disk components have all pages in memory. Times are in nanoseconds per returned
//! entry.
//!
//! `cargo run --release -p terrane-lsm --example spatial_speed [ENTRIES]`

use std::hint::black_box;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use terrane_lsm::curve::CurveOptions;
use terrane_lsm::disk::btree::{BTreeBuilder, BTreeComponent, BTreeCursor};
use terrane_lsm::disk::rtree::RTreeBuilder;
use terrane_lsm::disk::{ComponentFile, ComponentMeta, ComponentWriter, PageCache, ReadGuard};
use terrane_lsm::index::{CurveIndex, Index, RTreeIndex, SpatialIndex};
use terrane_lsm::search::{OwnedSource, WindowScan};
use terrane_space::{CoordinateSystem, Point, Rect, hilbert};
use terrane_storage::Storage;
use terrane_testkit::MemoryStorage;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Numbers of entries in a window, approximately.
const HITS: [usize; 4] = [10, 1_000, 100_000, usize::MAX];
const SYSTEM: CoordinateSystem = CoordinateSystem::LonLat;
/// End of an entry that is still live.
const LIFE: (u64, u64) = (0, u64::MAX);

struct Bench {
    storage: Arc<dyn Storage>,
    cache: Arc<PageCache>,
    files: u64,
    points: Vec<(Point, [u8; 8])>,
    /// For each number of hits, the windows and the entries that all of them return.
    windows: Vec<(Vec<Rect>, usize)>,
}

fn main() -> Outcome<()> {
    let entries: usize = std::env::args().nth(1).map_or(Ok(1_000_000), |count| count.parse())?;
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    storage.create_directory("components")?;
    let cache = PageCache::new(4 << 30);
    let mut bench = Bench { storage, cache, files: 0, points: points(entries), windows: Vec::new() };
    let rtree = bench.rtree()?;
    bench.choose_windows(&rtree)?;
    bench.attribute_ranges()?;
    bench.report("rtree", &rtree)?;
    for kind in ["dhb", "dhvb", "shb", "sif"] {
        let index = CurveIndex::new(&CurveOptions::of(kind, true, None).ok_or("a kind")?, SYSTEM, true)?;
        let mut order: Vec<(u64, [u8; 8], Point)> = Vec::new();
        for (point, key) in &bench.points {
            let positions = index.positions(&Rect::from_point(*point));
            order.extend(positions.into_iter().map(|position| (position, *key, *point)));
        }
        order.sort_unstable_by_key(|entry| (entry.0, entry.1));
        let mut builder = index.builder(bench.writer()?, false);
        for (position, key, point) in order {
            builder.push(position, Rect::from_point(point), &key, false, LIFE)?;
        }
        let meta = builder.finish((1, 1))?;
        let source = OwnedSource::Disk(index.open(bench.open(&meta)?)?);
        bench.report(kind, &source)?;
    }
    Ok(())
}

/// Points around many centres, a fifth of them anywhere, with dense keys.
fn points(count: usize) -> Vec<(Point, [u8; 8])> {
    let mut random = StdRng::seed_from_u64(42);
    let mut anywhere = |spread: f64| {
        let (x, y) = (random.random_range(-125.0..-66.5), random.random_range(24.5..49.5));
        let mut step = || (0..4).map(|_| random.random_range(-0.5..0.5)).sum::<f64>() * spread;
        (x, y, step(), step())
    };
    let centres: Vec<(f64, f64)> = (0..200).map(|_| anywhere(0.0)).map(|(x, y, ..)| (x, y)).collect();
    let place = |number: usize| {
        let (x, y, dx, dy) = anywhere(0.6);
        let (x, y) = if number.is_multiple_of(5) { (x, y) } else { centres[number % 200] };
        (Point::new(x + dx, y + dy), (number as u64 ^ (1 << 63)).to_be_bytes())
    };
    (0..count).map(place).collect()
}

impl Bench {
    fn writer(&mut self) -> Outcome<ComponentWriter> {
        self.files += 1;
        Ok(ComponentWriter::create(&self.storage, self.files)?)
    }

    fn open(&self, meta: &ComponentMeta) -> Outcome<Arc<ComponentFile>> {
        Ok(ComponentFile::open(&self.storage, &self.cache, meta)?)
    }

    fn rtree(&mut self) -> Outcome<OwnedSource> {
        let position = |point: &Point| hilbert::position(SYSTEM, *point);
        let mut order: Vec<_> = self.points.iter().map(|(point, key)| (position(point), *key, *point)).collect();
        order.sort_unstable_by_key(|entry| (entry.0, entry.1));
        let mut builder = RTreeBuilder::new(self.writer()?, true, false);
        for (position, key, point) in order {
            builder.push(position, Rect::from_point(point), &key, false, LIFE)?;
        }
        let meta = builder.finish((1, 1))?;
        let index = RTreeIndex { system: SYSTEM, points: true };
        Ok(OwnedSource::Disk(index.open(self.open(&meta)?)?))
    }

    /// Windows around points, enlarged until they have the hits.
    fn choose_windows(&mut self, source: &OwnedSource) -> Outcome<()> {
        let mut random = StdRng::seed_from_u64(7);
        for hits in HITS {
            let count = (2_000_000 / hits.min(self.points.len())).clamp(1, 2_000);
            let (mut windows, mut returned) = (Vec::new(), 0);
            for _ in 0..count {
                let Point { x, y } = self.points[random.random_range(0..self.points.len())].0;
                let mut size = if hits == usize::MAX { 100.0 } else { 0.0005 };
                loop {
                    let window = Rect::new(x - size, y - size, x + size, y + size);
                    let found = search(source, &window)?.0;
                    if found >= hits.min(self.points.len()) || size > 90.0 {
                        windows.push(window);
                        returned += found;
                        break;
                    }
                    size *= 1.3;
                }
            }
            self.windows.push((windows, returned));
        }
        Ok(())
    }

    /// A B-tree on an attribute: its value and the primary key make the key.
    fn attribute_ranges(&mut self) -> Outcome<()> {
        let mut random = StdRng::seed_from_u64(8);
        let mut keys: Vec<[u8; 16]> = Vec::new();
        for (_, key) in &self.points {
            let mut attribute = [0; 16];
            attribute[..8].copy_from_slice(&random.random::<u64>().to_be_bytes());
            attribute[8..].copy_from_slice(key);
            keys.push(attribute);
        }
        keys.sort_unstable();
        let mut builder = BTreeBuilder::new(self.writer()?, false).with_filters();
        for key in &keys {
            builder.push(key, false, 0, &[])?;
        }
        let meta = builder.finish((1, 1))?;
        let component = Arc::new(BTreeComponent::open(self.open(&meta)?)?);
        // Cursors add no page to the cache, searches do.
        for key in keys.iter().step_by(50) {
            black_box(component.get(key, u64::MAX)?);
        }
        for hits in HITS {
            let hits = hits.min(keys.len());
            let ranges: Vec<usize> =
                (0..(2_000_000 / hits).clamp(1, 2_000)).map(|_| random.random_range(0..=keys.len() - hits)).collect();
            let best = best(|| {
                let mut returned = 0;
                for first in &ranges {
                    let mut cursor = BTreeCursor::seek(component.clone(), &keys[*first])?;
                    let last = &keys[first + hits - 1];
                    while let Some(entry) = cursor.entry().filter(|entry| *entry.key <= last[..]) {
                        black_box(&entry.key);
                        returned += 1;
                        cursor.advance()?;
                    }
                }
                Ok(returned)
            })?;
            println!("{:<6} {hits:>8} entries a range  {best:>8.1} ns an entry", "btree");
        }
        Ok(())
    }

    fn report(&self, kind: &str, source: &OwnedSource) -> Outcome<()> {
        for (windows, returned) in &self.windows {
            let (mut pages, count) = (0, windows.len());
            for window in windows {
                pages += search(source, window)?.1;
            }
            let best = best(|| {
                let mut found = 0;
                for window in windows {
                    found += search(source, window)?.0;
                }
                Ok(found)
            })?;
            let (each, pages) = (returned / count, pages as f64 / count as f64);
            println!("{kind:<6} {each:>8} entries a window {best:>8.1} ns an entry, {pages:>8.1} pages a window");
        }
        Ok(())
    }
}

/// The least time per entry of several runs.
fn best(mut run: impl FnMut() -> Outcome<usize>) -> Outcome<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..7 {
        let started = Instant::now();
        let returned = run()?;
        best = best.min(started.elapsed().as_nanos() as f64 / returned as f64);
    }
    Ok(best)
}

/// Entries found, and pages visited.
fn search(source: &OwnedSource, window: &Rect) -> Outcome<(usize, u64)> {
    let mut scan = WindowScan::new([source.clone()], *window, u64::MAX);
    let mut found = 0;
    while scan.advance(&ReadGuard::enter(), &mut |hit| {
        black_box(&hit.key());
        found += 1;
        ControlFlow::Continue(())
    })? {}
    Ok((found, scan.pages()))
}
