//! Multi-word compare-and-swap as a subject of the crash explorer. It checks that operations happen
//! whole or not at all, that acknowledged ones stay, and that blocks belong to their links.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use terrane_storage::Storage;

use super::{Descriptor, WORDS, compare_exchange, read};
use crate::explorer::{Checked, Dropped, Place, Subject};
use crate::{
    Backend, Dropping, Instruction, LINE_LENGTH, Options, PersistenceDomain, Pool, ROOT, Site, Traced, WORD_LENGTH,
};

const SETUP: Site = Site::new("explored.setup");
const NODE: Site = Site::new("explored.node");

/// All sites of this crate: also those of pools and of the allocator, which are always used.
const PLACES: [Place; 20] = [
    Place::both("allocator.announce"),
    Place::flush("allocator.acquire"),
    Place::both("allocator.clear"),
    Place::both("allocator.format"),
    Place::both("allocator.format.bitmap"),
    Place::both("allocator.free"),
    Place::both("allocator.page"),
    Place::both("allocator.page.link"),
    Place::both("allocator.retire"),
    Place::both("pmwcas.announce"),
    Place::both("pmwcas.clean"),
    Place::both("pmwcas.complete"),
    Place::both("pmwcas.decide"),
    Place::both("pmwcas.install"),
    Place::both("pmwcas.prepare"),
    Place::flush("pmwcas.recycle"),
    Place::both("pmwcas.roll"),
    Place::both("pool.header"),
    Place::both("pool.header.found"),
    Place::both("pool.header.second"),
];

/// Words of the table, each in a line of its own: three that are always equal, one that changes
/// alone, two links to blocks that hold a number, and the sums.
const TABLE: u64 = SUMS + WORDS as u64;

/// The first of the sums. An operation adds to any number of them at once.
const SUMS: u64 = 6;

/// Steps of a random history.
const STEPS: usize = 12;

/// A table of words in a pool, changed by operations on several of them.
#[derive(Clone, Debug)]
pub struct Explored {
    configuration: String,
    domain: PersistenceDomain,
}

impl Explored {
    /// One configuration for each medium.
    pub fn configurations() -> Vec<Self> {
        [
            ("adr", PersistenceDomain::Adr),
            ("eadr", PersistenceDomain::Eadr),
            ("page-cache", PersistenceDomain::PageCache),
        ]
        .map(|(configuration, domain)| Self { configuration: configuration.to_owned(), domain })
        .to_vec()
    }

    fn options(&self) -> Options {
        Options { chunk_length: 4096, address_space: 1 << 20, ..Options::new(1, self.domain) }
    }
}

/// An operation on the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Adds one to each of the first three words.
    Count,
    /// Puts blocks with this number under both links, and the number into the single word.
    Replace(u64),
    /// Tries the same with a wrong old value for one of the words.
    Fail,
    /// Acquires a block for that, and abandons the operation.
    GiveUp,
    /// Adds one to the single word.
    Single,
    /// Adds one to this number of the sums, from the first one on: one to [`WORDS`].
    Add(usize),
}

/// An operation, and whether retired parts are settled after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What is done.
    pub operation: Operation,
    /// Whether [`Pool::reclaim`] follows.
    pub reclaims: bool,
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.operation {
            Operation::Count => formatter.write_str("count")?,
            Operation::Replace(number) => write!(formatter, "replace:{number}")?,
            Operation::Fail => formatter.write_str("fail")?,
            Operation::GiveUp => formatter.write_str("give-up")?,
            Operation::Single => formatter.write_str("single")?,
            Operation::Add(count) => write!(formatter, "add:{count}")?,
        }
        formatter.write_str(if self.reclaims { "+reclaim" } else { "" })
    }
}

impl FromStr for Step {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (operation, reclaims) = match text.strip_suffix("+reclaim") {
            Some(operation) => (operation, true),
            None => (text, false),
        };
        let operation = match operation {
            "count" => Operation::Count,
            "fail" => Operation::Fail,
            "give-up" => Operation::GiveUp,
            "single" => Operation::Single,
            other => match other.split_once(':').ok_or(())? {
                ("replace", number) => Operation::Replace(number.parse().map_err(drop)?),
                ("add", count) => {
                    let count = count.parse().map_err(drop)?;
                    Operation::Add(Some(count).filter(|count| (1..=WORDS).contains(count)).ok_or(())?)
                }
                _ => return Err(()),
            },
        };
        Ok(Self { operation, reclaims })
    }
}

/// The contents of the table: the count, the single word, the number under the links (0 without
/// any), and the sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Model {
    count: u64,
    single: u64,
    linked: u64,
    sums: [u64; WORDS],
}

impl Model {
    fn take(&mut self, operation: Operation) {
        match operation {
            Operation::Count => self.count += 1,
            Operation::Replace(number) => (self.single, self.linked) = (number, number),
            Operation::Fail | Operation::GiveUp => {}
            Operation::Single => self.single += 1,
            Operation::Add(count) => self.sums[..count].iter_mut().for_each(|sum| *sum += 1),
        }
    }
}

type Table = Pool<Dropping<Traced>>;

fn text(error: crate::Error) -> String {
    error.to_string()
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Checked<()> {
    if holds { Ok(()) } else { Err(what()) }
}

/// Makes the table, unless it is there.
fn set_up(pool: crate::Result<Table>) -> Checked<Table> {
    let pool = pool.map_err(text)?;
    let backend = pool.backend();
    if backend.load(ROOT) == 0 {
        let mut intent = pool.intent();
        let length = TABLE * LINE_LENGTH;
        let table = intent.acquire(length, ROOT).map_err(text)?;
        (table..table + length).step_by(LINE_LENGTH as usize).for_each(|word| backend.store(word, 0));
        backend.persist(table..table + length, SETUP);
        backend.store(ROOT, table);
        backend.persist(ROOT..ROOT + WORD_LENGTH, SETUP);
        intent.finish();
        // The first descriptor adds a page.
        drop(Descriptor::new(&pool, &pool.pin()).map_err(text)?);
    }
    Ok(pool)
}

fn word(pool: &Table, number: u64) -> u64 {
    pool.backend().load(ROOT) + number * LINE_LENGTH
}

fn run(pool: &Table, operation: Operation) -> Checked<()> {
    let guard = pool.pin();
    let word = |number| word(pool, number);
    let read = |number| read(pool, word(number), &guard).map_err(text);
    let mut descriptor = Descriptor::new(pool, &guard).map_err(text)?;
    let fill = |descriptor: &mut Descriptor<'_, _>, number: u64, length: u64| {
        let block = descriptor.acquire(length).map_err(text)?;
        pool.backend().store(block, number);
        // The fence comes with the operation.
        pool.backend().flush(block..block + WORD_LENGTH, NODE);
        Ok::<_, String>(block)
    };
    match operation {
        Operation::Count => {
            for number in [2, 0, 1] {
                let before = read(number)?;
                descriptor.swap(word(number), before, before + 1).map_err(text)?;
            }
            ensure(descriptor.execute().map_err(text)?, || "it failed without a conflict".to_owned())
        }
        Operation::Replace(number) => {
            let blocks = [fill(&mut descriptor, number, 64)?, fill(&mut descriptor, number, 100)?];
            for (link, block) in [4, 5].into_iter().zip(blocks) {
                let before = read(link)?;
                descriptor.swap(word(link), before, block).map_err(text)?;
                if before != 0 {
                    descriptor.release(before).map_err(text)?;
                }
            }
            descriptor.swap(word(3), read(3)?, number).map_err(text)?;
            ensure(descriptor.execute().map_err(text)?, || "it failed without a conflict".to_owned())
        }
        Operation::Fail => {
            let block = fill(&mut descriptor, 99, 64)?;
            let before = read(4)?;
            descriptor.swap(word(4), before, block).map_err(text)?;
            if before != 0 {
                descriptor.release(before).map_err(text)?;
            }
            descriptor.swap(word(3), read(3)?, 98).map_err(text)?;
            descriptor.swap(word(5), read(5)? + 64, 97 * 64).map_err(text)?;
            ensure(!descriptor.execute().map_err(text)?, || "it succeeded with a wrong old value".to_owned())
        }
        Operation::GiveUp => {
            fill(&mut descriptor, 99, 100)?;
            descriptor.swap(word(4), read(4)?, 64).map_err(text)
        }
        Operation::Single => {
            drop(descriptor);
            let before = read(3)?;
            let change = || compare_exchange(pool, word(3), before, before + 1, &guard).map_err(text);
            let outcomes = [change()?, change()?];
            ensure(outcomes == [Ok(before), Err(before + 1)], || format!("{before} was changed to {outcomes:?}"))
        }
        Operation::Add(count) => {
            for sum in (SUMS..).take(count) {
                let before = read(sum)?;
                descriptor.swap(word(sum), before, before + 1).map_err(text)?;
            }
            ensure(descriptor.execute().map_err(text)?, || "it failed without a conflict".to_owned())
        }
    }
}

/// Changes one word by each descriptor in turn. Entries that a crash has left in them show.
fn use_all_descriptors(pool: &Table, model: &mut Model) -> Checked<()> {
    // While it is held, no descriptor is used twice.
    let _guard = pool.pin();
    (0..pool.free_descriptors()).try_for_each(|_| {
        run(pool, Operation::Add(1))?;
        model.take(Operation::Add(1));
        Ok(())
    })
}

/// The state, after a check that it is whole and that no block is lost.
fn check(pool: &Table) -> Checked<Model> {
    let guard = pool.pin();
    let words = (0..TABLE).map(|number| read(pool, word(pool, number), &guard));
    let words = words.collect::<crate::Result<Vec<u64>>>().map_err(text)?;
    ensure(words[0] == words[1] && words[1] == words[2], || format!("torn: {words:?}"))?;
    let mut acquired = BTreeSet::new();
    let mut is_twice = false;
    pool.visit_blocks(|block, _| is_twice |= !acquired.insert(block)).map_err(text)?;
    let links: Vec<u64> = words[4..SUMS as usize].iter().copied().filter(|link| *link != 0).collect();
    ensure(links.len() != 1 && !is_twice, || format!("torn: {words:?}"))?;
    let mut owned = BTreeSet::from_iter(links.iter().copied());
    owned.insert(pool.backend().load(ROOT));
    ensure(acquired == owned, || format!("acquired {acquired:?}, linked {owned:?}"))?;
    let numbers: BTreeSet<u64> = links.iter().map(|link| pool.backend().load(*link)).collect();
    ensure(numbers.len() <= 1, || format!("links to {numbers:?}"))?;
    let mut sums = [0; WORDS];
    sums.copy_from_slice(&words[SUMS as usize..]);
    Ok(Model { count: words[0], single: words[3], linked: numbers.first().copied().unwrap_or(0), sums })
}

impl Subject for Explored {
    type Structure = Table;
    type Step = Step;
    type Model = Model;

    fn structure(&self) -> &'static str {
        "pmwcas"
    }

    fn configuration(&self) -> &str {
        &self.configuration
    }

    fn domain(&self) -> PersistenceDomain {
        self.domain
    }

    fn create(&self, storage: &dyn Storage) -> Checked<Table> {
        set_up(Pool::create(storage, "pool", &self.options()))
    }

    fn open(&self, storage: &dyn Storage) -> Checked<Table> {
        set_up(Pool::open(storage, "pool", &self.options()))
    }

    fn steps(&self, seed: u64) -> Vec<Step> {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut step = |number: usize| {
            let operation = match random.random_range(0..9) {
                0 | 1 => Operation::Count,
                2 | 3 => Operation::Replace(10 * (number as u64 + 1)),
                4 => Operation::Fail,
                5 => Operation::GiveUp,
                6 => Operation::Single,
                _ => Operation::Add(random.random_range(1..=WORDS)),
            };
            Step { operation, reclaims: random.random_range(0..3) == 0 }
        };
        (0..STEPS).map(&mut step).collect()
    }

    fn apply(&self, pool: &Table, model: &mut Model, step: &Step) -> Checked<()> {
        run(pool, step.operation)?;
        model.take(step.operation);
        if step.reclaims { pool.reclaim().map(drop).map_err(text) } else { Ok(()) }
    }

    fn observe(&self, pool: &mut Table) -> Checked<Model> {
        pool.reclaim_all().map_err(text)?;
        check(pool)
    }

    fn check_usable(&self, pool: &mut Table, mut model: Model) -> Checked<()> {
        use Operation::{Add, Count, Fail, GiveUp, Replace};
        use_all_descriptors(pool, &mut model)?;
        for operation in [Replace(50), Count, Fail, GiveUp, Replace(60), Add(WORDS)] {
            run(pool, operation)?;
            model.take(operation);
            let found = self.observe(pool)?;
            ensure(found == model, || format!("{operation:?} made {found:?} instead of {model:?}"))?;
        }
        Ok(())
    }

    fn places(&self) -> Vec<Place> {
        PLACES.to_vec()
    }

    fn shown_by(&self, Dropped { instruction, site }: &Dropped) -> Option<&'static str> {
        match (instruction, site.as_str()) {
            (_, "pool.header.found") => {
                Some("pmem/tests/pool_crash.rs: a_header_that_was_found_is_durable_before_the_other_copy_is_written")
            }
            (_, "pool.header.second") => Some(
                "pmem/tests/pool_crash.rs: the_second_copy_of_a_header_is_durable_before_the_first_one_is_written_again",
            ),
            (_, "allocator.format.bitmap") => {
                Some("pmem/tests/allocator_crash.rs: a_power_loss_while_a_chunk_changes_its_block_length_loses_nothing")
            }
            // Threads that run one after the other meet no mark.
            (_, "pmwcas.clean") => Some("pmem/src/pmwcas/late_tests.rs: a_late_question_is_taken_back_durably"),
            // Intents are used only while the table is made, in blocks that were never used before.
            (Instruction::Flush, "allocator.clear" | "allocator.page") | (_, "allocator.retire") => {
                Some("pmem/tests/allocator_crash.rs: no_flush_and_no_fence_can_be_left_out")
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_read_what_they_print() {
        for step in Explored::configurations()[0].steps(3) {
            assert_eq!(step.to_string().parse(), Ok(step));
        }
        assert!(["", "replace", "replace:x", "count+", "reclaim"].iter().all(|text| text.parse::<Step>().is_err()));
    }
}
