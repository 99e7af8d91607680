//! The closest entries that a search for nearest neighbours has found so far.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::Rect;

/// What an order by [`Ord::cmp`] implies.
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

pub(super) use ordered;

/// An entry that may be one of the closest: the farthest one is the greatest.
#[derive(Debug)]
pub(super) struct Found<const D: usize> {
    pub(super) distance_squared: f64,
    pub(super) payload: u64,
    pub(super) rect: Rect<D>,
}

impl<const D: usize> Ord for Found<D> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.distance_squared.total_cmp(&other.distance_squared).then(self.payload.cmp(&other.payload))
    }
}

ordered!([const D: usize] Found<D>);

/// The closest entries so far, no more than were asked for.
pub(super) struct Closest<const D: usize> {
    entries: BinaryHeap<Found<D>>,
    count: usize,
}

impl<const D: usize> Closest<D> {
    pub(super) fn new(count: usize) -> Self {
        Self { entries: BinaryHeap::new(), count }
    }

    /// Whether something at this distance can be one of them.
    pub(super) fn wants(&self, distance_squared: f64) -> bool {
        self.entries.len() < self.count
            || self.entries.peek().is_some_and(|farthest| distance_squared < farthest.distance_squared)
    }

    pub(super) fn add(&mut self, found: Found<D>) {
        if self.entries.len() < self.count {
            self.entries.push(found);
        } else if let Some(mut farthest) = self.entries.peek_mut() {
            *farthest = found;
        }
    }

    /// Square of the distance, box and payload of each, the closest first.
    pub(super) fn into_sorted(self) -> Vec<(f64, Rect<D>, u64)> {
        let sorted = self.entries.into_sorted_vec().into_iter();
        sorted.map(|found| (found.distance_squared, found.rect, found.payload)).collect()
    }
}
