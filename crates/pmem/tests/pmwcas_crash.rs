//! Power losses and kills at any instant of operations on several words, one thread after the other: they happen
//! whole or not at all, what was done stays, and blocks belong to those who link them.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use terrane_pmem::pmwcas::{self, Descriptor};
use terrane_pmem::{Backend, Dropping, Instruction, Options, PersistenceDomain, Pool, ROOT, Site, Traced};
use terrane_storage::Storage;
use terrane_storage::crash::{Budget, Controller, Image, NameOrder};

const SETUP: Site = Site::new("test.setup");
const NODE: Site = Site::new("test.node");
const BUDGET: Budget = Budget { exhaustive_pending: 10, samples: 40, name_order: NameOrder::AnySubset };
/// With TERRANE_SOAK=1.
const LONG_BUDGET: Budget = Budget { exhaustive_pending: 17, samples: 5000, name_order: NameOrder::AnySubset };
const DOMAIN: PersistenceDomain = PersistenceDomain::Adr;

fn options(domain: PersistenceDomain) -> Options {
    Options { chunk_length: 4096, address_space: 1 << 20, ..Options::new(1, domain) }
}

/// What is done to a table of words, each in a line of its own: three that are always equal, one that changes alone, and
/// two links to blocks that hold a number.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Counts the first three up.
    Count,
    /// Puts blocks with this number under both links, and the number into the single word.
    Replace(u64),
    /// Tries the same where the single word is not what it is said to be.
    Fail,
    /// Acquires a block for that, and gives it up.
    GiveUp,
    /// Counts the single word up.
    Single,
}

const STEPS: [Step; 12] = [
    Step::Count,
    Step::Replace(10),
    Step::Replace(20),
    Step::Fail,
    Step::Count,
    Step::GiveUp,
    Step::Single,
    Step::Replace(30),
    Step::Fail,
    Step::Single,
    Step::Replace(40),
    Step::Count,
];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Model {
    count: u64,
    single: u64,
    linked: u64,
}

impl Model {
    fn after(mut self, step: Step) -> Self {
        match step {
            Step::Count => self.count += 1,
            Step::Replace(number) => (self.single, self.linked) = (number, number),
            Step::Fail | Step::GiveUp => {}
            Step::Single => self.single += 1,
        }
        self
    }
}

fn word<B: Backend>(pool: &Pool<B>, number: u64) -> u64 {
    pool.backend().load(ROOT) + number * 64
}

fn set_up<B: Backend>(pool: &Pool<B>) {
    let backend = pool.backend();
    let mut intent = pool.intent();
    let table = intent.acquire(6 * 64, ROOT).unwrap();
    (0..6).for_each(|number| backend.store(table + number * 64, 0));
    backend.persist(table..table + 6 * 64, SETUP);
    backend.store(ROOT, table);
    backend.persist(ROOT..ROOT + 8, SETUP);
    intent.finish();
}

fn run<B: Backend>(pool: &Pool<B>, step: Step) {
    let guard = pool.pin();
    let word = |number| word(pool, number);
    let read = |number| pmwcas::read(pool, word(number), &guard);
    let mut descriptor = Descriptor::new(pool, &guard).unwrap();
    let mut fill = |number: u64, length: u64| {
        let block = descriptor.acquire(length).unwrap();
        pool.backend().store(block, number);
        // The fence comes with the operation.
        pool.backend().flush(block..block + 8, NODE);
        block
    };
    match step {
        Step::Count => {
            for number in [2, 0, 1] {
                let before = read(number);
                descriptor.swap(word(number), before, before + 1).unwrap();
            }
            assert!(descriptor.execute());
        }
        Step::Replace(number) => {
            let (first, second) = (fill(number, 64), fill(number, 100));
            for (link, block) in [(4, first), (5, second)] {
                let before = read(link);
                descriptor.swap(word(link), before, block).unwrap();
                if before != 0 {
                    descriptor.release(before).unwrap();
                }
            }
            descriptor.swap(word(3), read(3), number).unwrap();
            assert!(descriptor.execute());
        }
        Step::Fail => {
            let block = fill(99, 64);
            descriptor.swap(word(4), read(4), block).unwrap();
            descriptor.release(read(4)).unwrap();
            descriptor.swap(word(3), read(3), 98).unwrap();
            descriptor.swap(word(5), read(5) + 64, 97 * 64).unwrap();
            assert!(!descriptor.execute());
        }
        Step::GiveUp => {
            fill(99, 100);
            descriptor.swap(word(4), read(4), 64).unwrap();
        }
        Step::Single => {
            let before = read(3);
            assert_eq!(pmwcas::compare_exchange(pool, word(3), before, before + 1, &guard), Ok(before));
            assert_eq!(pmwcas::compare_exchange(pool, word(3), before, before + 1, &guard), Err(before + 1));
        }
    }
}

type Checked<T> = Result<T, String>;

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Checked<()> {
    if holds { Ok(()) } else { Err(what()) }
}

fn text(error: terrane_pmem::Error) -> String {
    error.to_string()
}

/// The state, after a check that it is whole, and, where nothing is retired, that no block is lost.
fn check<B: Backend>(pool: &Pool<B>, nothing_is_retired: bool) -> Checked<Model> {
    let guard = pool.pin();
    let words: Vec<u64> = (0..6).map(|number| pmwcas::read(pool, word(pool, number), &guard)).collect();
    ensure(words[0] == words[1] && words[1] == words[2], || format!("torn: {words:?}"))?;
    let mut acquired = BTreeSet::new();
    pool.visit_blocks(|block, _| assert!(acquired.insert(block))).map_err(text)?;
    let links: Vec<u64> = words[4..].iter().copied().filter(|link| *link != 0).collect();
    ensure(links.len() != 1, || format!("torn: {words:?}"))?;
    let numbers: BTreeSet<u64> = links.iter().map(|link| pool.backend().load(*link)).collect();
    ensure(numbers.len() <= 1, || format!("links to {numbers:?}"))?;
    let mut owned = BTreeSet::from_iter(links);
    owned.insert(pool.backend().load(ROOT));
    ensure(acquired.is_superset(&owned), || format!("acquired {acquired:?}, linked {owned:?}"))?;
    ensure(!nothing_is_retired || acquired == owned, || format!("acquired {acquired:?}, linked {owned:?}"))?;
    Ok(Model { count: words[0], single: words[3], linked: numbers.first().copied().unwrap_or(0) })
}

/// Runs the steps, a mark after each, without the instruction that is to be left out.
fn history(domain: PersistenceDomain, dropped: Option<(Instruction, &str)>) -> (Arc<Controller>, Vec<Model>) {
    let controller = Controller::new();
    let pool: Pool<Dropping<Traced>> = Pool::create(&*controller.storage(), "pool", &options(domain)).unwrap();
    set_up(&pool);
    // The first one adds a page of descriptors, which tests of the allocator look at.
    drop(Descriptor::new(&pool, &pool.pin()).unwrap());
    if let Some((instruction, site)) = dropped {
        pool.backend().leave_out(instruction, site);
    }
    controller.mark(0);
    let mut models = vec![Model::default()];
    for (number, step) in STEPS.into_iter().enumerate() {
        // Of several threads, so that what one has not fenced, the next one does not.
        let run = || {
            run(&pool, step);
            if number % 3 == 2 {
                pool.reclaim().unwrap();
            }
        };
        if number % 2 == 0 {
            run()
        } else {
            std::thread::scope(|scope| scope.spawn(run).join().unwrap())
        }
        controller.mark(number as u64 + 1);
        let model = models[number].after(step);
        assert_eq!(check(&pool, false), Ok(model));
        models.push(model);
    }
    (controller, models)
}

/// Checks what a crash has left after so many steps, and that it works on.
fn recover(storage: &dyn Storage, domain: PersistenceDomain, models: &[Model], steps: usize) -> Checked<()> {
    let pool: Pool<Traced> = Pool::open(storage, "pool", &options(domain)).map_err(text)?;
    let mut model = check(&pool, true)?;
    let possible = &models[steps..(steps + 2).min(models.len())];
    ensure(possible.contains(&model), || format!("{model:?} instead of one of {possible:?}"))?;
    for step in [Step::Replace(50), Step::Count, Step::Fail, Step::GiveUp, Step::Replace(60)] {
        run(&pool, step);
        model = model.after(step);
        pool.reclaim().map_err(text)?;
        let found = check(&pool, true)?;
        ensure(found == model, || format!("{step:?} made {found:?} instead of {model:?}"))?;
    }
    Ok(())
}

fn expect(outcome: Checked<()>, image: &Image) {
    if let Err(what) = outcome {
        panic!("{what}: {image:?}");
    }
}

fn steps_done(controller: &Controller, cut: usize) -> Option<usize> {
    controller.marks(cut).last().map(|&number| number as usize)
}

fn cuts(controller: &Controller) -> impl Iterator<Item = (usize, usize)> {
    (0..=controller.events()).filter_map(|cut| Some((cut, steps_done(controller, cut)?)))
}

#[test]
fn after_a_power_loss_at_any_instant_operations_happened_whole_or_not_at_all() {
    for domain in [PersistenceDomain::Adr, PersistenceDomain::Eadr] {
        let (controller, models) = history(domain, None);
        let budget = if std::env::var_os("TERRANE_SOAK").is_some() { LONG_BUDGET } else { BUDGET };
        for (cut, steps) in cuts(&controller) {
            for image in controller.images(cut, &budget, 1) {
                expect(recover(&*image.storage(), domain, &models, steps), &image);
            }
        }
    }
}

#[test]
fn after_a_kill_at_any_instant_operations_happened_whole_or_not_at_all() {
    for domain in [PersistenceDomain::Adr, PersistenceDomain::Eadr, PersistenceDomain::PageCache] {
        let (controller, models) = history(domain, None);
        for (cut, steps) in cuts(&controller) {
            let image = controller.process_kill(cut);
            expect(recover(&*image.storage(), domain, &models, steps), &image);
        }
    }
}

/// Crashes, and loses power at any instant of the opening that follows.
#[test]
fn a_power_loss_inside_recovery_changes_nothing_of_it() {
    let (controller, models) = history(DOMAIN, None);
    let extremes = Budget { exhaustive_pending: 0, samples: 0, ..BUDGET };
    for (cut, steps) in cuts(&controller).step_by(3) {
        for image in controller.images(cut, &extremes, 1).chain([controller.process_kill(cut)]) {
            let restarted = image.restart();
            drop(Pool::<Traced>::open(&*restarted.storage(), "pool", &options(DOMAIN)).unwrap());
            for again in 0..=restarted.events() {
                let budget = Budget { exhaustive_pending: 3, samples: 3, ..BUDGET };
                for second in restarted.images(again, &budget, 1) {
                    expect(recover(&*second.storage(), DOMAIN, &models, steps), &second);
                }
            }
        }
    }
}

/// What is left out is noticed: by a check, or by a panic over words that make no sense.
fn is_caught(dropped: (Instruction, &str)) -> bool {
    let run = || {
        let (controller, models) = history(DOMAIN, Some(dropped));
        cuts(&controller).any(|(cut, steps)| {
            let budget = Budget { exhaustive_pending: 7, samples: 30, ..BUDGET };
            controller.images(cut, &budget, 1).any(|image| recover(&*image.storage(), DOMAIN, &models, steps).is_err())
        })
    };
    catch_unwind(AssertUnwindSafe(run)).unwrap_or(true)
}

#[test]
fn no_flush_and_no_fence_can_be_left_out() {
    let sites = Instruction::sites_after(&history(DOMAIN, None).0, 0);
    let own = sites.iter().filter(|(_, site)| site.starts_with("pmwcas.")).count();
    assert!(own >= 13, "{sites:?}");
    let needless: Vec<_> = sites.into_iter().filter(|dropped| !is_caught(*dropped)).collect();
    assert!(needless.is_empty(), "{needless:?} can be left out");
}
