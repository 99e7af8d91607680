use serde_json::{Value, json};

use crate::support::{Sandbox, import, insert, rows};

/// Columns of every type whose values have a form of their own, in a dataset that exists.
const DATASET: &str = "id,lon,lat,day,local,utc,whole,real\n\
     0,0,0,2020-01-01,2020-01-01T00:00:00,2020-01-01T00:00:00Z,1,0.5\n";

#[test]
fn a_value_is_taken_alike_by_insert_and_import() {
    let cases = [
        ("day", json!("2024-02-29"), Some(json!("2024-02-29"))),
        ("day", json!("+010000-01-01"), Some(json!("+010000-01-01"))),
        ("day", json!("+10000-01-01"), Some(json!("+010000-01-01"))),
        ("day", json!("-0044-03-15"), Some(json!("-000044-03-15"))),
        ("day", json!("2023-02-29"), None),
        ("day", json!(5), None),
        ("local", json!("2024-02-29T12:30"), Some(json!("2024-02-29T12:30:00"))),
        ("local", json!("+010000-01-01T00:00:00.25"), Some(json!("+010000-01-01T00:00:00.250"))),
        ("local", json!("2024-02-29"), Some(json!("2024-02-29T00:00:00"))),
        ("local", json!("2/29/2024 1:30 PM"), Some(json!("2024-02-29T13:30:00"))),
        ("local", json!("2/30/2024 1:30 PM"), None),
        ("local", json!("2024-02-29T12:30:00Z"), None),
        ("local", json!("2024-02-29T12:30.5"), None),
        ("utc", json!("2024-02-29T12:30:00.1234567890123+02:00"), Some(json!("2024-02-29T10:30:00.123456Z"))),
        ("utc", json!("2024-02-29 12:30:00 UTC"), Some(json!("2024-02-29T12:30:00Z"))),
        ("utc", json!("2024-02-29T12:30:00+19:00"), Some(json!("2024-02-28T17:30:00Z"))),
        ("utc", json!("2024-02-29"), Some(json!("2024-02-29T00:00:00Z"))),
        ("utc", json!("2024-02-29T12:30:60Z"), None),
        ("whole", json!(5.0), Some(json!(5))),
        ("whole", json!(-3e3), Some(json!(-3000))),
        ("whole", json!("5"), None),
        ("real", json!(5), Some(json!(5.0))),
        ("real", json!(9_007_199_254_740_993u64), None),
    ];
    let sandbox = Sandbox::new();
    import(&sandbox.store(), "d", &sandbox.write("d.csv", DATASET), &[]).exits(0);
    for (number, (column, value, stored)) in cases.into_iter().enumerate() {
        let record = |key: usize| json!({"id": key, "lon": 0, "lat": 0, column: value}).to_string() + "\n";
        let (inserted, imported) = (2 * number + 1, 2 * number + 2);
        let file = sandbox.write("d.ndjson", record(imported));
        let code = if stored.is_some() { 0 } else { 5 };
        insert(&sandbox.store(), "d", record(inserted), &[]).exits(code);
        import(&sandbox.store(), "d", &file, &[]).exits(code);
        let found = rows(&sandbox.store(), "d", "id");
        for key in [inserted, imported] {
            let row = found.iter().find(|row| row["id"] == json!(key));
            assert_eq!(row.map(|row| &row[column]), stored.as_ref(), "{value} in {column:?}, key {key}");
        }
    }
}

#[test]
fn what_is_exported_is_read_back_by_insert_and_import() {
    let sandbox = Sandbox::new();
    import(&sandbox.store(), "d", &sandbox.write("d.csv", DATASET), &[]).exits(0);
    let far = json!({
        "id": 1, "lon": 0.0, "lat": 0.0, "day": "+010000-01-01", "local": "-000001-12-31T23:59:59.999999",
        "utc": "+010000-01-01T00:00:00Z", "whole": 1, "real": 0.5,
    });
    insert(&sandbox.store(), "d", format!("{far}\n"), &[]).exits(0);
    let exported: Vec<Value> = rows(&sandbox.store(), "d", "id");
    assert_eq!(exported[1], far);
    let lines: String = exported.iter().map(|row| format!("{row}\n")).collect();
    import(&sandbox.path("imported"), "d", &sandbox.write("e.ndjson", &lines), &[]).exits(0);
    assert_eq!(rows(&sandbox.path("imported"), "d", "id"), exported);
}
