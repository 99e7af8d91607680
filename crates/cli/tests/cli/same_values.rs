use serde_json::{Value, json};

use crate::support::{Sandbox, import, insert, is_clean, rows, terrane};

/// Columns of every type with a text form of its own, in an existing dataset.
const DATASET: &str = "id,lon,lat,day,local,utc,whole,real,text\n\
     0,0,0,2020-01-01,2020-01-01T00:00:00,2020-01-01T00:00:00Z,1,0.5,x\n";

#[test]
fn a_value_is_taken_alike_by_insert_and_import() {
    let cases = [
        ("day", json!("2024-02-29"), Some(json!("2024-02-29"))),
        ("day", json!("+010000-01-01"), Some(json!("+010000-01-01"))),
        ("day", json!("+10000-01-01"), Some(json!("+010000-01-01"))),
        ("day", json!("-0044-03-15"), Some(json!("-000044-03-15"))),
        ("day", json!("2023-02-29"), None),
        ("day", json!(5), None),
        ("local", json!("2024-02-29T12:30"), Some(json!("2024-02-29T12:30:00"))),
        ("local", json!("+010000-01-01T00:00:00.25"), Some(json!("+010000-01-01T00:00:00.250"))),
        ("local", json!("2024-02-29"), Some(json!("2024-02-29T00:00:00"))),
        ("local", json!("2/29/2024 1:30 PM"), Some(json!("2024-02-29T13:30:00"))),
        ("local", json!("2/30/2024 1:30 PM"), None),
        ("local", json!("2024-02-29T12:30:00Z"), None),
        ("local", json!("2024-02-29T12:30.5"), None),
        ("utc", json!("2024-02-29T12:30:00.1234567890123+02:00"), Some(json!("2024-02-29T10:30:00.123456Z"))),
        ("utc", json!("2024-02-29 12:30:00 UTC"), Some(json!("2024-02-29T12:30:00Z"))),
        ("utc", json!("2024-02-29T12:30:00+19:00"), Some(json!("2024-02-28T17:30:00Z"))),
        ("utc", json!("2024-02-29"), Some(json!("2024-02-29T00:00:00Z"))),
        ("utc", json!("2024-02-29T12:30:60Z"), Some(json!("2024-02-29T12:31:00Z"))),
        ("utc", json!("2024-02-29T12:30:61Z"), None),
        ("whole", json!(5.0), Some(json!(5))),
        ("whole", json!(-3e3), Some(json!(-3000))),
        ("whole", json!("5"), None),
        ("whole", json!(9_223_372_036_854_775_809_u64), None),
        ("text", json!("5"), Some(json!("5"))),
        ("text", json!({"a": 5}), Some(json!("{\"a\":5}"))),
        ("text", json!(5), None),
        ("text", json!(true), None),
        ("real", json!(5), Some(json!(5.0))),
        ("real", json!(9_007_199_254_740_993u64), None),
    ];
    let sandbox = Sandbox::new();
    import(&sandbox.store(), "d", &sandbox.write("d.csv", DATASET), &[]).exits(0);
    for (number, (column, value, stored)) in cases.into_iter().enumerate() {
        let record = |key: usize| json!({"id": key, "lon": 0, "lat": 0, column: value}).to_string() + "\n";
        let (inserted, imported) = (2 * number + 1, 2 * number + 2);
        let file = sandbox.write("d.ndjson", record(imported));
        let code = if stored.is_some() { 0 } else { 5 };
        insert(&sandbox.store(), "d", record(inserted), &[]).exits(code);
        import(&sandbox.store(), "d", &file, &[]).exits(code);
        let found = rows(&sandbox.store(), "d", "id");
        for key in [inserted, imported] {
            let row = found.iter().find(|row| row["id"] == json!(key));
            assert_eq!(row.map(|row| &row[column]), stored.as_ref(), "{value} in {column:?}, key {key}");
        }
    }
}

#[test]
fn an_integer_beyond_int64_that_a_float64_is_widens_a_column_alike() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let line = |id: usize, n: &str| format!("{{\"id\":{id},\"lon\":0,\"lat\":0,\"n\":{n}}}\n");
    for dataset in ["inserted", "ndjson", "csv"] {
        insert(&store, dataset, line(0, "7"), &[]).exits(0);
    }
    insert(&store, "inserted", line(1, "9223372036854775808"), &[]).exits(0);
    let ndjson = sandbox.write("n.ndjson", line(1, "9223372036854775808"));
    let csv = sandbox.write("n.csv", "id,lon,lat,n\n1,0,0,9223372036854775808\n2,0,0,100000000000000000000\n");
    for (dataset, file) in [("ndjson", &ndjson), ("csv", &csv)] {
        import(&store, dataset, file, &[]).exits(0).says("column \"n\" becomes float64");
        assert_eq!(rows(&store, dataset, "id")[..2], rows(&store, "inserted", "id"), "{dataset}");
    }
    assert_eq!(rows(&store, "csv", "id")[2]["n"], json!(1e20));
}

#[test]
fn a_geometry_is_taken_alike_by_insert_and_import() {
    let point = json!({"type": "Point", "coordinates": [1.0, 2.0]});
    let cases = [
        (point.clone(), Some(point.clone())),
        (json!(point.to_string()), Some(point.clone())),
        (json!("POINT (1 2)"), Some(point.clone())),
        (json!("0101000000000000000000F03F0000000000000040"), Some(point)),
        (json!(" "), Some(json!(null))),
        (json!(null), Some(json!(null))),
        (json!({"type": "Point", "coordinates": [1]}), None),
        (json!("{\"type\":\"Point\"}"), None),
        (json!({"name": "x"}), None),
        (json!([1, 2]), None),
        (json!(5), None),
    ];
    let sandbox = Sandbox::new();
    let first = json!({"id": 0, "outline": {"type": "LineString", "coordinates": [[0, 0], [1, 1]]}}).to_string() + "\n";
    import(&sandbox.store(), "d", &sandbox.write("d.ndjson", first), &["--geometry", "outline"]).exits(0);
    for (number, (value, stored)) in cases.into_iter().enumerate() {
        let record = |key: usize| json!({"id": key, "outline": value}).to_string() + "\n";
        let (inserted, imported) = (2 * number + 1, 2 * number + 2);
        let file = sandbox.write("d.ndjson", record(imported));
        let code = if stored.is_some() { 0 } else { 5 };
        insert(&sandbox.store(), "d", record(inserted), &[]).exits(code);
        import(&sandbox.store(), "d", &file, &[]).exits(code);
        let found = rows(&sandbox.store(), "d", "id");
        for key in [inserted, imported] {
            let row = found.iter().find(|row| row["id"] == json!(key));
            assert_eq!(row.map(|row| &row["geometry"]), stored.as_ref(), "{value}, key {key}");
        }
    }
}

/// Lost digits and ambiguous texts are reported once per column, even if the column's type is that
/// of the dataset.
#[test]
fn instants_that_are_cut_or_have_slashes_are_told_of() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    import(&store, "d", &sandbox.write("d.csv", DATASET), &[]).exits(0);
    let cut = "column \"utc\": digits beyond the microsecond are cut off";
    let slashes = "column \"local\": dates with slashes are read as month/day/year";
    let record = |id: u32| {
        json!({"id": id, "lon": 0, "lat": 0, "utc": "2024-01-01T00:00:00.1234567Z", "local": "3/4/2024 1:30"})
            .to_string()
            + "\n"
    };
    let csv = "id,lon,lat,utc,local\n5,0,0,2024-01-01T00:00:00.1234567Z,3/4/2024 1:30\n";
    let answers = [
        insert(&store, "d", record(1) + &record(2), &[]).exits(0),
        import(&store, "d", &sandbox.write("d.ndjson", record(3) + &record(4)), &[]).exits(0),
        import(&store, "d", &sandbox.write("d.csv", csv), &[]).exits(0),
    ];
    for answer in answers {
        assert_eq!(answer.stderr.matches(cut).count(), 1, "{}", answer.stderr);
        assert_eq!(answer.stderr.matches(slashes).count(), 1, "{}", answer.stderr);
    }
    let exact = json!({"id": 9, "lon": 0, "lat": 0, "utc": "2024-01-01T00:00:00.1234560Z", "text": "1/1/2020 1:00"});
    let answer = insert(&store, "d", format!("{exact}\n"), &[]).exits(0);
    assert!(!answer.stderr.contains("column"), "{}", answer.stderr);
}

/// No zone was given, so UTC was assumed.
#[test]
fn times_without_a_zone_are_told_of_where_they_become_utc() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    import(&store, "d", &sandbox.write("d.csv", DATASET), &[]).exits(0);
    let notice = "column \"utc\": times without a zone are taken as UTC";
    let record =
        |id: u32, utc: &str| json!({"id": id, "lon": 0, "lat": 0, "utc": utc, "text": "2020-01-01"}).to_string() + "\n";
    let slashes = "3/4/2024 1:30";
    let csv = |id: u32, utc: &str| format!("id,lon,lat,local,utc\n{id},0,0,2020-01-01T00:00:00,{utc}\n");
    for (number, value) in ["2024-01-01T00:00:00", "2024-01-01", slashes].into_iter().enumerate() {
        let id = 10 * u32::try_from(number).expect("few") + 1;
        let answers = [
            insert(&store, "d", record(id, value) + &record(id + 1, value), &[]).exits(0),
            import(&store, "d", &sandbox.write("d.ndjson", record(id + 2, value) + &record(id + 3, value)), &[])
                .exits(0),
            import(&store, "d", &sandbox.write("d.csv", csv(id + 4, value)), &[]).exits(0),
        ];
        for answer in answers {
            assert_eq!(answer.stderr.matches(notice).count(), 1, "{value}: {}", answer.stderr);
            assert_eq!(answer.stderr.matches("slashes").count(), usize::from(value == slashes), "{}", answer.stderr);
            assert_eq!(answer.stderr.matches("without a zone").count(), 1, "{}", answer.stderr);
        }
    }
    let zoned = "2024-01-01T00:00:00Z";
    let answers = [
        insert(&store, "d", record(91, zoned), &[]).exits(0),
        import(&store, "d", &sandbox.write("d.ndjson", record(92, zoned)), &[]).exits(0),
        import(&store, "d", &sandbox.write("d.csv", csv(93, zoned)), &[]).exits(0),
    ];
    for answer in answers {
        assert!(!answer.stderr.contains("zone"), "{}", answer.stderr);
    }
}

/// The id of a feature is an attribute if its key is a property.
#[test]
fn ids_of_features_are_kept_alike() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let feature = |id: &str, properties: &str| {
        format!(
            "{{\"type\":\"Feature\",\"id\":{id},\"properties\":{{{properties}}},\
             \"geometry\":{{\"type\":\"Point\",\"coordinates\":[1,2]}}}}\n"
        )
    };
    let plain = feature("\"way/7\"", "\"key\":1");
    let both = feature("8", "\"key\":2,\"id\":\"a\"");
    for (number, features) in
        [plain.clone(), both.clone(), both.clone() + &feature("9", "\"key\":3,\"id\":\"b\"")].iter().enumerate()
    {
        let dataset = |face: &str| format!("{face}{number}");
        let file = sandbox.write("f.geojsonl", features);
        import(&store, &dataset("import"), &file, &["--key", "key"]).exits(0);
        insert(&store, &dataset("insert"), features, &[]).exits(0);
        assert_eq!(rows(&store, &dataset("insert"), "key"), rows(&store, &dataset("import"), "key"), "{features}");
    }
    // Into a dataset with its columns, in which the id is the key.
    insert(&store, "insert0", feature("\"way/8\"", "\"key\":2"), &[]).exits(0);
    assert_eq!(rows(&store, "insert0", "key")[1]["id"], json!("way/8"));
    insert(&store, "keyed", feature("5", "\"n\":1"), &[]).exits(0);
    assert_eq!(rows(&store, "keyed", "id")[0]["id"], json!(5));
    insert(&store, "keyed", feature("6", "\"id\":7"), &[]).exits(5).says("the feature's id is 6");
}

/// An id becomes a column only if it differs from the property. With both, a message tells which
/// column is which.
#[test]
fn an_id_that_is_also_a_property_is_taken_once() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let feature = |id: &str, properties: &str| {
        format!(
            "{{\"type\":\"Feature\",{id}\"properties\":{{{properties}}},\"geometry\":{{\"type\":\"Point\",\"coordinates\":[1,2]}}}}\n"
        )
    };
    let notice = "features have a property \"id\" that is not their id";
    let both = |id: u32| feature(&format!("\"id\":{id},"), &format!("\"id\":{id},\"n\":1"));
    let (alone, property) = (feature("\"id\":3,", "\"n\":1"), feature("", "\"id\":4,\"n\":1"));
    let features = both(1) + &both(2) + &alone + &property;
    let file = sandbox.write("f.geojsonl", &features);
    let answer = import(&store, "new", &file, &[]).exits(0);
    assert!(!answer.stderr.contains("not their id"), "{}", answer.stderr);
    insert(&store, "inserted", &features, &[]).exits(0);
    assert_eq!(rows(&store, "new", "id"), rows(&store, "inserted", "id"));
    assert_eq!(rows(&store, "new", "id").len(), 4);
    // Into an existing dataset.
    import(&store, "new", &sandbox.write("g.geojsonl", both(5)), &[]).exits(0);
    let collection = format!("{{\"type\":\"FeatureCollection\",\"features\":[{},{}]}}", both(6), both(7));
    import(&store, "new", &sandbox.write("h.geojson", collection), &[]).exits(0);
    let found = rows(&store, "new", "id");
    assert_eq!(found.last(), Some(&json!({"id": 7, "n": 1, "geometry": {"type": "Point", "coordinates": [1.0, 2.0]}})));
    // The feature's own id is kept beside another property.
    let differing = sandbox.write("i.geojsonl", feature("\"id\":8,", "\"id\":9"));
    import(&store, "differing", &differing, &[]).exits(0).says(notice).says("the id is column \"id_2\"");
    let row = &rows(&store, "differing", "id")[0];
    assert_eq!((&row["id"], &row["id_2"]), (&json!(9), &json!(8)));
    import(&store, "new", &differing, &[]).exits(0).says(notice).says("column \"id_2\" is added");
}

/// The type of a new column depends neither on how its numbers are written nor on the command.
#[test]
fn a_number_is_an_integer_however_it_is_written() {
    let columns = [
        ("1", "1.0", json!([1, 1])),
        ("1.0", "1", json!([1, 1])),
        ("-2.55e1", "3e3", json!([-25.5, 3000.0])),
        ("2.0e1", "3e3", json!([20, 3000])),
        ("1", "1.5", json!([1.0, 1.5])),
        ("1.5", "1", json!([1.5, 1.0])),
        ("1e20", "1", json!([1e20, 1.0])),
    ];
    let sandbox = Sandbox::new();
    for (number, (first, second, stored)) in columns.into_iter().enumerate() {
        let lines: String = [first, second]
            .iter()
            .enumerate()
            .map(|(id, value)| format!("{{\"id\":{id},\"lon\":0,\"lat\":0,\"n\":{value}}}\n"))
            .collect();
        let ndjson = sandbox.write("n.ndjson", &lines);
        let csv = sandbox.write("n.csv", format!("id,lon,lat,n\n0,0,0,{first}\n1,0,0,{second}\n"));
        let dataset = |face: &str| format!("{face}{number}");
        insert(&sandbox.store(), &dataset("insert"), &lines, &[]).exits(0);
        import(&sandbox.store(), &dataset("ndjson"), &ndjson, &[]).exits(0);
        import(&sandbox.store(), &dataset("csv"), &csv, &[]).exits(0);
        for face in ["insert", "ndjson", "csv"] {
            let found: Vec<Value> =
                rows(&sandbox.store(), &dataset(face), "id").iter().map(|row| row["n"].clone()).collect();
            // Compared as text, as 1 and 1.0 are different types.
            assert_eq!(Value::from(found).to_string(), stored.to_string(), "{first} and {second} by {face}");
        }
    }
}

/// An integer column takes other numbers from any command, and from a file with all of its rows or
/// none.
#[test]
fn a_fraction_widens_a_column_of_integers_alike() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let line = |id: usize, n: &str| format!("{{\"id\":{id},\"lon\":0,\"lat\":0,\"n\":{n}}}\n");
    let (first, floats) = (line(0, "7"), line(1, "8") + &line(2, "0.5"));
    let ndjson = sandbox.write("n.ndjson", &floats);
    let csv = sandbox.write("n.csv", "id,lon,lat,n\n1,0,0,8\n2,0,0,0.5\n");
    for dataset in ["inserted", "ndjson", "csv", "arrow"] {
        insert(&store, dataset, &first, &[]).exits(0);
    }
    insert(&store, "inserted", &floats, &[]).exits(0);
    let bytes = terrane("query", &store, &["inserted", "--bbox", "0,0,0,0", "--format", "arrow"]).exits(0).stdout;
    let arrow = sandbox.write("n.arrow", bytes);
    for (dataset, file) in [("ndjson", &ndjson), ("csv", &csv)] {
        import(&store, dataset, file, &[]).exits(0).says("column \"n\" becomes float64");
        assert_eq!(rows(&store, dataset, "id"), rows(&store, "inserted", "id"), "{dataset}");
    }
    // One row exists already; the column keeps its type with all others.
    import(&store, "arrow", &arrow, &[]).exits(5).says("nothing was imported");
    assert_eq!(rows(&store, "arrow", "id")[0]["n"].to_string(), "7");
    import(&store, "arrow", &arrow, &["--on-invalid", "skip"]).exits(0);
    assert_eq!(rows(&store, "arrow", "id"), rows(&store, "inserted", "id"));
    // A number that float64 cannot hold exactly leaves the column unchanged, and a key is never a
    // fraction.
    insert(&store, "large", line(0, "9007199254740993"), &[]).exits(0);
    let refused = "nothing was imported: column \"n\"";
    for skip in [&[][..], &["--on-invalid", "skip"]] {
        let answer = import(&store, "large", &csv, skip).exits(5);
        answer.says("9007199254740993").says("takes no fractions").says(refused);
    }
    assert_eq!(rows(&store, "large", "id").len(), 1);
    // The same for integers of the import itself.
    let integer = sandbox.write("l.csv", "id,lon,lat,n\n10,0,0,9007199254740993\n");
    let rest = csv.display().to_string();
    insert(&store, "mixed", &first, &[]).exits(0);
    let answer = import(&store, "mixed", &integer, &[&rest, "--on-invalid", "skip"]).exits(5);
    answer.says("nothing was imported: ").says(&rest).says("9007199254740993");
    assert_eq!(rows(&store, "mixed", "id").len(), 1);
    let keys = sandbox.write("k.csv", "id,lon,lat,n\n1.5,0,0,8\n");
    import(&store, "csv", &keys, &[]).exits(5).says("column \"id\"");
    is_clean(&store);
}

#[test]
fn csv_writes_integers_as_it_likes_too() {
    let sandbox = Sandbox::new();
    import(&sandbox.store(), "d", &sandbox.write("d.csv", DATASET), &[]).exits(0);
    let more = sandbox.write("e.csv", "id,lon,lat,whole,text\n1.0,0,0,5.0,5\n2e0,0,0,-3e3,5.0\n");
    import(&sandbox.store(), "d", &more, &[]).exits(0);
    let found = rows(&sandbox.store(), "d", "id");
    assert_eq!((&found[1]["whole"], &found[1]["text"]), (&json!(5), &json!("5")));
    assert_eq!((&found[2]["whole"], &found[2]["text"]), (&json!(-3000), &json!("5.0")));
}

#[test]
fn what_is_exported_is_read_back_by_insert_and_import() {
    let sandbox = Sandbox::new();
    import(&sandbox.store(), "d", &sandbox.write("d.csv", DATASET), &[]).exits(0);
    let far = json!({
        "id": 1, "lon": 0.0, "lat": 0.0, "day": "+010000-01-01", "local": "-000001-12-31T23:59:59.999999",
        "utc": "+010000-01-01T00:00:00Z", "whole": 1, "real": 0.5, "text": "5",
    });
    insert(&sandbox.store(), "d", format!("{far}\n"), &[]).exits(0);
    let exported: Vec<Value> = rows(&sandbox.store(), "d", "id");
    assert_eq!(exported[1], far);
    let lines: String = exported.iter().map(|row| format!("{row}\n")).collect();
    import(&sandbox.path("imported"), "d", &sandbox.write("e.ndjson", &lines), &[]).exits(0);
    assert_eq!(rows(&sandbox.path("imported"), "d", "id"), exported);
}
