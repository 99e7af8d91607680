//! Indexes by the command line.

use serde_json::{Value, json};

use crate::support::{Sandbox, command, import, insert, is_clean, sample, terrane};

fn indexes(store: &std::path::Path) -> Vec<Value> {
    let info = terrane("info", store, &["--format", "json"]).exits(0).json_lines().remove(0);
    info["datasets"][0]["indexes"].as_array().expect("a list").clone()
}

#[test]
fn indexes_are_created_told_of_and_dropped() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let input: String = (0..500)
        .map(|id| {
            format!("{}\n", json!({"id": id, "lon": id % 90, "lat": 1, "size": id % 7, "name": format!("n{id}")}))
        })
        .collect();
    insert(&store, "d", input, &[]).exits(0);
    let answer = terrane("index", &store, &["d", "create", "by_size", "--using", "btree", "--on", "size", "name"]);
    let text = answer.exits(0).text();
    assert!(text.starts_with("created index by_size (btree on size, name): 500 entries, "), "{text}");
    terrane("index", &store, &["d", "create", "places", "--using", "rtree"]).exits(0);
    insert(&store, "d", "{\"id\":500,\"lon\":1,\"lat\":1,\"size\":8}\n", &[]).exits(0);
    terrane("delete", &store, &["d", "--key", "1", "2"]).exits(0);
    is_clean(&store);
    terrane("compact", &store, &[]).exits(0);
    let found = indexes(&store);
    let names: Vec<_> = found.iter().map(|index| index["name"].as_str().expect("a text")).collect();
    assert_eq!(names, ["primary", "geometry", "by_size", "places"]);
    assert!(found.iter().all(|index| index["entries"] == 499 && index["is_building"] == false), "{found:?}");
    assert_eq!(terrane("index", &store, &["d", "drop", "by_size"]).exits(0).text(), "dropped index by_size\n");
    assert_eq!(indexes(&store).len(), 3);
    is_clean(&store);
}

#[test]
fn what_cannot_be_indexed_is_refused_and_changes_nothing() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    insert(&store, "d", "{\"id\":1,\"lon\":1,\"lat\":1,\"size\":8}\n", &[]).exits(0);
    let create = |arguments: &[&str]| terrane("index", &store, &[&["d", "create"], arguments].concat());
    create(&["i", "--using", "hash", "--on", "size"]).exits(2).says("btree, inverted, rtree");
    create(&["i", "--using", "btree"]).exits(2).says("1 to 8 attributes");
    create(&["i", "--using", "btree", "--on", "sise"]).exits(2).says("the columns are id, lon, lat, size");
    create(&["i", "--using", "btree", "--on", "id"]).exits(2).says("the key");
    create(&["i", "--on", "size"]).exits(2).says("--using");
    create(&["geometry", "--using", "btree", "--on", "size"]).exits(2).says("already");
    terrane("index", &store, &["d", "drop", "i"]).exits(2).says("it has primary, geometry");
    terrane("index", &store, &["d", "drop", "primary"]).exits(2).says("cannot be dropped");
    terrane("index", &store, &["e", "drop", "i"]).exits(2).says("the store has d");
    terrane("index", &sandbox.path("none"), &["d", "drop", "i"]).exits(2).says("no store");
    assert_eq!(indexes(&store).len(), 2);
}

/// However far a creation came that is killed, the store works on without the index or with it, and it can be
/// created in the end.
#[test]
fn killed_creations_are_completed_or_have_not_begun() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    import(&store, "rides", &sample("sf_cab_rides.parquet"), &[]).exits(0);
    let columns: Vec<String> = {
        let info = terrane("info", &store, &["--format", "json"]).exits(0).json_lines().remove(0);
        let columns = info["datasets"][0]["schema"]["columns"].as_array().expect("a list").clone();
        columns.iter().map(|column| column["name"].as_str().expect("a text").to_owned()).collect()
    };
    let arguments = ["rides", "create", "i", "--using", "btree", "--memory-limit", "8MiB", "--on"];
    let arguments: Vec<&str> = arguments.into_iter().chain(columns.iter().map(String::as_str).take(2)).collect();
    for round in 0..6 {
        let mut command = command(["index".as_ref(), store.as_os_str()]);
        let mut child = command.args(&arguments).spawn().expect("the binary runs");
        // Readers beside it, until it has begun, or a little longer.
        while child.try_wait().expect("it can be asked").is_none() && indexes(&store).len() == 2 {}
        for _ in 0..round {
            indexes(&store);
        }
        // It may have ended by now.
        let _ = child.kill();
        child.wait().expect("it is dead");
        is_clean(&store);
        let row = json!({"key": -1 - round, "lon": -122, "lat": 37});
        insert(&store, "rides", format!("{row}\n"), &["--upsert"]);
        let again = terrane("index", &store, &arguments);
        assert!(again.code == Some(0) || again.stderr.contains("already"), "{again:?}");
        is_clean(&store);
        assert!(indexes(&store).iter().all(|index| index["is_building"] == false));
        terrane("index", &store, &["rides", "drop", "i"]).exits(0);
    }
    is_clean(&store);
}
