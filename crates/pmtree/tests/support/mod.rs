//! What the tests share: small trees in memory, boxes at random, and a list as the model of a tree.

#![allow(dead_code, reason = "each test uses a part of it")]

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use terrane_pmem::PersistenceDomain;
use terrane_pmtree::{LeafForm, Options, PersistentRTree, Rebalancing, Rect, SearchMode, Split};

#[path = "../../../pmem/tests/support/mod.rs"]
pub mod places;

pub mod crash;

pub const BOTH: [Rebalancing; 2] = [Rebalancing::InPlace, Rebalancing::CopyOnWrite];

pub const FORMS: [LeafForm; 2] = [LeafForm::Bitmap, LeafForm::SelfValidating];

/// Small nodes first, then ones with bitmaps of two words. Copies do the same to leaves of both forms, so large ones of one form
/// are enough.
pub fn configurations(domain: PersistenceDomain) -> impl Iterator<Item = Options> {
    let shapes = [4, 60].into_iter().flat_map(|fan_out| FORMS.map(|leaves| (fan_out, leaves)));
    let all = shapes.flat_map(move |(fan_out, leaves)| {
        BOTH.map(|rebalancing| Options { leaves, ..options(domain, fan_out, rebalancing) })
    });
    all.filter(|options| {
        let Options { fan_out, leaves, rebalancing, .. } = options;
        (*fan_out, *leaves, *rebalancing) != (60, LeafForm::SelfValidating, Rebalancing::CopyOnWrite)
    })
}

/// Options of small chunks, so that tests grow pools and stay fast.
pub fn options(domain: PersistenceDomain, fan_out: usize, rebalancing: Rebalancing) -> Options {
    // Each of the splits with one of them.
    let split = if rebalancing == Rebalancing::InPlace { Split::RStar } else { Split::Quadratic };
    let mut options = Options { fan_out, rebalancing, split, ..Options::new(domain) };
    options.pool.chunk_length = 1 << 16;
    options.pool.address_space = 1 << 28;
    options
}

pub fn random(seed: u64) -> SmallRng {
    SmallRng::seed_from_u64(seed)
}

/// A box with corners on a grid, so that borders meet often.
pub fn rect<const D: usize>(random: &mut SmallRng, grid: u32) -> Rect<D> {
    let min: [f64; D] = std::array::from_fn(|_| f64::from(random.random_range(0..grid)));
    let max = std::array::from_fn(|axis| min[axis] + f64::from(random.random_range(0..3u32)));
    Rect::new(min, max).unwrap()
}

/// Entries in no order.
#[derive(Clone, Debug, Default)]
pub struct Model<const D: usize>(pub Vec<(Rect<D>, u64)>);

impl<const D: usize> Model<D> {
    pub fn delete(&mut self, rect: &Rect<D>, payload: u64) -> bool {
        let place = self.0.iter().position(|entry| *entry == (*rect, payload));
        place.map(|place| self.0.swap_remove(place)).is_some()
    }

    pub fn window(&self, window: &Rect<D>) -> Vec<u64> {
        let mut hits: Vec<u64> =
            self.0.iter().filter(|(rect, _)| rect.overlaps(window)).map(|&(_, payload)| payload).collect();
        hits.sort_unstable();
        hits
    }

    pub fn distances(&self, point: &[f64; D], count: usize) -> Vec<f64> {
        let mut distances: Vec<f64> = self.0.iter().map(|(rect, _)| rect.distance_squared(point)).collect();
        distances.sort_unstable_by(f64::total_cmp);
        distances.truncate(count);
        distances
    }
}

pub fn window<const D: usize, T: PersistentRTree<D>>(tree: &T, window: &Rect<D>, mode: SearchMode) -> Vec<u64> {
    let mut hits = Vec::new();
    tree.window(window, mode, |_, payload| hits.push(payload)).unwrap();
    hits.sort_unstable();
    hits
}
