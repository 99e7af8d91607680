//! Power losses and kills at any instant of acquiring and releasing. No block is lost, none is
//! handed out twice.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use terrane_pmem::explorer::{Place, Subject};
use terrane_pmem::pmwcas::explored::Explored;
use terrane_pmem::{
    Backend, Dropping, INTENT_BLOCKS, Instruction, Options, PersistenceDomain, Pool, ROOT, Site, Traced, pmwcas,
};
use terrane_storage::Storage;
use terrane_testkit::crash::{Budget, Controller, Image, NameOrder};

const NODE: Site = Site::new("test.node");
const LINK: Site = Site::new("test.link");

const BUDGET: Budget = Budget { exhaustive_pending: 12, samples: 100, name_order: NameOrder::AnySubset };

fn options(domain: PersistenceDomain) -> Options {
    Options { chunk_length: 4096, address_space: 1 << 20, ..Options::new(1, domain) }
}

fn open(storage: &dyn Storage, domain: PersistenceDomain) -> Pool<Traced> {
    Pool::open(storage, "pool", &options(domain)).unwrap()
}

/// An operation on a list of nodes. A node has its next node, its value, and a block of its own
/// with the value again.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Adds a node at the front: two blocks, one linked in the other.
    Push(u64),
    /// Removes the first node, with its block.
    Pop,
    /// Replaces the first node by a copy with another value, and keeps its block.
    Replace(u64),
    /// Acquires two blocks and abandons them.
    GiveUp,
}

fn persist(backend: &impl Backend, offset: u64, words: &[u64], site: Site) {
    for (place, word) in (offset..).step_by(8).zip(words) {
        backend.store(place, *word);
    }
    backend.persist(offset..offset + 8 * words.len() as u64, site);
}

/// How steps end their intents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Finish,
    Retire,
}

fn run<B: Backend>(pool: &Pool<B>, step: Step, ending: Ending) {
    let backend = pool.backend();
    let first = backend.load(ROOT);
    let mut intent = pool.intent();
    match step {
        Step::Push(value) => {
            let node = intent.acquire(64, ROOT).unwrap();
            let block = intent.acquire(900, node + 16).unwrap();
            persist(backend, block, &[value], NODE);
            persist(backend, node, &[first, value, block], NODE);
            persist(backend, ROOT, &[node], LINK);
        }
        Step::Pop => {
            intent.release(first, ROOT).unwrap();
            intent.release(backend.load(first + 16), first + 16).unwrap();
            persist(backend, ROOT, &[backend.load(first)], LINK);
        }
        Step::Replace(value) => {
            let node = intent.acquire(64, ROOT).unwrap();
            let block = intent.acquire(900, node + 16).unwrap();
            intent.release(first, ROOT).unwrap();
            intent.release(backend.load(first + 16), first + 16).unwrap();
            persist(backend, block, &[value], NODE);
            persist(backend, node, &[backend.load(first), value, block], NODE);
            persist(backend, ROOT, &[node], LINK);
        }
        Step::GiveUp => {
            let node = intent.acquire(64, ROOT).unwrap();
            intent.acquire(900, node + 16).unwrap();
        }
    }
    match ending {
        Ending::Finish => intent.finish(),
        Ending::Retire => intent.retire(&pool.pin()),
    }
}

fn run_model(model: &mut Vec<u64>, step: Step) {
    match step {
        Step::Push(value) => model.push(value),
        Step::Pop => drop(model.pop()),
        Step::Replace(value) => *model.last_mut().unwrap() = value,
        Step::GiveUp => {}
    }
}

type Checked<T> = Result<T, String>;

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Checked<()> {
    if holds { Ok(()) } else { Err(what()) }
}

/// The values of the list, first one last, after a check that the acquired blocks are exactly its
/// own, or are retired.
fn check<B: Backend>(pool: &Pool<B>, ending: Ending) -> Checked<Vec<u64>> {
    let backend = pool.backend();
    let mut acquired = BTreeMap::new();
    pool.visit_blocks(|offset, length| assert!(acquired.insert(offset, length).is_none())).map_err(text)?;
    let mut linked = BTreeSet::new();
    let mut values = Vec::new();
    let mut node = backend.load(ROOT);
    while node != 0 {
        ensure(acquired.get(&node) == Some(&64), || format!("node {node} is not acquired"))?;
        let (value, block) = (backend.load(node + 8), backend.load(node + 16));
        ensure(acquired.get(&block) == Some(&960), || format!("block {block} is not acquired"))?;
        ensure(backend.load(block) == value, || format!("block {block} does not hold {value}"))?;
        ensure(linked.insert(node) && linked.insert(block), || format!("{node} or {block} is linked twice"))?;
        values.push(value);
        node = backend.load(node);
    }
    let are_as_many = ending == Ending::Retire || acquired.len() == linked.len();
    ensure(are_as_many, || format!("acquired {acquired:?}, linked {linked:?}"))?;
    values.reverse();
    Ok(values)
}

fn text(error: terrane_pmem::Error) -> String {
    error.to_string()
}

const STEPS: [Step; 9] = [
    Step::Push(1),
    Step::Push(2),
    Step::GiveUp,
    Step::Replace(3),
    Step::Pop,
    Step::Push(4),
    Step::Push(5),
    Step::Replace(6),
    Step::Pop,
];

/// An instruction that a run leaves out.
type Dropped<'a> = Option<(Instruction, &'a str)>;

fn create(controller: &Controller, domain: PersistenceDomain, dropped: Dropped<'_>) -> Pool<Dropping<Traced>> {
    let pool: Pool<Dropping<Traced>> = Pool::create(&*controller.storage(), "pool", &options(domain)).unwrap();
    if let Some((instruction, site)) = dropped {
        pool.backend().leave_out(instruction, site);
    }
    controller.mark(0);
    pool
}

/// Runs the steps without the dropped instruction, with a mark after each. Gives the list before
/// each step and at the end. The retired intents of every third step stay retired over the next
/// steps.
fn history(domain: PersistenceDomain, ending: Ending, dropped: Dropped<'_>) -> (Arc<Controller>, Vec<Vec<u64>>) {
    let controller = Controller::new();
    let pool = create(&controller, domain, dropped);
    let mut models = vec![Vec::new()];
    for (number, step) in STEPS.into_iter().enumerate() {
        let run = || {
            run(&pool, step, ending);
            if number % 3 != 0 {
                pool.reclaim().unwrap();
            }
        };
        if number % 2 == 0 {
            run();
        } else {
            // Another thread, while this one has an intent. So steps use different slots in turn,
            // and fences of the next step do not cover this one.
            let mut beside = pool.intent();
            beside.acquire(64, ROOT).unwrap();
            std::thread::scope(|scope| scope.spawn(run).join().unwrap());
            drop(beside);
        }
        controller.mark(number as u64 + 1);
        let mut model = models[number].clone();
        run_model(&mut model, step);
        assert_eq!(check(&pool, ending), Ok(model.clone()));
        models.push(model);
    }
    (controller, models)
}

/// Checks the state that a crash has left after this many steps, and that it can be used further.
fn recover(storage: &dyn Storage, domain: PersistenceDomain, models: &[Vec<u64>], steps: usize) -> Checked<()> {
    let pool: Pool<Traced> = Pool::open(storage, "pool", &options(domain)).map_err(text)?;
    let found = check(&pool, Ending::Finish)?;
    let possible = &models[steps..(steps + 2).min(models.len())];
    ensure(possible.contains(&found), || format!("{found:?} instead of one of {possible:?}"))?;
    let mut model = found;
    let emptied = std::iter::repeat_n(Step::Pop, model.len() + 1);
    for step in [Step::Push(7), Step::Push(8), Step::Replace(9), Step::Pop].into_iter().chain(emptied) {
        run(&pool, step, Ending::Finish);
        run_model(&mut model, step);
        ensure(check(&pool, Ending::Finish)? == model, || format!("{step:?} went wrong"))?;
    }
    ensure(model.is_empty(), || "there are more".to_owned())
}

fn expect(outcome: Checked<()>, image: &Image) {
    if let Err(what) = outcome {
        panic!("{what}: {image:?}");
    }
}

fn steps_done(controller: &Controller, cut: usize) -> Option<usize> {
    controller.marks(cut).last().map(|&number| number as usize)
}

const ENDINGS: [Ending; 2] = [Ending::Finish, Ending::Retire];

#[test]
fn a_power_loss_at_any_instant_loses_no_block_and_hands_none_out_twice() {
    for (domain, ending) in [PersistenceDomain::Adr, PersistenceDomain::Eadr].into_iter().flat_map(with_endings) {
        let (controller, models) = history(domain, ending, None);
        for cut in 0..=controller.events() {
            let Some(steps) = steps_done(&controller, cut) else { continue };
            let images = controller.images(cut, &BUDGET, 1);
            assert!(images.is_exhaustive(), "after {cut} events");
            for image in images {
                expect(recover(&*image.storage(), domain, &models, steps), &image);
            }
        }
    }
}

#[test]
fn a_kill_at_any_instant_loses_no_block_and_hands_none_out_twice() {
    let domains = [PersistenceDomain::Adr, PersistenceDomain::Eadr, PersistenceDomain::PageCache];
    for (domain, ending) in domains.into_iter().flat_map(with_endings) {
        let (controller, models) = history(domain, ending, None);
        for cut in 0..=controller.events() {
            let Some(steps) = steps_done(&controller, cut) else { continue };
            let image = controller.process_kill(cut);
            expect(recover(&*image.storage(), domain, &models, steps), &image);
        }
    }
}

fn with_endings(domain: PersistenceDomain) -> impl Iterator<Item = (PersistenceDomain, Ending)> {
    ENDINGS.into_iter().map(move |ending| (domain, ending))
}

/// Crashes, and loses power at any instant of the opening that follows.
#[test]
fn a_power_loss_inside_recovery_changes_nothing_of_it() {
    let domain = PersistenceDomain::Adr;
    let (controller, models) = history(domain, Ending::Retire, None);
    for cut in 0..=controller.events() {
        let Some(steps) = steps_done(&controller, cut) else { continue };
        let sampled = Budget { exhaustive_pending: 0, samples: 0, ..BUDGET };
        let losses = controller.images(cut, &sampled, 1);
        for image in losses.chain([controller.process_kill(cut)]) {
            let restarted = image.restart();
            drop(open(&*restarted.storage(), domain));
            for again in 0..=restarted.events() {
                for second in restarted.images(again, &Budget { exhaustive_pending: 4, samples: 4, ..BUDGET }, 1) {
                    expect(recover(&*second.storage(), domain, &models, steps), &second);
                }
            }
        }
    }
}

/// A chunk changes its block length. It was emptied and holds anything, also where the bitmap of
/// shorter blocks will be. Gives whether a power loss at any instant loses nothing.
fn a_chunk_can_change_its_block_length(dropped: Dropped<'_>) -> bool {
    let domain = PersistenceDomain::Adr;
    let long_chunks = Options { chunk_length: 1 << 16, ..options(domain) };
    let first = Controller::new();
    let pool: Pool<Traced> = Pool::create(&*first.storage(), "pool", &long_chunks).unwrap();
    let mut intent = pool.intent();
    let block = intent.acquire(30_000, ROOT).unwrap();
    persist(pool.backend(), block, &[u64::MAX; 64], NODE);
    intent.finish();
    pool.close().unwrap();
    let second = first.process_kill(first.events()).restart();
    let storage = second.storage();
    let reopen = || Pool::<Dropping<Traced>>::open(&*storage, "pool", &options(domain)).unwrap();
    let pool = match dropped {
        Some((instruction, site)) => Dropping::<Traced>::leaving_out(instruction, site, reopen),
        None => reopen(),
    };
    run(&pool, Step::Push(1), Ending::Finish);
    let holds_its_own = |image: Image| {
        let pool = open(&*image.storage(), domain);
        let mut acquired = 0;
        pool.visit_blocks(|_, _| acquired += 1).unwrap();
        acquired == if pool.backend().load(ROOT) == 0 { 0 } else { 2 }
    };
    (0..=second.events()).all(|cut| second.images(cut, &BUDGET, 1).all(holds_its_own))
}

#[test]
fn a_power_loss_while_a_chunk_changes_its_block_length_loses_nothing() {
    assert!(a_chunk_can_change_its_block_length(None));
    for instruction in [Instruction::Flush, Instruction::Fence] {
        let dropped = Some((instruction, "allocator.format.bitmap"));
        assert!(!a_chunk_can_change_its_block_length(dropped), "{instruction:?} can be left out");
    }
}

/// Whether recovery fails for one of the images that a power loss leaves of a run.
fn is_caught(controller: &Controller, recovers: impl Fn(&dyn Storage, usize) -> Checked<()>) -> bool {
    // With less made durable, there may be more losses than can be tried.
    let budget = Budget { exhaustive_pending: 8, ..BUDGET };
    (0..=controller.events()).any(|cut| {
        let Some(steps) = steps_done(controller, cut) else { return false };
        controller.images(cut, &budget, 1).any(|image| recovers(&*image.storage(), steps).is_err())
    })
}

#[test]
fn no_flush_and_no_fence_can_be_left_out() {
    let domain = PersistenceDomain::Adr;
    let mut not_caught = BTreeSet::new();
    let mut caught = BTreeSet::new();
    for ending in ENDINGS {
        let sites = Instruction::sites_after(&history(domain, ending, None).0, 0);
        // The pool's own tests leave out instructions for the header.
        for dropped in sites.into_iter().filter(|(_, site)| !site.starts_with("pool.")) {
            let (controller, models) = history(domain, ending, Some(dropped));
            let caught_now = is_caught(&controller, |storage, steps| recover(storage, domain, &models, steps));
            if caught_now { &mut caught } else { &mut not_caught }.insert(dropped);
        }
    }
    for dropped in Instruction::sites_after(&growth(domain, None), 0)
        .into_iter()
        .filter(|(_, site)| site.starts_with("allocator.page"))
    {
        let controller = growth(domain, Some(dropped));
        let caught_now = is_caught(&controller, |storage, _| recover_growth(storage, domain));
        if caught_now { &mut caught } else { &mut not_caught }.insert(dropped);
    }
    // The instructions that the explorer leaves to this test.
    let subject = &Explored::configurations()[0];
    for left in subject.places().iter().flat_map(Place::dropped) {
        let is_left =
            subject.shown_by(&left).is_some_and(|test| test.starts_with("pmem/tests/allocator_crash.rs: no_f"));
        assert!(!is_left || caught.contains(&(left.instruction, left.site.as_str())), "{left}: {caught:?}");
    }
    let needless: Vec<_> = not_caught.difference(&caught).collect();
    assert!(needless.is_empty(), "{needless:?} can be left out");
}

/// More intents at a time than a new pool has slots, each with a block. The blocks held arbitrary
/// contents before. At the end one block is linked. Marks begin where the slots run out.
fn growth(domain: PersistenceDomain, dropped: Dropped<'_>) -> Arc<Controller> {
    let controller = Controller::new();
    let pool: Pool<Dropping<Traced>> = Pool::create(&*controller.storage(), "pool", &options(domain)).unwrap();
    let mut intent = pool.intent();
    let block = intent.acquire(3904, ROOT).unwrap();
    persist(pool.backend(), block, &[u64::MAX], NODE);
    persist(pool.backend(), block + 64, &[u64::MAX; 4], NODE);
    drop(intent);
    let mut intents: Vec<_> = (0..32).map(|_| pool.intent()).collect();
    for (number, intent) in intents.iter_mut().enumerate() {
        if number == 31 {
            if let Some((instruction, site)) = dropped {
                pool.backend().leave_out(instruction, site);
            }
            controller.mark(0);
        }
        let block = intent.acquire(64, ROOT).unwrap();
        if number == 31 {
            persist(pool.backend(), block, &[7], NODE);
            persist(pool.backend(), ROOT, &[block], LINK);
        }
    }
    drop(intents.pop());
    std::mem::forget(intents);
    controller
}

/// Checks that at most one block is left, and that the same again fits into the existing slots.
fn recover_growth(storage: &dyn Storage, domain: PersistenceDomain) -> Checked<()> {
    let pool: Pool<Traced> = Pool::open(storage, "pool", &options(domain)).map_err(text)?;
    let mut blocks = Vec::new();
    pool.visit_blocks(|block, _| blocks.push(block)).map_err(text)?;
    let linked = pool.backend().load(ROOT);
    ensure(blocks == Vec::from_iter((linked != 0).then_some(linked)), || format!("{blocks:?}, linked {linked}"))?;
    pool.backend().store(ROOT, 0);
    let mut lengths = Vec::new();
    for _ in 0..2 {
        let mut intents: Vec<_> = (0..32).map(|_| pool.intent()).collect();
        for intent in &mut intents {
            intent.acquire(64, ROOT).map_err(text)?;
        }
        lengths.push(pool.length());
    }
    ensure(lengths[0] == lengths[1], || "it grows and grows".to_owned())
}

#[test]
fn a_crash_at_any_instant_while_slots_are_added_loses_none_and_no_block() {
    for domain in [PersistenceDomain::Adr, PersistenceDomain::Eadr, PersistenceDomain::PageCache] {
        let controller = growth(domain, None);
        for cut in (0..=controller.events()).filter(|&cut| steps_done(&controller, cut).is_some()) {
            let power_losses = controller.images(cut, &Budget { samples: 20, ..BUDGET }, 1);
            let power_losses = power_losses.filter(|_| domain != PersistenceDomain::PageCache);
            for image in power_losses.chain([controller.process_kill(cut)]) {
                expect(recover_growth(&*image.storage(), domain), &image);
            }
        }
    }
}

fn blocks_of(pool: &Pool<Traced>) -> Vec<u64> {
    let mut blocks = Vec::new();
    pool.visit_blocks(|block, _| blocks.push(block)).unwrap();
    blocks
}

/// The word that linked to a retired block now lies in another owner's block, and holds by chance
/// its old value.
#[test]
fn a_retired_block_is_free_whatever_its_link_holds_later() {
    for domain in [PersistenceDomain::Adr, PersistenceDomain::Eadr, PersistenceDomain::PageCache] {
        let controller = Controller::new();
        let pool = create(&controller, domain, None);
        run(&pool, Step::Push(1), Ending::Finish);
        let backend = pool.backend();
        let node = backend.load(ROOT);
        let child = backend.load(node + 16);
        let mut intent = pool.intent();
        intent.release(child, node + 16).unwrap();
        persist(backend, node + 16, &[0], LINK);
        intent.retire(&pool.pin());
        let mut intent = pool.intent();
        intent.release(node, ROOT).unwrap();
        persist(backend, ROOT, &[0], LINK);
        intent.finish();
        let mut intent = pool.intent();
        assert_eq!(intent.acquire(64, ROOT).unwrap(), node);
        persist(backend, node + 16, &[child], NODE);
        persist(backend, ROOT, &[node], LINK);
        intent.finish();
        let image = controller.process_kill(controller.events());
        assert_eq!(blocks_of(&open(&*image.storage(), domain)), [node], "{domain:?}");
    }
}

/// A crash leaves two intents: one has freed a block, and a block of the other one is linked only
/// there.
#[test]
fn what_a_free_block_links_is_free() {
    for domain in [PersistenceDomain::Adr, PersistenceDomain::Eadr, PersistenceDomain::PageCache] {
        let controller = Controller::new();
        let pool = create(&controller, domain, None);
        let backend = pool.backend();
        let mut intent = pool.intent();
        let parent = intent.acquire(64, ROOT).unwrap();
        persist(backend, ROOT, &[parent], LINK);
        intent.finish();
        let mut of_child = pool.intent();
        let child = of_child.acquire(64, parent + 16).unwrap();
        persist(backend, parent + 16, &[child], NODE);
        let mut intent = pool.intent();
        intent.release(parent, ROOT).unwrap();
        persist(backend, ROOT, &[0], LINK);
        intent.finish();
        let image = controller.process_kill(controller.events());
        assert_eq!(blocks_of(&open(&*image.storage(), domain)), [0; 0], "{domain:?}");
        drop(of_child);
    }
}

/// A kill interrupts an operation before it is executed. Recovery settles it before the intent.
#[test]
fn what_a_block_links_that_an_operation_frees_is_free() {
    let controller = Controller::new();
    let pool = create(&controller, PersistenceDomain::Adr, None);
    let guard = pool.pin();
    let mut operation = pmwcas::Descriptor::new(&pool, &guard).unwrap();
    let parent = operation.acquire(64).unwrap();
    let mut of_child = pool.intent();
    let child = of_child.acquire(64, parent + 16).unwrap();
    persist(pool.backend(), parent + 16, &[child], NODE);
    let image = controller.process_kill(controller.events());
    assert_eq!(blocks_of(&open(&*image.storage(), PersistenceDomain::Adr)), [0; 0]);
    drop((of_child, operation));
}

/// An operation on several words may have left them.
#[test]
fn flags_in_a_link_are_no_part_of_it() {
    let controller = Controller::new();
    let pool = create(&controller, PersistenceDomain::Adr, None);
    let mut intent = pool.intent();
    let block = intent.acquire(64, ROOT).unwrap();
    persist(pool.backend(), ROOT, &[block | pmwcas::FLAGS], LINK);
    let image = controller.process_kill(controller.events());
    assert_eq!(blocks_of(&open(&*image.storage(), PersistenceDomain::Adr)), [block]);
    drop(intent);
}

/// Its entries take two lines. A later session frees whatever it finds in either of them.
#[test]
fn blocks_that_an_intent_of_two_lines_has_named_are_not_freed_when_others_have_them() {
    const LATER: u64 = 12;
    let all = INTENT_BLOCKS as u64;
    let options = Options { chunk_length: 1 << 14, ..options(PersistenceDomain::Adr) };
    for (is_linked, ending) in [(false, Ending::Finish), (true, Ending::Finish), (true, Ending::Retire)] {
        let controller = Controller::new();
        let pool: Pool<Traced> = Pool::create(&*controller.storage(), "pool", &options).unwrap();
        let backend = pool.backend();
        let links = {
            let mut intent = pool.intent();
            let links = intent.acquire((all + LATER) * 8, ROOT).unwrap();
            persist(backend, links, &[0; INTENT_BLOCKS + LATER as usize], NODE);
            persist(backend, ROOT, &[links], LINK);
            intent.finish();
            links
        };
        let acquire = |numbers: Range<u64>, is_linked: bool| {
            let mut intent = pool.intent();
            for link in numbers.map(|number| links + 8 * number) {
                let block = intent.acquire(64, link).unwrap();
                if is_linked {
                    persist(backend, block, &[link], NODE);
                    persist(backend, link, &[block], LINK);
                }
            }
            intent.finish();
        };
        let first = controller.events();
        acquire(0..all, is_linked);
        if is_linked {
            let mut intent = pool.intent();
            for link in (0..all).map(|number| links + 8 * number) {
                intent.release(backend.load(link), link).unwrap();
                persist(backend, link, &[0], LINK);
            }
            match ending {
                Ending::Finish => intent.finish(),
                Ending::Retire => intent.retire(&pool.pin()),
            }
            pool.reclaim().unwrap();
        }
        (all..all + LATER).for_each(|number| acquire(number..number + 1, true));
        let budget = Budget { exhaustive_pending: 6, samples: 10, ..BUDGET };
        for cut in first..=controller.events() {
            for image in controller.images(cut, &budget, 7) {
                let pool: Pool<Traced> = Pool::open(&*image.storage(), "pool", &options).unwrap();
                let mut acquired = BTreeSet::new();
                pool.visit_blocks(|block, _| assert!(acquired.insert(block))).unwrap();
                for link in (0..all + LATER).map(|number| links + 8 * number) {
                    let block = pool.backend().load(link);
                    let what = format!("linked: {is_linked}, {ending:?}, {cut} of {first}: {image:?}");
                    assert!(block == 0 || acquired.contains(&block), "{block} is linked and free; {what}");
                }
            }
        }
    }
}
