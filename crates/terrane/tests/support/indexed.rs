//! Datasets with a geometry and attributes of every type, with indexes of every suitable kind, and
//! their models. They have several disk components and memory components, with replaced and deleted
//! records.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use terrane::schema::{GeometryColumn, KeyType};
use terrane::{
    CoordinateSystem, Dataset, DatasetOptions, Explanation, Filter, IndexKind, IndexOptions, Isolation, Key, Options,
    Query, Record, Result, Snapshot, StopWords, Store, Value,
};
use terrane_testkit::MemoryStorage;

use super::affine::Affine;
use super::conditions::{
    COLUMNS, KEY, Place, Plan, any_comparison, any_key, any_place, any_plan, any_values, any_words, points,
};
use super::kinds::{self, EXTENDED, KINDS};
use super::shapes::Shape;
use super::{Model, array_key, conditions, encoded, key};

/// The properties of a dataset.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub key_type: KeyType,
    pub shape: Shape,
    pub system: CoordinateSystem,
    pub partitions: usize,
    /// Approximate number of keys in use.
    pub keys: u64,
}

impl Setting {
    pub fn new(key_type: KeyType, shape: Shape, system: CoordinateSystem, partitions: usize) -> Self {
        Self { key_type, shape, system, partitions, keys: 400 }
    }
}

/// Values, keys and conditions of a setting, drawn from one seed.
pub struct Draws {
    pub rng: SmallRng,
    runner: TestRunner,
    keys: BoxedStrategy<Key>,
    values: BoxedStrategy<Vec<Value>>,
    conditions: BoxedStrategy<Plan>,
}

impl Draws {
    pub fn new(setting: &Setting, seed: u64) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let bytes: [u8; 32] = rng.random();
        let runner = TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
        let key_type = setting.key_type;
        Self {
            rng,
            runner,
            keys: any_key(key_type),
            values: any_values().boxed(),
            conditions: any_condition(key_type).boxed(),
        }
    }

    fn draw<T: std::fmt::Debug>(runner: &mut TestRunner, strategy: &BoxedStrategy<T>) -> T {
        strategy.new_tree(runner).expect("nothing is rejected").current()
    }

    fn key(&mut self, setting: &Setting) -> Key {
        match self.rng.random_ratio(1, 4) {
            true => Self::draw(&mut self.runner, &self.keys),
            false => key(&mut self.rng, setting.key_type, setting.keys),
        }
    }

    fn record(&mut self, setting: &Setting, map: &Affine) -> Record {
        let key = self.key(setting);
        let geometry = (!self.rng.random_ratio(1, 20)).then(|| setting.shape.geometry(&mut self.rng, setting.system));
        let geometry = geometry.map(|geometry| map.geometry(&geometry));
        Record { key, geometry, values: Self::draw(&mut self.runner, &self.values) }
    }

    pub fn condition(&mut self) -> Plan {
        Self::draw(&mut self.runner, &self.conditions)
    }
}

/// Conditions. Many restrict single columns, and some restrict consecutive columns of an index.
fn any_condition(key_type: KeyType) -> impl Strategy<Value = Plan> {
    let words = (select(WORD_INDEXES.to_vec()), any_words())
        .prop_map(|((_, column, _), words)| Plan::Match(Some(Place::Attribute(column)), words));
    let part = prop_oneof![4 => any_comparison(any_place(key_type)), 1 => words, 2 => any_plan(key_type)].boxed();
    let of_an_index = select(ATTRIBUTE_INDEXES.to_vec()).prop_flat_map(|(_, columns)| {
        columns.iter().map(|column| any_comparison(Just(Place::Attribute(*column))).boxed()).collect::<Vec<_>>()
    });
    let parts = prop_oneof![
        2 => vec(part.clone(), 1..4),
        1 => (of_an_index, vec(part, 0..2)).prop_map(|(first, rest)| [first, rest].concat()),
    ];
    parts.prop_map(|mut parts| if parts.len() == 1 { parts.remove(0) } else { Plan::And(parts) })
}

/// Names of the indexes on attributes, and their columns. No index has binary data.
const ATTRIBUTE_INDEXES: [(&str, &[usize]); 6] = [
    ("counts", &[1]),
    ("ratios", &[2, 1]),
    ("flags", &[0, 8, 3]),
    ("days", &[6]),
    ("times", &[7, 0]),
    ("names", &[3, 6]),
];

/// Names of the indexes on words, their columns, and one stop word each.
const WORD_INDEXES: [(&str, usize, Option<&str>); 2] = [("words", 3, None), ("other_words", 4, Some("north"))];

/// An index of a dataset.
#[derive(Clone, Debug)]
pub struct Index {
    pub name: &'static str,
    serves: Serves,
}

/// The queries for which an index can find candidates.
#[derive(Clone, Debug)]
enum Serves {
    /// All queries.
    All,
    /// Spatial conditions. If it has boxes, also nearest-neighbour queries.
    Places(bool),
    /// Restrictions of a column.
    Column(usize),
    /// Words of a column, except a stop word.
    Words(usize, Option<&'static str>),
}

impl Index {
    fn places(name: &'static str, kind: IndexKind) -> Self {
        Self { name, serves: Serves::Places(kind == IndexKind::RTree) }
    }

    pub fn is_spatial(&self) -> bool {
        matches!(self.serves, Serves::Places(_))
    }

    /// Whether it can find the candidates of a query with these conditions, or of a
    /// nearest-neighbour query.
    pub fn serves(&self, filters: &[Filter], condition: Option<&Plan>, is_nearest: bool) -> bool {
        match self.serves {
            Serves::All => true,
            Serves::Places(has_boxes) if is_nearest => has_boxes,
            _ if is_nearest => false,
            Serves::Places(_) => !filters.is_empty(),
            Serves::Column(column) => condition.is_some_and(|plan| plan.demands_of(Place::Attribute(column))),
            Serves::Words(column, stop_word) => {
                let words = condition.map_or_else(Vec::new, |plan| plan.words_of(Place::Attribute(column)));
                words.into_iter().any(|word| stop_word != Some(word))
            }
        }
    }
}

/// A dataset and its expected contents.
pub struct Indexed {
    pub setting: Setting,
    map: Affine,
    pub store: Store,
    pub dataset: Dataset,
    pub model: Model,
    /// The names of all access paths. The records themselves are the first.
    pub indexes: Vec<Index>,
}

/// An index that is still to be created.
type Creation = (Index, IndexKind, Vec<&'static str>, IndexOptions);

impl Indexed {
    /// A dataset after random changes. Half of its indexes are created before them, and half
    /// between them. A map is applied to all geometries.
    pub fn new(setting: Setting, draws: &mut Draws, map: Affine, options: Options) -> Self {
        let store = Store::open_on(Arc::new(MemoryStorage::new()), options).unwrap();
        let is_points = setting.shape.is_coordinates();
        let geometry = if is_points { points() } else { GeometryColumn::Geometry { name: "geometry".into() } };
        let schema = conditions::schema_in(setting.system, setting.key_type, geometry);
        let partitions = DatasetOptions { partitions: setting.partitions };
        let dataset = store.create_dataset_with("d", schema, &partitions).unwrap();
        let all = Index { name: "primary", serves: Serves::All };
        let indexes = vec![all, Index::places("geometry", IndexKind::RTree)];
        let mut indexed = Self { setting, map, store, dataset, model: Model::new(), indexes };
        let mut creations = indexed.creations(&mut draws.rng);
        creations.shuffle(&mut draws.rng);
        let late = creations.split_off(creations.len() / 2);
        for creations in [creations, late] {
            for (index, kind, columns, options) in creations {
                indexed.dataset.create_index_with(index.name, kind, &columns, &options).unwrap();
                indexed.indexes.push(index);
            }
            indexed.change(draws, setting.keys as usize);
        }
        indexed
    }

    /// Indexes of every kind suitable for the geometries.
    fn creations(&self, rng: &mut SmallRng) -> Vec<Creation> {
        let Setting { shape, system, .. } = self.setting;
        let kinds = if shape.is_coordinates() { &KINDS[..] } else { &EXTENDED };
        let mut creations: Vec<Creation> = Vec::new();
        for kind in kinds {
            let mut options = kinds::options(rng, *kind, shape.is_coordinates(), system);
            options.domain = options.domain.map(|domain| self.map.rect(domain));
            creations.push((Index::places(kind.name(), *kind), *kind, Vec::new(), options));
        }
        let name = |column: &usize| COLUMNS[*column].0;
        for (index, columns) in ATTRIBUTE_INDEXES {
            let index = Index { name: index, serves: Serves::Column(columns[0]) };
            creations.push((index, IndexKind::BTree, columns.iter().map(name).collect(), IndexOptions::default()));
        }
        for (index, column, stop_word) in WORD_INDEXES {
            let index = Index { name: index, serves: Serves::Words(column, stop_word) };
            let options = IndexOptions::default();
            let options = match stop_word {
                Some(word) => options.stop_words(StopWords::new([word]).unwrap()),
                None => options,
            };
            creations.push((index, IndexKind::Inverted, vec![name(&column)], options));
        }
        creations
    }

    /// Carries out random changes.
    pub fn change(&mut self, draws: &mut Draws, changes: usize) {
        let Self { setting, map, dataset, model, .. } = self;
        for _ in 0..changes {
            // Few components result, however many the changes are.
            if draws.rng.random_range(0..changes.max(100)) < 5 {
                dataset.flush().unwrap();
            }
            if draws.rng.random_range(0..changes.max(400)) == 0 {
                dataset.compact().unwrap();
            }
            match draws.rng.random_range(0..200) {
                0..8 => {
                    let mut batch = dataset.atomic_batch();
                    for _ in 0..draws.rng.random_range(0..6) {
                        if draws.rng.random_ratio(1, 3) {
                            let key = draws.key(setting);
                            batch.delete(&key).unwrap();
                            model.remove(&encoded(&key));
                        } else {
                            let record = draws.record(setting, map);
                            batch.upsert(&record).unwrap();
                            model.insert(encoded(&record.key), record);
                        }
                    }
                    batch.commit().unwrap();
                }
                8..50 => {
                    let key = draws.key(setting);
                    assert_eq!(dataset.delete(&key).unwrap(), model.remove(&encoded(&key)).is_some(), "{key}");
                }
                _ => {
                    let record = draws.record(setting, map);
                    match model.contains_key(&encoded(&record.key)) {
                        true => dataset.upsert(&record).unwrap(),
                        false => dataset.insert(&record).unwrap(),
                    }
                    model.insert(encoded(&record.key), record);
                }
            }
        }
    }

    /// The keys of an answer in its order, and how it was found. Asserts that each key occurs once,
    /// and that their number equals the count. At snapshot, the state is that of the snapshot; at
    /// read committed, the newest.
    ///
    /// # Errors
    /// A refused query, from listing and from counting.
    pub fn ask(&self, snapshot: &Snapshot, query: &Query, isolation: Isolation) -> Result<(Vec<Key>, Explanation)> {
        let query = query.clone().isolation(isolation);
        let (rows, count) = match isolation {
            Isolation::Snapshot => (snapshot.query(&query), snapshot.count(&query)),
            Isolation::ReadCommitted => (self.dataset.query(&query), self.dataset.count(&query)),
        };
        assert_eq!(rows.is_err(), count.is_err(), "{query:?}");
        let (mut rows, mut keys) = (rows?, Vec::new());
        for batch in rows.by_ref() {
            let batch = batch?;
            let column = batch.column_by_name(KEY).expect("the key is among the columns");
            keys.extend((0..batch.num_rows()).map(|row| array_key(column, row, self.setting.key_type)));
        }
        assert_eq!(count?, keys.len() as u64, "{query:?}");
        let distinct: BTreeSet<&Key> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len(), "a row comes twice: {query:?}");
        let explanation = rows.explanation();
        assert_eq!((explanation.matches, explanation.isolation), (keys.len() as u64, isolation), "{query:?}");
        Ok((keys, explanation))
    }
}

/// Keys in their order.
pub fn sorted(mut keys: Vec<Key>) -> Vec<Key> {
    keys.sort_by_key(encoded);
    keys
}
