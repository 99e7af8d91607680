//! A structure that is wrong on purpose, and the same one put right.

use std::fmt;
use std::str::FromStr;

use terrane_storage::Storage;

use super::{Breadth, Checked, Explorer, Failure, History, Place, Subject};
use crate::{Backend, Dropping, LINE_LENGTH, Options, PersistenceDomain, Pool, ROOT, Site, Traced, WORD_LENGTH};

const SET_UP: Site = Site::new("explored.canary");
const ENTRY: Site = Site::new("canary.entry");
const FLAG: Site = Site::new("canary.flag");

/// The most entries.
const ROOM: u64 = 8;

/// An array of entries of two words. Each entry has a flag in a line of its own, which says that it
/// exists.
///
/// If right, it makes the entry durable before it sets the flag. If wrong, both share one fence, so
/// that a crash may leave the flag without the entry.
#[derive(Clone, Copy, Debug)]
pub struct Canary {
    /// Whether it is the right one.
    pub is_right: bool,
    /// The medium.
    pub domain: PersistenceDomain,
}

/// Adds an entry with this number, if there is room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Add(u64);

impl fmt::Display for Add {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl FromStr for Add {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

type Canaries = Pool<Dropping<Traced>>;

impl Canary {
    fn options(self) -> Options {
        Options { chunk_length: 4096, address_space: 1 << 20, ..Options::new(1, self.domain) }
    }

    /// Makes the array, unless it is there.
    fn set_up(pool: crate::Result<Canaries>) -> Checked<Canaries> {
        let text = |error: crate::Error| error.to_string();
        let pool = pool.map_err(text)?;
        if pool.backend().load(ROOT) != 0 {
            return Ok(pool);
        }
        let mut intent = pool.intent();
        let length = ROOM * 2 * LINE_LENGTH;
        let block = intent.acquire(length, ROOT).map_err(text)?;
        (block..block + length).step_by(WORD_LENGTH as usize).for_each(|word| pool.backend().store(word, 0));
        pool.backend().persist(block..block + length, SET_UP);
        pool.backend().store(ROOT, block);
        pool.backend().persist(ROOT..ROOT + WORD_LENGTH, SET_UP);
        intent.finish();
        Ok(pool)
    }

    fn flag(pool: &Canaries, number: u64) -> u64 {
        pool.backend().load(ROOT) + number * 2 * LINE_LENGTH
    }

    fn add(self, pool: &Canaries, place: u64, number: u64) {
        let (backend, flag) = (pool.backend(), Self::flag(pool, place));
        let entry = flag + LINE_LENGTH;
        backend.store(entry, number);
        backend.store(entry + WORD_LENGTH, number);
        backend.flush(entry..entry + 2 * WORD_LENGTH, ENTRY);
        if self.is_right {
            backend.fence(ENTRY);
        }
        backend.store(flag, 1);
        backend.persist(flag..flag + WORD_LENGTH, FLAG);
    }
}

impl Subject for Canary {
    type Structure = Canaries;
    type Step = Add;
    type Model = Vec<u64>;

    fn structure(&self) -> &'static str {
        "canary"
    }

    fn configuration(&self) -> &str {
        if self.is_right { "right" } else { "wrong" }
    }

    fn domain(&self) -> PersistenceDomain {
        self.domain
    }

    fn create(&self, storage: &dyn Storage) -> Checked<Canaries> {
        Self::set_up(Pool::create(storage, "canary", &self.options()))
    }

    fn open(&self, storage: &dyn Storage) -> Checked<Canaries> {
        Self::set_up(Pool::open(storage, "canary", &self.options()))
    }

    fn steps(&self, seed: u64) -> Vec<Add> {
        (0..4).map(|number| Add(seed % 1000 + number + 1)).collect()
    }

    fn apply(&self, pool: &Canaries, model: &mut Vec<u64>, &Add(number): &Add) -> Checked<()> {
        let place = model.len() as u64;
        if place < ROOM {
            self.add(pool, place, number);
            model.push(number);
        }
        Ok(())
    }

    fn observe(&self, pool: &mut Canaries) -> Checked<Vec<u64>> {
        let mut numbers = Vec::new();
        for place in 0..ROOM {
            let flag = Self::flag(pool, place);
            if pool.backend().load(flag) == 0 {
                break;
            }
            let [first, second] = [LINE_LENGTH, LINE_LENGTH + WORD_LENGTH].map(|word| pool.backend().load(flag + word));
            if first != second {
                return Err(format!("entry {place} is torn: {first} and {second}"));
            }
            numbers.push(first);
        }
        Ok(numbers)
    }

    fn check_usable(&self, pool: &mut Canaries, mut model: Vec<u64>) -> Checked<()> {
        self.apply(pool, &mut model, &Add(77))?;
        let found = self.observe(pool)?;
        if found == model { Ok(()) } else { Err(format!("it holds {found:?} instead of {model:?}")) }
    }

    fn places(&self) -> Vec<Place> {
        vec![Place::both("canary.entry"), Place::both("canary.flag")]
    }
}

/// Checks that the wrong one is caught and the right one is not. Gives what was caught. If this
/// fails, the explorer is broken, and its other results mean nothing.
pub fn check_canary(breadth: &Breadth) -> Checked<Failure<Add>> {
    let [right, wrong] = [true, false].map(|is_right| {
        let canary = Canary { is_right, domain: PersistenceDomain::Adr };
        let history = History::record(&canary, canary.steps(0), None)?;
        Explorer::new(&canary).all_power_losses(&history, 0, breadth)
    });
    match (right, wrong) {
        (Ok(()), Err(failure)) => Ok(*failure),
        (Err(failure), _) => {
            // The message is complete: no program replays the canary.
            Err(format!(
                "the explorer is broken: it reports a failure of a structure that is right: {}",
                failure.problem
            ))
        }
        (Ok(()), Ok(())) => {
            Err("the explorer is broken: it does not catch a structure that is wrong on purpose".to_owned())
        }
    }
}
