//! What a kill leaves of a feed and its source, on a storage that is cut at every event.

use std::fs;

use terrane::schema::{GENERATED_KEY_COLUMN, GeometryColumn, KeyColumn, KeyType, Schema};
use terrane::{CoordinateSystem, MEMORY_LIMIT_MIN, Options, Store};
use terrane_storage::crash::Controller;

use super::*;

const DATASET: &str = "d";
const LINE: &str = "not a record\n";

fn options() -> Options {
    Options { memory_limit: MEMORY_LIMIT_MIN, background: false, ..Options::default() }
}

fn created(controller: &Controller) -> (Store, Dataset) {
    let store = Store::open_on(controller.storage(), options()).expect("a store");
    let key = KeyColumn { name: GENERATED_KEY_COLUMN.into(), key_type: KeyType::Int64, generated: true };
    let geometry = GeometryColumn::Point { x: "lon".into(), y: "lat".into() };
    let schema = Schema::new(key, geometry, CoordinateSystem::LonLat, Vec::new()).expect("a schema");
    let dataset = store.create_dataset(DATASET, schema).expect("a dataset");
    (store, dataset)
}

fn source(path: &Path) -> Source {
    let positions = Positions::File(Arc::new(Follow::open(path).expect("a file")));
    Source { name: "feed".into(), positions, feed: None, restarts: false, begun_at: 0, read: 0 }
}

/// What is known of the feed after each kill: its position, and by what it knows its source.
fn states(controller: &Controller) -> Vec<(u64, Option<String>)> {
    let state = |cut| {
        let store = Store::open_on(controller.process_kill(cut).restart().storage(), options()).expect("it opens");
        let feed = store.dataset(DATASET).ok()?.feeds().pop()?;
        Some((feed.position, feed.source))
    };
    let mut states: Vec<_> = (0..=controller.events()).filter_map(state).collect();
    states.dedup();
    states
}

#[test]
fn a_kill_in_a_rotation_leaves_the_feed_in_one_of_the_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("log");
    fs::write(&path, LINE).expect("a file");
    let controller = Controller::new();
    let (_store, dataset) = created(&controller);
    let mut source = source(&path);
    source.open(&dataset).expect("the file is not known yet");
    source.note_line(LINE.len() as u64);
    source.pass().expect("it is kept");
    let old = source.mark_text().expect("it is read");
    fs::rename(&path, directory.path().join("log.1")).expect("it is moved");
    fs::write(&path, "another").expect("another takes the name");
    source.follow(&path).expect("it is there");
    let new = source.mark_text().expect("it is read");
    let read = LINE.len() as u64;
    assert_eq!(states(&controller), [(0, None), (0, old.clone()), (read, old), (0, new)]);
}

#[test]
fn lines_that_are_refused_leave_no_position_of_an_unknown_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("log");
    fs::write(&path, "").expect("a file");
    let controller = Controller::new();
    let (_store, dataset) = created(&controller);
    let mut source = source(&path);
    source.open(&dataset).expect("the file is not known yet");
    fs::write(&path, LINE).expect("it grows");
    source.note_line(LINE.len() as u64);
    source.pass().expect("it is kept");
    let (read, mark) = (LINE.len() as u64, source.mark_text().expect("it is read"));
    assert_eq!(states(&controller), [(0, None), (0, mark.clone()), (read, mark)]);
}
