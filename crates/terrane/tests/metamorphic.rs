//! Answers are compared with answers to related queries, not with another evaluation.
//!
//! - A query that is mapped together with the data finds the same records.
//! - A window finds what its two parts find.
//! - Each record meets a condition, or its negation, or neither, as the condition is unknown there.
//!
//! Queries go through every index by name, through the records, and as the planner chooses, at both
//! levels of isolation.

use std::collections::BTreeSet;

use crate::support::affine::Affine;
use crate::support::conditions::{COLUMNS, Place, Plan};
use crate::support::indexed::{Draws, Index, Indexed, Setting};
use crate::support::shapes::{Shape, place};
use crate::support::{Model, oracle, seeded, small_options};
use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IteratorRandom;
use terrane::schema::{ColumnType, KeyType};
use terrane::{CoordinateSystem, Filter, Isolation, Key, Query, Snapshot};
use terrane_space::geometry::from_wkt;
use terrane_testkit::is_soak;

const PLANAR: CoordinateSystem = CoordinateSystem::Planar;
const LONLAT: CoordinateSystem = CoordinateSystem::LonLat;

/// Points and other geometries, in the plane and on the globe, with keys of every type.
fn settings() -> [Setting; 4] {
    [
        Setting::new(KeyType::Int64, Shape::Coordinates, PLANAR, 1),
        Setting::new(KeyType::Utf8, Shape::Coordinates, LONLAT, 3),
        Setting::new(KeyType::UInt64, Shape::Mixed, PLANAR, 2),
        Setting::new(KeyType::Binary, Shape::Mixed, LONLAT, 1),
    ]
    .map(|setting| Setting { keys: 300, ..setting })
}

/// Rounds of a sample, or 200 times as many.
fn rounds(sample: usize) -> usize {
    if is_soak() { sample * 200 } else { sample }
}

/// What is asked of places and attributes.
struct Asked {
    filters: Vec<Filter>,
    condition: Option<Plan>,
}

impl Asked {
    fn draw(draws: &mut Draws, system: CoordinateSystem, filters: usize) -> Self {
        let filters = oracle::filters(&mut draws.rng, system, filters);
        Self { filters, condition: draws.rng.random_bool(0.5).then(|| draws.condition()) }
    }

    fn query(&self) -> Query {
        let query = oracle::query(&self.filters);
        match &self.condition {
            Some(plan) => query.condition(plan.condition()),
            None => query,
        }
    }

    /// What the query finds in a dataset, which is the same in every way.
    fn find(&self, indexed: &Indexed, snapshot: &Snapshot, context: &str) -> BTreeSet<Key> {
        let context = format!("{:?}, {context}", self.query());
        let ask = |query: &Query, level| -> BTreeSet<Key> {
            let answer = indexed.ask(snapshot, query, level).unwrap_or_else(|error| panic!("{error}: {context}"));
            answer.0.into_iter().collect()
        };
        let found = ask(&self.query(), Isolation::Snapshot);
        let serves = |index: &&Index| index.serves(&self.filters, self.condition.as_ref(), false);
        for (number, index) in indexed.indexes.iter().filter(serves).enumerate() {
            let level = [Isolation::Snapshot, Isolation::ReadCommitted][number % 2];
            let named = self.query().using_index(index.name);
            assert_eq!(ask(&named, level), found, "by {} at {level}, {context}", index.name);
        }
        found
    }
}

/// Keys with their distances, in the order in which they are found.
fn nearest(snapshot: &Snapshot, query: &Query) -> Vec<(f64, Key)> {
    let schema = snapshot.schema();
    let query = query.clone().columns([schema.key.name.as_str()]);
    let mut found = Vec::new();
    for batch in snapshot.query(&query).unwrap() {
        let batch = batch.unwrap();
        let distances = batch.column(1).as_primitive::<Float64Type>();
        let key = |row| crate::support::array_key(batch.column(0), row, schema.key.key_type);
        found.extend((0..batch.num_rows()).map(|row| (distances.value(row), key(row))));
    }
    found
}

/// Demands the same keys at the same distances. Of places at one distance but for rounding, which
/// edges have under one map and not under the other, the order may be another, and which of them
/// are the last.
fn assert_nearest(found: &[(f64, Key)], wanted: &[(f64, Key)], is_exact: bool, context: &str) {
    if is_exact {
        return assert_eq!(found, wanted, "{context}");
    }
    assert_eq!(found.len(), wanted.len(), "{context}");
    let is_near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(b.abs());
    for ((found, _), (wanted, _)) in found.iter().zip(wanted) {
        assert!(is_near(*found, *wanted), "{found} instead of {wanted}: {context}");
    }
    let Some((last, _)) = wanted.last() else { return };
    let nearer = |all: &[(f64, Key)]| -> BTreeSet<Key> {
        all.iter().filter(|(distance, _)| !is_near(*distance, *last)).map(|(_, key)| key.clone()).collect()
    };
    assert_eq!(nearer(found), nearer(wanted), "{context}");
}

#[test]
fn data_and_queries_that_are_mapped_alike_give_the_same_keys() {
    let (mut rng, seed) = seeded(0x3E7A_0001);
    for setting in settings() {
        let draws_seed = rng.random();
        let mut draws = Draws::new(&setting, draws_seed);
        let plain = Indexed::new(setting, &mut draws, Affine::IDENTITY, small_options());
        let snapshot = plain.dataset.snapshot();
        let mut met = 0;
        for _ in 0..rounds(1) {
            let map = Affine::draw(&mut rng, setting.system);
            let mapped = Indexed::new(setting, &mut Draws::new(&setting, draws_seed), map, small_options());
            let mapped_snapshot = mapped.dataset.snapshot();
            assert!(plain.model.keys().eq(mapped.model.keys()));
            for round in 0..60 {
                let context = format!("round {round} of {setting:?} under {map:?}, seed {seed}");
                let asked = Asked::draw(&mut draws, setting.system, round % 3);
                let filters = asked.filters.iter().map(|filter| map.filter(filter)).collect();
                let mapped_asked = Asked { filters, condition: asked.condition.clone() };
                let wanted = asked.find(&plain, &snapshot, &context);
                assert_eq!(mapped_asked.find(&mapped, &mapped_snapshot, &context), wanted, "{context}");
                met += wanted.len();
                let (near, k) = (place(&mut draws.rng, setting.system), [1, 3, 10, 50][round % 4]);
                let (x, y) = map.place(near);
                let mut wanted = nearest(&snapshot, &asked.query().nearest(near.0, near.1, k));
                wanted.iter_mut().for_each(|(distance, _)| *distance = map.distance(*distance));
                let is_exact = setting.shape.is_coordinates() && setting.system == PLANAR;
                for index in [None, Some("geometry"), Some("rtree"), Some("primary")] {
                    let query = mapped_asked.query().nearest(x, y, k);
                    let query = index.map_or(query.clone(), |index| query.using_index(index));
                    let context = format!("{query:?}, from {near:?} in {context}");
                    assert_nearest(&nearest(&mapped_snapshot, &query), &wanted, is_exact, &context);
                }
            }
        }
        assert!(met > 1000, "{met} of {setting:?}");
    }
}

/// A random window, which on the globe may cross the antimeridian, and the two parts into which it
/// is divided: where a record lies, if there is one inside.
fn divided(rng: &mut SmallRng, system: CoordinateSystem, model: &Model) -> (Filter, [Filter; 2]) {
    let ((x0, y0), (width, height)) = (place(rng, system), (rng.random_range(0..120), rng.random_range(0..120)));
    let (x1, y1) = (x0 + f64::from(width) / 4.0, y0 + f64::from(height) / 4.0);
    let east_of = |x: f64| if system == LONLAT && x < x0 { x + 360.0 } else { x };
    let positions = model.values().filter_map(oracle::position).map(|(x, y)| (east_of(x), y));
    let inside = positions.filter(|(x, y)| (x0..=x1).contains(x) && (y0..=y1).contains(y)).choose(rng);
    let (at_x, at_y) = inside.unwrap_or(((x0 + x1) / 2.0, (y0 + y1) / 2.0));
    let window = |[x0, y0, x1, y1]: [f64; 4]| {
        let turned = |x: f64| if system == LONLAT && x > 180.0 { x - 360.0 } else { x };
        let top = if system == LONLAT { 90.0 } else { f64::INFINITY };
        // One that begins on the antimeridian and ends behind it begins in the west.
        let x0 = if x0 == 180.0 && x1 > 180.0 { -180.0 } else { turned(x0) };
        Filter::Window { x0, y0: y0.min(top), x1: turned(x1), y1: y1.min(top) }
    };
    let parts = match rng.random() {
        true => [[x0, y0, at_x, y1], [at_x, y0, x1, y1]],
        false => [[x0, y0, x1, at_y], [x0, at_y, x1, y1]],
    };
    (window([x0, y0, x1, y1]), parts.map(window))
}

/// The window as an area; none where it has none, or crosses the antimeridian.
fn area(window: &Filter) -> Option<Filter> {
    match window {
        Filter::Window { x0, y0, x1, y1 } if x0 < x1 && y0 < y1 => {
            let wkt = format!("POLYGON(({x0} {y0},{x1} {y0},{x1} {y1},{x0} {y1},{x0} {y0}))");
            Some(Filter::Intersects(from_wkt(&wkt).unwrap()))
        }
        _ => None,
    }
}

#[test]
fn a_window_finds_what_its_two_parts_find() {
    let (mut rng, seed) = seeded(0x3E7A_0002);
    for setting in settings() {
        let mut draws = Draws::new(&setting, rng.random());
        let mut indexed = Indexed::new(setting, &mut draws, Affine::IDENTITY, small_options());
        let (mut met, mut of_both) = (0, 0);
        for round in 0..rounds(30) {
            if round % 30 == 29 {
                indexed.change(&mut draws, 40);
            }
            let snapshot = indexed.dataset.snapshot();
            let (window, parts) = divided(&mut draws.rng, setting.system, &indexed.model);
            let context = format!("{window:?} in {parts:?}, round {round} of {setting:?}, seed {seed}");
            let rest = Asked::draw(&mut draws, setting.system, usize::from(round % 4 == 0));
            let find = |windows: &[&Filter]| {
                let filters = windows.iter().copied().chain(&rest.filters).cloned().collect();
                Asked { filters, condition: rest.condition.clone() }.find(&indexed, &snapshot, &context)
            };
            let whole = find(&[&window]);
            let [first, second] = [find(&[&parts[0]]), find(&[&parts[1]])];
            assert_eq!(&first | &second, whole, "{context}");
            // What meets their common side, and what is not a point may meet both elsewhere.
            let both = &first & &second;
            assert_eq!(find(&[&parts[0], &parts[1]]), both, "{context}");
            assert_eq!(find(&[&window, &parts[1]]), second, "{context}");
            if let Some(area) = area(&window) {
                assert_eq!(find(&[&area]), whole, "{context}");
            }
            (met, of_both) = (met + whole.len(), of_both + both.len());
        }
        assert!(
            met > 3 * rounds(30) && of_both > rounds(30) / 6,
            "{met} found, {of_both} by both parts, of {setting:?}"
        );
    }
}

/// The condition that is true where another is unknown, and false elsewhere.
fn unknown(plan: &Plan, key_type: KeyType) -> Plan {
    let of = |part: &Plan| unknown(part, key_type);
    // Some part is unknown, and none decides the whole.
    let joined = |parts: &[Plan], undecided: fn(Plan) -> Plan| {
        let none_decides = parts.iter().map(|part| Plan::Or(vec![of(part), undecided(part.clone())]));
        Plan::And(none_decides.chain([Plan::Or(parts.iter().map(of).collect())]).collect())
    };
    match plan {
        Plan::And(parts) => joined(parts, |part| part),
        Plan::Or(parts) => joined(parts, |part| Plan::Not(Box::new(part))),
        Plan::Not(inner) => of(inner),
        Plan::Compare(place, ..) | Plan::Between(place, ..) | Plan::In(place, _) | Plan::Flag(place) => {
            Plan::IsNull(*place)
        }
        Plan::Match(Some(place), _) => Plan::IsNull(*place),
        // Of a key it is false everywhere.
        Plan::IsNull(_) => Plan::IsNull(Place::Key(key_type)),
        Plan::Match(None, words) => {
            let attributes = (0..COLUMNS.len()).filter(|column| COLUMNS[*column].1 == ColumnType::Utf8);
            let attributes: Vec<Place> = attributes.map(Place::Attribute).collect();
            let key = (key_type == KeyType::Utf8).then_some(Place::Key(key_type));
            let has = |place: Place, word| {
                let not_null = Plan::Not(Box::new(Plan::IsNull(place)));
                Plan::And(vec![not_null, Plan::Match(Some(place), vec![word])])
            };
            let found = |word| Plan::Or(attributes.iter().copied().chain(key).map(|place| has(place, word)).collect());
            let all = Plan::And(words.iter().copied().map(found).collect());
            let some_is_null = Plan::Or(attributes.iter().copied().map(Plan::IsNull).collect());
            Plan::And(vec![some_is_null, Plan::Not(Box::new(all))])
        }
    }
}

/// The records that meet conditions on places, shared out: those of which a condition is true, is
/// false, and is unknown.
fn shares(
    indexed: &Indexed,
    snapshot: &Snapshot,
    filters: &[Filter],
    plan: &Plan,
    context: &str,
) -> [BTreeSet<Key>; 3] {
    let find =
        |condition: Option<Plan>| Asked { filters: filters.to_vec(), condition }.find(indexed, snapshot, context);
    let all = find(None);
    let conditions = [plan.clone(), Plan::Not(Box::new(plan.clone())), unknown(plan, indexed.setting.key_type)];
    let shares = conditions.map(|condition| find(Some(condition)));
    let sum: BTreeSet<Key> = shares.iter().flatten().cloned().collect();
    assert_eq!(sum, all, "{plan:?}, {context}");
    let counted: usize = shares.iter().map(BTreeSet::len).sum();
    assert_eq!(counted, all.len(), "some record is in two shares: {plan:?}, {context}");
    shares
}

#[test]
fn a_condition_its_negation_and_what_leaves_it_unknown_share_out_the_records() {
    let (mut rng, seed) = seeded(0x3E7A_0003);
    for setting in settings() {
        let mut draws = Draws::new(&setting, rng.random());
        let mut indexed = Indexed::new(setting, &mut draws, Affine::IDENTITY, small_options());
        let mut met = [0; 3];
        for round in 0..rounds(24) {
            if round % 30 == 29 {
                indexed.change(&mut draws, 40);
            }
            let snapshot = indexed.dataset.snapshot();
            let context = format!("round {round} of {setting:?}, seed {seed}");
            let filters = oracle::filters(&mut draws.rng, setting.system, round % 3);
            let plan = draws.condition();
            let shares = shares(&indexed, &snapshot, &filters, &plan, &context);
            met.iter_mut().zip(shares).for_each(|(met, share)| *met += share.len());
        }
        assert!(met.iter().all(|met| *met > 100), "{met:?} of {setting:?}");
    }
}

#[test]
fn what_is_left_of_a_deletion_is_what_the_condition_is_not_true_of() {
    let (mut rng, seed) = seeded(0x3E7A_0004);
    for setting in settings() {
        let mut draws = Draws::new(&setting, rng.random());
        let mut indexed = Indexed::new(setting, &mut draws, Affine::IDENTITY, small_options());
        let mut deleted = 0;
        for round in 0..rounds(10) {
            // Of what was deleted, some is there again.
            indexed.change(&mut draws, 40);
            let context = format!("round {round} of {setting:?}, seed {seed}");
            let filters = oracle::filters(&mut draws.rng, setting.system, round % 2);
            let plan = draws.condition();
            let everything = Asked { filters: Vec::new(), condition: None };
            let before = indexed.dataset.snapshot();
            let all = everything.find(&indexed, &before, &context);
            let [is_true, is_false, is_unknown] = shares(&indexed, &before, &filters, &plan, &context);
            let count = indexed.dataset.delete_where(&plan.condition(), &filters).unwrap();
            assert_eq!(count, is_true.len() as u64, "{plan:?}, {filters:?}, {context}");
            indexed.model.retain(|_, record| !is_true.contains(&record.key));
            let after = indexed.dataset.snapshot();
            assert_eq!(
                everything.find(&indexed, &after, &context),
                &all - &is_true,
                "{plan:?}, {filters:?}, {context}"
            );
            let left = [BTreeSet::new(), is_false, is_unknown];
            assert_eq!(shares(&indexed, &after, &filters, &plan, &context), left, "{filters:?}, {context}");
            // Who asked before is answered as before.
            assert_eq!(keys_of(&before), all, "{context}");
            deleted += count;
        }
        assert!(deleted > 2 * rounds(10) as u64, "{deleted} of {setting:?}");
        let report = indexed.store.check(false).unwrap();
        assert!(report.findings.is_empty(), "{report}, {setting:?}, seed {seed}");
    }
}

fn keys_of(snapshot: &Snapshot) -> BTreeSet<Key> {
    crate::support::keys_of(snapshot, &Query::new()).into_iter().collect()
}
