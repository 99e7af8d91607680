//! Maps beside a `BTreeMap`, with values in slots and in blocks.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use terrane_pmem::Traced;
use terrane_pmem::interrupting::{At, Interrupting, interrupt};
use terrane_pmtree::map::{Map, Options, VALUE_LENGTH_MAX};
use terrane_pmtree::{Error, PersistenceDomain};
use terrane_testkit::MemoryStorage;

fn options(key_slot: u64) -> Options {
    let mut options = Options { key_slot, ..Options::on(PersistenceDomain::Adr) };
    options.pool.chunk_length = 1 << 17;
    options.pool.address_space = 1 << 30;
    options
}

/// Short values, values around the lengths of blocks, and some that are as long as any.
fn value(random: &mut SmallRng) -> Vec<u8> {
    let most = match random.random_range(0..20) {
        0 => VALUE_LENGTH_MAX,
        1..6 => 300,
        _ => 20,
    };
    let length = random.random_range(0..=most);
    (0..length).map(|_| random.random()).collect()
}

#[test]
fn a_map_agrees_with_a_btree_map_across_openings() {
    let storage = MemoryStorage::new();
    for (slot, key_length) in [(16, 12), (64, 40)] {
        let name = format!("map-{slot}");
        let mut map = Map::<str, Traced>::create(&storage, &name, &options(slot)).unwrap();
        let (mut model, mut random) = (BTreeMap::new(), SmallRng::seed_from_u64(slot));
        for step in 0..3000 {
            let key = format!("{:0key_length$}", random.random_range(0..200));
            let is_growing = step % 1500 < 1000;
            match random.random_range(0..if is_growing { 6 } else { 11 }) {
                0 => {
                    let value = value(&mut random);
                    assert_eq!(map.insert(&key, &value).unwrap(), !model.contains_key(&key), "step {step}");
                    model.entry(key).or_insert(value);
                }
                1 | 2 => {
                    let value = value(&mut random);
                    assert_eq!(map.upsert(&key, &value).unwrap(), model.insert(key, value).is_some(), "step {step}");
                }
                3 => {
                    let (value, other) = (value(&mut random), value(&mut random));
                    let is_expected = random.random() && model.contains_key(&key);
                    let expected = if is_expected { model[&key].clone() } else { other };
                    let is_same = model.get(&key) == Some(&expected);
                    assert_eq!(map.compare_and_update(&key, &expected, &value).unwrap(), is_same, "step {step}");
                    model.entry(key).and_modify(|before| {
                        if is_same {
                            *before = value
                        }
                    });
                }
                4 => {
                    let value = value(&mut random);
                    assert_eq!(map.update(&key, &value).unwrap(), model.contains_key(&key), "step {step}");
                    model.entry(key).and_modify(|before| *before = value);
                }
                5 => assert_eq!(map.get(&key).unwrap().as_ref(), model.get(&key), "step {step}"),
                _ => assert_eq!(map.remove(&key).unwrap(), model.remove(&key), "step {step}"),
            }
            if step % 500 == 499 {
                let census = map.check().unwrap();
                let long_values = model.values().filter(|value| value.len() > 15).count();
                assert_eq!((census.entries, census.long_values), (model.len() as u64, long_values as u64));
                drop(map);
                map = Map::open(&storage, &name, &options(slot)).unwrap();
                let entries: Result<BTreeMap<String, Vec<u8>>, Error> = map.iter().collect();
                assert_eq!(entries.unwrap(), model);
                let first = model.first_key_value().map(|(key, value)| (key.clone(), value.clone()));
                assert_eq!(map.first().unwrap(), first);
                let last = model.last_key_value().map(|(key, value)| (key.clone(), value.clone()));
                assert_eq!(map.last().unwrap(), last);
                let mut asked: Vec<&str> = model.keys().map(String::as_str).chain(["", "none"]).collect();
                asked.shuffle(&mut random);
                let expected: Vec<_> = asked.iter().map(|key| model.get(*key).cloned()).collect();
                assert_eq!(map.get_many(&asked).unwrap(), expected);
            }
        }
        let from = format!("{:0key_length$}", 50);
        let to = format!("{:0key_length$}", 150);
        let found: Vec<String> = map.range(from.as_str()..&to).unwrap().map(|entry| entry.unwrap().0).collect();
        assert!(found.iter().eq(model.range(from..to).map(|(key, _)| key)));
        let backwards: Vec<_> = map.iter().rev().map(Result::unwrap).collect();
        assert!(backwards.iter().rev().map(|(key, value)| (key, value)).eq(&model));
        // From both ends in turn.
        let (mut entries, mut expected) = (map.iter().map(Result::unwrap), model);
        loop {
            let (found, other) = match random.random() {
                true => (entries.next(), expected.pop_first()),
                false => (entries.next_back(), expected.pop_last()),
            };
            assert_eq!(found, other);
            if found.is_none() {
                break;
            }
        }
        drop(entries);
        map.close().unwrap();
    }
}

#[test]
fn integers_are_in_their_order_and_bytes_are_any() {
    let storage = MemoryStorage::new();
    let integers = Map::<i64, Traced>::create(&storage, "integers", &options(8)).unwrap();
    for key in [5, -3, i64::MIN, 0, i64::MAX] {
        integers.upsert(&key, &key.to_le_bytes()).unwrap();
    }
    let keys: Vec<i64> = integers.range(&-3..).unwrap().map(|entry| entry.unwrap().0).collect();
    assert_eq!(keys, [-3, 0, 5, i64::MAX]);
    let bytes = Map::<[u8], Traced>::create(&storage, "bytes", &options(8)).unwrap();
    for key in [&[0xff, 0, 1][..], &[], &[0], &[0, 0]] {
        bytes.upsert(key, key).unwrap();
    }
    let keys: Vec<Vec<u8>> = bytes.iter().map(|entry| entry.unwrap().0).collect();
    assert_eq!(keys, [vec![], vec![0], vec![0, 0], vec![0xff, 0, 1]]);
}

#[test]
fn what_a_map_cannot_hold_and_maps_of_other_keys_are_refused() {
    let storage = MemoryStorage::new();
    let map = Map::<str, Traced>::create(&storage, "map", &options(16)).unwrap();
    assert!(matches!(map.get("0123456789abcdef"), Err(Error::KeyTooLong { length: 16, most: 15 })));
    let error = map.upsert("a", &vec![0; VALUE_LENGTH_MAX + 1]).unwrap_err().to_string();
    assert!(error.contains("65537 bytes, and values have up to 65536: divide it"), "{error}");
    map.upsert("a", &[7; VALUE_LENGTH_MAX]).unwrap();
    drop(map);
    let error = Map::<[u8], Traced>::open(&storage, "map", &options(16)).unwrap_err().to_string();
    assert!(error.contains("keys that are texts, not of keys that are bytes"), "{error}");
    // The slots are those of the map.
    let map = Map::<str, Traced>::open(&storage, "map", &options(64)).unwrap();
    assert!(matches!(map.get("0123456789abcdef"), Err(Error::KeyTooLong { .. })));
    let error = Map::<str, Traced>::create(&storage, "other", &options(24)).unwrap_err().to_string();
    assert!(error.contains("cannot have 24 bytes: use 8, 16, 32 or 64"), "{error}");
}

/// Readers, and writers that replace the values of the same keys by others.
#[test]
fn threads_that_replace_long_values_leave_readers_whole_ones() {
    const KEYS: u64 = 8;
    let storage = MemoryStorage::new();
    let mut map = Map::<u64, Traced>::create(&storage, "map", &options(8)).unwrap();
    let value = |number: u64| vec![number as u8; (number * 37 % 400) as usize];
    let is_whole = |found: &[u8]| {
        found.first().is_none_or(|first| {
            let all_same = found.iter().all(|byte| byte == first);
            all_same && (0..400).any(|number| value(number) == found)
        })
    };
    std::thread::scope(|scope| {
        let map = &map;
        for thread in 0..2 {
            scope.spawn(move || {
                for number in 0..2000 {
                    match number % 7 {
                        6 => _ = map.remove(&(number % KEYS)).unwrap(),
                        _ => _ = map.upsert(&(number % KEYS), &value((number + thread) % 400)).unwrap(),
                    }
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(move || {
                for number in 0..4000 {
                    let found = map.get(&(number % KEYS)).unwrap().unwrap_or_default();
                    assert!(is_whole(&found), "{found:?}");
                }
            });
        }
    });
    map.check().unwrap();
}

/// At each load of a look-up, the value is replaced, and its block is used for others.
#[test]
fn a_look_up_gives_a_whole_value_while_its_block_is_freed_and_used_again() {
    const LENGTH: usize = 100;
    type Shared = Arc<Map<u64, Interrupting>>;
    let replace = |map: &Shared| {
        for number in 2..8 {
            map.upsert(&1, &[number; LENGTH]).unwrap();
        }
        map.pool().reclaim().unwrap();
        (2..12).for_each(|key| _ = map.upsert(&key, &[key as u8; LENGTH]).unwrap());
    };
    for load in 0.. {
        let map: Shared = Arc::new(Map::create(&MemoryStorage::new(), "map", &options(8)).unwrap());
        map.upsert(&1, &[1; LENGTH]).unwrap();
        let other = Arc::clone(&map);
        let (found, is_interrupted) = interrupt(At::Load, load, move || replace(&other), || map.get(&1).unwrap());
        let found = found.unwrap();
        assert!(found.len() == LENGTH && found.iter().all(|byte| *byte == found[0]), "load {load}: {found:?}");
        if !is_interrupted {
            assert!(load > LENGTH / 8, "{load}");
            break;
        }
    }
}
