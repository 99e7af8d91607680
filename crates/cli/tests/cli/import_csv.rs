use std::fs;

use serde_json::json;

use crate::support::{Sandbox, count, import, insert, is_clean, rows, sample, terrane};

#[test]
fn the_guess_and_the_counts_are_on_standard_error() {
    let sandbox = Sandbox::new();
    let answer = import(&sandbox.store(), "cities", &sample("cities200.csv"), &[])
        .exits(0)
        .says("CSV, 200 rows")
        .says("key: row number")
        .says("points from columns \"lon\" and \"lat\"")
        .says("WGS 84")
        .says("imported 200 records into cities in ");
    assert_eq!(answer.text(), "");
    assert_eq!(count(&sandbox.store(), "cities"), 200);
    is_clean(&sandbox.store());
}

#[test]
fn records_come_back_as_the_file_has_them() {
    let sandbox = Sandbox::new();
    import(&sandbox.store(), "cities", &sample("cities200.csv"), &[]).exits(0);
    let tokyo = json!({
        "key": 0, "lon": 139.74946157054467, "lat": 35.686962764371174, "name": "Tokyo", "name_ru": "Токио",
        "name_zh": "東京都", "adm0name": "Japan", "pop_max": 35676000, "capital": true,
    });
    assert_eq!(rows(&sandbox.store(), "cities", "key")[0], tokyo);
}

#[test]
fn row_numbers_continue_over_files_and_imports() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let one = sandbox.write("one.csv", "lon,lat,name\n1,2,a\n3,4,b\n");
    let two = sandbox.write("two.csv", "lon,lat,name\n5,6,c\n");
    let answer = import(&store, "d", &one, &[two.to_str().expect("UTF-8")]).exits(0);
    answer.says("imported 3 records into d");
    import(&store, "d", &two, &[]).exits(0);
    let keys: Vec<_> = rows(&store, "d", "key").iter().map(|row| (row["key"].clone(), row["name"].clone())).collect();
    let wanted = [(0, "a"), (1, "b"), (2, "c"), (3, "c")];
    assert_eq!(keys, wanted.map(|(key, name)| (json!(key), json!(name))));
    is_clean(&store);
}

#[test]
fn key_and_coordinate_columns_can_be_named() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("a.csv", "id,code,to_lon,to_lat,from_lon,from_lat\n1,x,10,20,30,40\n2,y,11,21,31,41\n");
    let named = ["--key", "code", "--lon", "from_lon", "--lat", "from_lat"];
    import(&sandbox.store(), "d", &file, &named).exits(0).says("key: column \"code\"");
    let near = terrane("query", &sandbox.store(), &["d", "--nearest", "30,40", "--k", "1"]).exits(0).json_lines();
    let wanted =
        json!({"code": "x", "from_lon": 30.0, "from_lat": 40.0, "id": 1, "to_lon": 10, "to_lat": 20, "distance": 0.0});
    assert_eq!(near, [wanted]);
}

#[test]
fn planar_coordinates_may_be_anywhere() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("a.csv", "x,y,n\n500000,4600000,1\n500003,4600004,2\n");
    import(&sandbox.store(), "d", &file, &["--planar"]).exits(0).says("planar");
    let near = terrane("query", &sandbox.store(), &["d", "--nearest", "500000,4600000"]).exits(0).json_lines();
    let distances: Vec<_> = near.iter().map(|row| row["distance"].as_f64()).collect();
    assert_eq!(distances, [Some(0.0), Some(5.0)]);
    let circle = ["d", "--circle", "500000,4600000,4.99", "--count"];
    assert_eq!(terrane("query", &sandbox.store(), &circle).exits(0).number(), 1);
    import(&sandbox.store(), "e", &file, &[]).exits(5);
}

#[test]
fn semicolons_decimal_commas_and_wkt_are_understood() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("a.csv", "lon;lat;price\n1,5;2,5;3,25\n-7;8;9\n");
    import(&sandbox.store(), "d", &file, &[]).exits(0);
    let wanted = json!({"key": 0, "lon": 1.5, "lat": 2.5, "price": 3.25});
    assert_eq!(rows(&sandbox.store(), "d", "key")[0], wanted);
    let file = sandbox.write("b.csv", "outline,name\n\"POLYGON ((0 0,4 0,4 4,0 0))\",a\n,b\n");
    import(&sandbox.store(), "e", &file, &["--geometry", "outline"]).exits(0);
    let hit = terrane("query", &sandbox.store(), &["e", "--intersects", "POINT (3 1)"]).exits(0).json_lines();
    assert_eq!((hit.len(), &hit[0]["name"]), (1, &json!("a")));
    assert_eq!(count(&sandbox.store(), "e"), 2);
    is_clean(&sandbox.store());
}

#[test]
fn later_files_fit_the_dataset() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let first = sandbox.write("first.csv", "id,lon,lat,n,name\n1,1,1,7,a\n");
    import(&store, "d", &first, &[]).exits(0);
    // A missing column is null, and a number is text where the dataset has text.
    let second = sandbox.write("second.csv", "id,lon,lat,name\n2,1,1,12\n");
    import(&store, "d", &second, &[]).exits(0);
    let wanted = json!({"id": 2, "lon": 1.0, "lat": 1.0, "n": null, "name": "12"});
    assert_eq!(rows(&store, "d", "id")[1], wanted);
    let no_key = sandbox.write("no_key.csv", "lon,lat\n1,1\n");
    import(&store, "d", &no_key, &[]).exits(5).says("\"id\"");
    let text = sandbox.write("text.csv", "id,lon,lat,n\n4,1,1,seven\n");
    import(&store, "d", &text, &[]).exits(5).says("row 1").says("\"n\"");
    assert_eq!(count(&store, "d"), 2);
}

#[test]
fn flags_that_contradict_the_dataset_are_usage_errors() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("a.csv", "id,lon,lat\n1,1,1\n");
    import(&sandbox.store(), "d", &file, &[]).exits(0);
    for flags in [&["--planar"][..], &["--key", "lon"], &["--geometry", "id"], &["--lon", "id", "--lat", "lat"]] {
        import(&sandbox.store(), "d", &file, flags).exits(2);
    }
    import(&sandbox.store(), "d", &file, &["--durability", "none"]).exits(2).says("power");
    assert_eq!(count(&sandbox.store(), "d"), 1);
}

#[test]
fn a_dataset_has_the_partitions_that_it_was_created_with() {
    let sandbox = Sandbox::new();
    let rows: String = (0..40).map(|id| format!("{id},{},2\n", id % 90)).collect();
    let file = sandbox.write("a.csv", format!("id,lon,lat\n{rows}"));
    for partitions in ["0", "65", "-1", "x"] {
        import(&sandbox.store(), "d", &file, &["--partitions", partitions]).exits(2).says("partitions");
    }
    import(&sandbox.store(), "d", &file, &["--partitions", "3"]).exits(0);
    insert(&sandbox.store(), "e", "{\"id\":1,\"lon\":1,\"lat\":1}\n", &["--partitions", "5"]).exits(0);
    let info = terrane("info", &sandbox.store(), &["--format", "json"]).exits(0).json_lines();
    let partitions = |dataset: usize| info[0]["datasets"][dataset]["partitions"].as_u64();
    assert_eq!((partitions(0), partitions(1)), (Some(3), Some(5)));
    assert!(terrane("info", &sandbox.store(), &[]).exits(0).text().contains("3 partitions"));
    // It keeps them, and says so.
    let more = sandbox.write("b.csv", "id,lon,lat\n50,1,1\n");
    import(&sandbox.store(), "d", &more, &["--partitions", "4"]).exits(2).says("3 partitions");
    let record = "{\"id\":51,\"lon\":1,\"lat\":1}\n";
    insert(&sandbox.store(), "d", record, &["--partitions", "4"]).exits(2).says("3 partitions");
    import(&sandbox.store(), "d", &more, &["--partitions", "3"]).exits(0);
    insert(&sandbox.store(), "d", record, &[]).exits(0);
    assert_eq!(count(&sandbox.store(), "d"), 42);
    let near = terrane("query", &sandbox.store(), &["d", "--nearest", "1,1", "--k", "2"]).exits(0).json_lines();
    let keys: Vec<_> = near.iter().map(|row| row["id"].as_u64()).collect();
    assert_eq!(keys, [Some(50), Some(51)]);
    is_clean(&sandbox.store());
}

#[test]
fn a_header_alone_makes_an_empty_dataset() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("a.csv", "id,lon,lat\n");
    let answer = import(&sandbox.store(), "d", &file, &["--lon", "lon", "--lat", "lat"]).exits(0);
    answer.says("imported 0 records").says("the file has no rows, so the column types are unknown");
    assert_eq!(count(&sandbox.store(), "d"), 0);
    assert!(fs::read_dir(sandbox.store()).expect("a store").next().is_some());
}

#[test]
fn flags_that_contradict_the_dataset_are_refused() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("d.csv", "id,a,b\n1,10,20\n");
    let store = sandbox.store();
    import(&store, "d", &file, &["--lon", "a", "--lat", "b"]).exits(0);
    let more = sandbox.write("more.csv", "id,a,b\n2,10,20\n");
    for flags in [&["--lon", "b", "--lat", "a"][..], &["--geometry", "a"], &["--lon", "a", "--lat", "id"]] {
        import(&store, "d", &more, flags).exits(2).says("the geometry of dataset \"d\" is in a and b");
    }
    import(&store, "d", &more, &["--lon", "a", "--lat", "b"]).exits(0);
}

#[test]
fn decimal_commas_are_read_where_the_flag_says_so() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("d.csv", "id;lon;lat;version\n1;10;20;1.5\n2;10,5;20;1.6\n");
    import(&sandbox.store(), "d", &file, &[]).exits(5).says("10,5");
    import(&sandbox.store(), "d", &file, &["--decimal-comma"]).exits(0);
    let found = rows(&sandbox.store(), "d", "id");
    assert_eq!((&found[1]["lon"], &found[1]["version"]), (&json!(10.5), &json!("1.6")));
}

#[test]
fn integers_beyond_int64_become_text_and_keys_of_uint64() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("cells.csv", "name,cell,lon,lat\na,9223372036854775808,1,1\nb,7,2,2\n");
    import(&sandbox.store(), "numbered", &file, &[]).exits(0).says("column \"cell\" is text");
    let cells: Vec<_> = rows(&sandbox.store(), "numbered", "key").iter().map(|row| row["cell"].to_string()).collect();
    assert_eq!(cells, ["\"9223372036854775808\"", "\"7\""]);
    import(&sandbox.store(), "keyed", &file, &["--key", "cell"]).exits(0);
    let keys: Vec<_> = rows(&sandbox.store(), "keyed", "name").iter().map(|row| row["cell"].to_string()).collect();
    assert_eq!(keys, ["9223372036854775808", "7"]);
}

#[test]
fn a_file_without_the_columns_of_the_datasets_geometry_is_refused_and_only_flags_are_usage() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    import(&store, "points", &sandbox.write("points.csv", "id,lon,lat\n1,1,1\n"), &[]).exits(0);
    import(&store, "shapes", &sandbox.write("shapes.csv", "id,wkt\n1,POINT (1 1)\n"), &[]).exits(0);
    let csv = sandbox.write("bare.csv", "id\n2\n");
    let ndjson = sandbox.write("bare.ndjson", "{\"id\":2}\n");
    for file in [&csv, &ndjson] {
        import(&store, "points", file, &[]).exits(5).says("no column \"lon\", in which the dataset has its geometry");
        import(&store, "shapes", file, &[]).exits(5).says("no column \"wkt\", in which the dataset has its geometry");
        import(&store, "points", file, &["--lon", "lon", "--lat", "lat"]).exits(2).says("no column \"lon\"");
        import(&store, "shapes", file, &["--geometry", "wkt"]).exits(2).says("no column \"wkt\"");
        import(&store, "new", file, &["--geometry", "wkt"]).exits(2).says("no column \"wkt\"");
    }
    let rides = sample("sf_cab_rides.parquet");
    import(&store, "points", &rides, &[]).exits(5).says("in which the dataset has its geometry");
}
