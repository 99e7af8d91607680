//! Messages: where they go, their words, and the singular for one thing.

use std::fs;

use serde_json::json;

use crate::support::{Sandbox, import, insert, is_clean, rows, sample, terrane};

#[test]
fn failures_of_the_system_name_the_whole_path() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    import(&store, "cities", &sample("cities200.csv"), &[]).exits(0);
    let lock = store.join("LOCK");
    fs::remove_file(&lock).expect("the lock");
    fs::create_dir(&lock).expect("a directory in its place");
    terrane("compact", &store, &[]).exits(1).says(&format!("cannot open {}: ", lock.display()));
}

#[test]
fn a_question_ends_its_sentence() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("a.csv", "id,lon,lat\n1,37.77,-122.42\n");
    let answer = import(&sandbox.store(), "d", &file, &[]).exits(5);
    let answer = answer.says("nothing was imported: ").says("did you swap latitude and longitude? (--on-invalid skip");
    assert!(!answer.stderr.contains("?;"), "{}", answer.stderr);
}

#[test]
fn one_thing_is_told_in_the_singular() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let skip = ["--on-invalid", "skip"];
    let bad = sandbox.write("bad.csv", "id,lon,lat\n1,1,95\n");
    import(&store, "d", &bad, &skip).exits(5).says("1 refused row is in").says("the only row was refused");
    let half = sandbox.write("half.csv", "id,lon,lat\n1,1,1\n2,1,95\n");
    import(&store, "d", &half, &skip).exits(0).says("imported 1 record into d").says("1 row was refused");
    let records = "{\"id\":3,\"lon\":1,\"lat\":1}\n{\"id\":3,\"lon\":1,\"lat\":1}\n";
    insert(&store, "d", records, &[]).exits(5).says("inserted 1 record into d").says("error: 1 record was refused");
    terrane("delete", &store, &["d", "--key", "3"]).exits(0);
    terrane("compact", &store, &[]).exits(0);
    let info = terrane("info", &store, &[]).exits(0).text();
    assert!(info.contains(": 1 component, 1 entry, "), "{info}");
    let check = terrane("check", &store, &[]).exits(0).text();
    assert!(check.starts_with("checked 1 dataset, 2 components, "), "{check}");
    assert!(check.contains(", 1 record (0 without geometry): "), "{check}");
}

#[test]
fn info_names_types_as_the_documentation_does() {
    let sandbox = Sandbox::new();
    let record = "{\"id\":1,\"lon\":1,\"lat\":1,\"name\":\"x\",\"n\":1,\"f\":0.5,\"ok\":true}\n";
    insert(&sandbox.store(), "d", record, &[]).exits(0);
    insert(&sandbox.store(), "p", "{\"key\":\"a\",\"x\":1,\"y\":1}\n", &["--planar"]).exits(0);
    let info = terrane("info", &sandbox.store(), &[]).exits(0).text();
    for part in [
        "key id (int64) · points lon, lat · lonlat",
        "key key (utf8) · points x, y · planar",
        "column name utf8\n",
        "column n int64\n",
        "column f float64\n",
        "column ok bool\n",
    ] {
        assert!(info.contains(part), "{part:?} is not in: {info}");
    }
}

#[test]
fn rows_with_one_key_are_told_from_records_that_are_there() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let file = sandbox.write("a.csv", "id,lon,lat\n1,1,1\n2,1,1\n");
    let twice = [file.to_str().expect("UTF-8"), "--key", "id"];
    import(&store, "d", &file, &twice).exits(5).says("an earlier row has the same key 1");
    import(&store, "d", &file, &[]).exits(0);
    import(&store, "d", &file, &[]).exits(5).says("a record with the key 1 exists already in the dataset");
    let again = sandbox.write("b.csv", "id,lon,lat\n3,1,1\n2,1,1\n3,2,2\n");
    import(&store, "d", &again, &["--on-invalid", "skip"]).exits(0);
    let rejects = fs::read_to_string(sandbox.path("b.csv.rejects.ndjson")).expect("rejects");
    assert!(rejects.contains("key 2 exists already in the dataset"), "{rejects}");
    assert!(rejects.contains("an earlier row has the same key 3"), "{rejects}");
}

#[test]
fn a_file_without_a_header_is_taken_with_no_header() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("a.csv", "1,10.5,20,first\n2,11,21,second\n");
    import(&sandbox.store(), "d", &file, &[]).exits(5).says("--no-header");
    let flags = ["--no-header", "--key", "column_1", "--lon", "column_2", "--lat", "column_3"];
    import(&sandbox.store(), "d", &file, &flags).exits(0);
    let wanted = json!({"column_1": 1, "column_2": 10.5, "column_3": 20.0, "column_4": "first"});
    assert_eq!(rows(&sandbox.store(), "d", "column_1")[0], wanted);
}

#[test]
fn geometries_that_are_not_valid_are_counted_in_one_warning() {
    let sandbox = Sandbox::new();
    let polygons = "id,wkt\n1,\"POLYGON ((0 0,2 2,2 0,0 2,0 0))\"\n2,\"POLYGON ((0 0,4 0,4 4,0 0))\"\n\
                    3,\"POLYGON ((0 0,1 0,1 1,0 0),(5 5,6 5,6 6,5 5))\"\n4,\n";
    let file = sandbox.write("a.csv", polygons);
    let answer = import(&sandbox.store(), "d", &file, &[]).exits(0).says("imported 4 records");
    let answer = answer.says("2 geometries are not valid").says("a.csv, row 1: the outer ring intersects itself");
    assert_eq!(answer.stderr.matches("warning").count(), 1, "{}", answer.stderr);
    is_clean(&sandbox.store());
    let file = sandbox.write("b.csv", "id,lon,lat\n1,1,1\n");
    assert!(!import(&sandbox.store(), "e", &file, &[]).exits(0).stderr.contains("valid"));
}

#[test]
fn geometries_are_exported_under_the_name_that_imports_look_for() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let file = sandbox.write("a.csv", "id,wkt,n\n1,\"LINESTRING (0 0,1 1)\",5\n2,,6\n");
    import(&store, "d", &file, &[]).exits(0);
    let export = terrane("query", &store, &["d", "--format", "ndjson"]).exits(0);
    let line = json!({"type": "LineString", "coordinates": [[0.0, 0.0], [1.0, 1.0]]});
    let wanted = [json!({"id": 1, "geometry": line, "n": 5}), json!({"id": 2, "geometry": null, "n": 6})];
    assert_eq!(export.json_lines(), wanted);
    // Into a new dataset, and into one of the same schema, by both commands.
    let copy = sandbox.write("b.ndjson", &export.stdout);
    import(&store, "copy", &copy, &[]).exits(0);
    assert_eq!(rows(&store, "copy", "id"), wanted);
    terrane("delete", &store, &["d", "--key", "1", "2"]).exits(0);
    import(&store, "d", &copy, &[]).exits(0);
    assert_eq!(rows(&store, "d", "id"), wanted);
    insert(&store, "d", &export.stdout, &["--upsert"]).exits(0);
    assert_eq!(rows(&store, "d", "id"), wanted);
    is_clean(&store);
}

#[test]
fn coordinates_that_are_no_numbers_are_refused_in_columnar_files_too() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    // An attribute may be NaN; the export then has columns of any numbers.
    let file = sandbox.write("a.csv", "id,px,py,lon,lat\n1,NaN,NaN,1,1\n2,1,2,1,1\n3,inf,2,1,1\n");
    import(&store, "d", &file, &["--lon", "lon", "--lat", "lat"]).exits(0);
    for format in ["parquet", "arrow"] {
        let bytes = terrane("query", &store, &["d", "--format", format]).exits(0).stdout;
        let file = sandbox.write(&format!("b.{format}"), bytes);
        let place = ["--lon", "px", "--lat", "py", "--key", "id"];
        import(&store, format, &file, &place).exits(5).says("row 1").says("\"px\": NaN is not a finite number");
        import(&store, format, &file, &[&place[..], &["--on-invalid", "skip"]].concat())
            .exits(0)
            .says("2 rows were refused");
        let ids: Vec<_> = rows(&store, format, "id").iter().map(|row| row["id"].clone()).collect();
        assert_eq!(ids, [json!(2)]);
    }
}

#[test]
fn members_beside_the_properties_of_features_are_not_dropped_silently() {
    let sandbox = Sandbox::new();
    let feature = |key: u32, others: &str| {
        let point = r#""geometry":{"type":"Point","coordinates":[1,2]}"#;
        format!(r#"{{"type":"Feature","id":{key},"properties":{{"a":1}},{point}{others}}}"#)
    };
    let lines = [feature(1, ""), feature(2, r#","time":5"#), feature(3, r#","time":6"#), feature(4, r#","speed":7"#)];
    let file = sandbox.write("a.geojsonl", lines.join("\n"));
    let what = "members that GeoJSON does not define are ignored";
    let answer = import(&sandbox.store(), "imported", &file, &[]).exits(0);
    answer.says(&format!("a.geojsonl: {what}: \"time\", \"speed\"; move them into the features' properties"));
    let answer = insert(&sandbox.store(), "inserted", lines.join("\n"), &[]).exits(0);
    let warnings: Vec<&str> = answer.stderr.lines().filter(|line| line.contains(what)).collect();
    let advice = "move them into the features' properties";
    let wanted = [
        format!("warning: line 2: {what}: \"time\"; {advice}"),
        format!("warning: line 4: {what}: \"time\", \"speed\"; {advice}"),
    ];
    assert_eq!(warnings, wanted);
    for dataset in ["imported", "inserted"] {
        let stored = rows(&sandbox.store(), dataset, "id");
        assert_eq!((stored.len(), &stored[1]["a"], stored[1].get("time")), (4, &json!(1), None));
    }
}
