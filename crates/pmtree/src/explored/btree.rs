//! The B+-trees as subjects of the crash explorer.

use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::ops::{Bound, ControlFlow};
use std::str::FromStr;
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use terrane_pmem::explorer::{Checked, Dropped, Place, Subject};
use terrane_pmem::{Backend, Dropping, Traced};
use terrane_storage::{File, OpenMode, Storage};

use super::map::make_map;
use super::subject::{MEDIA, in_small_chunks};
use crate::btree::{
    BTree, BTreeLs, BTreeWal, Compared, FastFair, FastFairSp, LogOptions, Options, PersistentMap, PersistentUnsorted,
};
use crate::{Durability, PersistenceDomain, PersistentTree};

/// Keys of random histories. In trees of two words, four in succession differ in the second word.
const KEYS: u64 = 40;

/// Values, so few that entries have the same one.
const VALUES: u64 = 3;

/// Steps of a random history.
const STEPS: usize = 90;

const PLACES: [Place; 28] = [
    Place::both("btree.bitmap.entry"),
    Place::both("btree.bitmap.move"),
    Place::both("btree.bitmap.put"),
    Place::both("btree.bitmap.take"),
    Place::both("btree.bitmap.value"),
    Place::both("btree.create"),
    Place::both("btree.create.link"),
    Place::flush("btree.create.root"),
    Place::both("btree.fast.end"),
    Place::both("btree.fast.free"),
    Place::both("btree.fast.order"),
    Place::both("btree.fast.value"),
    Place::both("btree.inner.end"),
    Place::both("btree.inner.order"),
    Place::both("btree.log.apply"),
    Place::both("btree.log.clear"),
    Place::both("btree.log.commit"),
    Place::flush("btree.log.later"),
    Place::fence("btree.log.new"),
    Place::both("btree.ls.link"),
    Place::both("btree.ls.record"),
    Place::both("btree.ls.segment"),
    Place::both("btree.ls.unlink"),
    Place::flush("btree.new"),
    Place::both("map.note.clear"),
    Place::both("map.note.key"),
    Place::both("map.note.name"),
    Place::flush("map.value.fill"),
];

/// An operation on a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapStep {
    /// An insertion, possibly of a key that is there; prints as `+7:1`.
    Insert(u64, u64),
    /// An insertion or an update; prints as `=7:1`.
    Upsert(u64, u64),
    /// An update of the first value to the second; prints as `~7:1:2`.
    CompareAndUpdate(u64, u64, u64),
    /// A removal, possibly of a key that is not there; prints as `-7`.
    Remove(u64),
    /// A look-up; prints as `?7`.
    Get(u64),
    /// Makes everything durable that is stored, as after a pause; prints as `sync`.
    Sync,
}

impl fmt::Display for MapStep {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Insert(key, value) => write!(formatter, "+{key}:{value}"),
            Self::Upsert(key, value) => write!(formatter, "={key}:{value}"),
            Self::CompareAndUpdate(key, from, to) => write!(formatter, "~{key}:{from}:{to}"),
            Self::Remove(key) => write!(formatter, "-{key}"),
            Self::Get(key) => write!(formatter, "?{key}"),
            Self::Sync => formatter.write_str("sync"),
        }
    }
}

impl FromStr for MapStep {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if text == "sync" {
            return Ok(Self::Sync);
        }
        let numbers = text.get(1..).ok_or(())?.split(':').map(str::parse).collect::<Result<Vec<u64>, _>>();
        match (text.get(..1).ok_or(())?, numbers.map_err(drop)?.as_slice()) {
            ("+", &[key, value]) => Ok(Self::Insert(key, value)),
            ("=", &[key, value]) => Ok(Self::Upsert(key, value)),
            ("~", &[key, from, to]) => Ok(Self::CompareAndUpdate(key, from, to)),
            ("-", &[key]) => Ok(Self::Remove(key)),
            ("?", &[key]) => Ok(Self::Get(key)),
            _ => Err(()),
        }
    }
}

/// The entries.
pub type MapModel = BTreeMap<u64, u64>;

/// The result of a step: the value before, or that of a look-up.
pub fn apply_to_model(model: &mut MapModel, step: &MapStep) -> Option<u64> {
    match *step {
        MapStep::Insert(key, value) => {
            let before = model.get(&key).copied();
            model.entry(key).or_insert(value);
            before
        }
        MapStep::Upsert(key, value) => model.insert(key, value),
        MapStep::CompareAndUpdate(key, from, to) => {
            let before = model.get(&key).copied();
            if before == Some(from) {
                model.insert(key, to);
            }
            before
        }
        MapStep::Remove(key) => model.remove(&key),
        MapStep::Get(key) => model.get(&key).copied(),
        MapStep::Sync => None,
    }
}

/// The operations that the explorer needs, on keys and values of one word.
pub trait NarrowMap: Debug + Send + Sync {
    /// Takes a step other than `Sync`, and gives the value before.
    fn apply(&self, step: &MapStep) -> Checked<Option<u64>>;

    /// All entries, after a check of the structure.
    fn entries(&mut self) -> Checked<MapModel>;
}

/// A tree of any number of words.
#[derive(Debug)]
struct Wide<const K: usize, const V: usize, T>(T);

/// A key of several words, in the same order.
fn wide_key<const K: usize>(key: u64) -> [u64; K] {
    match K {
        1 => [key; K],
        _ => std::array::from_fn(|word| if word == 0 { key / 4 } else { key % 4 }),
    }
}

fn narrow_key<const K: usize>(key: &[u64; K]) -> u64 {
    if K == 1 { key[0] } else { key[0] * 4 + key[1] }
}

/// A value whose words say the same, so that a torn one is noticed.
fn wide_value<const V: usize>(value: u64) -> [u64; V] {
    [value; V]
}

pub(super) fn text(error: crate::Error) -> String {
    error.to_string()
}

fn narrow_value<const V: usize>(value: [u64; V]) -> Checked<u64> {
    match value.iter().all(|word| *word == value[0]) {
        true => Ok(value[0]),
        false => Err(format!("a value is torn: {value:?}")),
    }
}

impl<const K: usize, const V: usize, T: PersistentMap<K, V>> NarrowMap for Wide<K, V, T>
where
    T: PersistentTree<Census: Sized>,
{
    fn apply(&self, step: &MapStep) -> Checked<Option<u64>> {
        let before = match *step {
            MapStep::Insert(key, value) => {
                let key = wide_key(key);
                let before = self.0.get(&key).map_err(text)?;
                let is_new = self.0.insert(&key, &wide_value(value)).map_err(text)?;
                if is_new == before.is_some() {
                    return Err(format!("{step}: inserted {is_new}, was there {before:?}"));
                }
                before
            }
            MapStep::Upsert(key, value) => self.0.upsert(&wide_key(key), &wide_value(value)).map_err(text)?,
            MapStep::CompareAndUpdate(key, from, to) => {
                let (from, to) = (wide_value(from), wide_value(to));
                match self.0.compare_and_update(&wide_key(key), &from, &to).map_err(text)? {
                    Compared::Updated => Some(from),
                    Compared::Different(before) => Some(before),
                    Compared::Absent => None,
                }
            }
            MapStep::Remove(key) => self.0.remove(&wide_key(key)).map_err(text)?,
            MapStep::Get(key) => self.0.get(&wide_key(key)).map_err(text)?,
            MapStep::Sync => None,
        };
        before.map(narrow_value).transpose()
    }

    fn entries(&mut self) -> Checked<MapModel> {
        self.0.check().map_err(text)?;
        let (mut model, mut torn) = (MapModel::new(), Ok(0));
        let everything = (Bound::Unbounded, Bound::Unbounded);
        let scanned = self.0.range(everything, &mut |key, value| {
            match narrow_value(*value) {
                Ok(value) => _ = model.insert(narrow_key(key), value),
                error => torn = error,
            }
            ControlFlow::Continue(())
        });
        scanned.map_err(text)?;
        torn.map(|_| model)
    }
}

/// A tree whose flushes and fences can be left out.
type Traceable<M, const K: usize, const V: usize> = BTree<M, K, V, Dropping<Traced>>;

type Make = fn(&dyn Storage, &Options, bool) -> Checked<Box<dyn NarrowMap>>;

pub(super) const NAME: &str = "tree";

/// Creates a tree, or opens it.
fn make<T, const K: usize, const V: usize>(
    storage: &dyn Storage,
    options: &Options,
    is_new: bool,
) -> Checked<Box<dyn NarrowMap>>
where
    T: PersistentMap<K, V> + PersistentTree<Options = Options, Census: Sized, Backend: Backend> + 'static,
{
    let made = if is_new { T::create(storage, NAME, options) } else { T::open(storage, NAME, options) };
    let tree = made.map_err(text)?;
    let (stated, searched) = (tree.durability(), Durability::of_medium(tree.pool().backend().domain()));
    match stated == searched {
        true => Ok(Box::new(Wide::<K, V, T>(tree))),
        false => Err(format!("it states {stated:?}, and the search is for {searched:?}")),
    }
}

/// A B+-tree in one configuration.
#[derive(Clone, Debug)]
pub struct ExploredMap {
    configuration: String,
    /// The options.
    pub options: Options,
    make: Make,
}

/// An open tree, and its file.
#[derive(Debug)]
pub struct MapRun {
    tree: Box<dyn NarrowMap>,
    file: Arc<dyn File>,
}

impl ExploredMap {
    /// Name of the structure.
    pub const NAME: &'static str = "btree";

    /// Every configuration that is explored. Nodes are so small that a few entries make several
    /// levels.
    pub fn configurations() -> Vec<Self> {
        let wide = MEDIA.into_iter().flat_map(|medium| {
            [
                Self::configured("unsorted-2-2", make::<Traceable<PersistentUnsorted, 2, 2>, 2, 2>, 128, medium),
                Self::configured("wal-2-2", make::<Traceable<BTreeWal, 2, 2>, 2, 2>, 128, medium),
                Self::configured("fast-2-2", make::<Traceable<FastFair, 2, 2>, 2, 2>, 192, medium),
                Self::configured("sp-2-2", make::<Traceable<FastFairSp, 2, 2>, 2, 2>, 192, medium),
                Self::configured("map-integers", make_map::<u64>, 192, medium),
                Self::configured("ls-2-2", make::<Traceable<BTreeLs, 2, 2>, 2, 2>, 128, medium),
            ]
        });
        let narrow = [
            Self::configured("unsorted-1-1", make::<Traceable<PersistentUnsorted, 1, 1>, 1, 1>, 128, MEDIA[0]),
            Self::configured("unsorted-1-2", make::<Traceable<PersistentUnsorted, 1, 2>, 1, 2>, 192, MEDIA[0]),
            Self::configured("map-texts", make_map::<str>, 128, MEDIA[0]),
            Self::configured("wal-1-1", make::<Traceable<BTreeWal, 1, 1>, 1, 1>, 128, MEDIA[0]),
            Self::configured("fast-1-1", make::<Traceable<FastFair, 1, 1>, 1, 1>, 128, MEDIA[0]),
            Self::configured("ls-1-1", make::<Traceable<BTreeLs, 1, 1>, 1, 1>, 128, MEDIA[0]),
            Self::configured("fast-1-2", make::<Traceable<FastFair, 1, 2>, 1, 2>, 256, MEDIA[0]),
        ];
        wide.chain(narrow).collect()
    }

    fn configured(name: &str, make: Make, node_length: u64, (medium, domain): (&str, PersistenceDomain)) -> Self {
        let mut options = Options { node_length, ..Options::new(domain) };
        in_small_chunks(&mut options.pool);
        // Segments of few records, so that some are collected.
        options.logs = LogOptions { count: 2, segment_length: 512, ..LogOptions::default() };
        Self { configuration: format!("{name}-{medium}"), options, make }
    }

    fn run(&self, storage: &dyn Storage, is_new: bool) -> Checked<MapRun> {
        let tree = (self.make)(storage, &self.options, is_new)?;
        let file = storage.open(NAME, OpenMode::Write).map_err(|error| error.to_string())?;
        Ok(MapRun { tree, file })
    }

    /// All flushes and fences of the family.
    pub fn places() -> Vec<Place> {
        PLACES.to_vec()
    }
}

/// A history with this many steps: first mostly insertions, then mostly removals.
pub fn random_map_steps(seed: u64, count: usize) -> Vec<MapStep> {
    let mut random = SmallRng::seed_from_u64(seed);
    (0..count)
        .map(|step| {
            let (key, value) = (random.random_range(0..KEYS), random.random_range(0..VALUES));
            let removals = if step < count / 2 { 1 } else { 6 };
            match random.random_range(0..6 + removals) {
                0..3 => MapStep::Insert(key, value),
                3 | 4 => MapStep::Upsert(key, value),
                5 => MapStep::CompareAndUpdate(key, value, (value + 1) % VALUES),
                _ => MapStep::Remove(key),
            }
        })
        .collect()
}

impl Subject for ExploredMap {
    type Structure = MapRun;
    type Step = MapStep;
    type Model = MapModel;

    fn structure(&self) -> &'static str {
        Self::NAME
    }

    fn configuration(&self) -> &str {
        &self.configuration
    }

    fn domain(&self) -> PersistenceDomain {
        self.options.pool.domain
    }

    fn create(&self, storage: &dyn Storage) -> Checked<MapRun> {
        self.run(storage, true)
    }

    fn open(&self, storage: &dyn Storage) -> Checked<MapRun> {
        self.run(storage, false)
    }

    fn steps(&self, seed: u64) -> Vec<MapStep> {
        random_map_steps(seed, STEPS)
    }

    fn apply(&self, MapRun { tree, file }: &MapRun, model: &mut MapModel, step: &MapStep) -> Checked<()> {
        if *step == MapStep::Sync {
            return file.sync_data().map_err(|error| error.to_string());
        }
        let (expected, found) = (apply_to_model(model, step), tree.apply(step)?);
        match expected == found {
            true => Ok(()),
            false => Err(format!("{step}: the value before is {found:?}, and {expected:?} is expected")),
        }
    }

    fn observe(&self, MapRun { tree, .. }: &mut MapRun) -> Checked<MapModel> {
        let model = tree.entries()?;
        for (&key, &value) in &model {
            let found = tree.apply(&MapStep::Get(key))?;
            if found != Some(value) {
                return Err(format!("a look-up of {key} gives {found:?}, and a scan gives {value}"));
            }
        }
        Ok(model)
    }

    fn check_usable(&self, run: &mut MapRun, mut model: MapModel) -> Checked<()> {
        for key in 1000..1008 {
            self.apply(run, &mut model, &MapStep::Insert(key, 1))?;
        }
        while let Some((&key, _)) = model.first_key_value() {
            self.apply(run, &mut model, &MapStep::Remove(key))?;
        }
        let left = self.observe(run)?;
        match left == model {
            true => Ok(()),
            false => Err(format!("{left:?} remain of the removed entries")),
        }
    }

    fn places(&self) -> Vec<Place> {
        Self::places()
    }

    fn shown_by(&self, Dropped { .. }: &Dropped) -> Option<&'static str> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_read_what_they_print() {
        let all = [MapStep::Insert(1, 2), MapStep::Upsert(0, u64::MAX), MapStep::CompareAndUpdate(1, 2, 3)];
        for step in all.into_iter().chain([MapStep::Remove(4), MapStep::Get(5), MapStep::Sync]) {
            assert_eq!(step.to_string().parse(), Ok(step), "{step}");
        }
        assert!(["", "+", "+1", "-1:2", "~1:2", "é1", "?x"].iter().all(|text| text.parse::<MapStep>().is_err()));
    }
}
