use std::fs;

use serde_json::json;

use crate::support::{Sandbox, count, import, is_clean, json_lines, rows, terrane};

const BAD_ROW: &str = "id,lon,lat,n\n1,1,1,1\n2,1,95,2\n3,xyz,1,3\n4,2,2,4\n";

#[test]
fn the_first_bad_row_ends_the_import_and_nothing_is_left_behind() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("a.csv", BAD_ROW);
    let store = sandbox.path("new/deeper/store");
    let answer = import(&store, "d", &file, &[]).exits(5);
    assert_eq!(answer.text(), "");
    answer.says("a.csv, row 2").says("\"lat\"").says("95").says("nothing was imported");
    assert!(!sandbox.path("new").exists());

    fs::create_dir(sandbox.store()).expect("a directory");
    import(&sandbox.store(), "d", &file, &[]).exits(5);
    let left: Vec<_> = fs::read_dir(sandbox.store()).expect("the directory is still there").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_row_of_the_reader_is_named_by_row_line_and_column() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("a.csv", "id,lon,lat\n1,1,1\n2,xyz,1\n3,1,1\n");
    import(&sandbox.store(), "d", &file, &[]).exits(5).says("a.csv, row 2 (line 3)").says("\"lon\"").says("\"xyz\"");
}

#[test]
fn a_failed_import_leaves_other_datasets_and_the_store_as_they_were() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let good = sandbox.write("good.csv", "id,lon,lat,n\n1,1,1,5\n");
    let bad = sandbox.write("a.csv", BAD_ROW);
    import(&store, "good", &good, &[]).exits(0);
    import(&store, "d", &bad, &[]).exits(5);
    import(&store, "good", &bad, &[]).exits(5);
    terrane("query", &store, &["d"]).exits(2).says("the store has good");
    assert_eq!(count(&store, "good"), 1);
    is_clean(&store);
}

#[test]
fn a_later_file_that_is_bad_takes_the_earlier_ones_with_it() {
    let sandbox = Sandbox::new();
    let good = sandbox.write("good.csv", "id,lon,lat,n\n10,1,1,5\n");
    let bad = sandbox.write("a.csv", BAD_ROW);
    import(&sandbox.store(), "d", &good, &[bad.to_str().expect("UTF-8")]).exits(5).says("a.csv, row 2");
    import(&sandbox.store(), "d", &good, &["/nowhere/b.csv"]).exits(2).says("/nowhere/b.csv");
    assert!(!sandbox.store().exists());
}

#[test]
fn skipped_rows_are_put_beside_the_input_with_reasons() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("a.csv", BAD_ROW);
    let answer = import(&sandbox.store(), "d", &file, &["--on-invalid", "skip"]).exits(0);
    answer.says("imported 2 records into d").says("2 rows were refused").says("a.csv.rejects.ndjson");
    let ids: Vec<_> = rows(&sandbox.store(), "d", "id").iter().map(|row| row["id"].clone()).collect();
    assert_eq!(ids, [json!(1), json!(4)]);
    let rejects = fs::read_to_string(sandbox.path("a.csv.rejects.ndjson")).expect("rejects");
    let rejects = json_lines(&rejects);
    assert_eq!(rejects.len(), 2, "{rejects:?}");
    let found: Vec<_> = rejects.iter().map(|reject| reject["row"].clone()).collect();
    assert_eq!(found, [json!(2), json!(3)]);
    assert_eq!(rejects[0]["values"]["lat"], json!(95.0));
    assert_eq!(rejects[1]["line"], json!(4));
    assert_eq!(rejects[1]["raw"], json!("3,xyz,1,3"));
    assert!(rejects.iter().all(|reject| reject["reason"].is_string() && reject["file"].is_string()));
    is_clean(&sandbox.store());
}

#[test]
fn the_file_of_rejects_can_be_named_but_is_no_input() {
    let sandbox = Sandbox::new();
    let (one, two) =
        (sandbox.write("one.csv", BAD_ROW), sandbox.write("two.csv", "id,lon,lat,n\n5,1,-91,1\n6,1,1,1\n"));
    let rejects = sandbox.path("all.ndjson");
    let two = two.to_str().expect("UTF-8");
    let answer = import(
        &sandbox.store(),
        "d",
        &one,
        &[two, "--on-invalid", "skip", "--rejects", rejects.to_str().expect("UTF-8")],
    );
    answer.exits(0).says("imported 3 records");
    let files: Vec<String> = json_lines(&fs::read_to_string(rejects).expect("rejects"))
        .iter()
        .map(|reject| reject["file"].as_str().map_or_else(String::new, |path| path[path.len() - 7..].to_string()))
        .collect();
    assert_eq!(files, ["one.csv", "one.csv", "two.csv"]);
    import(&sandbox.store(), "e", &one, &[two, "--on-invalid", "skip", "--rejects", two]).exits(2);
    import(&sandbox.store(), "e", &one, &["--rejects", "r.ndjson"]).exits(2).says("--on-invalid skip");
    assert_eq!(fs::read_to_string(one).expect("the input is as it was"), BAD_ROW);
}

#[test]
fn when_every_row_is_refused_nothing_is_made() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("a.csv", "id,lon,lat\n1,1,95\n2,1,96\n");
    let answer = import(&sandbox.store(), "d", &file, &["--on-invalid", "skip"]).exits(5);
    answer.says("all 2 rows were refused");
    assert!(!sandbox.store().exists());
}

#[test]
fn swapped_coordinates_are_recognised() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("a.csv", "id,lon,lat\n1,37.77,-122.42\n");
    import(&sandbox.store(), "d", &file, &[]).exits(5).says("did you swap latitude and longitude?");
}

#[test]
fn duplicate_keys_are_found_in_any_order() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    for (content, row) in [
        ("id,lon,lat\n1,1,1\n1,2,2\n", 2),
        ("id,lon,lat\n5,1,1\n3,1,1\n4,1,1\n3,2,2\n", 4),
        ("id,lon,lat\n5,1,1\n6,1,1\n4,1,1\n5,2,2\n", 4),
    ] {
        let file = sandbox.write("a.csv", content);
        import(&store, "d", &file, &[])
            .exits(5)
            .says(&format!("a.csv, row {row}"))
            .says("an earlier row has the same key")
            .says("--key");
        assert!(!store.exists());
        import(&store, "d", &file, &["--on-invalid", "skip"]).exits(0).says("1 row was refused");
        let rejects = fs::read_to_string(sandbox.path("a.csv.rejects.ndjson")).expect("rejects");
        assert_eq!(json_lines(&rejects)[0]["row"], json!(row), "{rejects}");
        let first = rows(&store, "d", "id");
        assert!(first.iter().all(|row| row["lon"] == json!(1.0)), "the first of two rows counts: {first:?}");
        fs::remove_dir_all(&store).expect("the store is removed");
    }
}

#[test]
fn keys_that_the_dataset_has_are_refused() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let one = sandbox.write("one.csv", "id,lon,lat\n2,1,1\n4,1,1\n");
    let two = sandbox.write("two.csv", "id,lon,lat\n1,2,2\n3,2,2\n4,2,2\n5,2,2\n");
    import(&store, "d", &one, &[]).exits(0);
    import(&store, "d", &two, &[]).exits(5).says("two.csv, row 3: a record with the key 4 exists already");
    assert_eq!(count(&store, "d"), 2);
    import(&store, "d", &two, &["--on-invalid", "skip"]).exits(0).says("imported 3 records");
    let lons: Vec<_> = rows(&store, "d", "id").iter().map(|row| row["lon"].clone()).collect();
    assert_eq!(lons, [json!(2.0), json!(1.0), json!(2.0), json!(1.0), json!(2.0)]);
    is_clean(&store);
}

#[test]
fn rows_are_numbered_where_the_guessed_key_is_none() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let file = sandbox.write("a.csv", "cab_id,lon,lat\n7,1,1\n7,2,2\n");
    import(&store, "d", &file, &[]).exits(5).says("the key column \"cab_id\" was a guess").says("--key ''");
    import(&store, "d", &file, &["--key", ""]).exits(0).says("key: row number");
    import(&store, "d", &file, &["--key", ""]).exits(0);
    let found: Vec<_> =
        rows(&store, "d", "key").iter().map(|row| (row["key"].clone(), row["cab_id"].clone())).collect();
    assert_eq!(found, [0, 1, 2, 3].map(|key| (json!(key), json!(7))));
    import(&store, "keyed", &file, &["--key", "lat"]).exits(5);
    let keyed = sandbox.write("b.csv", "id,lon,lat\n7,1,1\n");
    import(&store, "keyed", &keyed, &[]).exits(0);
    import(&store, "keyed", &keyed, &["--key", ""]).exits(2).says("\"id\"");
}

#[test]
fn a_file_without_a_good_row_is_refused_with_the_reason() {
    let sandbox = Sandbox::new();
    for (name, content, wanted) in [
        ("syntax.ndjson", "{\"lon\":1,\"lat\":}\n{\"lon\" 1}\n", "syntax.ndjson, line 1: "),
        ("geometry.csv", "id,geometry\n1,0101zz\n2,0101zz\n3,POINT(1 2)\n", "2 value(s) like \"0101zz\" (row 1)"),
    ] {
        let file = sandbox.write(name, content);
        let answer = import(&sandbox.store(), "d", &file, &[]);
        assert_eq!(answer.code, Some(5), "{name}: {}", answer.stderr);
        assert!(answer.stderr.contains(wanted), "{name}: {}", answer.stderr);
        assert!(!answer.stderr.contains("(the columns are )"), "{name}: {}", answer.stderr);
    }
}
