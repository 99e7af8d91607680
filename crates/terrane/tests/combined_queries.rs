//! Random queries give the rows that a plain evaluation of each condition finds in all records.
//!
//! - They combine conditions on places, attributes and words with the nearest, limits and both
//!   levels of isolation.
//! - Each is asked through every index by name, and as the planner chooses.
//! - The data are points and other geometries, in the plane and on the globe.
//! - Datasets have one or several partitions. Flushes and merges replace their components.
//!
//! Each question is asked in about five ways. `make soak` asks 4,000 of each state of a dataset.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::affine::Affine;
use crate::support::conditions::{Facts, KEY, Plan};
use crate::support::indexed::{Draws, Index, Indexed, Setting, sorted};
use crate::support::oracle::{self, Scan};
use crate::support::shapes::{Shape, place};
use crate::support::{Model, encoded, seeded, small_options};
use rand::Rng;
use rand::seq::IndexedRandom;
use terrane::schema::KeyType;
use terrane::{CoordinateSystem, Explanation, Filter, Isolation, Key, Options, Query, Record, Snapshot};
use terrane_testkit::is_soak;

const LEVELS: [Isolation; 2] = [Isolation::Snapshot, Isolation::ReadCommitted];

/// States of a dataset in which it is asked.
const STATES: usize = 16;

/// Different queries of one state.
fn queries_of_a_state() -> usize {
    if is_soak() { 4000 } else { 40 }
}

/// What is asked.
struct Asked {
    filters: Vec<Filter>,
    condition: Option<Plan>,
    /// x, y and how many.
    nearest: Option<(f64, f64, usize)>,
    limit: Option<u64>,
    query: Query,
}

impl Asked {
    fn draw(draws: &mut Draws, system: CoordinateSystem, model: &Model) -> Self {
        let condition = (!draws.rng.random_ratio(1, 6)).then(|| draws.condition());
        let rng = &mut draws.rng;
        let count = [0, 0, 1, 1, 1, 2][rng.random_range(0..6)];
        let mut filters = oracle::filters(rng, system, count);
        if rng.random_ratio(1, 8) {
            // A window that is no larger than a position of a record.
            let record = model.values().nth(rng.random_range(0..model.len()));
            filters.extend(record.and_then(oracle::position).map(|(x, y)| Filter::Window {
                x0: x,
                y0: y,
                x1: x,
                y1: y,
            }));
        }
        let near = place(rng, system);
        let nearest = rng.random_ratio(1, 6).then(|| (near.0, near.1, [1, 4, 30, 1000][rng.random_range(0..4)]));
        let limit = rng.random_ratio(1, 5).then(|| [0, 1, 3, 20, 1000][rng.random_range(0..5)]);
        let mut query = oracle::query(&filters);
        if let Some(plan) = &condition {
            // As it is made, and as it is read.
            let made = plan.condition();
            query = query.condition(if rng.random() { made } else { made.to_string().parse().unwrap() });
        }
        if let Some((x, y, k)) = nearest {
            query = query.nearest(x, y, k);
        }
        if let Some(limit) = limit {
            query = query.limit(limit);
        }
        match rng.random_range(0..3) {
            0 => {}
            1 => query = query.columns([KEY]),
            _ => query = query.columns(["name", KEY]),
        }
        Self { filters, condition, nearest, limit, query }
    }

    fn is_served_by(&self, index: &Index) -> bool {
        index.serves(&self.filters, self.condition.as_ref(), self.nearest.is_some())
    }

    /// The rows that a scan finds, without the limit: the nearest in their order, others in that of
    /// their keys.
    fn select(&self, scan: &Scan<'_>, facts: &[Facts<'_>]) -> Vec<Key> {
        let truths = self.condition.as_ref().map(|plan| plan.truths(facts));
        let is_true = |number: usize| truths.as_ref().is_none_or(|truths| truths[number] == Some(true));
        let mut records: Vec<&Record> = scan.matching(&self.filters, is_true);
        if let Some((x, y, k)) = self.nearest {
            records = scan.nearest(records, (x, y), k);
        }
        records.into_iter().map(|record| record.key.clone()).collect()
    }

    #[track_caller]
    fn compare(&self, found: Vec<Key>, wanted: &[Key], context: &str) {
        let limit = self.limit.map_or(usize::MAX, |limit| limit as usize);
        let count = wanted.len().min(limit);
        if self.nearest.is_some() {
            assert_eq!(found, wanted[..count], "{context}");
        } else if count < wanted.len() {
            assert_eq!(found.len(), count, "{context}");
            let wanted: BTreeSet<&Key> = wanted.iter().collect();
            assert!(found.iter().all(|key| wanted.contains(key)), "{context}: {found:?} are not of {wanted:?}");
        } else {
            assert_eq!(sorted(found), wanted, "{context}");
        }
    }
}

/// Which ways have been gone.
#[derive(Default)]
struct Tally {
    /// All that the dataset has.
    indexes: Vec<Index>,
    queries: u64,
    /// Queries that gave rows.
    answered: u64,
    /// By the plan that an explanation names, and the isolation.
    plans: BTreeMap<(&'static str, String), u64>,
    /// By the index that was asked for, and the isolation.
    named: BTreeMap<(&'static str, String), u64>,
    refused: u64,
    /// By the index that the planner chose.
    chosen: BTreeMap<String, u64>,
    /// Queries that went through several components, and those that passed some of them over.
    of_several_components: u64,
    pruned: u64,
    threads_max: usize,
}

impl Tally {
    fn note(&mut self, explanation: &Explanation, named: Option<&'static str>) {
        self.queries += 1;
        let isolation = explanation.isolation.to_string();
        *self.plans.entry((explanation.plan, isolation.clone())).or_default() += 1;
        self.of_several_components += u64::from(explanation.components_searched > 1);
        self.pruned += u64::from(explanation.components_pruned > 0);
        self.threads_max = self.threads_max.max(explanation.threads);
        if let Some(used) = explanation.considered.iter().find(|considered| considered.is_used) {
            match named {
                Some(name) => *self.named.entry((name, isolation)).or_default() += 1,
                None => *self.chosen.entry(used.index.clone()).or_default() += 1,
            }
        }
    }
}

/// Asks through an index, or as the planner has it, and compares.
fn ask(
    indexed: &Indexed,
    snapshot: &Snapshot,
    (asked, wanted): (&Asked, &[Key]),
    (index, isolation): (Option<&Index>, Isolation),
    tally: &mut Tally,
    context: &str,
) {
    let query = match index {
        Some(index) => asked.query.clone().using_index(index.name),
        None => asked.query.clone(),
    };
    let is_served = |index: &Index| asked.is_served_by(index);
    let context = format!("{query:?} at {isolation}, {context}");
    match indexed.ask(snapshot, &query, isolation) {
        Ok((found, explanation)) => {
            let is_served = index.is_none_or(is_served) || explanation.plan == "nothing can match";
            assert!(is_served, "it should be refused: {context}");
            tally.note(&explanation, index.map(|index| index.name));
            tally.answered += u64::from(!found.is_empty());
            asked.compare(found, wanted, &context);
        }
        Err(error) => {
            assert!(error.exit_code() == 2 && !index.is_none_or(is_served), "{error}: {context}");
            tally.refused += 1;
        }
    }
}

/// Random queries in random states of a dataset.
fn run(setting: Setting, options: Options, default_seed: u64, states: usize, queries: usize) -> Tally {
    let (mut rng, seed) = seeded(default_seed);
    let mut draws = Draws::new(&setting, rng.random());
    let mut indexed = Indexed::new(setting, &mut draws, Affine::IDENTITY, options);
    let mut tally = Tally { indexes: indexed.indexes.clone(), ..Tally::default() };
    // Of the state before, which its snapshot keeps.
    let mut held: Vec<(Snapshot, Asked, Vec<Key>)> = Vec::new();
    for state in 0..states {
        let context = format!("state {state} of {setting:?}, seed {seed}");
        // At first, what has changed is in memory beside what the snapshot sees.
        for changes in [6, 60] {
            if state > 0 {
                indexed.change(&mut draws, changes);
            }
            for (snapshot, asked, wanted) in &held {
                let index = &indexed.indexes[draws.rng.random_range(0..indexed.indexes.len())];
                for index in [None, Some(index)] {
                    let way = (index, Isolation::Snapshot);
                    ask(&indexed, snapshot, (asked, wanted), way, &mut tally, &format!("kept from before {context}"));
                }
            }
        }
        held.clear();
        let snapshot = indexed.dataset.snapshot();
        let (scan, facts) = (Scan::new(&indexed.model, setting.system), facts_of(&indexed));
        for number in 0..queries {
            let asked = Asked::draw(&mut draws, setting.system, &indexed.model);
            let wanted = asked.select(&scan, &facts);
            // The nearest are of one state.
            let levels = if asked.nearest.is_some() { &LEVELS[..1] } else { &LEVELS };
            let mut ways: Vec<(Option<&Index>, Isolation)> = levels.iter().map(|level| (None, *level)).collect();
            let (served, unserved): (Vec<&Index>, Vec<&Index>) =
                indexed.indexes.iter().partition(|index| asked.is_served_by(index));
            let unserved = draws.rng.random_ratio(1, 8).then(|| unserved.choose(&mut draws.rng)).flatten();
            let some = served.choose_multiple(&mut draws.rng, 3).chain(unserved).copied().collect::<Vec<_>>();
            ways.extend(some.into_iter().map(|index| (Some(index), levels[draws.rng.random_range(0..levels.len())])));
            for way in ways {
                ask(&indexed, &snapshot, (&asked, &wanted), way, &mut tally, &context);
            }
            if number < 8 {
                held.push((snapshot.clone(), asked, wanted));
            }
        }
    }
    drop(held);
    let report = indexed.store.check(false).unwrap();
    assert!(report.findings.is_empty(), "{report}, {setting:?}, seed {seed}");
    tally
}

fn facts_of(indexed: &Indexed) -> Vec<Facts<'_>> {
    assert!(indexed.model.iter().all(|(key, record)| *key == encoded(&record.key)));
    indexed.model.values().map(Facts::of).collect()
}

/// Every plan was met, every index was used when it was asked for, and the planner chose each that
/// it can choose.
fn run_all_ways(setting: Setting, default_seed: u64) {
    let tally = run(setting, small_options(), default_seed, STATES, queries_of_a_state());
    let Tally { indexes, queries, answered, refused, plans, named, chosen, of_several_components, pruned, .. } = tally;
    eprintln!("{queries} queries, {answered} with rows, {refused} refused: {plans:?}, {named:?}, chosen {chosen:?}");
    let levels = LEVELS.map(|level| level.to_string());
    let only = setting.shape.is_coordinates().then_some("spatial index only");
    // Words may be in a key of texts as well, which has no index of its words.
    let union = (setting.key_type != KeyType::Utf8).then_some("attribute indexes");
    let common = [
        "spatial index",
        "attribute index",
        "attribute index only",
        "primary range",
        "primary scan",
        "nothing can match",
    ];
    for level in &levels {
        for plan in common.into_iter().chain(only).chain(union) {
            assert!(plans.contains_key(&(plan, level.clone())), "no {plan} at {level}: {plans:?}");
        }
        for index in &indexes {
            assert!(named.contains_key(&(index.name, level.clone())), "{} was not used at {level}", index.name);
        }
    }
    for plan in ["nearest", "nearest by primary scan"] {
        assert!(plans.contains_key(&(plan, levels[0].clone())), "no {plan}: {plans:?}");
    }
    // Of the spatial ones, the one that each dataset has comes first.
    for index in indexes.iter().filter(|index| !index.is_spatial() || index.name == "geometry") {
        assert!(chosen.contains_key(index.name), "{} was never chosen: {chosen:?}", index.name);
    }
    assert!(
        queries >= 4 * (STATES * queries_of_a_state()) as u64 && refused > 0,
        "{queries} queries and {refused} that were refused"
    );
    assert!(answered > queries / 4, "{answered} of {queries} queries gave rows");
    assert!(of_several_components > queries / 4 && pruned > 0, "{of_several_components} and {pruned} of {queries}");
}

#[test]
fn points_are_found_in_every_way() {
    run_all_ways(Setting::new(KeyType::Int64, Shape::Coordinates, CoordinateSystem::Planar, 1), 0xC0B1_0001);
    run_all_ways(Setting::new(KeyType::Utf8, Shape::Coordinates, CoordinateSystem::LonLat, 3), 0xC0B1_0002);
}

#[test]
fn geometries_of_every_kind_are_found_in_every_way() {
    run_all_ways(Setting::new(KeyType::Binary, Shape::Mixed, CoordinateSystem::LonLat, 1), 0xC0B1_0005);
    if is_soak() {
        run_all_ways(Setting::new(KeyType::UInt64, Shape::Mixed, CoordinateSystem::Planar, 4), 0xC0B1_0004);
        run_all_ways(Setting::new(KeyType::Int64, Shape::Polygon, CoordinateSystem::Planar, 2), 0xC0B1_0003);
    }
}

/// Answers that are large enough to be divided among threads.
#[test]
fn answers_that_several_threads_find() {
    let setting =
        Setting { keys: 16_000, ..Setting::new(KeyType::Int64, Shape::Coordinates, CoordinateSystem::Planar, 4) };
    let options = Options { threads_max: Some(3), ..small_options() };
    let tally = run(setting, options, 0xC0B1_0006, 2, if is_soak() { 400 } else { 4 });
    assert_eq!(tally.threads_max, 3, "{:?}", tally.plans);
}
