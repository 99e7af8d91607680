//! Power losses and kills at any instant of acquiring and releasing: no block is lost, none is handed out twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use terrane_pmem::{Backend, Dropping, Instruction, Options, PersistenceDomain, Pool, ROOT, Site, Traced};
use terrane_storage::Storage;
use terrane_storage::crash::{Budget, Controller, Event, Image, NameOrder, PoolEvent};

const NODE: Site = Site::new("test.node");
const LINK: Site = Site::new("test.link");

const BUDGET: Budget = Budget { exhaustive_pending: 12, samples: 100, name_order: NameOrder::AnySubset };

fn options(domain: PersistenceDomain) -> Options {
    Options { chunk_length: 4096, address_space: 1 << 20, ..Options::new(1, domain) }
}

fn open(storage: &dyn Storage, domain: PersistenceDomain) -> Pool<Traced> {
    Pool::open(storage, "pool", &options(domain)).unwrap()
}

/// What is done to a list of nodes; a node is its next node, its value, and a block of its own with the
/// value once more.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Puts a node in front: two blocks, one linked in the other.
    Push(u64),
    /// Takes the first node off, with its block.
    Pop,
    /// Puts a copy with another value in the place of the first node, and keeps its block.
    Replace(u64),
    /// Acquires two blocks and gives them up.
    GiveUp,
}

fn persist(backend: &impl Backend, offset: u64, words: &[u64], site: Site) {
    for (place, word) in (offset..).step_by(8).zip(words) {
        backend.store(place, *word);
    }
    backend.persist(offset..offset + 8 * words.len() as u64, site);
}

fn run<B: Backend>(pool: &Pool<B>, step: Step) {
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
    intent.finish();
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

/// The values of the list, first one last, after a check that the acquired blocks are exactly its own.
fn check<B: Backend>(pool: &Pool<B>) -> Checked<Vec<u64>> {
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
    ensure(acquired.keys().eq(&linked), || format!("acquired {acquired:?}, linked {linked:?}"))?;
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

/// Runs the steps, a mark after each, without the instruction that is to be left out; the list before each
/// step and at the end.
fn history(domain: PersistenceDomain, dropped: Option<(Instruction, &str)>) -> (Arc<Controller>, Vec<Vec<u64>>) {
    let controller = Controller::new();
    let pool: Pool<Dropping<Traced>> = Pool::create(&*controller.storage(), "pool", &options(domain)).unwrap();
    if let Some((instruction, site)) = dropped {
        pool.backend().leave_out(instruction, site);
    }
    controller.mark(0);
    let mut models = vec![Vec::new()];
    for (number, step) in STEPS.into_iter().enumerate() {
        if number % 2 == 0 {
            run(&pool, step);
        } else {
            // Another thread, and while this one has an intent: so steps use different slots in turn, and
            // what one has not fenced, the next one does not.
            let beside = pool.intent();
            std::thread::scope(|scope| scope.spawn(|| run(&pool, step)).join().unwrap());
            beside.finish();
        }
        controller.mark(number as u64 + 1);
        let mut model = models[number].clone();
        run_model(&mut model, step);
        assert_eq!(check(&pool), Ok(model.clone()));
        models.push(model);
    }
    (controller, models)
}

/// Checks what a crash has left after so many steps, and that it works on.
fn recover(storage: &dyn Storage, domain: PersistenceDomain, models: &[Vec<u64>], steps: usize) -> Checked<()> {
    let pool: Pool<Traced> = Pool::open(storage, "pool", &options(domain)).map_err(text)?;
    let found = check(&pool)?;
    let possible = &models[steps..(steps + 2).min(models.len())];
    ensure(possible.contains(&found), || format!("{found:?} instead of one of {possible:?}"))?;
    let mut model = found;
    let emptied = std::iter::repeat_n(Step::Pop, model.len() + 1);
    for step in [Step::Push(7), Step::Push(8), Step::Replace(9), Step::Pop].into_iter().chain(emptied) {
        run(&pool, step);
        run_model(&mut model, step);
        ensure(check(&pool)? == model, || format!("{step:?} went wrong"))?;
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

#[test]
fn a_power_loss_at_any_instant_loses_no_block_and_hands_none_out_twice() {
    for domain in [PersistenceDomain::Adr, PersistenceDomain::Eadr] {
        let (controller, models) = history(domain, None);
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
    for domain in [PersistenceDomain::Adr, PersistenceDomain::Eadr, PersistenceDomain::PageCache] {
        let (controller, models) = history(domain, None);
        for cut in 0..=controller.events() {
            let Some(steps) = steps_done(&controller, cut) else { continue };
            let image = controller.process_kill(cut);
            expect(recover(&*image.storage(), domain, &models, steps), &image);
        }
    }
}

/// Crashes, and loses power at any instant of the opening that follows.
#[test]
fn a_power_loss_inside_recovery_changes_nothing_of_it() {
    let domain = PersistenceDomain::Adr;
    let (controller, models) = history(domain, None);
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

/// A chunk that was emptied holds anything, also where the bitmap of shorter blocks will be.
#[test]
fn a_power_loss_while_a_chunk_changes_its_block_length_loses_nothing() {
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
    run(&open(&*second.storage(), domain), Step::Push(1));
    for cut in 0..=second.events() {
        for image in second.images(cut, &BUDGET, 1) {
            let pool = open(&*image.storage(), domain);
            let mut acquired = 0;
            pool.visit_blocks(|_, _| acquired += 1).unwrap();
            assert_eq!(acquired, if pool.backend().load(ROOT) == 0 { 0 } else { 2 }, "{image:?}");
        }
    }
}

/// The names under which the run flushes and fences, after the pool was created.
fn sites(controller: &Controller) -> BTreeSet<(Instruction, &'static str)> {
    let events = controller.log();
    let first = events.iter().position(|event| *event == Event::Mark(0)).unwrap();
    let site = |event: &Event| match event {
        Event::Pool(PoolEvent::Flush { site, .. }) => Some((Instruction::Flush, *site)),
        Event::Pool(PoolEvent::Fence { site, .. }) => Some((Instruction::Fence, *site)),
        _ => None,
    };
    events[first..].iter().filter_map(site).collect()
}

#[test]
fn no_flush_and_no_fence_can_be_left_out() {
    let domain = PersistenceDomain::Adr;
    let sites = sites(&history(domain, None).0);
    let of_allocator = sites.iter().filter(|(_, site)| site.starts_with("allocator.")).count();
    assert!(of_allocator > 0, "{sites:?}");
    for dropped in sites {
        let (controller, models) = history(domain, Some(dropped));
        let is_caught = (0..=controller.events()).any(|cut| {
            let Some(steps) = steps_done(&controller, cut) else { return false };
            // With less made durable, more may be lost than can be tried.
            let budget = Budget { exhaustive_pending: 8, ..BUDGET };
            controller.images(cut, &budget, 1).any(|image| recover(&*image.storage(), domain, &models, steps).is_err())
        });
        assert!(is_caught, "{dropped:?} can be left out");
    }
}
