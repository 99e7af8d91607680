use serde_json::{Value, json};

use crate::support::{Sandbox, count, import, insert, is_clean, rows, terrane};

fn lines(records: &[Value]) -> String {
    records.iter().map(|record| format!("{record}\n")).collect()
}

#[test]
fn the_first_record_makes_the_dataset() {
    let sandbox = Sandbox::new();
    let record = json!({"id": 7, "lon": -1.5, "lat": 2, "n": 3, "f": 0.5, "ok": true, "name": "x", "nothing": null});
    let answer = insert(&sandbox.store(), "d", lines(std::slice::from_ref(&record)), &[]).exits(0);
    assert_eq!(answer.text(), "7\n");
    answer.says("inserted 1 record into d");
    let wanted = json!({"id": 7, "lon": -1.5, "lat": 2.0, "n": 3, "f": 0.5, "ok": true, "name": "x"});
    assert_eq!(rows(&sandbox.store(), "d", "id"), [wanted]);
    is_clean(&sandbox.store());
}

#[test]
fn keys_are_printed_as_json_in_the_order_of_the_records() {
    let sandbox = Sandbox::new();
    let records = [json!({"key": "b\"", "x": 1, "y": 1}), json!({"key": "a", "x": 1, "y": 1})];
    assert_eq!(insert(&sandbox.store(), "text", lines(&records), &["--planar"]).exits(0).text(), "\"b\\\"\"\n\"a\"\n");
    let records = [json!({"id": u64::MAX, "lon": 1, "lat": 1}), json!({"id": 0, "lon": 1, "lat": 1})];
    let answer = insert(&sandbox.store(), "unsigned", lines(&records), &[]).exits(0);
    assert_eq!(answer.text(), "18446744073709551615\n0\n");
    let records = [json!({"lon": 1, "lat": 1}), json!({"lon": 2, "lat": 1})];
    assert_eq!(insert(&sandbox.store(), "numbered", lines(&records), &[]).exits(0).text(), "0\n1\n");
    assert_eq!(insert(&sandbox.store(), "numbered", lines(&records), &[]).exits(0).text(), "2\n3\n");
}

#[test]
fn features_bring_geometry_properties_and_id() {
    let sandbox = Sandbox::new();
    let line = json!({"type": "LineString", "coordinates": [[0.0, 0.0], [2.0, 2.0]]});
    let features = [
        json!({"type": "Feature", "id": "a", "properties": {"n": 1}, "geometry": line}),
        json!({"type": "Feature", "id": "b", "properties": {"n": 2}, "geometry": null}),
        json!({"type": "Feature", "id": "c", "properties": null, "geometry": {"type": "Point", "coordinates": [9.0, 9.0]}}),
    ];
    let answer = insert(&sandbox.store(), "d", lines(&features), &[]).exits(0);
    assert_eq!(answer.text(), "\"a\"\n\"b\"\n\"c\"\n");
    let stored = rows(&sandbox.store(), "d", "id");
    assert_eq!(stored[0], json!({"id": "a", "geometry": line, "n": 1}));
    assert_eq!(stored[1], json!({"id": "b", "geometry": null, "n": 2}));
    let hit = terrane("query", &sandbox.store(), &["d", "--circle", "1,1,100"]).exits(0).json_lines();
    assert_eq!(hit, [stored[0].clone()]);
    is_clean(&sandbox.store());
}

#[test]
fn the_id_of_a_feature_is_no_row_number() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    import(&store, "numbered", &sandbox.write("points.csv", "name,lon,lat\na,1,1\nb,2,2\n"), &[]).exits(0);
    let feature = |id: Value| json!({"type": "Feature", "id": id, "properties": {"name": "c"}, "geometry": {"type": "Point", "coordinates": [3, 3]}});
    for (flags, key) in [(&[][..], "2\n"), (&["--upsert"], "3\n")] {
        assert_eq!(insert(&store, "numbered", lines(&[feature(json!(1))]), flags).exits(0).text(), key);
    }
    let names: Vec<Value> = rows(&store, "numbered", "key").iter().map(|row| row["name"].clone()).collect();
    assert_eq!(names, ["a", "b", "c", "c"]);

    // As an import of the same features numbers them and keeps the ids.
    for (dataset, ids) in [("ways", ["way/8", "way/9"].map(Value::from)), ("numbers", [8, 9].map(Value::from))] {
        let [first, second] = ids.clone();
        let file = sandbox.write("one.geojsonl", lines(&[feature(first)]));
        import(&store, dataset, &file, &["--key", ""]).exits(0);
        assert_eq!(insert(&store, dataset, lines(&[feature(second)]), &[]).exits(0).text(), "1\n");
        let stored: Vec<Value> = rows(&store, dataset, "key").iter().map(|row| row["id"].clone()).collect();
        assert_eq!(stored, ids);
    }
    is_clean(&store);
}

#[test]
fn the_id_of_a_feature_is_no_key_of_another_name() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let record = json!({"key": 1, "lon": 1, "lat": 1});
    insert(&store, "d", lines(&[record]), &[]).exits(0);
    let feature =
        json!({"type": "Feature", "id": 1, "properties": {}, "geometry": {"type": "Point", "coordinates": [3, 3]}});
    insert(&store, "d", lines(&[feature]), &["--upsert"]).exits(5).says("column \"key\": the record has no key");
    assert_eq!(count(&store, "d"), 1);
}

#[test]
fn later_records_may_omit_and_add_attributes_and_widen_integers() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let records = [
        json!({"id": 1, "lon": 1, "lat": 1, "n": 5}),
        json!({"id": 2, "lon": 1, "lat": 1}),
        json!({"id": 3, "lon": 1, "lat": 1, "n": 7, "name": "late"}),
    ];
    insert(&store, "d", lines(&records), &[]).exits(0);
    assert_eq!(rows(&store, "d", "id")[0]["n"].to_string(), "5");
    let records = [
        json!({"id": 4, "lon": 1, "lat": 1, "n": 6}),
        json!({"id": 5, "lon": 1, "lat": 1, "n": 6.5, "tags": ["a", 1]}),
        json!({"id": 6, "lon": 1, "lat": 1, "n": 8}),
    ];
    assert_eq!(insert(&store, "d", lines(&records), &[]).exits(0).text(), "4\n5\n6\n");
    let row = |id: i64, n: Value, name: Value, tags: Value| json!({"id": id, "lon": 1.0, "lat": 1.0, "n": n, "name": name, "tags": tags});
    let wanted = [
        row(1, json!(5.0), json!(null), json!(null)),
        row(2, json!(null), json!(null), json!(null)),
        row(3, json!(7.0), json!("late"), json!(null)),
        row(4, json!(6.0), json!(null), json!(null)),
        row(5, json!(6.5), json!(null), json!("[\"a\",1]")),
        row(6, json!(8.0), json!(null), json!(null)),
    ];
    assert_eq!(rows(&store, "d", "id"), wanted);
    is_clean(&store);
}

#[test]
fn refused_records_are_reported_by_line_and_the_others_are_inserted() {
    let sandbox = Sandbox::new();
    let input = "{\"id\":1,\"lon\":1,\"lat\":1}\n\nnot json\n{\"id\":1,\"lon\":2,\"lat\":2}\n{\"id\":2,\"lon\":1,\"lat\":95}\n\
                 [1]\n{\"lon\":1,\"lat\":1}\n{\"id\":3,\"lon\":1,\"lat\":1,\"new\":1,\"new\":2}\n{\"id\":4,\"lon\":1,\"lat\":1}";
    let answer = insert(&sandbox.store(), "d", input, &[]).exits(5);
    assert_eq!(answer.text(), "1\n4\n");
    let answer = answer.says("line 3: ").says("line 4: a record with the key 1 exists already").says("line 5: ");
    answer.says("line 6: ").says("line 7: column \"id\"").says("line 8: ").says("6 records were refused");
    assert_eq!(rows(&sandbox.store(), "d", "id")[0]["lon"], json!(1.0));
    assert_eq!(count(&sandbox.store(), "d"), 2);
    is_clean(&sandbox.store());
}

#[test]
fn upsert_replaces_and_inserts() {
    let sandbox = Sandbox::new();
    let records = [
        json!({"id": 1, "lon": 1, "lat": 1, "n": 1}),
        json!({"id": 1, "lon": 50, "lat": 50, "n": 2}),
        json!({"id": 2, "lon": 1, "lat": 1, "n": 3}),
    ];
    assert_eq!(insert(&sandbox.store(), "d", lines(&records), &["--upsert"]).exits(0).text(), "1\n1\n2\n");
    let near = terrane("query", &sandbox.store(), &["d", "--bbox", "0,0,2,2"]).exits(0).json_lines();
    assert_eq!(near, [json!({"id": 2, "lon": 1.0, "lat": 1.0, "n": 3})]);
    assert_eq!(rows(&sandbox.store(), "d", "id")[0]["n"], json!(2));
    is_clean(&sandbox.store());
}

#[test]
fn a_dataset_appears_with_its_first_valid_record() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let answer =
        insert(&store, "d", "{\"id\":1,\"lon\":1,\"lat\":95}\n{\"id\":2}\n{\"id\":null,\"lon\":1,\"lat\":1}\n", &[])
            .exits(5);
    answer.says("line 1: ").says("line 2: the first record").says("line 3: ");
    terrane("query", &store, &["d"]).exits(2).says("there is no store");
    insert(&store, "d", "{\"id\":\"x\",\"name\":1,\"x\":1e6,\"y\":2}\n", &["--planar"]).exits(0);
    assert_eq!(rows(&store, "d", "id"), [json!({"id": "x", "x": 1e6, "y": 2.0, "name": 1})]);
    insert(&store, "e", "", &[]).exits(0).says("inserted 0 records").says("dataset e was not created");
    insert(&store, "e", "{\"id\":1,\"lon\":1,\"lat\":1}\n", &[]).exits(0);
    insert(&store, "e", "", &["--planar"]).exits(2).says("--planar");
}

#[test]
fn a_first_record_may_say_that_it_has_no_geometry() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let point = json!({"type": "Point", "coordinates": [1.0, 2.0]});
    let records = [
        ("plain", json!({"id": 1, "geometry": null})),
        ("feature", json!({"type": "Feature", "id": 1, "properties": null, "geometry": null})),
    ];
    for (dataset, first) in records {
        let records = [first, json!({"id": 2, "geometry": point})];
        insert(&store, dataset, lines(&records), &[]).exits(0);
        let geometries: Vec<Value> = rows(&store, dataset, "id").iter().map(|row| row["geometry"].clone()).collect();
        assert_eq!(geometries, [json!(null), point.clone()], "{dataset}");
    }
}

#[test]
fn numbered_datasets_take_keys_too() {
    let sandbox = Sandbox::new();
    let records = [json!({"lon": 1, "lat": 1}), json!({"key": 10, "lon": 1, "lat": 1}), json!({"lon": 1, "lat": 1})];
    let answer = insert(&sandbox.store(), "d", lines(&records[..2]), &[]).exits(0);
    assert_eq!(answer.text(), "0\n10\n");
    assert_eq!(insert(&sandbox.store(), "d", lines(&records[2..]), &[]).exits(0).text(), "11\n");
}

#[test]
fn the_durability_of_a_store_is_chosen_once() {
    let sandbox = Sandbox::new();
    let record = "{\"id\":1,\"lon\":1,\"lat\":1}\n";
    insert(&sandbox.store(), "d", record, &["--durability", "none"]).exits(0);
    let info = terrane("info", &sandbox.store(), &["--format", "json"]).exits(0).json_lines();
    assert_eq!(info[0]["durability"], json!("none"));
    assert_eq!(count(&sandbox.store(), "d"), 1);
    insert(&sandbox.store(), "d", record, &["--durability", "power"]).exits(2);
    insert(&sandbox.path("other"), "d", record, &["--durability", "process"])
        .exits(2)
        .says("not built yet")
        .says("choose power");
    insert(&sandbox.path("other"), "d", record, &["--durability", "strong"]).exits(2).says("power");
    assert!(!sandbox.path("other").exists());
}

/// Coordinates in another declared reference system are not longitude and latitude. Text that names
/// a system by number is converted; GeoJSON has no other system.
#[test]
fn records_and_queries_in_another_system_are_converted_or_refused_unless_the_dataset_is_planar() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let crs = r#""crs":{"type":"name","properties":{"name":"EPSG:27700"}}"#;
    let point = r#""type":"Point","coordinates":[1,2]"#;
    let text = "{\"id\":1,\"geometry\":\"SRID=3857;POINT (1 2)\"}\n".to_owned();
    let object = format!("{{\"id\":2,\"geometry\":{{{point},{crs}}}}}\n");
    let polygon = r#""type":"Polygon","coordinates":[[[0,0],[9,0],[9,9],[0,0]]]"#;
    let area = sandbox.write("area.geojson", format!("{{{polygon},{crs}}}"));
    let area = format!("@{}", area.display());
    insert(&store, "d", "{\"id\":0,\"geometry\":\"POINT (1 2)\"}\n", &[]).exits(0);
    insert(&store, "d", &text, &[]).exits(0).says("converted from EPSG:3857");
    insert(&store, "d", &object, &[]).exits(5).says("EPSG:27700");
    for record in [&text, &object] {
        insert(&store, "p", record, &["--planar"]).exits(0);
    }
    terrane("query", &store, &["d", "--within", &area]).exits(2).says("--within").says("EPSG:27700");
    terrane("query", &store, &["p", "--intersects", &area, "--count"]).exits(0);
}
