//! Common parts of searches for nearest neighbours: the closest entries so far, and the order of
//! nodes.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::rect::Rect;
use super::search::{Path, SearchVisitor};

/// The implementations that follow from an order by [`Ord::cmp`].
macro_rules! ordered {
    ($([$($generics:tt)*] $name:ty),*) => {$(
        impl<$($generics)*> PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl<$($generics)*> PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.cmp(other).is_eq()
            }
        }

        impl<$($generics)*> Eq for $name {}
    )*};
}

/// An entry that may be one of the closest. The farthest one is the greatest.
#[derive(Debug)]
struct Found<const D: usize> {
    distance_squared: f64,
    payload: u64,
    rect: Rect<D>,
}

impl<const D: usize> Ord for Found<D> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.distance_squared.total_cmp(&other.distance_squared).then(self.payload.cmp(&other.payload))
    }
}

ordered!([const D: usize] Found<D>);

/// The accepted entries closest to a point so far, at most as many as were asked for.
pub(super) struct Nearest<'q, const D: usize, A> {
    point: &'q [f64; D],
    count: usize,
    accepts: A,
    entries: BinaryHeap<Found<D>>,
}

impl<'q, const D: usize, A: Fn(&Rect<D>, u64) -> bool> Nearest<'q, D, A> {
    pub(super) fn new(point: &'q [f64; D], count: usize, accepts: A) -> Self {
        Self { point, count, accepts, entries: BinaryHeap::new() }
    }

    /// Square of the distance from the point to a box, if an entry at this distance can be among
    /// the closest.
    #[inline]
    pub(super) fn wanted(&self, rect: &Rect<D>) -> Option<f64> {
        let distance_squared = rect.distance_squared(self.point);
        self.wants(distance_squared).then_some(distance_squared)
    }

    /// Whether an entry at this distance can be among the closest.
    #[inline]
    pub(super) fn wants(&self, distance_squared: f64) -> bool {
        self.entries.len() < self.count
            || self.entries.peek().is_some_and(|farthest| distance_squared < farthest.distance_squared)
    }

    /// Adds an entry at a wanted distance, if it is accepted.
    pub(super) fn add(&mut self, distance_squared: f64, rect: Rect<D>, payload: u64) {
        if !(self.accepts)(&rect, payload) {
            return;
        }
        let found = Found { distance_squared, payload, rect };
        if self.entries.len() < self.count {
            self.entries.push(found);
        } else if let Some(mut farthest) = self.entries.peek_mut() {
            *farthest = found;
        }
    }

    /// Square of the distance, box and payload of each, closest first.
    pub(super) fn into_sorted(self) -> Vec<(f64, Rect<D>, u64)> {
        let sorted = self.entries.into_sorted_vec().into_iter();
        sorted.map(|found| (found.distance_squared, found.rect, found.payload)).collect()
    }
}

/// For searches that read nodes in any order, and not the closest first.
impl<const D: usize, A: Fn(&Rect<D>, u64) -> bool> SearchVisitor<D> for Nearest<'_, D, A> {
    fn enters(&self, bounds: &Rect<D>) -> bool {
        self.wanted(bounds).is_some()
    }

    fn meets(&self, rect: &Rect<D>) -> bool {
        self.wanted(rect).is_some()
    }

    fn found(&mut self, _: &Path, rect: Rect<D>, payload: u64) {
        self.add(rect.distance_squared(self.point), rect, payload);
    }
}

/// A node to read, and how it is linked. The closest one is the greatest; at equal distances, the
/// one with the lowest number.
#[derive(Debug)]
pub(super) struct Candidate<Link> {
    pub(super) distance_squared: f64,
    pub(super) node: u64,
    pub(super) link: Link,
}

impl<Link> Ord for Candidate<Link> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.distance_squared.total_cmp(&self.distance_squared).then(other.node.cmp(&self.node))
    }
}

ordered!([Link] Candidate<Link>);
