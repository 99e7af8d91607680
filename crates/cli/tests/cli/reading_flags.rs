//! Flags for what a guess cannot know: types, texts for null, reference systems, separators,
//! longitudes.

use serde_json::json;

use crate::support::{Sandbox, import, insert, rows, terrane};

#[test]
fn a_bad_coordinate_is_named_with_its_row_and_what_to_do() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let nulls = "id,lat,lon\n1,0,0\n2,,\n3,NULL,NULL\n4,N/A,-\n";
    for (content, row, hint) in [
        (nulls, "row 3", "--null"),
        ("id,lat,lon\n1,48°51'24\"N,2°21'03\"E\n", "row 1", "degrees, minutes, seconds"),
        ("id,lat,lon\n1,−48.85,2.35\n", "row 1", "a Unicode minus"),
    ] {
        let file = sandbox.write("bad.csv", content);
        import(&store, "bad", &file, &[]).exits(5).says(row).says("\"lat\"").says(hint);
    }
    let file = sandbox.write("null.csv", nulls);
    import(&store, "good", &file, &["--null", "NULL", "--null", "N/A", "--null", "-"]).exits(0);
    let places: Vec<_> = rows(&store, "good", "id").iter().map(|row| row["lat"].clone()).collect();
    assert_eq!(places, [json!(0.0), json!(null), json!(null), json!(null)]);
    let record = "{\"id\":5,\"lat\":\"-\",\"lon\":\"-\"}\n";
    insert(&store, "good", record, &[]).exits(5);
    insert(&store, "good", record, &["--null", "-"]).exits(0);
}

#[test]
fn dates_in_another_order_are_read_by_a_pattern_and_else_named_by_a_warning() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let csv = sandbox.write("d.csv", "id,lon,lat,d,t\n1,1,1,31.12.2020,01/02/2020 13:30 +0100\n2,1,1,,\n");
    let lines = "{\"id\":1,\"lon\":1,\"lat\":1,\"d\":\"31.12.2020\",\"t\":\"01/02/2020 13:30 +0100\"}\n";
    let ndjson = sandbox.write("d.ndjson", lines);
    let types = ["--type", "d=date:%d.%m.%Y", "--type", "t=timestamp:%m/%d/%Y %H:%M %z"];
    import(&store, "guessed", &csv, &[]).exits(0).says("--type 'd=date:%d.%m.%Y'");
    let order = sandbox.write("order.csv", "id,lon,lat,d\n1,1,1,01/02/2020\n2,1,1,31/12/2020\n");
    import(&store, "order", &order, &[]).exits(0).says("--type 'd=date:%d/%m/%Y'");
    import(&store, "csv", &csv, &types).exits(0);
    import(&store, "ndjson", &ndjson, &types).exits(0);
    insert(&store, "inserted", lines, &types).exits(0);
    for dataset in ["csv", "ndjson", "inserted"] {
        let row = &rows(&store, dataset, "id")[0];
        assert_eq!((&row["d"], &row["t"]), (&json!("2020-12-31"), &json!("2020-01-02T12:30:00Z")), "{dataset}");
    }
    for dataset in ["guessed", "csv"] {
        let answer = terrane("query", &store, &[dataset, "--where", "d < '2021-01-01'", "--count"]).exits(0);
        assert_eq!(answer.stderr.contains("letter by letter"), dataset == "guessed", "{}", answer.stderr);
    }
    // The pattern is not stored.
    let later = "{\"id\":2,\"lon\":1,\"lat\":1,\"d\":\"31.12.2020\"}\n";
    insert(&store, "csv", later, &[]).exits(5).says("line 1").says("--type");
    insert(&store, "csv", later, &["--upsert", "--type", "d=date:%d.%m.%Y"]).exits(0);
    let wrong = sandbox.write("w.csv", "id,lon,lat,d\n1,1,1,2020-12-31\n");
    import(&store, "wrong", &wrong, &["--type", "d=date:%d.%m.%Y"]).exits(5).says("row 1").says("%d.%m.%Y");
}

#[test]
fn a_column_has_the_type_that_is_demanded_or_the_command_is_refused() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let csv = sandbox.write("z.csv", "id,lon,lat,zip,n\n7,1,1,07001,1\n8,1,1,12345,2\n");
    let types = ["--type", "zip=utf8", "--type", "id=utf8", "--type", "n=float64"];
    import(&store, "csv", &csv, &types).exits(0);
    let record = "{\"id\":\"7\",\"lon\":1,\"lat\":1,\"zip\":12345,\"n\":1}\n";
    insert(&store, "inserted", record, &types).exits(0);
    assert_eq!(rows(&store, "csv", "id")[1], json!({"id":"8","lon":1.0,"lat":1.0,"zip":"12345","n":2.0}));
    assert_eq!(rows(&store, "inserted", "id")[0]["zip"], "12345");
    import(&store, "csv", &csv, &["--type", "zip=int64"]).exits(2).says("\"zip\"").says("utf8");
    insert(&store, "csv", record, &["--type", "zip=int64"]).exits(2).says("\"zip\"").says("utf8");
    for types in ["lon=utf8", "missing=utf8", "zip=number", "zip", "zip=int64:%d", "zip=date:%H"] {
        import(&store, "refused", &csv, &["--type", types]).exits(2);
    }
}

#[test]
fn types_of_columnar_files_are_converted_by_their_texts() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let csv = sandbox.write("z.csv", "id,lon,lat,day,n\n1,1,1,20201231,5\n2,1,1,20201301,6\n");
    import(&store, "csv", &csv, &[]).exits(0);
    let parquet = sandbox.path("z.parquet");
    let rows_of = terrane("query", &store, &["csv", "--where", "id = 1", "--format", "parquet"]).exits(0);
    std::fs::write(&parquet, rows_of.stdout).expect("a file");
    import(&store, "parquet", &parquet, &["--type", "day=date:%Y%m%d", "--type", "n=utf8"]).exits(0);
    assert_eq!(rows(&store, "parquet", "id")[0]["day"], "2020-12-31");
    assert_eq!(rows(&store, "parquet", "id")[0]["n"], "5");
    import(&store, "csv2", &csv, &["--type", "day=date:%Y%m%d"]).exits(5).says("row 2").says("\"day\"");
}

#[test]
fn coordinates_of_another_system_are_converted() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let point = json!({"type":"Point","coordinates":[8.983152841195214e-6,1.7966305682390134e-5]});
    let ewkb = sandbox.write("e.csv", "id,geom\n1,0101000020110F0000000000000000F03F0000000000000040\n");
    import(&store, "ewkb", &ewkb, &[]).exits(0).says("EPSG:3857");
    let wkt = sandbox.write("w.csv", "id,geom\n1,POINT (1 2)\n");
    import(&store, "wkt", &wkt, &["--crs", "EPSG:3857"]).exits(0);
    insert(&store, "inserted", "{\"id\":1,\"geometry\":\"POINT (1 2)\"}\n", &["--crs", "EPSG:3857"]).exits(0);
    for dataset in ["ewkb", "wkt", "inserted"] {
        assert_eq!(rows(&store, dataset, "id")[0]["geometry"], point, "{dataset}");
    }
    let coordinates = sandbox.write("c.csv", "id,x,y\n1,1,2\n");
    import(&store, "coordinates", &coordinates, &["--crs", "EPSG:3857"]).exits(0);
    insert(&store, "coordinates", "{\"id\":2,\"x\":1,\"y\":2}\n", &["--crs", "EPSG:3857"]).exits(0);
    for row in rows(&store, "coordinates", "id") {
        assert_eq!((&row["x"], &row["y"]), (&point["coordinates"][0], &point["coordinates"][1]));
    }
    let declared = sandbox.write(
        "d.geojson",
        r#"{"type":"FeatureCollection","crs":{"type":"name","properties":{"name":"EPSG:4326"}},
            "features":[{"type":"Feature","id":1,"properties":{},"geometry":{"type":"Point","coordinates":[1,2]}}]}"#,
    );
    let definition =
        sandbox.write("3857.json", r#"{"name":"WGS 84 / Pseudo-Mercator","id":{"authority":"EPSG","code":3857}}"#);
    let from_file = format!("@{}", definition.display());
    import(&store, "declared", &declared, &["--crs", &from_file]).exits(0).says("declares EPSG:4326");
    assert_eq!(rows(&store, "declared", "id")[0]["geometry"], point);
    for crs in ["EPSG:99999", "nonsense", "", "@missing.prj"] {
        import(&store, "refused", &wkt, &["--crs", crs]).exits(2);
    }
    import(&store, "refused", &wkt, &["--crs", "EPSG:3857", "--planar"]).exits(2);
}

#[test]
fn longitudes_from_0_to_360_are_wrapped_when_asked_for() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let points = sandbox.write("p.csv", "id,lat,lon\n1,10,235.5\n2,-20,181\n3,0,180\n4,0,-180\n");
    import(&store, "points", &points, &[]).exits(5).says("235.5").says("--wrap-longitudes");
    import(&store, "points", &points, &["--wrap-longitudes"]).exits(0);
    insert(&store, "points", "{\"id\":5,\"lat\":1,\"lon\":270}\n", &["--wrap-longitudes"]).exits(0);
    let longitudes: Vec<_> = rows(&store, "points", "id").iter().map(|row| row["lon"].as_f64()).collect();
    assert_eq!(longitudes, [-124.5, -179.0, 180.0, -180.0, -90.0].map(Some));
    let areas = sandbox.write(
        "a.geojson",
        r#"{"type":"FeatureCollection","features":[
            {"type":"Feature","properties":{"id":1},"geometry":{"type":"Polygon","coordinates":[[[170,-40],[190,-40],[190,-20],[170,-20],[170,-40]]]}},
            {"type":"Feature","properties":{"id":2},"geometry":{"type":"MultiPoint","coordinates":[[200,1],[10,1]]}}]}"#,
    );
    import(&store, "areas", &areas, &["--wrap-longitudes"]).exits(0);
    let geometries: Vec<_> = rows(&store, "areas", "id").iter().map(|row| row["geometry"].clone()).collect();
    assert_eq!(geometries[0]["type"], "MultiPolygon");
    assert_eq!(geometries[1]["coordinates"], json!([[-160.0, 1.0], [10.0, 1.0]]));
    for (window, count) in [("171,-39,179,-21", 1), ("-179,-39,-171,-21", 1), ("-169,-39,169,-21", 0)] {
        assert_eq!(terrane("query", &store, &["areas", "--bbox", window, "--count"]).number(), count, "{window}");
    }
}

#[test]
fn separators_and_quotes_are_taken_from_flags() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let tilde = sandbox.write("t.csv", "id~lon~lat~note\n1~1~2~a,b;c\n");
    import(&store, "tilde", &tilde, &["--delimiter", "~"]).exits(0);
    assert_eq!(rows(&store, "tilde", "id")[0]["note"], "a,b;c");
    let quotes = sandbox.write("q.csv", "id,lon,lat,note\n1,1,2,\"5 inch\n2,1,2,'a,b'\n");
    import(&store, "none", &quotes, &["--quote", "none", "--on-invalid", "skip"]).exits(0);
    assert_eq!(rows(&store, "none", "id")[0]["note"], "\"5 inch");
    import(&store, "single", &quotes, &["--quote", "'"]).exits(0);
    assert_eq!(rows(&store, "single", "id")[1]["note"], "a,b");
    for flags in [["--delimiter", "::"], ["--quote", "ü"]] {
        import(&store, "refused", &tilde, &flags).exits(2);
    }
}

#[test]
fn float32_is_kept_in_its_own_digits_and_compared_with_literals_rounded_to_it() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let csv = sandbox.write("f.csv", "id,lon,lat,brightness\n1,1,1,333.6\n2,1,1,-0.1\n3,1,1,16777217\n4,1,1,\n");
    import(&store, "csv", &csv, &["--type", "brightness=float32"]).exits(0);
    for format in ["parquet", "arrow"] {
        let copy = sandbox.path(&format!("copy.{format}"));
        std::fs::write(&copy, terrane("query", &store, &["csv", "--format", format]).exits(0).stdout).expect("a file");
        import(&store, format, &copy, &[]).exits(0);
    }
    let record =
        "{\"id\":1,\"lon\":1,\"lat\":1,\"brightness\":333.6}\n{\"id\":2,\"lon\":1,\"lat\":1,\"brightness\":-0.1}\n";
    insert(&store, "inserted", record, &["--type", "brightness=float32"]).exits(0);
    terrane("index", &store, &["arrow", "create", "b", "--using", "btree", "--on", "brightness"]).exits(0);
    for dataset in ["csv", "parquet", "arrow", "inserted"] {
        let found = rows(&store, dataset, "id");
        assert_eq!((&found[0]["brightness"], &found[1]["brightness"]), (&json!(333.6), &json!(-0.1)), "{dataset}");
        for (condition, count) in [
            ("brightness = 333.6", 1),
            ("brightness > 333.6 and brightness < 334", 0),
            ("brightness >= 333.6 and brightness < 334", 1),
            ("brightness < 333.6", 1),
            ("brightness in (333.6, -0.1)", 2),
            ("brightness between -0.1 and 333.6", 2),
            ("brightness > 1e300", 0),
            ("brightness >= -1e300 and brightness < 1e6", 2),
        ] {
            let answer = terrane("query", &store, &[dataset, "--where", condition, "--count"]);
            assert_eq!(answer.exits(0).number(), count, "{dataset}: {condition}");
        }
    }
    let csv = terrane("query", &store, &["csv", "--where", "id = 1", "--format", "csv"]).exits(0);
    assert!(csv.text().ends_with("1,1.0,1.0,333.6\n"), "{}", csv.text());
    let large = "{\"id\":5,\"lon\":1,\"lat\":1,\"brightness\":1e39}\n";
    insert(&store, "csv", large, &[]).exits(5).says("32-bit float");
}
