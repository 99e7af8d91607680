use serde_json::{Value, json};

use crate::support::{Sandbox, import, insert, rows, sample, terrane};

fn cities() -> Sandbox {
    let sandbox = Sandbox::new();
    import(&sandbox.store(), "cities", &sample("cities200.csv"), &[]).exits(0);
    sandbox
}

#[test]
fn a_pipe_gets_ndjson_and_flags_another_format() {
    let sandbox = cities();
    let nearest = ["cities", "--nearest", "2.35,48.86", "--k", "1"];
    let rows = terrane("query", &sandbox.store(), &nearest).exits(0).json_lines();
    assert_eq!((rows.len(), &rows[0]["name"]), (1, &json!("Paris")));
    let format = |format: &str| {
        terrane("query", &sandbox.store(), &[&nearest[..], &["--format", format]].concat()).exits(0).text()
    };
    let csv = format("csv");
    assert_eq!(csv.lines().next(), Some("key,lon,lat,name,name_ru,name_zh,adm0name,pop_max,capital,distance"));
    assert!(csv.lines().nth(1).is_some_and(|line| line.contains(",Paris,Париж,")));
    let table = format("table");
    assert!(table.lines().next().is_some_and(|line| line.starts_with("key") && line.ends_with("distance")));
    assert_eq!(table.lines().count(), 3);
    let geojson: Value = serde_json::from_str(&format("geojson")).expect("JSON");
    assert_eq!(geojson["type"], json!("FeatureCollection"));
    assert_eq!(geojson["features"][0]["properties"]["name"], json!("Paris"));
    assert_eq!(geojson["features"][0]["geometry"]["type"], json!("Point"));
}

#[test]
fn an_answer_without_rows_is_still_an_answer() {
    let sandbox = cities();
    let nowhere = ["cities", "--bbox", "0,-89,1,-88"];
    let format =
        |format: &str| terrane("query", &sandbox.store(), &[&nowhere[..], &["--format", format]].concat()).exits(0);
    assert_eq!(format("ndjson").text(), "");
    assert_eq!(format("csv").text().lines().count(), 1);
    let geojson: Value = serde_json::from_str(&format("geojson").text()).expect("JSON");
    assert_eq!(geojson["features"], json!([]));
    assert!(format("parquet").stdout.starts_with(b"PAR1"));
    assert!(format("arrow").stdout.starts_with(&[0xff; 4]));
    assert_eq!(terrane("query", &sandbox.store(), &[&nowhere[..], &["--count"]].concat()).exits(0).text(), "0\n");
}

#[test]
fn limit_and_count_go_together() {
    let sandbox = cities();
    assert_eq!(terrane("query", &sandbox.store(), &["cities", "--limit", "7"]).exits(0).json_lines().len(), 7);
    assert_eq!(terrane("query", &sandbox.store(), &["cities", "--limit", "7", "--count"]).exits(0).text(), "7\n");
    assert_eq!(terrane("query", &sandbox.store(), &["cities", "--limit", "0"]).exits(0).text(), "");
    assert_eq!(terrane("query", &sandbox.store(), &["cities", "--nearest", "0,0"]).exits(0).json_lines().len(), 10);
    let both = ["cities", "--nearest", "0,0", "--k", "20", "--limit", "5", "--count"];
    assert_eq!(terrane("query", &sandbox.store(), &both).exits(0).number(), 5);
}

#[test]
fn explanations_are_on_standard_error() {
    let sandbox = cities();
    let window = ["cities", "--bbox", "-10,35,30,60", "--explain"];
    let plain = terrane("query", &sandbox.store(), &window[..3]).exits(0);
    assert_eq!(plain.stderr, "");
    let explained = terrane("query", &sandbox.store(), &window).exits(0);
    assert_eq!(explained.stdout, plain.stdout);
    explained.says("plan").says("spatial index").says("components").says("matches");
    let json_format = terrane("query", &sandbox.store(), &[&window[..], &["--format", "json"]].concat()).exits(0);
    let explanation: Value = serde_json::from_str(&json_format.stderr).expect("JSON");
    assert_eq!(explanation["matches"], json!(json_format.json_lines().len()));
    let counted =
        terrane("query", &sandbox.store(), &[&window[..], &["--count"]].concat()).exits(0).says("spatial index only");
    assert_eq!(counted.number(), plain.json_lines().len() as u64);
}

#[test]
fn a_column_that_is_called_distance_is_kept() {
    let sandbox = Sandbox::new();
    insert(&sandbox.store(), "d", "{\"id\":1,\"lon\":0,\"lat\":0,\"distance\":5}\n", &[]).exits(0);
    let rows = terrane("query", &sandbox.store(), &["d", "--nearest", "0,0"]).exits(0).json_lines();
    assert_eq!(rows, [json!({"id": 1, "lon": 0.0, "lat": 0.0, "distance": 5, "distance_m": 0.0})]);
}

#[test]
fn info_describes_store_and_datasets() {
    let sandbox = cities();
    let text = terrane("info", &sandbox.store(), &[]).exits(0).text();
    for part in ["durability power", "dataset cities", "pop_max", "200 entries"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let info = terrane("info", &sandbox.store(), &["--format", "json"]).exits(0).json_lines();
    assert_eq!(info[0]["datasets"][0]["name"], json!("cities"));
    assert_eq!(info[0]["datasets"][0]["indexes"][1]["kind"], json!("rtree"));
}

#[test]
fn compaction_leaves_one_component_of_each_index() {
    let sandbox = Sandbox::new();
    for start in 0..3 {
        let file = sandbox.write("a.csv", format!("id,lon,lat\n{},1,1\n{},2,2\n", start, start + 10));
        import(&sandbox.store(), "d", &file, &["--key", "id"]).exits(0);
    }
    let before = terrane("query", &sandbox.store(), &["d", "--format", "csv"]).exits(0).text();
    let report = terrane("compact", &sandbox.store(), &["--format", "json"]).exits(0).json_lines();
    assert_eq!(report[0]["components"], json!(2));
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let after = terrane("query", &sandbox.store(), &["d", "--format", "csv"]).exits(0).text();
    assert_eq!(sorted(&after), sorted(&before));
    terrane("check", &sandbox.store(), &[]).exits(0);
}

/// The output for a dataset of points can be inserted into a dataset like it, unchanged.
#[test]
fn geojson_of_points_comes_back_into_a_dataset_of_points() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let csv = sandbox.write("d.csv", "id,lon,lat,name\n1,10.5,20,a\n2,-30,40.25,\n3,,,c\n");
    import(&store, "d", &csv, &[]).exits(0);
    let geojson = terrane("query", &store, &["d", "--format", "geojson"]).exits(0).text().to_owned();
    let file = sandbox.write("d.geojson", &geojson);
    let other = sandbox.path("other");
    import(&other, "d", &csv, &[]).exits(0);
    terrane("delete", &other, &["d", "--key", "1", "2", "3"]).exits(0);
    import(&other, "d", &file, &[]).exits(0);
    assert_eq!(rows(&other, "d", "id"), rows(&store, "d", "id"));
    // Other geometries are refused there, one by one.
    let line =
        r#"{"type":"Feature","properties":{"id":4},"geometry":{"type":"LineString","coordinates":[[0,0],[1,1]]}}"#;
    let more = sandbox.write("more.geojsonl", format!("{line}\n{}\n", line.replace("LineString", "MultiPoint")));
    import(&other, "d", &more, &[]).exits(5).says("two-dimensional points");
}

#[test]
fn measures_that_geojson_has_no_place_for_are_told_of_once() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let csv = "id,wkt\n1,POINT Z (1 2 3)\n2,POINT M (1 2 3)\n3,POINT ZM (1 2 3 4)\n4,\"GEOMETRYCOLLECTION (POINT (1 2), POINT M (3 4 5))\"\n5,POINT (7 8)\n";
    import(&store, "d", &sandbox.write("d.csv", csv), &[]).exits(0);
    let notice = "the measures (M) of geometries are left out";
    let told = |format: &str, place: &str| {
        let answer = terrane("query", &store, &["d", "--format", format, "--bbox", place]).exits(0);
        answer.stderr.matches(notice).count()
    };
    for format in ["ndjson", "geojson"] {
        assert_eq!(told(format, "-180,-90,180,90"), 1, "{format}");
        assert_eq!(told(format, "2,3,4,5"), 1, "a collection, {format}");
        assert_eq!(told(format, "7,8,7,8"), 0, "{format}");
    }
    for format in ["table", "csv", "arrow", "parquet"] {
        assert_eq!(told(format, "-180,-90,180,90"), 0, "{format}");
    }
    assert_eq!(terrane("query", &store, &["d", "--count"]).exits(0).stderr, "");
}

#[test]
fn maps_are_the_pages_of_query() {
    let sandbox = cities();
    let page = sandbox.path("cities.html");
    let near = ["cities", "--circle", "2.35,48.86,400000"];
    let flags = [&near[..], &["--output", page.to_str().expect("UTF-8")]].concat();
    assert_eq!(terrane("map", &sandbox.store(), &flags).exits(0).text(), "");
    let written = std::fs::read_to_string(&page).expect("a page");
    let queried = terrane("query", &sandbox.store(), &[&near[..], &["--format", "map"]].concat()).exits(0).text();
    assert_eq!(written, queried);
    assert!(written.contains("Paris") && !written.contains("Tokyo"));
    assert_eq!(terrane("map", &sandbox.store(), &near).exits(0).text(), queried);
    let wrong = [&flags[..], &["--where", "nme = 'x'"]].concat();
    terrane("map", &sandbox.store(), &wrong).exits(2);
    assert_eq!(std::fs::read_to_string(&page).expect("a page"), written, "an error leaves the earlier page");
}

#[test]
fn columns_order_and_offset_are_those_asked_for() {
    let sandbox = cities();
    let query = |flags: &[&str]| {
        terrane("query", &sandbox.store(), &[&["cities", "--format", "csv"], flags].concat()).exits(0).text()
    };
    let all = query(&["--columns", "name,key"]);
    assert_eq!(all.lines().next(), Some("name,key"));
    assert_eq!(query(&["--columns", "name,key", "--limit", "5"]).lines().count(), 6);
    let rest = query(&["--columns", "name,key", "--offset", "195"]);
    assert_eq!(rest.lines().skip(1).collect::<Vec<_>>(), all.lines().skip(196).collect::<Vec<_>>());
    assert_eq!(query(&["--columns", "key", "--offset", "1000"]).lines().count(), 1);
    if cfg!(feature = "sql") {
        let largest = query(&["--columns", "name", "--order-by", "pop_max desc, name", "--limit", "3"]);
        assert_eq!(largest, "name\nTokyo\nNew York\nMexico City\n");
        let next = query(&["--columns", "name", "--order-by", "pop_max desc", "--limit", "1", "--offset", "2"]);
        assert_eq!(next, "name\nMexico City\n");
        let wrong = terrane("query", &sandbox.store(), &["cities", "--order-by", "size"]).exits(2);
        wrong.says("--order-by: there is no column \"size\"");
    }
}
