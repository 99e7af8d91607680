//! Dropping datasets, and the modes of an import.

use serde_json::{Value, json};

use crate::support::{Sandbox, count, import, insert, is_clean, rows, terrane};

fn info(store: &std::path::Path) -> Value {
    terrane("info", store, &["--format", "json"]).exits(0).json_lines().remove(0)["datasets"].take()
}

/// A column became text because of its texts for missing values; then the file was corrected.
#[test]
fn a_corrected_file_takes_the_place_of_the_first_with_its_own_types() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let first = sandbox.write("w1.csv", "id,lat,lon,v\n1,1,2,N/A\n2,1,2,5\n");
    let then = sandbox.write("w2.csv", "id,lat,lon,v\n1,1,2,\n2,1,2,5\n");
    import(&store, "d", &first, &[]).exits(0);
    assert_eq!(info(&store)[0]["schema"]["columns"][0]["type"], "utf8");
    import(&store, "d", &then, &[]).exits(5).says("exists already in the dataset");
    import(&store, "d", &then, &["--mode", "replace"]).exits(0);
    assert_eq!(info(&store)[0]["schema"]["columns"][0]["type"], "int64");
    let row = |id: i64, v: Value| json!({"id": id, "lat": 1.0, "lon": 2.0, "v": v});
    assert_eq!(rows(&store, "d", "id"), [row(1, Value::Null), row(2, json!(5))]);
    let found = terrane("query", &store, &["d", "--where", "v < 40", "--count"]).exits(0);
    assert_eq!(found.number(), 1, "by number and not by letters");
    is_clean(&store);
    terrane("drop", &store, &["d"]).exits(0);
    import(&store, "d", &first, &["--mode", "create"]).exits(0);
    assert_eq!(count(&store, "d"), 2);
    is_clean(&store);
}

#[test]
fn a_dropped_dataset_is_gone_for_every_command_and_its_name_free() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    insert(&store, "d", "{\"id\":1,\"lon\":1,\"lat\":1,\"size\":5}\n", &[]).exits(0);
    insert(&store, "e", "{\"id\":1,\"lon\":1,\"lat\":1}\n", &[]).exits(0);
    terrane("drop", &store, &["f"]).exits(2).says("there is no dataset \"f\"; the store has d, e");
    terrane("drop", &store, &[]).exits(2).says("<DATASET>");
    terrane("drop", &sandbox.path("none"), &["d"]).exits(2).says("no store");
    assert_eq!(terrane("drop", &store, &["d"]).exits(0).text(), "dropped dataset d\n");
    terrane("query", &store, &["d"]).exits(2).says("the store has e");
    terrane("drop", &store, &["d"]).exits(2).says("the store has e");
    is_clean(&store);
    insert(&store, "d", "{\"id\":\"a\",\"x\":1,\"y\":1}\n", &["--planar"]).exits(0);
    assert_eq!(rows(&store, "d", "id"), [json!({"id": "a", "x": 1.0, "y": 1.0})]);
    assert_eq!(count(&store, "e"), 1);
    is_clean(&store);
}

#[test]
fn modes_say_what_becomes_of_a_dataset() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let one = sandbox.write("one.csv", "id,lon,lat,size\n1,1,1,5\n2,2,2,6\n");
    let two = sandbox.write("two.csv", "id,lon,lat,size\n2,3,3,7\n3,3,3,8\n");
    import(&store, "d", &one, &["--mode", "append"]).exits(2).says("there is no dataset");
    assert!(!store.exists(), "nothing is left of a store that was made for it");
    import(&store, "d", &one, &["--mode", "upsert"]).exits(0);
    import(&store, "d", &one, &["--mode", "create"]).exits(2).says("exists already");
    import(&store, "e", &one, &["--mode", "append"]).exits(2).says("the store has d");
    import(&store, "d", &two, &["--mode", "append"]).exits(5).says("key 2 exists already in the dataset");
    terrane("index", &store, &["d", "create", "by_size", "--using", "btree", "--on", "size"]).exits(0);
    import(&store, "d", &two, &["--mode", "upsert"]).exits(0);
    let row = |id: i64, place: f64, size: i64| json!({"id": id, "lon": place, "lat": place, "size": size});
    assert_eq!(rows(&store, "d", "id"), [row(1, 1.0, 5), row(2, 3.0, 7), row(3, 3.0, 8)]);
    let by_index = |condition: &str| {
        terrane("query", &store, &["d", "--where", condition, "--index", "by_size", "--count"]).exits(0).number()
    };
    assert_eq!((by_index("size = 6"), by_index("size = 7")), (0, 1));
    let at = |window: &str| terrane("query", &store, &["d", "--bbox", window, "--count"]).exits(0).number();
    assert_eq!((at("1.5,1.5,2.5,2.5"), at("2.5,2.5,3.5,3.5")), (0, 2));
    let twice = sandbox.write("twice.csv", "id,lon,lat,size\n2,3,3,7\n2,4,4,8\n");
    import(&store, "d", &twice, &["--mode", "upsert"]).exits(5).says("an earlier row has the same key 2");
    let keyless = sandbox.write("keyless.csv", "lon,lat,size\n3,3,7\n");
    import(&store, "k", &keyless, &["--mode", "upsert"]).exits(2).says("row numbers");
    import(&store, "k", &keyless, &[]).exits(0);
    import(&store, "k", &keyless, &["--mode", "upsert"]).exits(2).says("row numbers");
    let narrow = sandbox.write("narrow.csv", "id,lon,lat\n2,3,3\n");
    import(&store, "d", &narrow, &["--mode", "replace"]).exits(2).says("\"by_size\"").says("\"size\"");
    assert_eq!(count(&store, "d"), 3);
    import(&store, "d", &two, &["--mode", "replace", "--partitions", "2"]).exits(2);
    import(&store, "d", &two, &["--mode", "replace"]).exits(0);
    assert_eq!((count(&store, "d"), by_index("size = 8"), by_index("size = 5")), (2, 1, 0));
    is_clean(&store);
}
