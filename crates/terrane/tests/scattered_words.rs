//! Words that may be in any of several columns are searched in the indexes of all of them. Each
//! record is found once.

use std::sync::Arc;

use crate::support::{committed_keys_of, keys_of, small_options};
use terrane::schema::{Column, ColumnType, GeometryColumn, KeyColumn, KeyType, Schema};
use terrane::{
    Condition, CoordinateSystem, Dataset, DatasetOptions, Explanation, IndexKind, IndexOptions, Isolation, Key, Query,
    Record, StopWords, Store, Value,
};
use terrane_testkit::MemoryStorage;

const RECORDS: i64 = 4000;

fn created(key_type: KeyType, partitions: usize) -> (Store, Dataset) {
    let columns = ["title", "text", "tags"].map(|name| Column::new(name, ColumnType::Utf8)).to_vec();
    let geometry = GeometryColumn::Point { x: "x".into(), y: "y".into() };
    let key = KeyColumn { name: "id".into(), key_type, generated: false };
    let schema = Schema::new(key, geometry, CoordinateSystem::Planar, columns).unwrap();
    let store = Store::open_on(Arc::new(MemoryStorage::new()), small_options()).unwrap();
    let dataset = store.create_dataset_with("d", schema, &DatasetOptions { partitions }).unwrap();
    (store, dataset)
}

fn record(key: Key, texts: [Option<String>; 3]) -> Record {
    let values = texts.map(|text| text.map_or(Value::Null, Value::Utf8)).to_vec();
    Record { values, ..Record::at(key, 1.0, 1.0, Vec::new()) }
}

/// The texts of a record, with these words.
/// - `bird` is in one title in 40, and in one text in 50: in both for one record in 200. It is also
///   in the tags of one record in 80.
/// - `rare` is in the tags of one record in 2000.
/// - `the` is in every text.
/// - `title` is in many titles and in some tags.
fn texts(number: i64) -> [Option<String>; 3] {
    let is_one_in = |parts: i64| number % parts == 0;
    let bird = |parts| if is_one_in(parts) { " Bird," } else { "" };
    let title = (number % 3 == 1 || is_one_in(40)).then(|| format!("Title{} of {}", bird(40), number % 7));
    if number % 8 == 1 {
        return [title, Some("the text".into()), Some("subtitle, title".into())];
    }
    let tags = is_one_in(80).then(|| format!("bird {}", if is_one_in(2000) { "rare" } else { "" }));
    [title, Some(format!("the{} text", bird(50))), tags]
}

fn fill(dataset: &Dataset, key: impl Fn(i64) -> Key) {
    for first in (0..RECORDS).step_by(500) {
        let mut batch = dataset.atomic_batch();
        for number in first..first + 500 {
            batch.upsert(&record(key(number), texts(number))).unwrap();
        }
        batch.commit().unwrap();
    }
}

fn create_index(dataset: &Dataset, column: &str, stop_word: Option<&str>) {
    let options = IndexOptions::default().stop_words(StopWords::new(stop_word).unwrap());
    dataset.create_index_with(&format!("words_of_{column}"), IndexKind::Inverted, &[column], &options).unwrap();
}

fn anywhere(words: &str) -> Query {
    Query::new().condition(Condition::matches_anywhere(words))
}

fn explanation(dataset: &Dataset, query: &Query) -> Explanation {
    let mut rows = dataset.query(query).unwrap();
    rows.by_ref().for_each(|batch| drop(batch.unwrap()));
    rows.explanation()
}

/// The reasons by the names of the indexes.
fn reasons(explanation: &Explanation) -> Vec<(&str, bool, &str)> {
    let considered = explanation.considered.iter();
    considered.map(|index| (index.index.as_str(), index.is_used, index.reason.as_str())).collect()
}

/// Asserts that two queries give the same records, each once, at both levels. Returns their number.
fn assert_same(dataset: &Dataset, query: &Query) -> usize {
    let ordered = |mut keys: Vec<Key>| {
        keys.sort_by_key(|key| format!("{key:?}"));
        keys
    };
    let wanted = ordered(keys_of(&dataset.snapshot(), &query.clone().using_index("primary")));
    assert!(ordered(keys_of(&dataset.snapshot(), query)) == wanted, "{query:?}");
    assert!(ordered(committed_keys_of(dataset, query)) == wanted, "{query:?}");
    assert_eq!(dataset.count(query).unwrap(), wanted.len() as u64, "{query:?}");
    wanted.len()
}

#[test]
fn the_indexes_of_all_columns_are_merged() {
    for partitions in [1, 3] {
        let (store, dataset) = created(KeyType::Int64, partitions);
        ["title", "text", "tags"].into_iter().for_each(|column| create_index(&dataset, column, None));
        fill(&dataset, Key::Int);
        for flushed in [false, true] {
            if flushed {
                dataset.compact().unwrap();
            }
            // One in 40, and one in 50 of the others.
            assert_eq!(assert_same(&dataset, &anywhere("bird")), 100 + 80 - 20);
            let all = explanation(&dataset, &anywhere("bird"));
            assert_eq!((all.plan, all.lookups, all.matches), ("attribute indexes", 160, 160), "{all}");
            assert_eq!(all.entries, 100 + 80 + 50, "{all}");
            let reason = "those of all columns give the fewest candidates together";
            assert!(reasons(&all).iter().all(|(_, is_used, why)| *is_used && *why == reason), "{all}");
            // Keys alone need no record, except at read committed.
            let keys = anywhere("bird").columns(["id"]);
            let only = explanation(&dataset, &keys);
            assert_eq!((only.plan, only.lookups, only.matches), ("attribute indexes only", 0, 160), "{only}");
            let committed = explanation(&dataset, &keys.isolation(Isolation::ReadCommitted));
            assert_eq!((committed.plan, committed.lookups), ("attribute indexes", 160), "{committed}");
            // The rarest word is searched, in whichever columns the others are.
            assert_eq!(assert_same(&dataset, &anywhere("RARE the bird title 5")), 1, "2000");
            let rare = explanation(&dataset, &anywhere("RARE the bird title"));
            assert_eq!((rare.plan, rare.entries, rare.lookups), ("attribute indexes", 2, 2), "{rare}");
            assert_eq!(assert_same(&dataset, &anywhere("nowhere")), 0);
            // More entries than wait to be merged.
            let many = explanation(&dataset, &anywhere("title").columns(["id"]));
            assert_eq!(many.plan, "attribute indexes only", "{many}");
            assert!(assert_same(&dataset, &anywhere("title")) > 1500);
            // A word of most records is searched in all records.
            let common = explanation(&dataset, &anywhere("the"));
            assert_eq!((common.plan, common.matches), ("primary scan", RECORDS as u64), "{common}");
            // Another index with fewer entries is better.
            let both = anywhere("bird").condition(Condition::parse("tags match 'rare' and * match 'bird'").unwrap());
            let told = explanation(&dataset, &both);
            assert_eq!((told.plan, told.lookups), ("attribute index", 2), "{told}");
            assert_eq!(assert_same(&dataset, &both), 2);
        }
        drop(dataset);
        assert!(store.check(false).unwrap().findings.is_empty());
    }
}

#[test]
fn reasons_against_merging_the_indexes_are_reported() {
    let (_store, dataset) = created(KeyType::Int64, 2);
    create_index(&dataset, "title", Some("bird"));
    create_index(&dataset, "text", None);
    fill(&dataset, Key::Int);
    let told = explanation(&dataset, &anywhere("bird rare"));
    assert_eq!(told.plan, "primary scan", "{told}");
    let lacking = "a word may also be in \"tags\", which has no index with this word";
    assert_eq!(reasons(&told), [("words_of_title", false, lacking), ("words_of_text", false, lacking)]);
    create_index(&dataset, "tags", None);
    // A stop word of one index is not used for the search.
    let told = explanation(&dataset, &anywhere("bird rare"));
    assert_eq!((told.plan, told.entries), ("attribute indexes", 2), "{told}");
    assert_eq!(assert_same(&dataset, &anywhere("bird rare")), 2);
    let told = explanation(&dataset, &anywhere("bird"));
    let left_out = "a word may also be in \"title\", which has no index with this word";
    assert_eq!((told.plan, reasons(&told)[1]), ("primary scan", ("words_of_text", false, left_out)), "{told}");
    let refused = dataset.count(&anywhere("rare").using_index("words_of_tags")).unwrap_err().to_string();
    assert!(refused.contains("without an index name, the indexes of all columns are used together"), "{refused}");
    dataset.drop_index("words_of_text").unwrap();
    assert_eq!(explanation(&dataset, &anywhere("rare")).plan, "primary scan");
}

#[test]
fn words_may_also_be_in_a_text_key() {
    let (_store, dataset) = created(KeyType::Utf8, 1);
    ["title", "text", "tags"].into_iter().for_each(|column| create_index(&dataset, column, None));
    fill(&dataset, |number| Key::Utf8(format!("rare {number:04}")));
    assert_eq!(assert_same(&dataset, &anywhere("rare bird")), 160);
    let told = explanation(&dataset, &anywhere("rare bird"));
    let in_key = "a word may also be in the key \"id\", which has no index of its words";
    assert_eq!((told.plan, reasons(&told)[2]), ("primary scan", ("words_of_tags", false, in_key)), "{told}");
}

/// Records are deleted, or a word moves to another column, before an answer and between its steps.
#[test]
fn words_that_move_between_columns_are_found_once() {
    let (_store, dataset) = created(KeyType::Int64, 2);
    ["title", "text", "tags"].into_iter().for_each(|column| create_index(&dataset, column, None));
    fill(&dataset, Key::Int);
    dataset.flush().unwrap();
    let before = dataset.snapshot();
    for number in (0..RECORDS).step_by(40) {
        let [_, text, tags] = texts(number);
        match number % 3 {
            0 => drop(dataset.delete(&Key::Int(number)).unwrap()),
            1 => dataset.upsert(&record(Key::Int(number), [text, tags, Some("bird".into())])).unwrap(),
            _ => dataset.upsert(&record(Key::Int(number), [None, tags, Some("none".into())])).unwrap(),
        }
    }
    assert_eq!(keys_of(&before, &anywhere("bird")).len(), 160);
    for round in 0..2 {
        let found = assert_same(&dataset, &anywhere("bird"));
        let kept = (0..RECORDS).filter(|number| match (number % 40, number % 3) {
            (0, 0) => false,
            (0, 1) => true,
            (0, _) => number % 80 == 0,
            _ => number % 50 == 0,
        });
        assert_eq!(found, kept.count(), "round {round}");
        assert_eq!(explanation(&dataset, &anywhere("bird")).plan, "attribute indexes");
        dataset.compact().unwrap();
    }
}
