//! B+-trees beside a `BTreeMap`.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use rand::rngs::SmallRng;
use rand::seq::IteratorRandom;
use rand::{Rng, SeedableRng};
use terrane_pmem::{Counted, Counters, Dropping, Traced};
use terrane_pmtree::PersistenceDomain;
use terrane_pmtree::btree::{BTree, Compared, Options, PersistentUnsorted};
use terrane_testkit::MemoryStorage;

type Unsorted<const K: usize, const V: usize, B> = BTree<PersistentUnsorted, K, V, B>;

fn options(node_length: u64, domain: PersistenceDomain) -> Options {
    let mut options = Options { node_length, ..Options::new(domain) };
    options.pool.chunk_length = 1 << 18;
    options.pool.address_space = 1 << 32;
    options
}

fn wide<const N: usize>(number: u64) -> [u64; N] {
    std::array::from_fn(|word| if word + 1 < N { number >> 3 } else { number & 7 })
}

/// Random operations, with as many keys as make several levels. Values repeat and may be zero.
fn agrees_with_a_map<const K: usize, const V: usize>(node_length: u64, keys: u64, seed: u64) {
    let storage = MemoryStorage::new();
    let options = options(node_length, PersistenceDomain::PageCache);
    let mut tree = Unsorted::<K, V, Dropping<Traced>>::create(&storage, "tree", &options).unwrap();
    let mut model: BTreeMap<[u64; K], [u64; V]> = BTreeMap::new();
    let mut random = SmallRng::seed_from_u64(seed);
    for round in 0..6 {
        for _ in 0..keys {
            let key = wide(random.random_range(0..keys));
            let (value, other) = (wide(random.random_range(0..3)), wide(random.random_range(0..3)));
            let before = model.get(&key).copied();
            match random.random_range(0..10) {
                0..3 => {
                    assert_eq!(tree.insert(&key, &value).unwrap(), before.is_none());
                    model.entry(key).or_insert(value);
                }
                3 => {
                    assert_eq!(tree.upsert(&key, &value).unwrap(), before);
                    model.insert(key, value);
                }
                4 => {
                    assert_eq!(tree.update(&key, &value).unwrap(), before);
                    model.entry(key).and_modify(|before| *before = value);
                }
                5 => {
                    let expected = match before {
                        None => Compared::Absent,
                        Some(before) if before == other => Compared::Updated,
                        Some(before) => Compared::Different(before),
                    };
                    assert_eq!(tree.compare_and_update(&key, &other, &value).unwrap(), expected);
                    if expected == Compared::Updated {
                        model.insert(key, value);
                    }
                }
                // In every second round more is removed than inserted.
                6..8 if round % 2 == 0 => assert_eq!(tree.get(&key).unwrap(), before),
                _ => {
                    let key = model.keys().choose(&mut random).copied().unwrap_or(key);
                    assert_eq!(tree.remove(&key).unwrap(), model.remove(&key));
                }
            }
        }
        assert_eq!(tree.check().unwrap().entries, model.len() as u64, "seed {seed}");
        for _ in 0..20 {
            let [low, high] = [random.random_range(0..keys), random.random_range(0..keys)];
            let (low, high) = (wide::<K>(low.min(high)), wide::<K>(low.max(high)));
            let from = [Bound::Included(low), Bound::Excluded(low), Bound::Unbounded][random.random_range(0..3)];
            let mut found = Vec::new();
            tree.range((from, Bound::Included(high)), |key, value| {
                found.push((*key, *value));
                ControlFlow::Continue(())
            })
            .unwrap();
            let is_behind = |key: &[u64; K]| match from {
                Bound::Included(low) => *key >= low,
                Bound::Excluded(low) => *key > low,
                Bound::Unbounded => true,
            };
            let expected = model.iter().filter(|(key, _)| is_behind(key) && **key <= high);
            let expected: Vec<_> = expected.map(|(key, value)| (*key, *value)).collect();
            assert_eq!(found, expected, "seed {seed}");
        }
        drop(tree);
        tree = BTree::open(&storage, "tree", &options).unwrap();
    }
    let keys: Vec<[u64; K]> = model.keys().copied().collect();
    keys.iter().for_each(|key| assert_eq!(tree.remove(key).unwrap(), model.remove(key)));
    let census = tree.check().unwrap();
    assert_eq!((census.entries, census.leaves, census.height), (0, 1, 0), "seed {seed}");
}

#[test]
fn a_tree_agrees_with_a_btree_map_in_every_width_and_node_length() {
    agrees_with_a_map::<1, 1>(128, 600, 1);
    agrees_with_a_map::<2, 2>(128, 300, 2);
    agrees_with_a_map::<2, 2>(512, 3000, 3);
    agrees_with_a_map::<1, 2>(192, 600, 4);
    agrees_with_a_map::<4, 8>(448, 300, 5);
    // Bitmaps of two and of four words.
    agrees_with_a_map::<1, 1>(4096, 6000, 6);
    agrees_with_a_map::<2, 2>(4096, 3000, 7);
}

#[test]
fn other_shapes_are_refused() {
    let storage = MemoryStorage::new();
    let asked = options(512, PersistenceDomain::PageCache);
    drop(Unsorted::<2, 2, Traced>::create(&storage, "tree", &asked).unwrap());
    let error = Unsorted::<2, 1, Traced>::open(&storage, "tree", &asked).unwrap_err().to_string();
    assert!(error.contains("keys of 16 and values of 16 bytes, not of keys of 16 and values of 8 bytes"), "{error}");
    let error = Unsorted::<8, 8, Traced>::create(&storage, "other", &options(128, PersistenceDomain::PageCache));
    assert!(error.unwrap_err().to_string().contains("cannot hold keys of 64 and values of 64 bytes"));
}

/// Flushes and fences of insertions into nodes of 512 bytes, with 16-byte keys and values, splits
/// included. The paper has five of each.
#[test]
fn an_insertion_takes_at_most_four_flushes_and_four_fences() {
    const WARM_UP: u64 = 20_000;
    const COUNTED: u64 = 20_000;
    let options = options(512, PersistenceDomain::Adr);
    let tree = Unsorted::<2, 2, Counted<Traced>>::create(&MemoryStorage::new(), "tree", &options).unwrap();
    let mut random = SmallRng::seed_from_u64(1);
    let mut insert = |count: u64| {
        (0..count).for_each(|_| assert!(tree.insert(&random.random(), &random.random()).unwrap()));
        tree.pool().backend().take()
    };
    insert(WARM_UP);
    let Counters { flushes, fences, .. } = insert(COUNTED);
    let of_one = |count: u64| count as f64 / COUNTED as f64;
    println!("{:.2} flushes and {:.2} fences", of_one(flushes), of_one(fences));
    assert!(flushes <= 4 * COUNTED && fences <= 4 * COUNTED, "{flushes} flushes, {fences} fences");
}
