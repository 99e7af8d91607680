//! The cuts at which an instruction that was left out is missing.

use std::collections::BTreeSet;

use terrane_storage::event::{Event, PoolEvent};

use super::Dropped;
use crate::Instruction;

/// The most places of a run that are tried. The others do the same again.
const PLACES_MAX: usize = 24;

/// An instruction counts as missing for this many fences. The next fence may be that of the line
/// that should have waited.
const FENCES: usize = 2;

/// Where a run that leaves an instruction out would have it, by the log of the complete run.
pub(super) fn left_out(whole: &[Event], Dropped { instruction, site }: &Dropped) -> Vec<usize> {
    let is_meant = |event: &Event| match event {
        Event::Pool(PoolEvent::Flush { site: name, .. }) => *instruction == Instruction::Flush && name == site,
        Event::Pool(PoolEvent::Fence { site: name, .. }) => *instruction == Instruction::Fence && name == site,
        _ => false,
    };
    let places = whole.iter().enumerate().filter(|(_, event)| is_meant(event)).map(|(place, _)| place);
    places.enumerate().map(|(before, place)| place - before).collect()
}

/// Where something was left out of a run, and the cuts to choose from, in ascending order.
pub(super) struct Near<'r> {
    pub(super) places: &'r [usize],
    pub(super) cuts: &'r [usize],
}

impl Near<'_> {
    /// The cuts soon after a place, with those of distant places next to each other.
    pub(super) fn cuts_of(&self, log: &[Event]) -> Vec<usize> {
        let mut places: Vec<usize> = (0..self.places.len()).collect();
        places.sort_unstable_by_key(|&number| (number as u32).reverse_bits());
        let mut seen = BTreeSet::new();
        let mut near = Vec::new();
        for number in places.into_iter().take(PLACES_MAX) {
            let place = self.places[number];
            let is_fence = |event: &Event| matches!(event, Event::Pool(PoolEvent::Fence { .. }));
            let mut later = log.iter().enumerate().skip(place).filter(|(_, event)| is_fence(event));
            let last = later.nth(FENCES - 1).map_or(log.len(), |(at, _)| at);
            let cuts = self.cuts.iter().copied().filter(|cut| (place..=last).contains(cut));
            near.extend(cuts.filter(|&cut| seen.insert(cut)));
        }
        near
    }
}

#[cfg(test)]
mod tests {
    use terrane_storage::event::ThreadNumber;

    use super::*;

    #[test]
    fn cuts_are_those_until_the_second_fence_after_what_was_left_out() {
        let fence = |site| Event::Pool(PoolEvent::Fence { thread: ThreadNumber(0), site });
        let [a, b, mark] = [fence("a"), fence("b"), Event::Mark(0)];
        let whole = [&b, &a, &mark, &a, &b, &b, &b].map(Clone::clone);
        let dropped = Dropped { instruction: Instruction::Fence, site: "a".to_owned() };
        let places = left_out(&whole, &dropped);
        assert_eq!(places, [1, 2]);
        let log = [b.clone(), mark, b.clone(), b.clone(), b];
        let cuts = [0, 1, 2, 3, 4, 5];
        assert_eq!(Near { places: &places[..1], cuts: &cuts }.cuts_of(&log), [1, 2, 3]);
        assert_eq!(Near { places: &places, cuts: &cuts }.cuts_of(&log), [1, 2, 3]);
        assert_eq!(Near { places: &[4], cuts: &cuts }.cuts_of(&log), [4, 5]);
        let flush = Dropped { instruction: Instruction::Flush, ..dropped };
        assert!(left_out(&whole, &flush).is_empty());
    }
}
