//! Maps as subjects of the crash explorer. Two of three values have blocks of their own.

use std::borrow::Borrow;

use terrane_pmem::explorer::Checked;
use terrane_pmem::{Dropping, Traced};
use terrane_storage::Storage;

use super::btree::{MapModel, MapStep, NAME, NarrowMap, text};
use crate::btree;
use crate::map::{Key, Map, Options};

/// Bytes of a slot for a text.
const KEY_SLOT: u64 = 16;

/// Keys that stand for numbers, in the same order.
pub(super) trait Numbered: Key {
    fn of(number: u64) -> Self::Owned;

    fn number(key: &Self::Owned) -> u64;
}

impl Numbered for u64 {
    fn of(number: u64) -> u64 {
        number
    }

    fn number(key: &u64) -> u64 {
        *key
    }
}

impl Numbered for str {
    fn of(number: u64) -> String {
        format!("{number:04}")
    }

    fn number(key: &String) -> u64 {
        key.parse().unwrap_or(u64::MAX)
    }
}

/// Values of different lengths: in the slot, and in blocks of two lengths. A torn one is noticed.
fn long_value(value: u64) -> Vec<u8> {
    vec![value as u8; [3, 40, 100][(value % 3) as usize]]
}

fn number_of(value: &[u8]) -> Checked<u64> {
    let number = u64::from(value.first().copied().unwrap_or(0));
    match value == long_value(number) {
        true => Ok(number),
        false => Err(format!("a value is torn: {value:?}")),
    }
}

#[derive(Debug)]
struct Numbers<Q: Key + ?Sized>(Map<Q, Dropping<Traced>>);

/// Creates a map, or opens it.
pub(super) fn make_map<Q: Numbered + ?Sized + 'static>(
    storage: &dyn Storage,
    options: &btree::Options,
    is_new: bool,
) -> Checked<Box<dyn NarrowMap>> {
    let &btree::Options { node_length, ref pool, .. } = options;
    let options = Options { key_slot: KEY_SLOT, node_length: Some(node_length), pool: pool.clone() };
    let made = if is_new { Map::create(storage, NAME, &options) } else { Map::open(storage, NAME, &options) };
    Ok(Box::new(Numbers::<Q>(made.map_err(text)?)))
}

impl<Q: Numbered + ?Sized + 'static> NarrowMap for Numbers<Q> {
    fn apply(&self, step: &MapStep) -> Checked<Option<u64>> {
        let get = |key: u64| {
            let found = self.0.get(Q::of(key).borrow()).map_err(text)?;
            found.map(|value| number_of(&value)).transpose()
        };
        let upsert = |key: u64, value: u64| self.0.upsert(Q::of(key).borrow(), &long_value(value)).map_err(text);
        match *step {
            MapStep::Insert(key, value) => {
                let before = get(key)?;
                let owned = Q::of(key);
                let is_new = self.0.insert(owned.borrow(), &long_value(value)).map_err(text)?;
                match is_new == before.is_none() {
                    true => Ok(before),
                    false => Err(format!("{step}: inserted {is_new}, was there {before:?}")),
                }
            }
            MapStep::Upsert(key, value) => {
                let before = get(key)?;
                match upsert(key, value)? == before.is_some() {
                    true => Ok(before),
                    false => Err(format!("{step}: was there {before:?}")),
                }
            }
            MapStep::CompareAndUpdate(key, from, to) => {
                let before = get(key)?;
                if before == Some(from) {
                    upsert(key, to)?;
                }
                Ok(before)
            }
            MapStep::Remove(key) => {
                let removed = self.0.remove(Q::of(key).borrow()).map_err(text)?;
                removed.map(|value| number_of(&value)).transpose()
            }
            MapStep::Get(key) => get(key),
            MapStep::Sync => Ok(None),
        }
    }

    fn entries(&mut self) -> Checked<MapModel> {
        self.0.check().map_err(text)?;
        let entry = |entry: crate::Result<(Q::Owned, Vec<u8>)>| {
            let (key, value) = entry.map_err(text)?;
            Ok((Q::number(&key), number_of(&value)?))
        };
        self.0.iter().map(entry).collect()
    }
}
