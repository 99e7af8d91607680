use tempfile::tempdir;

use crate::neighbours::NeighbourTree;
use crate::system::{Reader, Role, System, count_and_sum};
use crate::systems::all as systems;
use crate::workload::{self, EXTENT, Location, Points, Record, Window};

fn points() -> Points {
    Points::generate(3_000).unwrap()
}

fn check_against_reference(name: &str, reader: &dyn Reader, points: &Points) {
    let tree = NeighbourTree::new(points);
    for hits in [10, 100] {
        let drawn = workload::windows(points, &tree, hits, 100).unwrap();
        for (window, &id_sum) in drawn.queries.iter().zip(&drawn.id_sums) {
            let found = count_and_sum(reader, window).unwrap();
            assert_eq!(found, (hits as u64, id_sum), "{name}, {window:?}");
        }
    }
    let drawn = workload::nearest(points, &tree, 10, 100).unwrap();
    for (&from, &id_sum) in drawn.queries.iter().zip(&drawn.id_sums) {
        let (mut count, mut sum) = (0, 0_u64);
        reader
            .nearest(from, 10, &mut |id| {
                count += 1;
                sum = sum.wrapping_add(id as u64);
            })
            .unwrap();
        assert_eq!((count, sum), (10, id_sum), "{name}, {from:?}");
    }
}

#[test]
fn every_system_gives_the_reference_answers() {
    for points in [points(), points().with_random_keys()] {
        for system in systems() {
            for (role, parts) in [(Role::Queries, 1), (Role::FiveComponents, 5)] {
                if system.roles().contains(&role) {
                    let dir = tempdir().unwrap();
                    let reader = system.build(&points.deal(parts), dir.path()).unwrap();
                    check_against_reference(system.name(), reader.as_ref(), &points);
                }
            }
        }
    }
}

#[test]
fn importing_a_file_is_building_from_its_points() {
    let points = points();
    let dir = tempdir().unwrap();
    let file = dir.path().join("points.parquet");
    crate::parquet_file::write(&points, &file).unwrap();
    for system in systems() {
        if system.roles().contains(&Role::Build) {
            let dir = tempdir().unwrap();
            let reader = system.import(&file, dir.path()).unwrap();
            let found = count_and_sum(reader.as_ref(), &EXTENT).unwrap();
            assert_eq!(found, (3_000, points.id_sum()), "{}", system.name());
        }
    }
}

#[test]
fn sqlite_returns_no_point_that_only_its_rounded_boxes_let_in() {
    let mut points = Points::default();
    points.push(Record { id: 7, time_us: 0, location: Location { x: -122.41, y: 37.77 } });
    let dir = tempdir().unwrap();
    let reader = super::sqlite::Sqlite::Full.build(std::slice::from_ref(&points), dir.path()).unwrap();
    // Closer to the point than a float32 of that size can tell.
    let just_beside = Window { x0: -122.41 + 1e-9, y0: 37.0, x1: -122.0, y1: 38.0 };
    assert_eq!(count_and_sum(reader.as_ref(), &just_beside).unwrap(), (0, 0));
    let touching = Window { x0: -122.41, ..just_beside };
    assert_eq!(count_and_sum(reader.as_ref(), &touching).unwrap(), (1, 7));
}

#[test]
fn writers_insert_delete_and_refuse_what_is_not_there() {
    let points = Points::generate_uniform(300, 1_000);
    for system in systems() {
        let roles = system.roles();
        if !roles.contains(&Role::DurableWrites) && !roles.contains(&Role::UnsyncedWrites) {
            assert!(system.open_writer(tempdir().unwrap().path()).is_err() || roles.contains(&Role::Queries));
            continue;
        }
        let dir = tempdir().unwrap();
        let writer = system.open_writer(dir.path()).unwrap();
        writer.insert_all(&points).unwrap();
        let extra = Record { id: -5, ..points.record(0) };
        writer.insert(&extra).unwrap();
        writer.delete(&points.record(17)).unwrap();
        assert!(writer.delete(&points.record(17)).is_err(), "{}", system.name());
        let expected = points.id_sum().wrapping_sub(points.id[17] as u64).wrapping_sub(5);
        let found = count_and_sum(writer.reader().unwrap().as_ref(), &EXTENT).unwrap();
        assert_eq!(found, (300, expected), "{}", system.name());
    }
}

#[test]
fn what_was_written_is_there_when_opened_again() {
    let points = Points::generate_uniform(50, 0);
    for system in systems() {
        if system.roles().contains(&Role::Reopen) {
            let dir = tempdir().unwrap();
            let writer = system.open_writer(dir.path()).unwrap();
            for record in points.records() {
                writer.insert(&record).unwrap();
            }
            drop(writer);
            let reader = system.open_reader(dir.path()).unwrap();
            let found = count_and_sum(reader.as_ref(), &EXTENT).unwrap();
            assert_eq!(found, (50, points.id_sum()), "{}", system.name());
        }
    }
}
