//! `insert --atomic`: all records of the input, or none, and no change of the schema either.

use crate::support::{Sandbox, count, insert, is_clean, rows, terrane};

fn record(key: u32, rest: &str) -> String {
    format!("{{\"id\":{key},\"lon\":1,\"lat\":2{rest}}}\n")
}

#[test]
fn all_records_are_inserted_when_the_input_ends_and_their_keys_printed_in_order() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    // More than a batch of lines, with a new column in between, and integers that become floats.
    let mut input: String = (0..2500).rev().map(|key| record(key, ",\"n\":7")).collect();
    input += &record(3000, ",\"n\":0.5,\"text\":\"later\"");
    let answer = insert(&store, "d", input, &["--atomic"]).exits(0).says("inserted 2501 records");
    let keys: Vec<u32> = answer.text().lines().map(|key| key.parse().expect("a number")).collect();
    assert_eq!(keys, (0..2500).rev().chain([3000]).collect::<Vec<u32>>());
    let rows = rows(&store, "d", "id");
    assert_eq!(rows.len(), 2501);
    assert_eq!((rows[5]["n"].as_f64(), rows[2500]["n"].as_f64()), (Some(7.0), Some(0.5)));
    assert_eq!((rows[5]["text"].is_null(), rows[2500]["text"].as_str()), (true, Some("later")));
    is_clean(&store);
}

#[test]
fn one_record_that_is_refused_keeps_all_from_being_inserted() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    insert(&store, "d", record(1, ",\"n\":9007199254740993"), &[]).exits(0);
    let before = terrane("info", &store, &["--format", "json"]).exits(0).text();
    let cases = [
        // A stored key, a duplicate key, a bad position, no record, a number that would change.
        (record(2, "") + &record(1, ""), "line 2: a record with the key 1 exists already"),
        (record(2, "") + &record(3, "") + &record(2, ""), "line 3: line 1 has the same key 2"),
        (record(2, ",\"new\":1") + "{\"id\":3,\"lon\":1,\"lat\":95}\n", "line 2: "),
        (record(2, ",\"new\":1") + "nothing\n", "line 2: "),
        (record(2, ",\"new\":9007199254740993") + &record(3, ",\"new\":0.5"), "9007199254740993 of line 1"),
    ];
    for (input, reason) in cases {
        let answer =
            insert(&store, "d", input.clone(), &["--atomic"]).exits(5).says(reason).says("nothing was inserted");
        assert_eq!(answer.text(), "", "{input}");
        assert_eq!(count(&store, "d"), 1, "{input}");
        let after = terrane("info", &store, &["--format", "json"]).exits(0).text();
        assert_eq!(after.contains("\"new\""), before.contains("\"new\""), "{input}");
    }
    // Nor is a dataset or a store created for them.
    let other = sandbox.path("other.terrane");
    insert(&other, "d", record(1, "") + &record(1, ""), &["--atomic"]).exits(5);
    assert!(!other.exists());
    // With --upsert the last record of a key counts.
    let input = record(1, ",\"n\":2") + &record(2, ",\"n\":3") + &record(2, ",\"n\":4");
    let answer = insert(&store, "d", input, &["--atomic", "--upsert"]).exits(0).says("inserted 2 records");
    assert_eq!(answer.text(), "1\n2\n");
    let rows = rows(&store, "d", "id");
    assert_eq!((rows[0]["n"].as_i64(), rows[1]["n"].as_i64(), rows.len()), (Some(2), Some(4), 2));
    is_clean(&store);
}

#[test]
fn row_numbers_partitions_and_one_commit() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let input: String = (0..300).map(|x| format!("{{\"lon\":{},\"lat\":2}}\n", x % 90)).collect();
    let answer = insert(&store, "d", input.clone(), &["--atomic", "--partitions", "3"]).exits(0);
    assert_eq!(answer.text().lines().count(), 300);
    insert(&store, "d", input, &["--atomic"]).exits(0);
    assert_eq!(count(&store, "d"), 600);
    let info = terrane("info", &store, &["--format", "json"]).exits(0).json_lines();
    assert_eq!(info[0]["visible_sequence"].as_u64().or(info[0]["sequence"].as_u64()), Some(2), "{}", info[0]);
    is_clean(&store);
}

#[test]
fn what_is_too_much_for_one_commit_is_told_and_what_is_no_one_input_refused() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let input: String =
        (0..40_000).map(|key| record(key, ",\"text\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"")).collect();
    let answer = insert(&store, "d", input, &["--atomic", "--memory-limit", "8MiB"]).exits(1).says("--memory-limit");
    assert_eq!(answer.text(), "");
    assert!(!store.exists());
    // The text fits in memory, the changes do not: the schema had to change before.
    insert(&store, "d", record(1, ""), &[]).exits(0);
    let columns = || {
        terrane("info", &store, &["--format", "json"]).exits(0).json_lines()[0]["datasets"][0]["schema"]["columns"]
            .clone()
    };
    let before = columns();
    assert!(before.is_array());
    let input: String = (2..40_000).map(|key| record(key, ",\"n\":1")).collect();
    let answer = insert(&store, "d", input, &["--atomic", "--memory-limit", "8MiB"]).exits(1);
    assert!(answer.stderr.contains("an atomic batch of 39998 changes"), "{}", answer.stderr);
    assert_eq!((columns(), count(&store, "d")), (before, 1));
    insert(&store, "d", record(1, ""), &["--atomic", "--offset-field", "id"]).exits(2).says("--atomic");
    insert(&store, "d", record(1, ""), &["--atomic", "--on-overload", "discard"]).exits(2).says("--atomic");
}
