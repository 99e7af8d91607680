use std::fs;
use std::sync::Arc;

use arrow_array::{ArrayRef, Decimal128Array, Float64Array, Int64Array, RecordBatch, TimestampNanosecondArray};
use serde_json::{Value, json};
use terrane_formats::{OutputFormat, WriteOptions, writer};

use crate::support::{Sandbox, count, import, is_clean, rows, sample, terrane};

#[test]
fn parquet_brings_its_key_and_coordinates() {
    let sandbox = Sandbox::new();
    import(&sandbox.store(), "rides", &sample("sf_cab_rides.parquet"), &[])
        .exits(0)
        .says("Parquet, 100000 rows")
        .says("key: column \"ride_id\"")
        .says("points from columns \"pickup_lon\" and \"pickup_lat\"")
        .says("imported 100000 records into rides");
    assert_eq!(count(&sandbox.store(), "rides"), 100_000);
    let window = ["rides", "--bbox", "-122.45,37.75,-122.40,37.80"];
    let found = terrane("query", &sandbox.store(), &[&window[..], &["--count"]].concat()).exits(0).number();
    let rows = terrane("query", &sandbox.store(), &window).exits(0).json_lines();
    assert_eq!(rows.len() as u64, found);
    let inside =
        |row: &Value, name: &str, low: f64, high: f64| row[name].as_f64().is_some_and(|v| (low..=high).contains(&v));
    assert!(
        found > 1000
            && rows
                .iter()
                .all(|row| inside(row, "pickup_lon", -122.45, -122.40) && inside(row, "pickup_lat", 37.75, 37.80))
    );
    assert!(rows[0]["pickup_ts"].as_str().is_some_and(|time| time.starts_with("2008-05-") && time.ends_with('Z')));
    is_clean(&sandbox.store());
}

#[test]
fn geojson_keeps_its_polygons() {
    let sandbox = Sandbox::new();
    import(&sandbox.store(), "zcta", &sample("zcta42.geojson"), &[]).exits(0).says("geometry: column \"geometry\"");
    let file: Value = serde_json::from_slice(&fs::read(sample("zcta42.geojson")).expect("sample")).expect("JSON");
    let stored = rows(&sandbox.store(), "zcta", "key");
    assert_eq!(stored.len(), 42);
    for (row, feature) in stored.iter().zip(file["features"].as_array().expect("features")) {
        assert_eq!(row["zcta"], feature["properties"]["zcta"]);
        assert_eq!(row["geometry"], feature["geometry"]);
    }
    is_clean(&sandbox.store());
}

#[test]
fn arrow_and_parquet_answers_can_be_imported_again() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    for (dataset, file) in [("zcta", "zcta42.geojson"), ("cities", "cities200.csv")] {
        import(&store, dataset, &sample(file), &[]).exits(0);
        let wanted = rows(&store, dataset, "key");
        for (format, says) in [("arrow", "Arrow"), ("parquet", "Parquet")] {
            let copy = format!("{dataset}_{format}");
            let bytes = terrane("query", &store, &[dataset, "--format", format]).exits(0).stdout;
            let file = sandbox.write(&format!("{copy}.{format}"), bytes);
            import(&store, &copy, &file, &["--key", "key"]).exits(0).says(says);
            assert_eq!(rows(&store, &copy, "key"), wanted, "{copy}");
        }
    }
    is_clean(&store);
}

#[test]
fn an_import_works_under_a_small_memory_limit() {
    let sandbox = Sandbox::new();
    let file = sample("sf_cab_rides.parquet");
    import(&sandbox.store(), "rides", &file, &["--memory-limit", "8MiB", "--key", "ride_id"]).exits(0);
    let answer = terrane("query", &sandbox.store(), &["rides", "--memory-limit", "8MiB", "--count"]);
    assert_eq!(answer.exits(0).number(), 100_000);
    let answer = terrane(
        "query",
        &sandbox.store(),
        &["rides", "--memory-limit", "8MiB", "--nearest", "-122.4,37.77", "--k", "1"],
    );
    assert_eq!(answer.exits(0).json_lines().len(), 1);
}

#[test]
fn an_empty_and_a_null_geometry_are_stored() {
    let sandbox = Sandbox::new();
    let features = r#"{"type":"Feature","properties":{"n":1},"geometry":null}
{"type":"Feature","properties":{"n":2},"geometry":{"type":"Polygon","coordinates":[]}}
{"type":"Feature","properties":{"n":3},"geometry":{"type":"Point","coordinates":[1,2]}}
"#;
    let file = sandbox.write("a.geojsonl", features);
    import(&sandbox.store(), "d", &file, &[]).exits(0);
    assert_eq!(rows(&sandbox.store(), "d", "key")[0]["geometry"], json!(null));
    let everywhere = terrane("query", &sandbox.store(), &["d", "--bbox", "-180,-90,180,90", "--count"]);
    assert_eq!(everywhere.exits(0).number(), 1);
    let report = terrane("check", &sandbox.store(), &["--format", "json"]).exits(0).json_lines();
    assert_eq!((&report[0]["records"], &report[0]["without_geometry"]), (&json!(3), &json!(2)));
}

#[test]
fn a_record_batch_that_does_not_fit_in_memory_is_refused_with_advice() {
    let sandbox = Sandbox::new();
    let text = "n".repeat(1000);
    let lines: String =
        (0..6000).map(|id| format!("{}\n", json!({"id": id, "lon": 1, "lat": 2, "text": text}))).collect();
    import(&sandbox.store(), "d", &sandbox.write("d.ndjson", lines), &[]).exits(0);
    let answer = terrane("query", &sandbox.store(), &["d", "--format", "arrow"]).exits(0);
    let file = sandbox.write("d.arrow", answer.stdout);
    let copy = sandbox.path("copy");
    import(&copy, "d", &file, &["--memory-limit", "8MiB"]).exits(5).says("rewrite it with smaller record batches");
    import(&copy, "d", &file, &[]).exits(0);
    assert_eq!(count(&copy, "d"), 6000);
}

#[test]
fn a_type_that_no_key_has_is_named_as_the_file_has_it() {
    let numbers: ArrayRef = Arc::new(Float64Array::from(vec![1.0]));
    let price = Decimal128Array::from(vec![150]).with_precision_and_scale(10, 2).expect("a type");
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("lon", Arc::clone(&numbers)),
        ("lat", numbers),
        ("price", Arc::new(price)),
        ("at", Arc::new(TimestampNanosecondArray::from(vec![1]))),
    ];
    let batch = RecordBatch::try_from_iter(columns).expect("columns of one length");
    let mut bytes = Vec::new();
    let mut out = writer(OutputFormat::Arrow, &mut bytes, WriteOptions::default());
    out.begin(&batch.schema()).and_then(|()| out.write(&batch)).and_then(|()| out.finish()).expect("it is written");
    drop(out);
    let sandbox = Sandbox::new();
    let file = sandbox.write("a.arrows", bytes);
    for (key, data_type) in [("price", "Decimal128(10, 2)"), ("at", "Timestamp(ns)")] {
        let wanted = format!("column {key:?} has the type {data_type}, which a key cannot have");
        import(&sandbox.store(), "d", &file, &["--key", key]).exits(5).says(&wanted);
    }
}

/// The values decide, as in text, not the type that a tool gave their column.
#[test]
fn floats_that_are_integers_leave_a_column_of_integers_as_it_is() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    import(&store, "d", &sandbox.write("d.csv", "id,lon,lat,n\n0,1,2,7\n"), &[]).exits(0);
    let file = |name: &str, first_id: i64, batches: &[&[Option<f64>]]| {
        let mut bytes = Vec::new();
        let mut out = writer(OutputFormat::Arrow, &mut bytes, WriteOptions::default());
        let mut id = first_id;
        for (number, values) in batches.iter().enumerate() {
            let ids = Int64Array::from_iter_values((id..).take(values.len()));
            id += values.len() as i64;
            let places: ArrayRef = Arc::new(Float64Array::from(vec![1.0; values.len()]));
            let columns: Vec<(&str, ArrayRef)> = vec![
                ("id", Arc::new(ids)),
                ("lon", Arc::clone(&places)),
                ("lat", places),
                ("n", Arc::new(Float64Array::from(values.to_vec()))),
            ];
            let columns = columns.into_iter().map(|(name, array)| (name, array, true));
            let batch = RecordBatch::try_from_iter_with_nullable(columns).expect("columns of one length");
            if number == 0 {
                out.begin(&batch.schema()).expect("it is written");
            }
            out.write(&batch).expect("it is written");
        }
        out.finish().expect("it is written");
        drop(out);
        sandbox.write(name, bytes)
    };
    let values = || rows(&store, "d", "id").iter().map(|row| row["n"].to_string()).collect::<Vec<_>>();
    let whole = file("whole.arrows", 1, &[&[Some(8.0), None], &[Some(-9e15)]]);
    let answer = import(&store, "d", &whole, &[]).exits(0);
    assert!(!answer.stderr.contains("float64"), "{}", answer.stderr);
    assert_eq!(values(), ["7", "8", "null", "-9000000000000000"]);
    let mixed = file("mixed.arrows", 4, &[&[Some(1.0)], &[Some(2.0), Some(0.5)], &[Some(3.0)]]);
    let message = "column \"n\" becomes float64 with this import, since the file has numbers that int64 cannot hold";
    import(&store, "d", &mixed, &[]).exits(0).says(message);
    assert_eq!(values(), ["7.0", "8.0", "null", "-9000000000000000.0", "1.0", "2.0", "0.5", "3.0"]);
    is_clean(&store);
}
