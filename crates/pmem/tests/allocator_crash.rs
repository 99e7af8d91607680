//! Power losses and kills at any instant of acquiring and releasing: no block is lost, none is handed out twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use terrane_pmem::{Backend, Options, PersistenceDomain, Pool, ROOT, Site, Traced};
use terrane_storage::Storage;
use terrane_storage::crash::{Budget, Controller, Image, NameOrder};

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

fn persist(backend: &Traced, offset: u64, words: &[u64], site: Site) {
    for (place, word) in (offset..).step_by(8).zip(words) {
        backend.store(place, *word);
    }
    backend.persist(offset..offset + 8 * words.len() as u64, site);
}

fn run(pool: &Pool<Traced>, step: Step) {
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

/// The values of the list, first one last, after a check that the acquired blocks are exactly its own.
fn check(pool: &Pool<Traced>, what: &dyn std::fmt::Debug) -> Vec<u64> {
    let backend = pool.backend();
    let mut acquired = BTreeMap::new();
    pool.visit_blocks(|offset, length| assert!(acquired.insert(offset, length).is_none())).unwrap();
    let mut linked = BTreeSet::new();
    let mut values = Vec::new();
    let mut node = backend.load(ROOT);
    while node != 0 {
        assert_eq!(acquired.get(&node), Some(&64), "node {node} is not acquired: {what:?}");
        let (value, block) = (backend.load(node + 8), backend.load(node + 16));
        assert_eq!(acquired.get(&block), Some(&960), "block {block} is not acquired: {what:?}");
        assert_eq!(backend.load(block), value, "{what:?}");
        assert!(linked.insert(node) && linked.insert(block), "linked twice: {what:?}");
        values.push(value);
        node = backend.load(node);
    }
    assert_eq!(acquired.into_keys().collect::<BTreeSet<_>>(), linked, "blocks are lost: {what:?}");
    values.reverse();
    values
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

/// Runs the steps, a mark after each; the list before each step and at the end.
fn history(domain: PersistenceDomain) -> (Arc<Controller>, Vec<Vec<u64>>) {
    let controller = Controller::new();
    let pool: Pool<Traced> = Pool::create(&*controller.storage(), "pool", &options(domain)).unwrap();
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
        assert_eq!(check(&pool, &step), model);
        models.push(model);
    }
    (controller, models)
}

/// Checks what a crash has left after so many steps, and that it works on.
fn recover(image: &Image, storage: &dyn Storage, domain: PersistenceDomain, models: &[Vec<u64>], steps: usize) {
    let pool = open(storage, domain);
    let found = check(&pool, image);
    let possible = &models[steps..(steps + 2).min(models.len())];
    assert!(possible.contains(&found), "{found:?} instead of one of {possible:?}: {image:?}");
    let mut model = found;
    for step in [Step::Push(7), Step::Push(8), Step::Replace(9), Step::Pop] {
        run(&pool, step);
        run_model(&mut model, step);
        assert_eq!(check(&pool, image), model, "{image:?}");
    }
    while !model.is_empty() {
        run(&pool, Step::Pop);
        run_model(&mut model, Step::Pop);
    }
    assert_eq!(check(&pool, image), model, "{image:?}");
}

fn steps_done(controller: &Controller, cut: usize) -> Option<usize> {
    controller.marks(cut).last().map(|&number| number as usize)
}

#[test]
fn a_power_loss_at_any_instant_loses_no_block_and_hands_none_out_twice() {
    for domain in [PersistenceDomain::Adr, PersistenceDomain::Eadr] {
        let (controller, models) = history(domain);
        for cut in 0..=controller.events() {
            let Some(steps) = steps_done(&controller, cut) else { continue };
            let images = controller.images(cut, &BUDGET, 1);
            assert!(images.is_exhaustive(), "after {cut} events");
            for image in images {
                recover(&image, &*image.storage(), domain, &models, steps);
            }
        }
    }
}

#[test]
fn a_kill_at_any_instant_loses_no_block_and_hands_none_out_twice() {
    for domain in [PersistenceDomain::Adr, PersistenceDomain::Eadr, PersistenceDomain::PageCache] {
        let (controller, models) = history(domain);
        for cut in 0..=controller.events() {
            let Some(steps) = steps_done(&controller, cut) else { continue };
            let image = controller.process_kill(cut);
            recover(&image, &*image.storage(), domain, &models, steps);
        }
    }
}

/// Crashes, and loses power at any instant of the opening that follows.
#[test]
fn a_power_loss_inside_recovery_changes_nothing_of_it() {
    let domain = PersistenceDomain::Adr;
    let (controller, models) = history(domain);
    for cut in 0..=controller.events() {
        let Some(steps) = steps_done(&controller, cut) else { continue };
        let sampled = Budget { exhaustive_pending: 0, samples: 0, ..BUDGET };
        let losses = controller.images(cut, &sampled, 1);
        for image in losses.chain([controller.process_kill(cut)]) {
            let restarted = image.restart();
            drop(open(&*restarted.storage(), domain));
            for again in 0..=restarted.events() {
                for second in restarted.images(again, &Budget { exhaustive_pending: 4, samples: 4, ..BUDGET }, 1) {
                    recover(&second, &*second.storage(), domain, &models, steps);
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
