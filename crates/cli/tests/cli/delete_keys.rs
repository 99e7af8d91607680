use serde_json::json;

use crate::support::{Sandbox, count, insert, is_clean, rows, terrane};

#[test]
fn keys_are_deleted_and_missing_ones_reported() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let input: String = (-5..5).map(|id| format!("{}\n", json!({"id": id, "lon": id, "lat": 1}))).collect();
    insert(&store, "d", input, &[]).exits(0);
    let answer = terrane("delete", &store, &["d", "--key", "-5", "3", "77", "--key", "4"]).exits(0);
    assert_eq!(answer.text(), "deleted 3 of 4\n");
    answer.says("there is no record with the key 77");
    let ids: Vec<_> = rows(&store, "d", "id").iter().map(|row| row["id"].as_i64()).collect();
    assert_eq!(ids, (-4..3).map(Some).collect::<Vec<_>>());
    let everywhere = terrane("query", &store, &["d", "--bbox", "-180,-90,180,90", "--count"]).exits(0).number();
    assert_eq!(everywhere, 7);
    is_clean(&store);
}

#[test]
fn a_key_that_is_given_twice_counts_once() {
    let sandbox = Sandbox::new();
    insert(&sandbox.store(), "d", "{\"id\":5,\"lon\":1,\"lat\":1}\n", &[]).exits(0);
    let answer = terrane("delete", &sandbox.store(), &["d", "--key", "5", "5", "6", "--key", "6", "05"]).exits(0);
    assert_eq!(answer.text(), "deleted 1 of 2\n");
    answer.says("there is no record with the key 6");
}

#[test]
fn texts_that_begin_with_a_hyphen_are_keys_too() {
    let sandbox = Sandbox::new();
    let input = "{\"key\":\"-a\",\"lon\":1,\"lat\":1}\n{\"key\":\"b c\",\"lon\":1,\"lat\":1}\n";
    insert(&sandbox.store(), "d", input, &[]).exits(0);
    let answer = terrane("delete", &sandbox.store(), &["d", "--key=-a", "--key", "b c"]).exits(0);
    assert_eq!(answer.text(), "deleted 2 of 2\n");
    assert_eq!(count(&sandbox.store(), "d"), 0);
}

#[test]
fn a_key_of_another_type_deletes_nothing() {
    let sandbox = Sandbox::new();
    insert(&sandbox.store(), "d", "{\"id\":1,\"lon\":1,\"lat\":1}\n", &[]).exits(0);
    terrane("delete", &sandbox.store(), &["d", "--key", "1", "one"]).exits(2).says("\"one\"").says("int64");
    assert_eq!(count(&sandbox.store(), "d"), 1);
    terrane("delete", &sandbox.store(), &["nope", "--key", "1"]).exits(2).says("the store has d");
    terrane("delete", &sandbox.path("nowhere"), &["d", "--key", "1"]).exits(2).says("no store");
    assert!(!sandbox.path("nowhere").exists());
}
