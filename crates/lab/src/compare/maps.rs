//! Ordered maps from integers to short values: persistent ones beside the standard library's.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, ensure};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use serde_json::json;
use terrane_pmem::Native;
use terrane_pmtree::PersistenceDomain;
use terrane_pmtree::btree::{BTree, BTreeLs, FastFair, Options, PersistentMap, PersistentUnsorted};
use terrane_pmtree::map::{self, Map};
use terrane_storage::RealStorage;

use super::{Emit, Laboratory, progress};
use crate::measure::{self, Pin};
use crate::ordered::Ordered;
use crate::report::{Bound, Table};
use crate::workload::SEED;

const NAMES: [&str; 5] = ["btree-map", "persistent_unsorted", "fast_fair", "btree_ls", "map"];
/// Bytes of a node of the trees.
const NODE_LENGTH: u64 = 1024;
/// Stores of the feature `peers`.
pub const PEERS: [&str; 2] = ["redb", "fjall"];
/// The system whose figures divide those of all others.
const BASELINE: &str = NAMES[0];
/// The place for a file if the folder to measure lies on a file system that cannot keep it.
const IN_MEMORY: &str = "/dev/shm";

impl Ordered for BTreeMap<u64, u64> {
    fn insert(&mut self, key: u64, value: u64) -> Result<()> {
        self.insert(key, value);
        Ok(())
    }

    fn get(&self, key: u64) -> Result<Option<u64>> {
        Ok(self.get(&key).copied())
    }
}

/// A tree of the family.
struct Tree<T>(T);

impl<T: PersistentMap<1, 1>> Ordered for Tree<T> {
    fn insert(&mut self, key: u64, value: u64) -> Result<()> {
        self.0.upsert(&[key], &[value])?;
        Ok(())
    }

    fn get(&self, key: u64) -> Result<Option<u64>> {
        Ok(self.0.get(&[key])?.map(|[value]| value))
    }
}

type Of<M> = BTree<M, 1, 1, Native>;

impl Ordered for Map<u64> {
    fn insert(&mut self, key: u64, value: u64) -> Result<()> {
        self.upsert(&key, &value.to_le_bytes())?;
        Ok(())
    }

    fn get(&self, key: u64) -> Result<Option<u64>> {
        let value = Map::get(self, &key)?;
        Ok(value.and_then(|value| Some(u64::from_le_bytes(value.try_into().ok()?))))
    }
}

fn create(name: &str, folder: &Path) -> Result<Box<dyn Ordered>> {
    let storage = RealStorage::new(folder);
    let options = Options { node_length: NODE_LENGTH, ..Options::new(PersistenceDomain::PageCache) };
    #[cfg(feature = "peers")]
    if let Some(peer) = crate::peers::map(name, folder)? {
        return Ok(peer);
    }
    Ok(match name {
        "btree-map" => Box::<BTreeMap<u64, u64>>::default(),
        "persistent_unsorted" => Box::new(Tree(Of::<PersistentUnsorted>::create(&storage, "map", &options)?)),
        "fast_fair" => Box::new(Tree(Of::<FastFair>::create(&storage, "map", &options)?)),
        "btree_ls" => Box::new(Tree(Of::<BTreeLs>::create(&storage, "map", &options)?)),
        _ => Box::new(Map::<u64>::create(&storage, "map", &map::Options::new())?),
    })
}

/// Fills each map once per round with random keys, and looks all of them up.
pub fn run(laboratory: &Laboratory, emit: &mut Emit<'_>) -> Result<()> {
    let count = laboratory.point_count;
    let mut random = StdRng::seed_from_u64(SEED);
    let keys: Vec<u64> = (0..count).map(|_| random.random()).collect();
    let mut asked = keys.clone();
    asked.shuffle(&mut random);
    let mut table = Table::new("maps", format!("Maps of {count} random integers to integers: CPU time"));
    table.note(format!("one thread, median of {} alternating runs, all values checked", laboratory.rounds));
    table.note("btree-map: std::collections::BTreeMap, in memory; it survives nothing");
    table.note(format!("trees: nodes of {NODE_LENGTH} bytes"));
    table.note("trees and map: in a file on the page cache; each insertion survives SIGKILL when it returns");
    let mut names = NAMES.to_vec();
    if cfg!(feature = "peers") {
        names.extend(PEERS);
        table.note("redb: a transaction for each insertion, without durability, so a kill loses all of them");
        table.note("fjall: its journal is written to the page cache and never synced; an insertion survives SIGKILL");
    }
    let _pin = Pin::to_one_core()?;
    let runs = measure::alternate(laboratory.rounds, &mut names, |name| {
        progress(name);
        let mut folder = laboratory.folder()?;
        let mut map = match create(name, folder.path()) {
            Ok(map) => map,
            Err(_) => {
                folder = tempfile::TempDir::new_in(IN_MEMORY)?;
                create(name, folder.path())?
            }
        };
        let start = measure::thread_cpu();
        for &key in &keys {
            map.insert(key, !key)?;
        }
        let inserted = measure::thread_cpu();
        for &key in &asked {
            ensure!(map.get(key)? == Some(!key), "{name}: {key} has another value");
        }
        let per = |time: std::time::Duration| time.as_nanos() as f64 / count as f64;
        Ok([per(inserted - start), per(measure::thread_cpu() - inserted)])
    })?;
    for (name, runs) in names.iter().zip(runs) {
        for (part, metric) in ["insertion", "look-up"].into_iter().enumerate() {
            let mut values: Vec<f64> = runs.iter().map(|run| run[part]).collect();
            if let Some(median) = measure::median(&mut values) {
                table.figure(name, &json!({"entries": count}), metric, median, "ns");
            }
        }
    }
    table.ratios = Some((BASELINE.to_owned(), vec!["insertion", "look-up"]));
    table.ratio_target(NAMES[1], "insertion", BASELINE, Bound::AtMost(1.5));
    table.ratio_target(NAMES[1], "look-up", BASELINE, Bound::AtMost(1.2));
    if cfg!(feature = "peers") {
        for peer in PEERS {
            // At least five times as fast.
            table.ratio_target(peer, "insertion", NAMES[1], Bound::AtLeast(5.0));
            table.ratio_target(peer, "look-up", NAMES[1], Bound::AtLeast(5.0));
        }
    }
    emit(table)
}
