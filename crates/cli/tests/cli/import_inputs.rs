//! Inputs as they occur: lines before the header, JSON arrays, positions in one value, nested
//! members, coordinates slightly out of range.

use std::process::Command;

use serde_json::json;

use crate::support::{Sandbox, answer_to, command, import, rows, terrane};

#[test]
fn a_line_that_names_the_separator_and_comments_come_before_the_header() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    for (name, content, word) in [
        ("sep", "sep=;\nid;lat;lon\n1;48.85;2.35\n", "CSV"),
        ("crlf", "\u{feff}sep=;\r\nid;lat;lon\r\n1;48.85;2.35\r\n", "CSV"),
        ("comment", "# comment\nid,lat,lon\n1,48.85,2.35\n", "is skipped"),
        ("comments", "# a, b\n#\n# c\nid,lat,lon\n1,48.85,2.35\n", "first 3 lines"),
    ] {
        let file = sandbox.write(&format!("{name}.csv"), content);
        import(&store, name, &file, &[]).exits(0).says(word);
        assert_eq!(rows(&store, name, "id"), [json!({"id":1,"lat":48.85,"lon":2.35})], "{name}");
    }
    // A header may begin with the same character; line numbers include the skipped lines.
    let header = sandbox.write("header.csv", "#id,lat,lon\n1,48.85,2.35\n");
    import(&store, "header", &header, &["--key", "#id"]).exits(0);
    let bad = sandbox.write("bad.csv", "# comment\nid,lat,lon\n1,x,2.35\n");
    import(&store, "bad", &bad, &[]).exits(5).says("line 3");
}

#[test]
fn arrays_of_records_and_of_features_are_read() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let records = sandbox.write("a.json", "[{\"id\":1,\"lat\":1.0,\"lon\":2.0},\n{\"id\":2,\"lat\":1.5,\"lon\":2.0}]");
    import(&store, "records", &records, &[]).exits(0).says("JSON array");
    assert_eq!(rows(&store, "records", "id")[1], json!({"id":2,"lat":1.5,"lon":2.0}));
    let features = sandbox.write(
        "a.geojson",
        r#"[{"type":"Feature","geometry":{"type":"Point","coordinates":[1,2]},"properties":{"a":1}}]"#,
    );
    import(&store, "features", &features, &[]).exits(0);
    assert_eq!(rows(&store, "features", "key")[0]["a"], 1);
    let cut = sandbox.write("cut.json", "[{\"id\":1,\"lat\":1.0,\"lon\":2.0},{\"id\":2");
    import(&store, "cut", &cut, &[]).exits(5).says("cut short");
    let mixed = sandbox.write("mixed.json", "[{\"id\":1,\"lat\":1.0,\"lon\":2.0},7]");
    import(&store, "mixed", &mixed, &[]).exits(5).says("row 2").says("a number");
}

#[test]
fn places_in_one_value_and_in_nested_members_are_named_by_flags() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let pair = sandbox.write("pt.csv", "id,name,point\n1,a,\"(37.79653, -122.43760)\"\n2,b,\n");
    import(&store, "pair", &pair, &["--lat", "point", "--lon", "point"]).exits(0);
    import(&store, "swapped", &pair, &["--lon", "point", "--lat", "point"]).exits(5).says("-122.4376");
    assert_eq!(rows(&store, "pair", "id")[0], json!({"id":1,"lon":-122.4376,"lat":37.79653,"name":"a"}));
    assert_eq!(rows(&store, "pair", "id")[1]["lon"], json!(null));
    let more = sandbox.write("more.csv", "id,name,point\n3,c,\"1 2\"\n");
    import(&store, "pair", &more, &["--lat", "point", "--lon", "point"]).exits(0);
    assert_eq!(rows(&store, "pair", "id")[2]["lat"], 1.0);
    let bad = sandbox.write("bad.csv", "id,name,point\n4,c,\"1 2 3\"\n");
    import(&store, "pair", &bad, &["--lat", "point", "--lon", "point"])
        .exits(5)
        .says("\"point\"")
        .says("two coordinates");
    let nested = sandbox.write(
        "es.ndjson",
        "{\"id\":1,\"location\":{\"lat\":1.0,\"lon\":2.0}}\n{\"id\":2,\"location\":{\"lat\":1.5,\"lon\":2.5,\"name\":\"b\"}}\n",
    );
    import(&store, "nested", &nested, &["--lat", "location.lat", "--lon", "location.lon"]).exits(0);
    let nested = rows(&store, "nested", "id");
    assert_eq!((&nested[1]["location.lat"], &nested[1]["location"]), (&json!(1.5), &json!("{\"name\":\"b\"}")));
    let texts = sandbox.write("es2.ndjson", "{\"id\":1,\"location\":\"1.5,2.5\"}\n");
    import(&store, "texts", &texts, &["--lat", "location", "--lon", "location"]).exits(0);
    assert_eq!(rows(&store, "texts", "id")[0], json!({"id":1,"lon":2.5,"lat":1.5}));
}

#[test]
fn coordinates_out_of_range_by_less_than_a_millimetre_are_moved_onto_the_bound() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let areas = sandbox.write(
        "ne.geojson",
        r#"{"type":"FeatureCollection","features":[
            {"type":"Feature","properties":{"id":1},"geometry":{"type":"Polygon","coordinates":[[[180.00000000000006,71.5],[170,71.5],[170,65],[180.00000000000006,65],[180.00000000000006,71.5]]]}},
            {"type":"Feature","properties":{"id":2},"geometry":{"type":"LineString","coordinates":[[0,-90.00000000000003],[0,-80]]}}]}"#,
    );
    import(&store, "areas", &areas, &[]).exits(0).says("4 coordinate(s)");
    let areas = rows(&store, "areas", "id");
    assert_eq!(areas[0]["geometry"]["coordinates"][0][0], json!([180.0, 71.5]));
    assert_eq!(areas[1]["geometry"]["coordinates"][0], json!([0.0, -90.0]));
    let points = sandbox.write("p.csv", "id,lon,lat\n1,-180.0000000001,90.0000000001\n");
    import(&store, "points", &points, &[]).exits(0).says("2 coordinate(s)");
    assert_eq!(rows(&store, "points", "id")[0], json!({"id":1,"lon":-180.0,"lat":90.0}));
    let further = sandbox.write("f.csv", "id,lon,lat\n1,180.00001,1\n");
    import(&store, "further", &further, &[]).exits(5).says("180.00001");
    let four = sandbox.write(
        "four.ndjson",
        "{\"id\":1,\"geometry\":{\"type\":\"LineString\",\"coordinates\":[[1,2,3,4],[5,6,7]]}}\n",
    );
    import(&store, "four", &four, &[]).exits(0).says("more than three numbers");
    assert_eq!(rows(&store, "four", "id")[0]["geometry"]["coordinates"], json!([[1.0, 2.0, 3.0], [5.0, 6.0, 7.0]]));
}

#[test]
fn standard_input_and_pipes_are_read_like_files() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let csv = "id,lon,lat\n1,1,2\n2,x,2\n";
    let from_input = |dataset: &str, input: &str, flags: &[&str]| {
        let arguments =
            ["import", store.to_str().expect("UTF-8"), dataset, "-"].into_iter().chain(flags.iter().copied());
        answer_to(command(arguments), input)
    };
    from_input("refused", csv, &[]).exits(5).says("-, row 2").says("\"lon\"");
    from_input("refused", csv, &["--on-invalid", "skip"]).exits(2).says("--rejects");
    let rejects = sandbox.path("rejects.ndjson");
    let skip = ["--on-invalid", "skip", "--rejects", rejects.to_str().expect("UTF-8")];
    from_input("csv", csv, &skip).exits(0);
    from_input("array", "[{\"id\":1,\"lat\":1.0,\"lon\":2.0}]", &[]).exits(0);
    for dataset in ["csv", "array"] {
        assert_eq!(rows(&store, dataset, "id").len(), 1, "{dataset}");
    }
    from_input("empty", "", &[]).exits(5).says("empty");
    let pipe = sandbox.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    let writer = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::write(pipe, "id,lon,lat\n1,1,2\n")
    });
    import(&store, "piped", &pipe, &[]).exits(0);
    writer.join().expect("the writer ends").expect("the pipe is read");
    assert_eq!(rows(&store, "piped", "id").len(), 1);
}

#[test]
fn a_dataset_that_is_made_from_several_files_has_the_columns_of_all() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let files = [
        sandbox.write("a.csv", "id,lon,lat,n,t\n1,1,2,,2020-01-01\n"),
        sandbox.write("b.csv", "id,lon,lat,extra,n,t\n2,1,2,x,7,2020-01-01T10:00:00\n"),
        sandbox.write("c.ndjson", "{\"id\":3,\"lon\":1,\"lat\":2,\"other\":1.5,\"n\":null}\n"),
    ];
    let names: Vec<&str> = files[1..].iter().map(|file| file.to_str().expect("UTF-8")).collect();
    import(&store, "union", &files[0], &names).exits(0);
    let found = rows(&store, "union", "id");
    let wanted = [
        json!({"id":1,"lon":1.0,"lat":2.0,"n":null,"t":"2020-01-01T00:00:00","extra":null,"other":null}),
        json!({"id":2,"lon":1.0,"lat":2.0,"n":7,"t":"2020-01-01T10:00:00","extra":"x","other":null}),
        json!({"id":3,"lon":1.0,"lat":2.0,"n":null,"t":null,"extra":null,"other":1.5}),
    ];
    assert_eq!(found, wanted);
    let text = sandbox.write("text.csv", "id,lon,lat,n\n4,1,2,many\n");
    let numbers = sandbox.write("numbers.csv", "id,lon,lat,n\n5,1,2,7\n");
    let numbers = numbers.to_str().expect("UTF-8");
    import(&store, "text", &text, &[numbers]).exits(0).says("text in").says("int64 in");
    assert_eq!(rows(&store, "text", "id")[1]["n"], "7");
}

#[test]
fn columns_of_a_file_that_are_new_to_the_dataset_come_with_its_records_or_not_at_all() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let first = sandbox.write("a.csv", "id,lon,lat,n\n1,1,2,5\n");
    let second = sandbox.write("b.csv", "id,extra,lon,lat\n2,x,1,2\n");
    let refused = sandbox.write("c.csv", "id,lost,lon,lat\n1,x,1,2\n");
    let fractions = sandbox.write("d.csv", "id,lon,lat,count\n3,1,2,7\n");
    let more = sandbox.write("e.csv", "id,lon,lat,count\n4,1,2,0.5\n");
    import(&store, "d", &first, &[]).exits(0);
    import(&store, "d", &second, &[]).exits(0).says("\"extra\" is added");
    import(&store, "d", &refused, &[]).exits(5);
    // A column added by an import may be widened by the same import.
    import(&store, "d", &fractions, &[more.to_str().expect("UTF-8")]).exits(0);
    let wanted = [
        json!({"id":1,"lon":1.0,"lat":2.0,"n":5,"extra":null,"count":null}),
        json!({"id":2,"lon":1.0,"lat":2.0,"n":null,"extra":"x","count":null}),
        json!({"id":3,"lon":1.0,"lat":2.0,"n":null,"extra":null,"count":7.0}),
        json!({"id":4,"lon":1.0,"lat":2.0,"n":null,"extra":null,"count":0.5}),
    ];
    assert_eq!(rows(&store, "d", "id"), wanted);
    terrane("check", &store, &[]).exits(0);
}

#[test]
fn features_with_and_without_ids_are_refused_with_what_to_do() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let feature = |id: &str| {
        format!(r#"{{"type":"Feature",{id}"properties":{{}},"geometry":{{"type":"Point","coordinates":[1,2]}}}}"#)
    };
    let features = [feature("\"id\":7,"), feature("")].join("\n");
    let file = sandbox.write("mixed.geojsonl", features);
    import(&store, "mixed", &file, &[]).exits(5).says("row 2").says("--key ''");
    import(&store, "mixed", &file, &["--key", ""]).exits(0);
    assert_eq!(rows(&store, "mixed", "key").len(), 2);
}
