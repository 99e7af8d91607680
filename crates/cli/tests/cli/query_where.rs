//! Conditions on the command line: rows that meet them, and messages on wrong ones.

use serde_json::{Value, json};

use crate::support::{Sandbox, import, insert, is_clean, rows, sample, terrane};

fn cities() -> Sandbox {
    let sandbox = Sandbox::new();
    import(&sandbox.store(), "cities", &sample("cities200.csv"), &[]).exits(0);
    sandbox
}

/// Positions with every kind of attribute that NDJSON has.
fn places() -> Sandbox {
    let sandbox = Sandbox::new();
    let input: String = (0..10)
        .map(|id| {
            let mut place = json!({"id": id, "lon": id, "lat": 1, "size": id * id, "open": id % 2 == 0});
            if id % 3 == 0 {
                place["name"] = json!(format!("Café “Nº {id}”, it's North-Station"));
            }
            if id == 7 {
                place["size"] = Value::Null;
            }
            format!("{place}\n")
        })
        .collect();
    insert(&sandbox.store(), "d", input, &[]).exits(0);
    sandbox
}

fn ids(sandbox: &Sandbox, arguments: &[&str]) -> Vec<i64> {
    let answer = terrane("query", &sandbox.store(), &[&["d"], arguments].concat()).exits(0);
    assert_eq!(answer.stderr, "", "{arguments:?}");
    let mut ids: Vec<i64> = answer.json_lines().iter().filter_map(|row| row["id"].as_i64()).collect();
    ids.sort_unstable();
    ids
}

#[test]
fn rows_meet_the_condition_and_all_other_flags() {
    let sandbox = places();
    for (arguments, wanted) in [
        (&["--where", "size > 20 and open"][..], &[6, 8][..]),
        (&["--where", "not (size > 20 and open)"], &[0, 1, 2, 3, 4, 5, 7, 9]),
        (&["--where", "size is null"], &[7]),
        (&["--where", "size != 4"], &[0, 1, 3, 4, 5, 6, 8, 9]),
        (&["--where", "size in (1, 4.0, 5.5) OR \"id\" between 8 and 9"], &[1, 2, 8, 9]),
        (&["--where", "size < 0.5"], &[0]),
        (&["--where", "name = 'Café “Nº 3”, it''s North-Station'"], &[3]),
        (&["--where", "name match 'CAFÉ 6'"], &[6]),
        (&["--match", "north café"], &[0, 3, 6, 9]),
        (&["--match", "nor"], &[]),
        (&["--match", "station", "--where", "id > 2", "--bbox", "0,0,6,2"], &[3, 6]),
        (&["--where", "id > 2", "--nearest", "0,1", "--k", "2"], &[3, 4]),
        (&["--where", "open", "--circle", "0,1,500000"], &[0, 2, 4]),
        (&["--where", "open", "--within", "POLYGON((3 0,9 0,9 2,3 2,3 0))"], &[4, 6, 8]),
        (&["--where=open", "--intersects", "LINESTRING(0 1,5 1)"], &[0, 2, 4]),
    ] {
        assert_eq!(ids(&sandbox, arguments), wanted, "{arguments:?}");
        let counted = terrane("query", &sandbox.store(), &[&["d"], arguments, &["--count"]].concat()).exits(0);
        assert_eq!(counted.number(), wanted.len() as u64, "{arguments:?}");
    }
    assert_eq!(ids(&sandbox, &["--where", "open", "--limit", "3"]).len(), 3);
}

#[test]
fn texts_of_any_language_are_found_by_their_words() {
    let sandbox = cities();
    let names = |arguments: &[&str]| -> Vec<String> {
        let answer = terrane("query", &sandbox.store(), &[&["cities"], arguments].concat()).exits(0);
        answer.json_lines().iter().filter_map(|row| row["name"].as_str().map(str::to_owned)).collect()
    };
    assert_eq!(names(&["--match", "париж"]), ["Paris"]);
    assert_eq!(names(&["--where", "name_ru match 'ПАРИЖ' and name = 'Paris'"]), ["Paris"]);
    assert_eq!(names(&["--match", "paris France"]), ["Paris"], "one word in each of two columns");
    assert_eq!(names(&["--where", "name match 'paris France'"]), [""; 0], "no column has both");
}

#[test]
fn explanations_tell_of_the_condition() {
    let sandbox = places();
    let arguments = ["d", "--where", "size>20 AND open", "--match", "north", "--explain"];
    let answer = terrane("query", &sandbox.store(), &arguments).exits(0);
    answer.says("condition   size > 20 and open and * match 'north' (evaluated on records)\n");
    let arguments = [&arguments[..], &["--count", "--format", "json"]].concat();
    let answer = terrane("query", &sandbox.store(), &arguments).exits(0);
    let explanation: Value = serde_json::from_str(&answer.stderr).expect("JSON");
    assert_eq!(explanation["condition"]["text"], json!("size > 20 and open and * match 'north'"));
    assert_eq!((answer.number(), &explanation["matches"]), (1, &json!(1)));
}

#[test]
fn conditions_that_make_no_sense_exit_with_2_and_say_what_to_do() {
    let sandbox = places();
    let deep = format!("{}open{}", "(".repeat(1000), ")".repeat(1000));
    let cases = [
        (
            "size >",
            "--where: at character 7 of the condition: expected a number, a text in single quotes, true or false",
        ),
        ("size >", "found the end: size >→\n"),
        ("size > \"id\"", "columns are not compared with columns"),
        ("", "--where: at character 1 of the condition: expected the name of a column"),
        ("sise > 3", "there is no column \"sise\"; the columns are id, lon, lat, size, open, name\n"),
        ("size = 'nine'", "column \"size\" is int64, and 'nine' is a text; write a number, without quotes\n"),
        ("name = 9", "column \"name\" is utf8, and 9 is a number; write a text in single quotes\n"),
        ("lon > 3", "column \"lon\" holds the geometry"),
        ("size match 'x'", "column \"size\" is int64"),
        (&deep, "nested too deeply; at most 100 levels"),
        ("size = '\x1b[31m'", "'\\u{1b}[31m' is a text"),
    ];
    for (text, message) in cases {
        for command in ["query", "delete"] {
            let answer = terrane(command, &sandbox.store(), &["d", "--where", text]).exits(2).says(message);
            assert_eq!(answer.text(), "", "{command} {text}");
        }
    }
    terrane("query", &sandbox.store(), &["d", "--match", "…"]).exits(2).says("has no words to search for");
    assert_eq!(rows(&sandbox.store(), "d", "id").len(), 10);
}

#[test]
fn what_meets_a_condition_is_deleted_and_counted() {
    let sandbox = places();
    let delete = |text: &str| {
        let answer = terrane("delete", &sandbox.store(), &["d", "--where", text]).exits(0);
        assert_eq!(answer.stderr, "");
        answer.text()
    };
    assert_eq!(delete("size > 20 and open"), "deleted 2 records\n");
    assert_eq!(delete("size > 20 and open"), "deleted 0 records\n");
    assert_eq!(delete("size is null"), "deleted 1 record\n");
    let left: Vec<_> = rows(&sandbox.store(), "d", "id").iter().filter_map(|row| row["id"].as_i64()).collect();
    assert_eq!(left, [0, 1, 2, 3, 4, 5, 9]);
    let indexed = terrane("query", &sandbox.store(), &["d", "--bbox", "-180,-90,180,90", "--count"]).exits(0);
    assert_eq!(indexed.number(), 7);
    assert_eq!(delete("id is not null"), "deleted 7 records\n");
    is_clean(&sandbox.store());
}

#[test]
fn a_deletion_is_by_key_or_by_condition() {
    let sandbox = places();
    let both = ["d", "--key", "1", "--where", "id = 2"];
    terrane("delete", &sandbox.store(), &both).exits(2).says("cannot be used with");
    terrane("delete", &sandbox.store(), &["d", "--where", "id = 2", "--key=1"]).exits(2).says("cannot be used with");
    terrane("delete", &sandbox.store(), &["d"]).exits(2).says("--key").says("--where");
    terrane("delete", &sandbox.store(), &["nope", "--where", "id = 2"]).exits(2).says("the store has d");
    terrane("delete", &sandbox.path("nowhere"), &["d", "--where", "id = 2"]).exits(2).says("no store");
    assert!(!sandbox.path("nowhere").exists());
    assert_eq!(rows(&sandbox.store(), "d", "id").len(), 10);
}

/// Integers that have become floats, and members that came later.
#[test]
fn columns_that_have_changed_are_judged_as_they_are_now() {
    let sandbox = places();
    let later =
        "{\"id\":20,\"lon\":1,\"lat\":1,\"size\":16.5,\"tag\":\"new\"}\n{\"id\":21,\"lon\":1,\"lat\":1,\"size\":16}\n";
    insert(&sandbox.store(), "d", later, &[]).exits(0);
    assert_eq!(ids(&sandbox, &["--where", "size between 16 and 16.75"]), [4, 20, 21]);
    assert_eq!(ids(&sandbox, &["--where", "size = 16"]), [4, 21]);
    assert_eq!(ids(&sandbox, &["--where", "tag is null and size > 15"]), [4, 5, 6, 8, 9, 21]);
    assert_eq!(ids(&sandbox, &["--where", "tag != 'old'"]), [20]);
}
