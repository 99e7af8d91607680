//! How a feed recognises its file, also after kills: on a storage that is cut at every event.

use std::fs;
use std::io::Write;

use terrane::schema::{GENERATED_KEY_COLUMN, GeometryColumn, KeyColumn, KeyType, Schema};
use terrane::{CoordinateSystem, MEMORY_LIMIT_MIN, Options, Store};
use terrane_storage::Storage;
use terrane_testkit::MemoryStorage;
use terrane_testkit::crash::Controller;

use super::*;

const DATASET: &str = "d";
const LINE: &str = "not a record";

fn options() -> Options {
    Options { memory_limit: MEMORY_LIMIT_MIN, background: false, ..Options::default() }
}

fn created(storage: &Arc<dyn Storage>) -> (Store, Dataset) {
    let store = Store::open_on(storage.clone(), options()).expect("a store");
    let key = KeyColumn { name: GENERATED_KEY_COLUMN.into(), key_type: KeyType::Int64, generated: true };
    let geometry = GeometryColumn::Point { x: "lon".into(), y: "lat".into() };
    let schema = Schema::new(key, geometry, CoordinateSystem::LonLat, Vec::new()).expect("a schema");
    let dataset = store.create_dataset(DATASET, schema).expect("a dataset");
    (store, dataset)
}

fn source(path: &Path) -> Source {
    let positions = Positions::File(Arc::new(Follow::open(path, false).expect("a file")));
    Source {
        name: "feed".into(),
        positions,
        feed: None,
        restarts: false,
        begun_at: 0,
        read: 0,
        last: LastBytes::default(),
        left: LeftFiles::default(),
    }
}

/// Reads the next line of the file, as if it had been refused.
fn read(source: &mut Source, text: &str) {
    let (start, bytes) = (source.read, format!("{text}\n"));
    source.file().expect("it is one").note_read(start, bytes.as_bytes());
    let line = Line { number: start, end: start + bytes.len() as u64, text: Ok(text.to_owned()) };
    source.note_bytes(&line);
    source.note_line(line.end);
    source.pass().expect("it is kept");
}

/// The feed's state after each kill: its position, and the text by which it recognises its source.
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
    fs::write(&path, format!("{LINE}\n")).expect("a file");
    let controller = Controller::new();
    let (_store, dataset) = created(&controller.storage());
    let mut source = source(&path);
    source.open(&dataset).expect("the file is not known yet");
    let begun = source.mark_text();
    read(&mut source, LINE);
    let (position, old) = (source.position(), source.mark_text());
    source.mark().expect("it is kept");
    fs::rename(&path, directory.path().join("log.1")).expect("it is moved");
    fs::write(&path, "another").expect("another takes the name");
    source.follow().expect("it is there");
    let new = source.mark_text();
    let wanted = [(0, begun.clone()), (position, begun), (position, old), (0, new)];
    assert_eq!(states(&controller)[1..], wanted.map(|(position, mark)| (position, Some(mark))));
}

#[test]
fn lines_that_are_refused_leave_no_position_of_an_unknown_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("log");
    fs::write(&path, "").expect("a file");
    let controller = Controller::new();
    let (_store, dataset) = created(&controller.storage());
    let mut source = source(&path);
    source.open(&dataset).expect("the file is not known yet");
    let empty = source.mark_text();
    fs::write(&path, format!("{LINE}\n")).expect("it grows");
    read(&mut source, LINE);
    let (position, mark) = (source.position(), source.mark_text());
    let wanted = [(0, None), (0, Some(empty)), (0, Some(mark.clone())), (position, Some(mark))];
    assert_eq!(states(&controller), wanted);
}

/// Renewing a mark is a durable step. A file has far fewer of them than batches.
#[test]
fn a_file_is_marked_often_while_it_is_short_and_seldom_later() {
    const LINES: usize = 5000;
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("log");
    fs::write(&path, "").expect("a file");
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let (_store, dataset) = created(&storage);
    let mut source = source(&path);
    source.open(&dataset).expect("the file is not known yet");
    let mut file = fs::OpenOptions::new().append(true).open(&path).expect("it is there");
    let (mut marks, mut known) = (0, None);
    for number in 0..LINES {
        let line = format!("{number:0100}");
        writeln!(file, "{line}").expect("it grows");
        read(&mut source, &line);
        let mark = source.known_mark().expect("it is known before its position is kept");
        marks += usize::from(known.replace(mark) != Some(mark));
        let (position, last) = (source.position(), mark.last().expect("something was read").end);
        assert!(last <= position && position - last < (last / 4).max(1024), "marked at {last}, read up to {position}");
        assert!(matches!(mark, Mark::Bytes { first, .. } if first.end == position.min(1024)));
    }
    assert!(marks < LINES / 100, "{marks} marks");
}
