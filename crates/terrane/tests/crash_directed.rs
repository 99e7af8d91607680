//! Crashes at places that random runs rarely reach.

use std::collections::BTreeMap;

use crate::support::crash::{Effort, Recovered, explore, recover};
use crate::support::workload::{MAIN, Plan, Runner, Step, first_schema, options, state_of};
use crate::support::{record, seeded};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use terrane::{Durability, Key, Query, Record, Store, Value};
use terrane_storage::event::{DiskEvent, Event};
use terrane_testkit::crash::{Budget, Controller};

fn at(key: i64, size: i64) -> Record {
    Record::at(key, 1.0, 2.0, vec![Value::Null, Value::Int(size)])
}

/// All ways of flushing and merging between delete, insert and delete of an entry in an older
/// component.
fn deletions() -> impl Iterator<Item = Vec<Step>> {
    (0..27).map(|number| {
        let changes = [Step::Delete(Key::Int(1)), Step::Insert(at(1, 2)), Step::Delete(Key::Int(1))];
        let mut steps = vec![Step::Insert(at(1, 1)), Step::Insert(at(2, 1)), Step::Flush];
        for (place, change) in changes.into_iter().enumerate() {
            steps.push(change);
            match number / 3i32.pow(place as u32) % 3 {
                0 => {}
                1 => steps.push(Step::Flush),
                _ => steps.push(Step::Compact),
            }
        }
        steps
    })
}

#[test]
fn delete_insert_delete_survives_crashes_between_flushes_and_merges() {
    for steps in deletions() {
        explore(&Plan::of(steps), Durability::Power, 61, Effort::sampled(11, usize::MAX));
    }
}

#[test]
fn snapshots_keep_their_state_over_delete_insert_delete() {
    for steps in deletions() {
        let plan = Plan::of(steps);
        let controller = Controller::new();
        let mut runner = Runner::open(controller.storage(), options(Durability::Power)).unwrap();
        let mut held = Vec::new();
        for (number, step) in plan.steps.iter().enumerate() {
            runner.apply(step).unwrap();
            let snapshot = runner.store().dataset(MAIN).unwrap().snapshot();
            held.push((number, snapshot));
            for (number, snapshot) in &held {
                let wanted = &plan.states[number + 1][MAIN].records;
                let here = Query::new().window(1.0, 2.0, 1.0, 2.0);
                assert_eq!(snapshot.count(&here).unwrap(), wanted.len() as u64, "step {number}: {:?}", plan.steps);
                for key in [1, 2] {
                    let found = snapshot.get(&Key::Int(key)).unwrap();
                    assert_eq!(found.as_ref(), wanted.get(&key), "step {number}: {:?}", plan.steps);
                }
            }
        }
        assert!(runner.store().check(false).unwrap().findings.is_empty());
    }
}

/// A seal cuts all indexes at one sequence number. A write with a lower log position than one in
/// the sealed generation is never taken for flushed.
#[test]
fn commits_around_seals_survive_crashes() {
    const WRITERS: i64 = 4;
    const WRITES: i64 = 60;
    let (_, seed) = seeded(62);
    let controller = Controller::new();
    let store = Store::open_on(controller.storage(), options(Durability::Power)).unwrap();
    let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
    let start = controller.events();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (dataset, controller) = (dataset.clone(), &controller);
            scope.spawn(move || {
                for number in 1..=WRITES {
                    dataset.upsert(&at(writer, number)).unwrap();
                    controller.mark(writer as u64);
                }
            });
        }
        for _ in 0..12 {
            dataset.flush().unwrap();
        }
    });
    let budget = Budget { exhaustive_pending: 3, samples: 2, ..Budget::default() };
    for cut in (start..=controller.events()).step_by(7) {
        let marks = controller.marks(cut);
        for image in controller.images(cut, &budget, seed) {
            let store = Store::open_on(image.storage(), options(Durability::Power)).unwrap();
            let snapshot = store.dataset(MAIN).unwrap().snapshot();
            for writer in 0..WRITERS {
                let acknowledged = marks.iter().filter(|mark| **mark == writer as u64).count() as i64;
                let found = snapshot.get(&Key::Int(writer)).unwrap().map_or(0, |record| match record.values[1] {
                    Value::Int(number) => number,
                    _ => panic!("an integer was stored"),
                });
                let in_flight = acknowledged..=acknowledged + 1;
                assert!(in_flight.contains(&found), "writer {writer}: {found} instead of {in_flight:?}, {image:?}");
            }
            let report = store.check(false).unwrap();
            assert!(report.findings.is_empty(), "{report}, {image:?}");
        }
    }
}

/// Concurrent flushes of several datasets, in the writing threads and in others, share the
/// low-water mark of one log. No dataset releases a log segment that another one still needs. A
/// released segment is never needed again.
#[test]
fn flushes_of_several_datasets_at_once_survive_crashes() {
    const WRITES: i64 = 60;
    const NAMES: [&str; 3] = ["first", "second", "third"];
    let (_, seed) = seeded(65);
    let controller = Controller::new();
    let store = Store::open_on(controller.storage(), options(Durability::Power)).unwrap();
    let datasets = NAMES.map(|name| store.create_dataset(name, first_schema()).unwrap());
    let start = controller.events();
    std::thread::scope(|scope| {
        for (number, dataset) in datasets.iter().enumerate() {
            let controller = &controller;
            scope.spawn(move || {
                let mut rng = SmallRng::seed_from_u64(seed ^ number as u64);
                for count in 1..=WRITES {
                    let name = Value::Utf8("n".repeat(rng.random_range(0..1500)));
                    dataset.upsert(&Record::at(1, 1.0, 2.0, vec![name, Value::Int(count)])).unwrap();
                    controller.mark(number as u64);
                    if rng.random_ratio(1, 3) {
                        dataset.flush().unwrap();
                    }
                }
            });
        }
        for _ in 0..12 {
            store.flush().unwrap();
        }
    });
    let log = controller.log();
    let is_segment = |name: &str| name.starts_with("log/") && name.ends_with(".log");
    let given_up = log.iter().filter(|event| match event {
        Event::Disk(DiskEvent::Rename { from, .. }) => is_segment(from),
        Event::Disk(DiskEvent::Remove { name, .. }) => is_segment(name),
        _ => false,
    });
    assert!(given_up.count() > 3, "segments of the log are recycled and removed");
    let budget = Budget { exhaustive_pending: 3, samples: 2, ..Budget::default() };
    for cut in (start..=controller.events()).step_by(11) {
        let marks = controller.marks(cut);
        for image in controller.images(cut, &budget, seed).chain([controller.process_kill(cut)]) {
            let store = Store::open_on(image.storage(), options(Durability::Power))
                .unwrap_or_else(|error| panic!("cannot reopen: {error}, {image:?}"));
            for (number, name) in NAMES.into_iter().enumerate() {
                let acknowledged = marks.iter().filter(|mark| **mark == number as u64).count() as i64;
                let found = store.dataset(name).unwrap().get(&Key::Int(1)).unwrap();
                let found = found.map_or(0, |record| match record.values[1] {
                    Value::Int(count) => count,
                    _ => panic!("an integer was stored"),
                });
                let in_flight = acknowledged..=acknowledged + 1;
                assert!(in_flight.contains(&found), "{name}: {found} instead of {in_flight:?}, {image:?}");
            }
            let report = store.check(false).unwrap();
            assert!(report.findings.is_empty(), "{report}, {image:?}");
        }
    }
}

/// A cut tail leaves groups that were once valid. The log continues over them and is cut again.
/// They never become part of it.
#[test]
fn repeated_crashes_never_bring_back_a_cut_tail() {
    let (mut rng, seed) = seeded(63);
    let mut controller = Controller::new();
    let mut model: BTreeMap<i64, Record> = BTreeMap::new();
    for round in 0..60u64 {
        let store = Store::open_on(controller.storage(), options(Durability::Power)).unwrap();
        if round == 0 {
            store.create_dataset(MAIN, first_schema()).unwrap();
        }
        let dataset = store.dataset(MAIN).unwrap();
        let mut states = vec![model.clone()];
        let first_event = controller.events();
        let marks_before = controller.marks(first_event).len();
        for _ in 0..rng.random_range(1..8) {
            let mut record = record(&mut rng, Key::Int(round as i64 % 7), true);
            record.values[0] = Value::Utf8("n".repeat(rng.random_range(0..1500)));
            dataset.upsert(&record).unwrap();
            controller.mark(0);
            model.insert(round as i64 % 7, record);
            states.push(model.clone());
        }
        let cut = rng.random_range(first_event..=controller.events());
        let acknowledged = controller.marks(cut).len() - marks_before;
        let budget = Budget { exhaustive_pending: 6, samples: 6, ..Budget::default() };
        let images: Vec<_> = controller.images(cut, &budget, seed ^ round).collect();
        let image = images[rng.random_range(0..images.len())].clone();
        controller = image.restart();
        let check = Store::open_on(image.storage(), options(Durability::Power)).unwrap();
        let found = check.dataset(MAIN).unwrap();
        let records = model.keys().filter_map(|key| Some((*key, found.get(&Key::Int(*key)).unwrap()?))).collect();
        assert!(
            states[acknowledged..(acknowledged + 2).min(states.len())].contains(&records),
            "round {round}, {image:?}: {records:?}"
        );
        assert!(check.check(false).unwrap().findings.is_empty());
        model = records;
    }
}

/// After a kill at any point, all records of an import are stored or none.
#[test]
fn an_import_is_stored_as_a_whole_or_not_at_all() {
    let (mut rng, seed) = seeded(64);
    let mut records = |keys: std::ops::Range<i64>| -> Vec<Record> {
        keys.rev().map(|key| record(&mut rng, Key::Int(key), true)).collect()
    };
    let steps = [
        Step::Insert(at(1, 1)),
        Step::Import(MAIN.into(), records(100..160)),
        Step::Insert(at(2, 1)),
        Step::Import("other".into(), records(0..40)),
    ];
    let plan = Plan::of(steps);
    explore(&plan, Durability::Power, seed, Effort::sampled(5, 10));
    explore(&plan, Durability::None, seed, Effort::sampled(5, 10));
    let (controller, _) = crate::support::crash::run(&plan, Durability::Power);
    let image = controller.process_kill(controller.events());
    recover(&image, &plan, Durability::Power, plan.steps.len(), &mut Recovered::default());
    assert_eq!(&state_of(&Store::open_on(image.storage(), options(Durability::Power)).unwrap()), &plan.states[5]);
}

/// An opening with many segments and nothing to flush releases them by a manifest step of its own.
#[test]
fn openings_that_release_the_log_survive_crashes() {
    let mut steps = vec![Step::Insert(at(1, 1)), Step::Flush];
    steps.extend(std::iter::repeat_n(Step::Reopen, 7));
    steps.push(Step::Insert(at(2, 1)));
    steps.extend(std::iter::repeat_n(Step::Reopen, 7));
    steps.extend([Step::Delete(Key::Int(1)), Step::Reopen]);
    explore(&Plan::of(steps), Durability::Power, 64, Effort::sampled(5, 20));
}

/// A writer may be killed between renaming its manifest and syncing the name. A power loss can undo
/// this manifest. So a reader makes it durable first.
#[test]
fn the_state_shown_by_a_reader_survives_a_later_power_loss() {
    for durability in [Durability::Power, Durability::None] {
        let controller = Controller::new();
        let mut runner = Runner::open(controller.storage(), options(durability)).unwrap();
        runner.store().create_dataset(MAIN, first_schema()).unwrap();
        for step in [Step::Insert(at(1, 1)), Step::Flush, Step::Import(MAIN.into(), vec![at(1001, 1)]), Step::Flush] {
            runner.apply(&step).unwrap();
        }
        let mut renamed = 0;
        for (number, event) in controller.log().iter().enumerate() {
            if !matches!(event, Event::Disk(DiskEvent::Rename { to, .. }) if **to == *"MANIFEST") {
                continue;
            }
            renamed += 1;
            let machine = controller.process_kill(number + 1).restart();
            let reader = Store::open_read_only_on(machine.storage(), options(durability)).unwrap();
            let shown = state_of(&reader);
            drop(reader);
            for image in machine.images(machine.events(), &Budget::default(), 65) {
                let store = Store::open_on(image.storage(), options(durability)).unwrap();
                assert_eq!(state_of(&store), shown, "{durability}, {}", image.describe());
            }
        }
        assert!(renamed > 3);
    }
}
