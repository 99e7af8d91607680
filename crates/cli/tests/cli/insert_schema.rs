//! Inserts and the schema: a refused record changes nothing, and numbers stay exact.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Sandbox, count, import, insert, is_clean, rows, terrane};

fn columns(store: &Path) -> Vec<(String, String)> {
    let info = terrane("info", store, &["--format", "json"]).exits(0).json_lines();
    let columns = info[0]["datasets"][0]["schema"]["columns"].as_array().expect("columns").clone();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    columns.iter().map(|column| (text(&column["name"]), text(&column["type"]))).collect()
}

#[test]
fn a_refused_record_leaves_no_columns_behind() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let long = "k".repeat(2000);
    insert(&store, "d", "{\"id\":\"a\",\"lon\":1,\"lat\":1,\"n\":1}\n", &[]).exits(0);
    let before = columns(&store);
    let input = [
        json!({"id": "b", "lon": 1, "lat": 1}),
        // A stored key, a waiting key, a key that is too long, and no position.
        json!({"id": "a", "lon": 1, "lat": 1, "new": 1, "n": 0.5}),
        json!({"id": "b", "lon": 1, "lat": 1, "new": 1}),
        json!({"id": long, "lon": 1, "lat": 1, "new": 1}),
        json!({"id": "c", "lon": 1, "lat": 95, "new": 1}),
        // More than a record may have.
        json!({"id": "d", "lon": 1, "lat": 1, "new": "x".repeat((16 << 20) + 1)}),
    ];
    let input: String = input.iter().map(|record| format!("{record}\n")).collect();
    let answer = insert(&store, "d", input, &[]).exits(5).says("5 records were refused");
    assert_eq!(answer.text(), "\"b\"\n");
    answer.says("line 2: a record with the key \"a\" exists already").says("line 3: a record with the key \"b\"");
    assert_eq!(columns(&store), before);
    // Nor is a dataset created for one.
    let record = json!({"id": long, "lon": 1, "lat": 1});
    insert(&store, "e", format!("{record}\n"), &[]).exits(5);
    terrane("query", &store, &["e"]).exits(2).says("the store has d");
    // With --upsert a stored key is no reason to refuse.
    insert(&store, "d", "{\"id\":\"a\",\"lon\":1,\"lat\":1,\"new\":1}\n", &["--upsert"]).exits(0);
    assert_eq!(columns(&store).len(), before.len() + 1);
    is_clean(&store);
}

#[test]
fn integers_never_change_when_a_column_becomes_float() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let record = |id: u32, n: &str| format!("{{\"id\":{id},\"lon\":1,\"lat\":1,\"n\":{n}}}\n");
    // In one batch and over two.
    let input = record(1, "9007199254740993") + &record(2, "0.5");
    let answer = insert(&store, "d", input, &[]).exits(5).says("line 2: ").says("\"n\"").says("9007199254740993");
    assert_eq!(answer.text(), "1\n");
    insert(&store, "d", record(2, "0.5"), &[]).exits(5).says("9007199254740993");
    assert_eq!(rows(&store, "d", "id")[0]["n"].to_string(), "9007199254740993");
    assert_eq!(columns(&store), [("n".to_string(), "int64".to_string())]);
    // Once it is gone the column can be widened, and then takes what it can hold.
    terrane("delete", &store, &["d", "--key", "1"]).exits(0);
    insert(&store, "d", record(2, "0.5"), &[]).exits(0);
    let answer = insert(&store, "d", record(3, "9007199254740992") + &record(4, "9007199254740993"), &[]).exits(5);
    assert_eq!(answer.text(), "3\n");
    answer.says("line 2: ").says("exactly");
    let file = sandbox.write("a.csv", "id,lon,lat,n\n5,1,1,9007199254740993\n6,1,1,7\n");
    import(&store, "d", &file, &[]).exits(5).says("row 1").says("\"n\"");
    import(&store, "d", &file, &["--on-invalid", "skip"]).exits(0).says("1 row was refused");
    let numbers: Vec<String> = rows(&store, "d", "id").iter().map(|row| row["n"].to_string()).collect();
    assert_eq!(numbers, ["0.5", "9007199254740992.0", "7.0"]);
    is_clean(&store);
}

#[test]
fn coordinates_under_other_names_are_refused() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    insert(&store, "d", "{\"id\":1,\"lon\":1,\"lat\":1}\n", &[]).exits(0);
    let answer = insert(&store, "d", "{\"id\":21,\"longitude\":1,\"latitude\":2}\n", &[]).exits(5);
    answer.says("\"longitude\" and \"latitude\"").says("\"lon\" and \"lat\"");
    assert_eq!(columns(&store), []);
    // Other positions of a record without its own are attributes.
    insert(&store, "d", "{\"id\":22,\"start_lon\":1,\"start_lat\":2}\n", &[]).exits(0);
    assert_eq!(count(&store, "d"), 2);
}
