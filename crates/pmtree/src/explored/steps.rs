//! The operations on R-trees, random or given, and the resulting contents.

use std::fmt;
use std::str::FromStr;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::Rect;

/// Entries of a tree of two or three leaves of small nodes.
const FEW: usize = 7;

/// Number of coordinates for the borders of random boxes.
const GRID: u32 = 12;

/// An operation on a tree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// An insertion; prints as `+0,0,1,2:7`.
    Insert(Rect<2>, u64),
    /// A deletion, possibly of an entry that is not there; prints as `-0,0,1,2:7`.
    Delete(Rect<2>, u64),
    /// An exact look-up; prints as `?0,0,1,2:7`.
    LookUp(Rect<2>, u64),
    /// Makes everything durable that is stored, as after a pause; prints as `sync`.
    Sync,
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, rect, payload) = match self {
            Self::Insert(rect, payload) => ('+', rect, payload),
            Self::Delete(rect, payload) => ('-', rect, payload),
            Self::LookUp(rect, payload) => ('?', rect, payload),
            Self::Sync => return formatter.write_str("sync"),
        };
        let ([x0, y0], [x1, y1]) = (rect.min(), rect.max());
        write!(formatter, "{sign}{x0},{y0},{x1},{y1}:{payload}")
    }
}

impl FromStr for Step {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if text == "sync" {
            return Ok(Self::Sync);
        }
        let parse = || {
            let (corners, payload) = text.get(1..)?.split_once(':')?;
            let payload = payload.parse().ok()?;
            let corners: Vec<f64> = corners.split(',').map(|number| number.parse().ok()).collect::<Option<_>>()?;
            let &[x0, y0, x1, y1] = corners.as_slice() else { return None };
            let rect = Rect::new([x0, y0], [x1, y1]).ok()?;
            match text.get(..1)? {
                "+" => Some(Self::Insert(rect, payload)),
                "-" => Some(Self::Delete(rect, payload)),
                "?" => Some(Self::LookUp(rect, payload)),
                _ => None,
            }
        };
        parse().ok_or(())
    }
}

/// A history with this many steps: first more insertions than deletions, then fewer. Some boxes lie
/// beyond all others, so that each node above them changes.
pub fn random_steps(seed: u64, count: usize) -> Vec<Step> {
    steps_with(seed, count, |step| if step < count / 2 { 0.9 } else { 0.15 })
}

/// A history with this many steps: first only insertions, then an equal number of both, so that
/// boxes shrink and grow.
pub fn steps_in_turn(seed: u64, count: usize) -> Vec<Step> {
    steps_with(seed, count, |step| if step < count / 2 { 1.0 } else { 0.5 })
}

/// A history with this many steps: first a few insertions, then an equal number of both, so that
/// the same nodes are met over and over again. Also gives the number of the first insertions.
pub fn steps_of_few(seed: u64, count: usize) -> (Vec<Step>, usize) {
    (steps_with(seed, count, |step| if step < FEW { 1.0 } else { 0.5 }), FEW)
}

fn steps_with(seed: u64, count: usize, share_of_insertions: impl Fn(usize) -> f64) -> Vec<Step> {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut model: Vec<(Rect<2>, u64)> = Vec::new();
    let mut steps = Vec::new();
    for step in 0..count {
        if model.len() < 2 || random.random_bool(share_of_insertions(step)) {
            let far = f64::from(GRID) + step as f64;
            let rect = if step % 8 == 7 { Rect::raw([far; 2], [far; 2]) } else { random_rect(&mut random) };
            let entry = (rect, step as u64);
            model.push(entry);
            steps.push(Step::Insert(entry.0, entry.1));
        } else {
            let (rect, payload) = model.swap_remove(random.random_range(0..model.len()));
            steps.push(Step::Delete(rect, payload));
        }
    }
    steps
}

/// A box with corners on a grid, so that borders meet often.
pub(super) fn random_rect(random: &mut SmallRng) -> Rect<2> {
    let min: [f64; 2] = std::array::from_fn(|_| f64::from(random.random_range(0..GRID)));
    let max = std::array::from_fn(|axis| min[axis] + f64::from(random.random_range(0..3u32)));
    Rect::raw(min, max)
}

/// The entries, in an order that depends only on them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model(pub(super) Vec<(Rect<2>, u64)>);

impl Model {
    pub(super) fn insert(&mut self, rect: Rect<2>, payload: u64) {
        let key =
            |(rect, payload): &(Rect<2>, u64)| (*payload, rect.min().map(f64::to_bits), rect.max().map(f64::to_bits));
        let place = self.0.partition_point(|entry| key(entry) <= key(&(rect, payload)));
        self.0.insert(place, (rect, payload));
    }

    pub(super) fn delete(&mut self, rect: &Rect<2>, payload: u64) -> bool {
        let place = self.0.iter().position(|entry| *entry == (*rect, payload));
        place.map(|place| self.0.remove(place)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_read_what_they_print() {
        let rect = Rect::new([-0.5, 1e300], [3.25, f64::MAX]).unwrap();
        for step in [Step::Insert(rect, 3), Step::Delete(rect, u64::MAX), Step::LookUp(rect, 0), Step::Sync] {
            assert_eq!(step.to_string().parse(), Ok(step), "{step}");
        }
        let wrong = ["", "+", "+1,2,3:4", "1,2,3,4:5", "+1,2,0,4:5", "+1,2,3,4:x", "é1,2,3,4:5"];
        assert!(wrong.iter().all(|text| text.parse::<Step>().is_err()));
    }
}
