//! B+-trees and maps on disks of every small capacity. An operation for which there is no space is
//! refused, and everything stays as it was.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use rand::Rng;
use terrane_pmem::PersistenceDomain;
use terrane_pmem::interrupting::Interrupting;
use terrane_pmtree::Error;
use terrane_pmtree::PersistentTree;
use terrane_pmtree::btree::{
    BTree, BTreeLs, BTreeWal, Census, FastFair, FastFairSp, Options, PersistentMap, PersistentUnsorted,
};
use terrane_pmtree::map::{self, Map};
use terrane_testkit::{MemoryStorage, is_soak};

use crate::every_capacity::{PAGE, is_refused};
use crate::support::{ends, random};

type Of<M> = BTree<M, 1, 1, Interrupting>;
type Model = BTreeMap<u64, u64>;

fn options() -> Options {
    let mut options = Options { node_length: 128, recovery_threads: 1, ..Options::new(PersistenceDomain::Adr) };
    options.pool.chunk_length = 4 * PAGE;
    options.logs.count = 2;
    options.logs.segment_length = 1024;
    options
}

fn capacities() -> impl Iterator<Item = u64> {
    (1..64).filter(|pages| is_soak() || *pages < 8 || pages % 8 == 0)
}

/// Changes entries until it was refused often.
fn fill<T: PersistentMap<1, 1>>(tree: &T, seed: u64, model: &mut Model) {
    let (mut random, mut refused) = (random(seed), 0);
    while refused < 12 {
        let (key, value) = (random.random_range(0..100_000), random.random());
        match is_refused(ends("upsert", || tree.upsert(&[key], &[value]))) {
            true => refused += 1,
            false => _ = model.insert(key, value),
        }
    }
}

fn check<T>(tree: &mut T, model: &Model, what: &str)
where
    T: PersistentMap<1, 1> + PersistentTree<Census = Census>,
{
    let census = ends("check", || tree.check()).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(census.entries, model.len() as u64, "{what}");
    let mut entries = Model::new();
    tree.range((Bound::Unbounded, Bound::Unbounded), &mut |key, value| {
        entries.insert(key[0], value[0]);
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(&entries, model, "{what}");
}

/// Fills a tree, opens it after a kill, and empties it. Gives whether the capacity was enough for
/// an empty tree.
fn works_at<T>(pages: u64, removals_need_space: bool) -> bool
where
    T: PersistentMap<1, 1> + PersistentTree<Options = Options, Census = Census>,
{
    let what = format!("{pages} pages, {}", std::any::type_name::<T>());
    let storage = MemoryStorage::new();
    storage.set_capacity(pages * PAGE);
    let Ok(mut tree) = T::create(&storage, "tree", &options()) else { return false };
    let mut model = Model::new();
    fill(&tree, pages, &mut model);
    check(&mut tree, &model, &what);
    drop(tree);
    let opened = ends("open", || T::open(&storage, "tree", &options()));
    let mut tree = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
    check(&mut tree, &model, &what);
    fill(&tree, pages + 1, &mut model);
    check(&mut tree, &model, &what);
    let keys: Vec<u64> = model.keys().copied().collect();
    for key in keys {
        match is_refused(ends("remove", || tree.remove(&[key]))) {
            true => assert!(removals_need_space, "{what}: a removal was refused"),
            false => _ = model.remove(&key),
        }
    }
    check(&mut tree, &model, &what);
    assert!(removals_need_space || model.is_empty(), "{what}");
    true
}

#[test]
fn trees_of_every_method_refuse_what_they_have_no_space_for_at_every_capacity() {
    let mut worked = 0;
    for pages in capacities() {
        for works in [
            works_at::<Of<PersistentUnsorted>>(pages, false),
            works_at::<Of<BTreeWal>>(pages, false),
            works_at::<Of<FastFair>>(pages, false),
            works_at::<Of<FastFairSp>>(pages, false),
            works_at::<Of<BTreeLs>>(pages, true),
        ] {
            worked += usize::from(works);
        }
    }
    assert!(worked > 20, "{worked}");
}

type Long = Map<u64, Interrupting>;

fn map_options() -> map::Options {
    let mut options = map::Options::on(PersistenceDomain::Adr);
    options.node_length = Some(192);
    options.pool.chunk_length = 8 * PAGE;
    options
}

/// Long and short values of a few keys, until it was refused often.
fn fill_map(map: &Long, seed: u64, keys: u64, model: &mut BTreeMap<u64, Vec<u8>>) {
    let (mut random, mut refused) = (random(seed), 0);
    while refused < 12 {
        let key = random.random_range(0..keys);
        let value = vec![random.random(); random.random_range(0..8) * 40];
        match random.random_range(0..4) {
            0 => match is_refused(ends("remove", || map.remove(&key))) {
                true => refused += 1,
                false => _ = model.remove(&key),
            },
            _ => match is_refused(ends("upsert", || map.upsert(&key, &value))) {
                true => refused += 1,
                false => _ = model.insert(key, value),
            },
        }
    }
}

fn check_map(map: &mut Long, model: &BTreeMap<u64, Vec<u8>>, what: &str) {
    let census = ends("check", || map.check()).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(census.entries, model.len() as u64, "{what}");
    let entries: Result<BTreeMap<u64, Vec<u8>>, Error> = map.iter().collect();
    assert_eq!(&entries.unwrap(), model, "{what}");
}

fn map_works_at(pages: u64) -> bool {
    let what = format!("{pages} pages");
    let storage = MemoryStorage::new();
    storage.set_capacity(pages * PAGE);
    let Ok(mut map) = Long::create(&storage, "map", &map_options()) else { return false };
    let mut model = BTreeMap::new();
    {
        // A reader keeps blocks and slots of intents in use, so few keys fill the disk.
        let _reader = map.pool().pin();
        fill_map(&map, pages, 12, &mut model);
    }
    check_map(&mut map, &model, &what);
    fill_map(&map, pages + 1, 100_000, &mut model);
    check_map(&mut map, &model, &what);
    drop(map);
    let opened = ends("open", || Long::open(&storage, "map", &map_options()));
    let mut map = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
    check_map(&mut map, &model, &what);
    for (key, value) in model {
        assert_eq!(ends("remove", || map.remove(&key)).unwrap(), Some(value), "{what}");
    }
    check_map(&mut map, &BTreeMap::new(), &what);
    true
}

#[test]
fn a_map_refuses_what_it_has_no_space_for_at_every_capacity() {
    assert!(capacities().filter(|pages| map_works_at(*pages)).count() > 4);
}
