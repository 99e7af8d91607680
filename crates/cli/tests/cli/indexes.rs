//! Indexes on the command line.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use terrane::schema::{Column, ColumnType, GeometryColumn, KeyColumn, KeyType, Schema};
use terrane::{CoordinateSystem, IndexKind, MEMORY_LIMIT_MIN, Options, Record, Store, Value};
use terrane_storage::{OpenMode, Storage};
use terrane_testkit::crash::Controller;

use crate::support::{Sandbox, command, import, insert, is_clean, sample, terrane};

fn indexes(store: &std::path::Path) -> Vec<Json> {
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
    // Of a dataset whose geometry is in two columns.
    let answer = terrane("index", &store, &["d", "create", "places", "--using", "rtree", "--on", "geometry"]);
    assert!(answer.exits(0).text().starts_with("created index places (rtree on lon, lat): "));
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

/// Wherever the creation of an index is killed, the store works with or without the index, and the
/// index can be created in the end.
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

/// Either the command completes it, or opening the store has done so before.
#[test]
fn the_same_creation_again_completes_what_a_kill_interrupted() {
    let sandbox = Sandbox::new();
    let place = sandbox.store();
    let options = || Options { background: false, memory_limit: MEMORY_LIMIT_MIN, ..Options::default() };
    let controller = Controller::new();
    let key = KeyColumn { name: "id".into(), key_type: KeyType::Int64, generated: false };
    let geometry = GeometryColumn::Point { x: "lon".into(), y: "lat".into() };
    let columns = vec![Column::new("size", ColumnType::Int64)];
    let schema = Schema::new(key, geometry, CoordinateSystem::LonLat, columns).expect("a schema");
    let store = Store::open_on(controller.storage(), options()).expect("a store");
    let dataset = store.create_dataset("d", schema).expect("a dataset");
    for id in 0..100 {
        dataset.insert(&Record::at(id, 1.0, 1.0, vec![Value::Int(id % 7)])).expect("it is inserted");
    }
    let begun = controller.events();
    dataset.create_index("by_size", IndexKind::BTree, &["size"]).expect("it is created");
    let is_building = |storage: &Arc<dyn Storage>| {
        let info =
            Store::open_read_only_on(storage.clone(), options()).and_then(|store| store.info()).expect("it opens");
        info.datasets[0].indexes.iter().any(|index| index.is_building)
    };
    let mut images = (begun..controller.events()).map(|cut| controller.process_kill(cut).storage());
    let interrupted = images.find(is_building).expect("it has begun somewhere");
    for directory in ["", "components", "log"] {
        fs::create_dir_all(place.join(directory)).expect("it is made");
        for name in interrupted.list(directory).expect("names") {
            let name = Path::new(directory).join(name).to_str().expect("a name").to_owned();
            let file = interrupted.open(&name, OpenMode::Read).expect("it is there");
            let mut bytes = vec![0; file.len().expect("a length") as usize];
            file.read_exact_at(&mut bytes, 0).expect("it is read");
            fs::write(place.join(name), bytes).expect("it is written");
        }
    }
    let create =
        |column: &str| terrane("index", &place, &["d", "create", "by_size", "--using", "btree", "--on", column]);
    let text = create("size").exits(0).text();
    assert!(text.starts_with("completed index by_size (btree on size): 100 entries, "), "{text}");
    create("size").exits(2).says("it is complete, and as it was asked for, so nothing is left to do");
    terrane("index", &place, &["d", "create", "by_size", "--using", "inverted", "--on", "size"]).exits(2);
    is_clean(&place);
}

/// Rows of a window by each index, and the explanation.
#[test]
fn spatial_kinds_are_created_with_options_and_asked_for_by_name() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let input: String =
        (0..400).map(|id| format!("{}\n", json!({"id": id, "lon": id % 20, "lat": id / 20, "size": id % 7}))).collect();
    insert(&store, "d", input, &[]).exits(0);
    let create = |arguments: &[&str]| terrane("index", &store, &[&["d", "create"], arguments].concat());
    for kind in ["rtree", "dhb", "dhvb"] {
        let text = create(&[kind, "--using", kind]).exits(0).text();
        assert!(text.starts_with(&format!("created index {kind} ({kind} on lon, lat): 400 entries, ")), "{text}");
    }
    let text = create(&["shb", "--using", "shb", "--on", "lon", "lat", "--levels", "h,h,m"]).exits(0).text();
    assert!(text.contains("(shb on lon, lat, levels h,h,m): 400 entries"), "{text}");
    let text = create(&["sif", "--using", "sif", "--levels", "l,l"]).exits(0).text();
    assert!(text.contains("levels l,l): 800 entries"), "{text}");
    let query = |arguments: &[&str]| terrane("query", &store, &[&["d"], arguments].concat());
    let window = ["--bbox", "2.5,3,8,8", "--format", "csv"];
    let sorted = |text: String| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let rows = sorted(query(&window).exits(0).text());
    assert_eq!(rows.len(), 1 + 6 * 6);
    for name in ["primary", "geometry", "rtree", "dhb", "dhvb", "shb", "sif"] {
        let answer = query(&[&window[..], &["--index", name, "--explain"]].concat()).exits(0);
        let answer = answer.says(&format!("index       {name}: used, as it was asked for"));
        assert_eq!(sorted(answer.text()), rows, "{name}");
        let count = query(&["--circle", "5,5,300000", "--count", "--index", name]).exits(0).number();
        assert_eq!(count, query(&["--circle", "5,5,300000", "--count"]).exits(0).number(), "{name}");
    }
    query(&[&window[..], &["--explain"]].concat()).exits(0).says("index       sif: not used, as geometry comes first");
    query(&["--nearest", "5,5", "--index", "shb"]).exits(2).says("use one of kind rtree");
    query(&["--index", "shb"]).exits(2).says("no condition on places");
    query(&["--bbox", "0,0,1,1", "--index", "cells"]).exits(2).says("it has primary, geometry, rtree, dhb, dhvb");
    let found = indexes(&store);
    assert_eq!(found[5]["options"], json!({"levels": "h,h,m"}));
    assert_eq!(found[2].get("options"), None);
    is_clean(&store);
    terrane("info", &store, &[]).exits(0);
    for name in ["rtree", "dhb", "dhvb", "shb", "sif"] {
        terrane("index", &store, &["d", "drop", name]).exits(0);
    }
    assert_eq!(indexes(&store).len(), 2);
}

#[test]
fn an_index_of_words_leaves_out_those_that_are_named() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let input: String = (0..50)
        .map(|id| format!("{}\n", json!({"id": id, "lon": 1, "lat": 1, "name": format!("The house of {id}")})))
        .collect();
    insert(&store, "d", input, &[]).exits(0);
    let create = |words: &str| {
        let on = ["d", "create", "words", "--using", "inverted", "--on", "name", "--stop-words"];
        terrane("index", &store, &[&on[..], &[words]].concat())
    };
    create("the,of the").exits(2).says("--stop-words: \"of the\" is not one word");
    create("@").exits(2).says("name of a file is missing");
    create("@none.txt").exits(2).says("cannot read none.txt");
    let file = sandbox.write("words.txt", "\u{feff}The\r\nof,house\n\n");
    let text = create(&format!("@{}", file.display())).exits(0).text();
    assert!(text.contains("(inverted on name, without 3 words): 50 entries"), "{text}");
    assert_eq!(indexes(&store)[2]["options"], json!({"stop_words": ["house", "of", "the"]}));
    let query =
        |arguments: &[&str]| terrane("query", &store, &[&["d", "--count", "--explain", "--match"], arguments].concat());
    query(&["house 7"]).says("index       words, about 1 entry: used").exits(0);
    assert_eq!(query(&["the house"]).says("only stop words").exits(0).number(), 50);
    terrane("index", &store, &["d", "drop", "words"]).exits(0);
    let text = create(" The , of ").exits(0).text();
    assert!(text.contains("without 2 words): 100 entries"), "{text}");
    is_clean(&store);
}

#[test]
fn grids_of_a_plane_need_a_domain_and_shapes_a_kind_that_holds_them() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let line = "{\"id\":1,\"geometry\":\"LINESTRING(1 1,300 5)\"}\n{\"id\":2,\"geometry\":\"POINT(7 7)\"}\n";
    insert(&store, "d", line, &["--planar"]).exits(0);
    let create = |arguments: &[&str]| terrane("index", &store, &[&["d", "create", "i"], arguments].concat());
    create(&["--using", "dhb"]).exits(2).says("takes points only; kinds rtree and shb");
    create(&["--using", "sif", "--domain", "0,0,9,9"]).exits(2).says("takes points only");
    create(&["--using", "shb"]).exits(2).says("needs a domain");
    create(&["--using", "shb", "--domain", "0,0,9"]).exits(2).says("x0,y0,x1,y1");
    create(&["--using", "shb", "--domain", "0,0,9,9", "--levels", "h,q"]).exits(2).says("l (4x4)");
    create(&["--using", "shb", "--domain", "0,0,9,9", "--cells", "0"]).exits(2).says("1 to 1024");
    create(&["--using", "rtree", "--cells", "3"]).exits(2).says("does not take");
    assert_eq!(indexes(&store).len(), 2);
    create(&["--using", "shb", "--domain", "-10,-10,400,400", "--levels", "m,m", "--cells", "30"]).exits(0);
    let count = ["d", "--bbox", "100,0,101,9", "--count", "--index", "i"];
    assert_eq!(terrane("query", &store, &count).exits(0).number(), 1);
    is_clean(&store);
}
