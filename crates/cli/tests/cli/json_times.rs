//! JSON strings that are wholly times make columns of dates and timestamps, in imports and in
//! inserts.

use std::path::Path;

use serde_json::Value;

use crate::support::{Sandbox, import, insert, terrane};

const INSTANTS: &str = "\
{\"id\":1,\"lat\":1,\"lon\":1,\"ts\":\"2020-01-01T00:00:00Z\"}
{\"id\":2,\"lat\":1,\"lon\":1,\"ts\":\"2020-01-01T05:00:00+05:30\"}
{\"id\":3,\"lat\":1,\"lon\":1,\"ts\":\"2020-01-01T00:00:00.500Z\"}
";

fn type_of(store: &Path, dataset: &str, column: &str) -> Value {
    let info = terrane("info", store, &["--format", "json"]).exits(0).json_lines();
    let datasets = info[0]["datasets"].as_array().expect("datasets");
    let named = |values: &[Value], name: &str| {
        values.iter().find(|value| value["name"] == name).cloned().unwrap_or_else(|| panic!("{name}: {values:?}"))
    };
    named(named(datasets, dataset)["schema"]["columns"].as_array().expect("columns"), column)["type"].clone()
}

#[track_caller]
fn keys(store: &Path, dataset: &str, condition: &str) -> Vec<i64> {
    let rows = terrane("query", store, &[dataset, "--where", condition]).exits(0).json_lines();
    let mut keys: Vec<i64> = rows.iter().map(|row| row["id"].as_i64().expect("a key")).collect();
    keys.sort_unstable();
    keys
}

#[test]
fn instants_with_offsets_are_compared_as_instants() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let file = sandbox.write("f.ndjson", INSTANTS);
    import(&store, "imported", &file, &[]).exits(0);
    insert(&store, "inserted", INSTANTS, &[]).exits(0);
    for dataset in ["imported", "inserted"] {
        assert_eq!(keys(&store, dataset, "ts < '2020-01-01T00:00:00Z'"), [2], "{dataset}");
        assert_eq!(keys(&store, dataset, "ts > '2020-01-01T00:00:00Z'"), [3], "{dataset}");
    }
}

#[test]
fn a_leap_second_is_the_first_second_of_the_next_minute() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let file = sandbox.write("leap.csv", "id,lon,lat,t\n1,1,1,2016-12-31T23:59:60Z\n2,1,1,2017-01-01T00:00:00Z\n");
    import(&store, "leap", &file, &[]).exits(0);
    assert_eq!(keys(&store, "leap", "t = '2017-01-01T00:00:00Z'"), [1, 2]);
}

#[test]
fn dates_and_timestamps_have_types_of_their_own_and_other_text_stays_text() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let record = "{\"id\":1,\"lon\":1,\"lat\":1,\"d\":\"2020-01-31\",\"t\":\"2020-01-31 10:00\",\"n\":\"2020\"}\n";
    let file = sandbox.write("f.ndjson", record);
    import(&store, "imported", &file, &[]).exits(0);
    insert(&store, "inserted", record, &[]).exits(0);
    for dataset in ["imported", "inserted"] {
        assert_eq!(type_of(&store, dataset, "d"), "date");
        assert_eq!(type_of(&store, dataset, "t"), serde_json::json!({"timestamp": {"utc": false}}));
        assert_eq!(type_of(&store, dataset, "n"), "utf8");
    }
    // The first record has decided, so a later text is refused with its line.
    let later = "{\"id\":2,\"lon\":1,\"lat\":1,\"d\":\"soon\"}\n";
    insert(&store, "inserted", later, &[]).exits(5).says("line 1").says("\"d\"").says("is not a date");
    // An import looks at all values first.
    let mixed = sandbox.write("m.ndjson", format!("{record}{later}"));
    let answer = import(&store, "mixed", &mixed, &[]).exits(0);
    answer.says("column \"d\" is text because of 1 value(s) like \"soon\" (row 2)");
    assert_eq!(type_of(&store, "mixed", "d"), "utf8");
}

#[test]
fn dates_beside_instants_are_midnights_in_utc() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let records = "{\"id\":1,\"lon\":1,\"lat\":1,\"t\":\"2020-01-01\"}\n\
                   {\"id\":2,\"lon\":1,\"lat\":1,\"t\":\"2020/01/01 02:00:00+02\"}\n";
    import(&store, "d", &sandbox.write("f.ndjson", records), &[]).exits(0);
    assert_eq!(keys(&store, "d", "t = '2020-01-01T00:00:00Z'"), [1, 2]);
}
