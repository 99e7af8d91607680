//! Answers on real data, compared with brute force.
//!
//! Queries of every kind and joins are listed and counted, through every index and none. Each runs
//! at several memory limits, with one and several partitions, and in every state of a store. At any
//! memory limit the rows are the same, or an error names the limit. `TERRANE_DATA` names the folder
//! with the data; by default, samples of the repository are used. `TERRANE_SOAK=1` runs more
//! queries on more rows.

mod brute;
mod questions;
mod tables;
mod world;

use std::collections::BTreeSet;
use std::fmt::{Debug, Display};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use terrane::{Error, Join, JoinOn, MEMORY_LIMIT_DEFAULT, Query};

use self::brute::{On, pairs};
use self::questions::{KINDS, Question};
use self::tables::{
    CITIES, COUNTIES, COUNTRIES, FIRES, HOSPITALS, LAKES, QUAKES, RIVERS, SAMPLES_OF_POINTS, SAMPLES_OF_SHAPES,
    SAMPLES_TO_JOIN, TEXTS, Table, ZIP_AREAS, ZIP_AREAS_SIMPLE, tables,
};
use self::world::{Held, State, World};
use crate::support::seeded;
use terrane_testkit::is_soak;

const MIB: usize = 1 << 20;
const MEMORY_LIMITS: [usize; 4] = [16 * MIB, 64 * MIB, MEMORY_LIMIT_DEFAULT, 4096 * MIB];

/// The number for an ordinary run, or for one with TERRANE_SOAK=1.
fn of_run(ordinary: usize, long: usize) -> usize {
    if is_soak() { long } else { ordinary }
}

/// The context of a failure.
struct Case<'w> {
    world: &'w World,
    line: String,
    index: String,
    seed: u64,
    test: &'static str,
}

impl Case<'_> {
    /// Demands the same rows, each once. If the memory limit is small, an error that names it is
    /// accepted.
    fn judge<T: Ord + Debug + Clone>(&self, how: &str, found: terrane::Result<Vec<T>>, wanted: &[T]) {
        let found = match found {
            Ok(found) => found,
            Err(error) => return self.judge_error(how, &error),
        };
        let (found_once, wanted_once): (BTreeSet<&T>, BTreeSet<&T>) = (found.iter().collect(), wanted.iter().collect());
        let missing: Vec<&&T> = wanted_once.difference(&found_once).collect();
        let extra: Vec<&&T> = found_once.difference(&wanted_once).collect();
        let first = |rows: &[&&T]| format!("{:?}", &rows[..rows.len().min(5)]);
        let twice = found.len() - found_once.len();
        if !missing.is_empty() || !extra.is_empty() || twice > 0 {
            let (missed, added, total) = (missing.len(), extra.len(), wanted.len());
            let (missing, extra) = (first(&missing), first(&extra));
            self.fail(&format!(
                "{how}: of {total} rows {missed} are missing {missing}, {added} are too many {extra}, \
                 {twice} come twice"
            ));
        }
    }

    /// Like [`Self::judge`], with the rows in the expected order.
    fn judge_order(&self, how: &str, found: terrane::Result<Vec<i64>>, wanted: &[i64]) {
        if let Ok(found) = &found
            && found.len() == wanted.len()
            && let Some(place) = (0..wanted.len()).find(|place| found[*place] != wanted[*place])
        {
            self.fail(&format!("{how}: row {place} is {} instead of {}", found[place], wanted[place]));
        }
        self.judge(how, found, wanted);
    }

    fn judge_count(&self, found: terrane::Result<u64>, wanted: usize) {
        match found {
            Ok(found) if found == wanted as u64 => {}
            Ok(found) => self.fail(&format!("counted: {found} instead of {wanted} rows")),
            Err(error) => self.judge_error("counted", &error),
        }
    }

    fn judge_error(&self, how: &str, error: &Error) {
        let is_of_limit = matches!(error, Error::Memory { .. });
        if !is_of_limit || self.world.memory_limit >= MEMORY_LIMIT_DEFAULT {
            self.fail(&format!("{how}: {error}"));
        }
    }

    fn fail(&self, reason: &str) -> ! {
        let Self { world, line, index, seed, test } = self;
        panic!(
            "{line}\n  {reason}\n  memory limit {} MiB, index {index}, {} partitions, {:?}\n  seed {seed}, replay: \
             TERRANE_TEST_SEED={seed} {}cargo test -p terrane --test suite differential::{test}",
            world.memory_limit / MIB,
            world.partitions,
            world.state,
            if is_soak() { "TERRANE_SOAK=1 " } else { "" },
        )
    }
}

/// The keys of batches, in their order.
fn keys_in(batches: impl Iterator<Item = terrane::Result<RecordBatch>>) -> terrane::Result<Vec<i64>> {
    let mut keys = Vec::new();
    for batch in batches {
        keys.extend(batch?.column_by_name("id").unwrap().as_primitive::<Int64Type>().values());
    }
    Ok(keys)
}

/// The pairs of keys in batches.
fn pairs_in(batches: impl Iterator<Item = terrane::Result<RecordBatch>>) -> terrane::Result<Vec<(i64, i64)>> {
    let mut pairs = Vec::new();
    for batch in batches {
        let batch = batch?;
        let keys = |name: &str| batch.column_by_name(name).unwrap().as_primitive::<Int64Type>();
        pairs.extend(keys("outer_id").values().iter().copied().zip(keys("inner_id").values().iter().copied()));
    }
    Ok(pairs)
}

/// A join of two datasets, by their names.
#[derive(Clone, Copy, Debug)]
struct JoinCase {
    outer: &'static str,
    inner: &'static str,
    on: On,
}

impl JoinCase {
    fn both_ways(one: &'static str, other: &'static str, on: On) -> [Self; 2] {
        let mirrored = match on {
            On::Within => On::Contains,
            On::Contains => On::Within,
            on => on,
        };
        [Self { outer: one, inner: other, on }, Self { outer: other, inner: one, on: mirrored }]
    }
}

impl Display for JoinCase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { outer, inner, on } = self;
        write!(f, "terrane join STORE {outer} {inner} ")?;
        match on {
            On::Intersects => f.write_str("--intersects"),
            On::Within => f.write_str("--within"),
            On::Contains => f.write_str("--contains"),
            On::Near(metres) => write!(f, "--within-distance {metres}"),
        }
    }
}

/// A run through all states and all memory limits.
struct Run<'r> {
    rng: SmallRng,
    seed: u64,
    test: &'static str,
    areas: &'r Table,
    joins: Vec<JoinCase>,
    /// Number of queries for each dataset in each state, over all kinds in turn.
    questions: usize,
    /// Number of queries for each dataset so far.
    asked: usize,
    changes: usize,
}

impl Run<'_> {
    fn go(&mut self, make: &dyn Fn() -> Vec<Table>) {
        let mut answers = 0;
        for partitions in [1, 3] {
            let mut world = World::new(make(), partitions, MEMORY_LIMITS[0]);
            for (lap, memory_limit) in MEMORY_LIMITS.into_iter().enumerate() {
                let opened = [State::Reopened, State::Killed][(lap + partitions) % 2];
                for state in [opened, State::Changed, State::Flushed, State::Merged, State::Changed] {
                    world.go_to(state, &mut self.rng, memory_limit, self.changes);
                    answers += self.ask_all(&world);
                }
                world.check();
            }
        }
        assert!(answers > 300, "only {answers} rows were found");
    }

    /// Queries each dataset in its current state, and joins them. Returns the number of rows.
    fn ask_all(&mut self, world: &World) -> usize {
        let mut answers = 0;
        for held in &world.held {
            for number in self.asked..self.asked + self.questions {
                let kind = KINDS[number % KINDS.len()];
                let question = Question::draw(&mut self.rng, kind, &held.table, self.areas);
                answers += self.ask(world, held, &question);
            }
        }
        self.asked += self.questions;
        // With every memory limit, in some of the states.
        for number in 0..self.joins.len() {
            if is_soak() || self.rng.random_ratio(2, 5) {
                answers += self.join(world, self.joins[number]);
            }
        }
        answers
    }

    fn case<'w>(&self, world: &'w World, line: String, index: Option<&str>) -> Case<'w> {
        let index = index.unwrap_or("of the planner").to_owned();
        Case { world, line, index, seed: self.seed, test: self.test }
    }

    fn ask(&mut self, world: &World, held: &Held, question: &Question) -> usize {
        let wanted = question.answer(&held.rows());
        let snapshot = held.dataset.snapshot();
        let serving = held.indexes.iter().filter(|index| index.serves(question)).map(|index| index.name.as_str());
        let ways: Vec<Option<&str>> = [None, Some("primary")].into_iter().chain(serving.map(Some)).collect();
        for index in ways {
            let query = index.map_or_else(|| question.query(), |index| question.query().using_index(index));
            let case = self.case(world, question.to_string(), index);
            let listed = if self.rng.random() { query.clone().columns(["id"]) } else { query.clone() };
            let found = snapshot.query(&listed).and_then(keys_in);
            match question.nearest {
                Some(_) => case.judge_order("listed", found, &wanted),
                None => case.judge("listed", found, &wanted),
            }
            case.judge_count(snapshot.count(&query), wanted.len());
        }
        wanted.len()
    }

    fn join(&mut self, world: &World, asked: JoinCase) -> usize {
        let (outer, inner) = (world.held(asked.outer), world.held(asked.inner));
        let wanted = pairs(&outer.rows(), &inner.rows(), asked.on);
        let (outer_snapshot, inner_snapshot) = outer.dataset.snapshot_with(&inner.dataset).unwrap();
        let spatial = inner.indexes.iter().filter(|index| index.is_spatial()).map(|index| index.name.as_str());
        let ways: Vec<&str> = std::iter::once("primary").chain(spatial).collect();
        // Without an index, a join takes one scan per outer row.
        let way = *ways[usize::from(is_soak() || outer.rows().len() > 50)..].choose(&mut self.rng).unwrap();
        for index in [None, Some(way)] {
            let on = match asked.on {
                On::Intersects => JoinOn::Intersects,
                On::Within => JoinOn::Within,
                On::Contains => JoinOn::Contains,
                On::Near(metres) => JoinOn::WithinDistance(metres),
            };
            let side = |keys_alone: bool| if keys_alone { Query::new().columns(["id"]) } else { Query::new() };
            let inner_side = side(self.rng.random());
            let inner_side = index.map_or_else(|| inner_side.clone(), |index| inner_side.clone().using_index(index));
            let join = Join::new(on).outer(side(self.rng.random())).inner(inner_side);
            let case = self.case(world, asked.to_string(), index);
            case.judge("listed", outer_snapshot.join(&inner_snapshot, &join).and_then(pairs_in), &wanted);
            case.judge_count(outer_snapshot.count_join(&inner_snapshot, &join), wanted.len());
        }
        wanted.len()
    }
}

#[test]
fn points_are_found_as_by_brute_force() {
    let (rng, seed) = seeded(0xD1FF_0001);
    let areas = tables(&[COUNTRIES], &SAMPLES_OF_SHAPES).remove(0);
    let make = || tables(&[CITIES, QUAKES, HOSPITALS, FIRES, TEXTS], &SAMPLES_OF_POINTS);
    let test = "points_are_found_as_by_brute_force";
    let (questions, changes) = (of_run(2, 24), of_run(160, 4_000));
    Run { rng, seed, test, areas: &areas, joins: Vec::new(), questions, asked: 0, changes }.go(&make);
}

#[test]
fn areas_and_lines_are_found_as_by_brute_force() {
    let (rng, seed) = seeded(0xD1FF_0002);
    let areas = tables(&[COUNTIES], &SAMPLES_OF_SHAPES).remove(0);
    let make = || tables(&[ZIP_AREAS_SIMPLE, COUNTIES, COUNTRIES, LAKES, RIVERS], &SAMPLES_OF_SHAPES);
    let test = "areas_and_lines_are_found_as_by_brute_force";
    let (questions, changes) = (of_run(2, 16), of_run(64, 1_000));
    Run { rng, seed, test, areas: &areas, joins: Vec::new(), questions, asked: 0, changes }.go(&make);
}

#[test]
fn joins_find_the_pairs_that_brute_force_finds() {
    let (rng, seed) = seeded(0xD1FF_0003);
    let areas = tables(&[COUNTRIES], &SAMPLES_OF_SHAPES).remove(0);
    let make = || tables(&[ZIP_AREAS, HOSPITALS, QUAKES, CITIES, COUNTRIES, LAKES, RIVERS], &SAMPLES_TO_JOIN);
    let with_files = [
        JoinCase::both_ways("zip_areas", "hospitals", On::Within),
        JoinCase::both_ways("zip_areas", "quakes", On::Intersects),
        JoinCase::both_ways("zip_areas", "cities", On::Near(2_000.0)),
        JoinCase::both_ways("countries", "cities", On::Within),
        JoinCase::both_ways("cities", "quakes", On::Near(30_000.0)),
        JoinCase::both_ways("rivers", "lakes", On::Intersects),
        JoinCase::both_ways("countries", "lakes", On::Within),
    ];
    let with_samples = [
        JoinCase::both_ways("zip_areas", "rides", On::Within),
        JoinCase::both_ways("zip_areas", "cities", On::Intersects),
        JoinCase::both_ways("zip_areas", "cities", On::Near(20_000.0)),
        JoinCase::both_ways("rides", "cities", On::Near(5_000.0)),
    ];
    let joins = if std::env::var_os("TERRANE_DATA").is_some() {
        with_files.as_flattened()
    } else {
        with_samples.as_flattened()
    };
    let test = "joins_find_the_pairs_that_brute_force_finds";
    let (questions, changes) = (of_run(0, 2), of_run(80, 2_000));
    Run { rng, seed, test, areas: &areas, joins: joins.to_vec(), questions, asked: 0, changes }.go(&make);
}
