//! Random histories, on as many threads as there are processors.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::available_parallelism;

use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use terrane_storage::event::PersistenceDomain;

use super::{Breadth, Cuts, Dropped, Explorer, Failure, History, Subject, Tally};

/// Cuts of a history at which power fails.
const CUTS: usize = 48;

/// Cuts of a history at which the process is killed.
const KILLS: usize = 16;

/// Cuts of a history with interrupted recoveries.
const INTERRUPTED: usize = 2;

/// Cuts of a history after which it continues, and the steps until power fails again.
const RESUMED: usize = 2;
const RESUMED_STEPS: usize = 8;

const BREADTH: Breadth = Breadth { branches: 12, samples: 12, seed: 0 };
const BREADTH_INSIDE: Breadth = Breadth { branches: 3, samples: 2, seed: 0 };

/// The size of the sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The seed of the first history. The others follow.
    pub seed: u64,
    /// The least number of images. Histories are drawn until they have that many.
    pub images: u64,
    /// A flush or fence to leave out.
    pub dropped: Option<Dropped>,
}

/// Tries images of random histories, of the subjects in turn, and stops at the first problem.
///
/// The result does not depend on which thread draws a history. The tally counts the first
/// histories, by seed, that suffice. Others in progress are finished and not counted.
pub fn sample<S: Subject>(subjects: &[S], sample: &Sample) -> (Tally, Option<Failure<S::Step>>) {
    let (next, images) = (AtomicU64::new(0), AtomicU64::new(0));
    let is_over = AtomicBool::new(subjects.is_empty());
    let drawn = Mutex::new(BTreeMap::new());
    let work = || {
        while !is_over.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let subject = &subjects[number as usize % subjects.len()];
            let mut explorer = Explorer::new(subject);
            let outcome = draw(&mut explorer, sample.seed.wrapping_add(number), sample.dropped.clone());
            let (tally, failure) = (explorer.tally, outcome.err());
            let suffices = images.fetch_add(tally.images, Ordering::Relaxed) + tally.images >= sample.images;
            is_over.fetch_or(suffices || failure.is_some(), Ordering::Relaxed);
            drawn.lock().insert(number, (tally, failure));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let (mut all, mut first) = (Tally::default(), None);
    for (tally, failure) in drawn.into_inner().into_values() {
        if first.is_none() && all.images < sample.images {
            all += tally;
        }
        first = first.or(failure);
    }
    (all, first.map(|failure| *failure))
}

/// One history, and some of its crashes.
fn draw<S: Subject>(
    explorer: &mut Explorer<'_, S>,
    seed: u64,
    dropped: Option<Dropped>,
) -> Result<(), Box<Failure<S::Step>>> {
    let mut random = SmallRng::seed_from_u64(seed);
    let history = History::record(explorer.subject(), explorer.subject().steps(seed), dropped)?;
    explorer.tally.histories += 1;
    let kills: Vec<usize> = history.cuts_from(0).collect();
    let losses = history.power_cuts_from(0);
    let few = |cuts: &[usize], count: usize, random: &mut SmallRng| {
        let mut few: Vec<usize> = cuts.choose_multiple(random, count).copied().collect();
        // Cutting is fast in ascending order.
        few.sort_unstable();
        few
    };
    let breadth = Breadth { seed: random.random(), ..BREADTH };
    // Lost pages can only lead to a refused pool.
    let (cuts, killed) = match explorer.subject().domain() {
        PersistenceDomain::PageCache => (KILLS, CUTS),
        PersistenceDomain::Adr | PersistenceDomain::Eadr => (CUTS, KILLS),
    };
    few(&losses, cuts, &mut random).into_iter().try_for_each(|cut| explorer.power_losses(&history, cut, &breadth))?;
    few(&kills, killed, &mut random).into_iter().try_for_each(|cut| explorer.kill(&history, cut))?;
    let breadth = Breadth { seed: random.random(), ..BREADTH_INSIDE };
    few(&losses, RESUMED, &mut random)
        .into_iter()
        .try_for_each(|cut| explorer.after_recovery(&history, cut, RESUMED_STEPS, Cuts::BetweenSteps, &breadth))?;
    // At any cut, so that kills come between any two stores.
    few(&kills, INTERRUPTED, &mut random)
        .into_iter()
        .try_for_each(|cut| explorer.inside_recovery(&history, cut, &breadth))
}
