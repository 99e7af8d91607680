//! The images that a power loss at one cut may leave: all of them if few changes wait, else the
//! extremes and a sample.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::choice::Choice;
use super::cut::{Cut, NameOrder, UnitKind};
use super::image::{Crash, Image};

/// Most bits for which all combinations are tried, whatever the budget.
const EXHAUSTIVE_PENDING_MAX: usize = 20;

/// Draws of one image after which the search for a new one ends.
const DRAWS_PER_SAMPLE: usize = 4;

/// The number of images to try for a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Up to this many waiting changes (at most 20), every combination of kept and lost changes is
    /// tried. If their sectors and lengths together are no more than this, every combination of
    /// those is tried.
    pub exhaustive_pending: usize,
    /// Number of random images, unless every combination of sectors is tried.
    pub samples: usize,
    /// Which combinations of changes of names are possible.
    pub name_order: NameOrder,
}

impl Default for Budget {
    fn default() -> Self {
        Self { exhaustive_pending: 6, samples: 48, name_order: NameOrder::AnySubset }
    }
}

/// Iterator over different images of one cut; see [`super::Controller::images`].
#[derive(Debug)]
pub struct Images {
    cut: Arc<Cut>,
    name_order: NameOrder,
    random: SmallRng,
    seen: HashSet<u64>,
    /// Choices that are tried for every seed.
    systematic: Systematic,
    /// Number of random images still wanted.
    samples: usize,
    /// Number of draws left for them, as a draw may repeat an image.
    draws: usize,
    /// Number of changes that have been the only one lost.
    singles: usize,
}

#[derive(Debug)]
enum Systematic {
    /// Every combination of bits.
    Bits(Range<u64>),
    /// Every combination of whole changes.
    Units(Range<u64>),
    /// Nothing, everything, only names and lengths, only bytes.
    Extremes(Range<u64>),
}

impl Images {
    pub(super) fn new(cut: Arc<Cut>, budget: &Budget, seed: u64) -> Self {
        let limit = budget.exhaustive_pending.min(EXHAUSTIVE_PENDING_MAX);
        let units = cut.units.len();
        let (systematic, samples) = if cut.bits <= limit {
            (Systematic::Bits(0..1 << cut.bits), 0)
        } else if units <= limit {
            (Systematic::Units(0..1 << units), budget.samples)
        } else {
            (Systematic::Extremes(0..4), budget.samples)
        };
        // Every cut draws other numbers, and the same ones in every enumeration.
        let seed = seed ^ (cut.state.position as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self {
            cut,
            name_order: budget.name_order,
            random: SmallRng::seed_from_u64(seed),
            seen: HashSet::new(),
            systematic,
            samples,
            draws: samples.saturating_mul(DRAWS_PER_SAMPLE),
            singles: 0,
        }
    }

    /// Whether every possible image is among these.
    pub fn is_exhaustive(&self) -> bool {
        matches!(self.systematic, Systematic::Bits(_))
    }

    /// A choice, and whether it was drawn at random.
    fn next_choice(&mut self) -> Option<(Choice, bool)> {
        let systematic = match &mut self.systematic {
            Systematic::Bits(range) => range.next().map(|bits| Choice::from_bits(self.cut.bits, bits)),
            Systematic::Units(range) => range.next().map(|bits| {
                let mut choice = Choice::nothing(self.cut.bits);
                for (index, unit) in self.cut.units.iter().enumerate() {
                    choice.set(unit.bits.clone(), bits >> index & 1 == 1);
                }
                choice
            }),
            Systematic::Extremes(range) => range.next().map(|number| extreme(&self.cut, number)),
        };
        if let Some(choice) = systematic {
            return Some((choice, false));
        }
        if self.samples == 0 {
            return None;
        }
        self.draws = self.draws.checked_sub(1)?;
        Some((self.draw(), true))
    }

    fn draw(&mut self) -> Choice {
        let cut = self.cut.clone();
        // Every second draw loses a single change, the newest first, until each has been lost.
        if self.singles < cut.units.len() && self.draws.is_multiple_of(2) {
            let mut choice = Choice::everything(cut.bits);
            choice.set(cut.units[cut.units.len() - 1 - self.singles].bits.clone(), false);
            self.singles += 1;
            return choice;
        }
        let mut choice = Choice::nothing(cut.bits);
        match self.random.random_range(0..6) {
            0 => {
                for unit in &cut.units {
                    choice.set(unit.bits.clone(), self.random.random());
                }
            }
            1 => {
                let end = self.random.random_range(0..cut.units.len());
                for unit in &cut.units[..end] {
                    choice.set(unit.bits.clone(), true);
                }
                self.tear(&mut choice, cut.units[end].bits.clone());
            }
            2 => {
                for unit in &cut.units {
                    match self.random.random_range(0..3) {
                        0 => {}
                        1 => choice.set(unit.bits.clone(), true),
                        _ => self.tear(&mut choice, unit.bits.clone()),
                    }
                }
            }
            3 => {
                let lost = cut.units[self.random.random_range(0..cut.units.len())].kind;
                for unit in cut.units.iter().filter(|unit| !same_place(unit.kind, lost)) {
                    choice.set(unit.bits.clone(), true);
                }
            }
            4 => {
                choice.set(0..cut.bits, true);
                let unit = &cut.units[self.random.random_range(0..cut.units.len())];
                choice.set(unit.bits.clone(), false);
                self.tear(&mut choice, unit.bits.clone());
            }
            _ => {
                for bit in 0..cut.bits {
                    choice.set(bit..bit + 1, self.random.random());
                }
            }
        }
        choice
    }

    /// Keeps the first bits, the last bits, all bits except one, or random bits.
    fn tear(&mut self, choice: &mut Choice, bits: Range<usize>) {
        let border = self.random.random_range(bits.clone());
        match self.random.random_range(0..4) {
            0 => choice.set(bits.start..border, true),
            1 => choice.set(border..bits.end, true),
            2 => {
                choice.set(bits, true);
                choice.set(border..border + 1, false);
            }
            _ => {
                for bit in bits {
                    choice.set(bit..bit + 1, self.random.random());
                }
            }
        }
    }
}

fn extreme(cut: &Cut, number: u64) -> Choice {
    let mut choice = Choice::nothing(cut.bits);
    match number {
        0 => {}
        1 => choice.set(0..cut.bits, true),
        number => {
            for bit in cut.class_bits(number == 2) {
                choice.set(bit..bit + 1, true);
            }
        }
    }
    choice
}

/// Whether both changes are of names, or of the same file.
fn same_place(left: UnitKind, right: UnitKind) -> bool {
    match (left, right) {
        (UnitKind::Name(_), UnitKind::Name(_)) => true,
        (UnitKind::Data(left, _) | UnitKind::Store(left, _), UnitKind::Data(right, _) | UnitKind::Store(right, _)) => {
            left == right
        }
        _ => false,
    }
}

impl Iterator for Images {
    type Item = Image;

    fn next(&mut self) -> Option<Image> {
        loop {
            let (choice, drawn) = self.next_choice()?;
            let image = Image::new(self.cut.clone(), Crash::PowerLoss, choice, self.name_order);
            if self.seen.insert(image.fingerprint()) {
                self.samples -= usize::from(drawn);
                return Some(image);
            }
        }
    }
}
