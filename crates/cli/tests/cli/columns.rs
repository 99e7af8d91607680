//! Renaming and dropping columns on the command line.

use serde_json::{Value, json};

use crate::support::{Sandbox, import, insert, is_clean, rows, terrane};

fn column_names(store: &std::path::Path) -> Vec<String> {
    let info = terrane("info", store, &["--format", "json"]).exits(0).json_lines().remove(0);
    let columns = info["datasets"][0]["schema"]["columns"].as_array().expect("a list").clone();
    columns.iter().map(|column| column["name"].as_str().expect("a text").to_owned()).collect()
}

#[test]
fn columns_are_renamed_and_dropped_for_every_command() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let input = "{\"id\":1,\"lon\":1,\"lat\":1,\"name\":\"a\",\"size\":5}\n";
    insert(&store, "d", input, &[]).exits(0);
    let column = |arguments: &[&str]| terrane("column", &store, &[&["d"], arguments].concat());
    terrane("index", &store, &["d", "create", "by_size", "--using", "btree", "--on", "size"]).exits(0);
    assert_eq!(column(&["drop", "name"]).exits(0).text(), "dropped column name\n");
    assert_eq!(column(&["rename", "size", "extent"]).exits(0).text(), "renamed column size to extent\n");
    assert_eq!(column_names(&store), ["extent"]);
    assert_eq!(rows(&store, "d", "id"), [json!({"id": 1, "lon": 1.0, "lat": 1.0, "extent": 5})]);
    let found = terrane("query", &store, &["d", "--where", "extent = 5", "--index", "by_size", "--count"]);
    assert_eq!(found.exits(0).number(), 1);
    let text = terrane("info", &store, &[]).exits(0).text();
    assert!(text.contains("extent") && !text.contains("column name") && !text.contains("on size"), "{text}");
    // A member with the name of a dropped column makes a new column, of any type. The same holds
    // for the old name of a renamed one.
    insert(&store, "d", "{\"id\":2,\"lon\":1,\"lat\":1,\"name\":7,\"extent\":6,\"size\":\"s\"}\n", &[]).exits(0);
    let rows: Vec<Value> = rows(&store, "d", "id");
    assert_eq!(rows[0], json!({"id": 1, "lon": 1.0, "lat": 1.0, "extent": 5, "name": null, "size": null}));
    assert_eq!(rows[1], json!({"id": 2, "lon": 1.0, "lat": 1.0, "extent": 6, "name": 7, "size": "s"}));
    // Files are imported by the current names.
    let now = sandbox.write("now.csv", "id,lon,lat,width\n3,1,1,8\n");
    column(&["rename", "extent", "width"]).exits(0);
    import(&store, "d", &now, &[]).exits(0);
    assert_eq!(column_names(&store), ["width", "name", "size"]);
    is_clean(&store);
}

#[test]
fn columns_that_cannot_be_changed_are_refused() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    insert(&store, "d", "{\"id\":1,\"lon\":1,\"lat\":1,\"size\":8}\n", &[]).exits(0);
    terrane("index", &store, &["d", "create", "by_size", "--using", "btree", "--on", "size"]).exits(0);
    let column = |arguments: &[&str]| terrane("column", &store, &[&["d"], arguments].concat());
    column(&["drop", "size"]).exits(2).says("column \"size\" is in the index \"by_size\"; drop that first");
    column(&["drop", "id"]).exits(2).says("is the key");
    column(&["drop", "lon"]).exits(2).says("geometry");
    column(&["drop", "sise"]).exits(2).says("the columns are id, lon, lat, size");
    column(&["rename", "size", "lat"]).exits(2).says("there is a column \"lat\" already");
    column(&["rename", "sise", "other"]).exits(2).says("the columns are id, lon, lat, size");
    column(&["rename", "size", ""]).exits(2).says("the name of column");
    column(&["rename", "size"]).exits(2).says("<TO>");
    column(&[]).exits(2);
    terrane("column", &store, &["e", "drop", "size"]).exits(2).says("the store has d");
    terrane("column", &sandbox.path("none"), &["d", "drop", "size"]).exits(2).says("no store");
    assert_eq!(column_names(&store), ["size"]);
    is_clean(&store);
}
