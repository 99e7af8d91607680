//! Reading NDJSON, GeoJSON and GeoJSON text sequences.

use crate::support::{TestFile, columns, floats, parse_record, read, read_text, texts, wkt};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use terrane_formats::{ColumnType, Format, FormatError, GeometryColumns, JsonErrorKind, ReadOptions, parse_strict};
use terrane_space::geometry::as_point;

fn feature(properties: &str, geometry: &str) -> String {
    format!(r#"{{"type":"Feature","properties":{properties},"geometry":{geometry}}}"#)
}

fn collection(features: &[String]) -> String {
    format!(r#"{{"type":"FeatureCollection","features":[{}]}}"#, features.join(","))
}

/// The warning about members that no column takes.
fn foreign_warning(name: &str, text: &str) -> Option<String> {
    let whole = read_text(name, text).expect("valid");
    assert_eq!(whole.rejected, []);
    assert!(columns(&whole).iter().all(|column| !column.contains("time")), "{:?}", columns(&whole));
    let mut warnings = whole.source.warnings.into_iter();
    let warning = warnings.next();
    assert_eq!(warnings.next(), None, "one warning a file");
    warning
}

const POINT: &str = r#"{"type":"Point","coordinates":[1,2]}"#;

#[test]
fn objects_a_line_become_typed_columns() {
    let whole = read_text(
        "a.ndjson",
        "{\"id\":1,\"v\":2,\"s\":\"x\",\"ok\":true,\"l\":[1,{\"a\":2}]}\n\n\
         {\"id\":2,\"v\":2.5,\"s\":null,\"extra\":\"2020-01-01\"}\n",
    )
    .expect("valid");
    assert_eq!(columns(&whole), ["id: Int64", "v: Float64", "s: Utf8", "ok: Boolean", "l: Utf8", "extra: Date32"]);
    assert_eq!(texts(&whole, "l"), [Some("[1,{\"a\":2}]".to_string()), None]);
    assert_eq!(whole.source.geometry, GeometryColumns::None);
    assert_eq!(whole.source.guess().key.as_deref(), Some("id"));
}

#[test]
fn a_geometry_member_may_be_geojson_or_wkt() {
    let whole = read_text(
        "a.ndjson",
        format!("{{\"id\":1,\"geometry\":{POINT}}}\n{{\"id\":2,\"geometry\":\"POINT (3 4)\"}}\n{{\"id\":3}}\n"),
    )
    .expect("valid");
    assert_eq!(columns(&whole), ["id: Int64", "geometry: Binary"]);
    let shown = wkt(&whole);
    assert!(shown[0].is_some() && shown[1].is_some() && shown[2].is_none(), "{shown:?}");
}

#[test]
fn integers_that_only_uint64_holds_are_text_unless_they_are_keys() {
    let whole =
        read_text("a.ndjson", "{\"id\":18446744073709551615,\"cell\":9223372036854775808}\n{\"id\":1,\"cell\":2}\n")
            .expect("valid");
    assert_eq!(columns(&whole), ["id: UInt64", "cell: Utf8"]);
    assert_eq!(texts(&whole, "cell"), [Some("9223372036854775808".to_string()), Some("2".to_string())]);
    let numbered = format!(r#"{{"type":"Feature","id":18446744073709551615,"properties":{{}},"geometry":{POINT}}}"#);
    let file = TestFile::new("a.geojsonl", numbered);
    for (key, wanted) in [(None, "id: UInt64"), (Some(String::new()), "id: Utf8")] {
        let whole = read(&file.path, &ReadOptions { key, ..ReadOptions::default() }).expect("valid");
        assert_eq!(columns(&whole)[0], wanted);
    }
}

#[test]
fn coordinates_are_found_in_records_and_half_ones_refused() {
    let whole = read_text("a.jsonl", "{\"lon\":1,\"lat\":2}\n{\"lon\":1}\n{\"lon\":\"x\",\"lat\":2}\n").expect("valid");
    assert_eq!(floats(&whole, "lon"), [Some(1.0)]);
    assert_eq!(whole.rejected.len(), 2);
}

#[test]
fn a_bad_line_spoils_only_itself() {
    let whole = read_text("a.ndjson", "{\"a\":1}\n{\"a\":\n{\"a\":2}\n{\"a\":1,\"a\":2}\n[1]\n").expect("valid");
    assert_eq!(whole.rows, [1, 3]);
    let reasons: Vec<_> = whole.rejected.iter().map(|bad| (bad.line, bad.reason.as_str())).collect();
    assert_eq!(reasons[0].0, Some(2));
    assert!(reasons[1].1.starts_with("duplicate member name \"a\""), "{reasons:?}");
    assert!(reasons[2].1.contains("must be a JSON object, not an array"), "{reasons:?}");
}

#[test]
fn features_are_read_with_ids_and_mixed_types() {
    let text = collection(&[
        format!(r#"{{"type":"Feature","id":7,"properties":{{"v":1}},"geometry":{POINT}}}"#),
        feature(r#"{"v":"two"}"#, "null"),
        feature("null", r#"{"type":"Polygon","coordinates":[]}"#),
    ]);
    let whole = read_text("a.geojson", text).expect("valid");
    assert_eq!(whole.source.format, Format::GeoJson);
    assert_eq!(columns(&whole), ["id: Int64", "v: Utf8", "geometry: Binary"]);
    assert_eq!(texts(&whole, "v"), [Some("1".to_string()), Some("two".to_string()), None]);
    let ids: Vec<_> = whole.batch.column(0).as_primitive::<Int64Type>().iter().collect();
    assert_eq!(ids, [Some(7), None, None]);
}

#[test]
fn a_single_feature_and_a_bare_geometry_are_one_row() {
    for text in [feature("{\"a\":1}", POINT), POINT.to_string()] {
        for name in ["a.geojson", "a.json"] {
            let whole = read_text(name, &text).expect("valid");
            assert_eq!(whole.source.format, Format::GeoJson, "{text}");
            assert_eq!(wkt(&whole).len(), 1, "{text}");
        }
    }
}

#[test]
fn members_may_come_in_any_order_and_blanks_anywhere() {
    let text = format!(
        "\u{feff} {{ \"features\" : [ {} , {} ] ,\n \"bbox\":[1,2,3,4], \"type\" : \"FeatureCollection\" }}\n",
        feature("{\"a\":\"}]\\\"\"}", POINT),
        feature("{}", POINT)
    );
    let whole = read_text("a.geojson", text).expect("valid");
    assert_eq!(texts(&whole, "a"), [Some("}]\"".to_string()), None]);
}

#[test]
fn members_that_mean_nothing_are_passed_over_up_to_a_bound() {
    let document = |names: &[String]| {
        let members: String = names.iter().map(|name| format!("\"{name}\":1,")).collect();
        read_text("a.geojson", format!("{{{members}\"type\":\"FeatureCollection\",\"features\":[]}}"))
    };
    let names = |count: usize| (0..count).map(|number| format!("m{number}")).collect::<Vec<_>>();
    assert_eq!(document(&names(10_000)).expect("valid").batch.num_rows(), 0);
    let refused = |names: &[String], part: &str| match document(names) {
        Err(error @ FormatError::Refused { .. }) => assert!(error.to_string().contains(part), "{part}: {error}"),
        other => panic!("{other:?}"),
    };
    refused(&names(10_001), "such as \"m0\", \"m1\", \"m2\"");
    refused(&[1, 2].map(|number| format!("{number}{}", "n".repeat(1 << 19))), "bytes of their names");
    refused(&["n".repeat(2 << 20)], "that GeoJSON does not define; put");
    assert!(document(&["a", "b", "a"].map(str::to_owned)).is_err_and(|error| error.to_string().contains("duplicate")));
}

#[test]
fn lines_and_separated_records_of_features_are_sequences() {
    let line = feature("{\"a\":1}", POINT);
    for (name, text) in [
        ("a.geojsonl", format!("{line}\n{line}\n")),
        ("a.json", format!("{line}\r\n{line}\r\n")),
        ("a.geojson", format!("{line}\n{line}\n")),
        ("a.geojsonseq", format!("\u{1e}{line}\n\u{1e}{}\n", line.replace(',', ",\n"))),
    ] {
        let whole = read_text(name, text).expect(name);
        assert_eq!(whole.source.format, Format::GeoJsonSeq, "{name}");
        assert_eq!(whole.rows, [1, 2], "{name}: {:?}", whole.rejected);
    }
}

/// The detection reads less of a file's start than these lines have.
#[test]
fn lines_are_told_from_documents_however_long_the_first_one_is() {
    let long = format!(r#"{{"note":"FeatureCollection {{","text":"{}"}}"#, "x".repeat(200 << 10));
    let features = feature(&long, POINT) + "\r\n\n " + &feature("{}", POINT) + "\n";
    let plain = long.clone() + &long;
    let wide = collection(&[feature(&long, POINT), feature("{}", POINT)]);
    for (name, text, format, rows) in [
        ("a.json", &features, Format::GeoJsonSeq, 2),
        ("a.geojson", &features, Format::GeoJsonSeq, 2),
        ("a.json", &("\u{feff} \n".to_string() + &features), Format::GeoJsonSeq, 2),
        ("a.json", &(long.clone() + "\n" + &long), Format::Ndjson, 2),
        ("a.json", &plain, Format::Ndjson, 0),
        ("a.json", &long, Format::Ndjson, 1),
        ("a.json", &wide, Format::GeoJson, 2),
        ("a.geojson", &(wide.clone() + " \n\n"), Format::GeoJson, 2),
        ("a.json", &feature(&long, POINT), Format::GeoJson, 1),
    ] {
        let file = TestFile::new(name, text);
        assert_eq!(terrane_formats::detect(&file.path).expect("a known format"), format, "{name} {:.40}", text);
        if rows > 0 {
            assert_eq!(
                read(&file.path, &ReadOptions::default()).expect("valid").rows.len(),
                rows,
                "{name} {:.40}",
                text
            );
        }
    }
}

#[test]
fn bad_geometries_are_refused_rows_with_reason_and_text() {
    for geometry in [
        r#"{"type":"Point","coordinates":[1]}"#,
        r#"{"type":"Point","coordinates":["1","2"]}"#,
        r#"{"type":"Point","coordinates":[null,2]}"#,
        r#"{"type":"Polygone","coordinates":[]}"#,
        r#"{"type":"Polygon","coordinates":[[[0,0],[1,0],[1,1],[0,1]]]}"#,
        r#"{"type":"Polygon","coordinates":[[0,0],[1,0],[1,1],[0,0]]}"#,
    ] {
        let text = collection(&[feature("{}", geometry), feature("{}", POINT)]);
        let whole = read_text("a.geojson", text).expect("the document is whole");
        assert_eq!(whole.rows, [2], "{geometry}");
        let bad = &whole.rejected[0];
        assert!(bad.reason.starts_with("geometry: "), "{}", bad.reason);
        assert_eq!(bad.raw.as_deref(), Some(feature("{}", geometry).as_str()));
    }
}

#[test]
fn broken_documents_are_errors_that_name_the_byte() {
    let good = feature("{}", POINT);
    for (text, words) in [
        (collection(std::slice::from_ref(&good)) + "garbage", "text after the end"),
        (collection(std::slice::from_ref(&good))[..60].to_string(), "cut short"),
        (format!("{{\"features\":[{good}]}}"), "no member \"type\""),
        ("{\"type\":\"FeatureCollection\"}".to_string(), "no member \"features\""),
        (collection(&[good.replace('1', "NaN")]), "byte 116"),
        (collection(&[good.replace('1', "1e999")]), "out of range"),
        (format!("{{\"type\":\"FeatureCollection\",\"features\":[{good},]}}"), "missing after the comma"),
        (format!("{{\"type\":\"FeatureCollection\",\"features\":[{good} {good}]}}"), "comma"),
        ("{\"type\":\"Topology\",\"a\":1}".to_string(), "unknown GeoJSON type"),
        ("[".repeat(20_000), "deeper than"),
        (format!("[{good},{good}"), "cut short"),
        (format!("[{good}] {good}"), "text after the end"),
        (format!("{{\"type\":{}", "[".repeat(20_000)), "deeper than"),
        ("  \n\t".to_string(), "no JSON value"),
        ("hello".to_string(), "not GeoJSON"),
        (collection(&[good.replace('1', "1.")]), "byte"),
        (format!("{{\"type\":\"FeatureCollection\",\"a\":tru,\"features\":[{good}]}}"), "\"tru\" is no JSON value"),
        (format!("{{\"type\":\"FeatureCollection\",\"a\":\"\\u1\",\"features\":[{good}]}}"), "there is no such escape"),
    ] {
        let error = read_text("a.geojson", &text).expect_err(words).to_string();
        assert!(error.contains(words), "{words}: {error}");
    }
    let latin1 = [collection(&[feature("{\"a\":\"Z", "1")]).into_bytes(), vec![0xfc]].concat();
    assert!(read_text("a.geojson", latin1).is_err());
}

#[test]
fn an_old_crs_member_is_converted_or_refused() {
    let with_crs = |name: &str| {
        format!(
            r#"{{"type":"FeatureCollection","crs":{{"type":"name","properties":{{"name":"{name}"}}}},"features":[{}]}}"#,
            feature("{}", r#"{"type":"Point","coordinates":[-8237642.318702244,4970071.5791424]}"#)
        )
    };
    let whole = read_text("a.geojson", with_crs("urn:ogc:def:crs:EPSG::3857")).expect("known");
    let text = wkt(&whole)[0].clone().expect("a geometry");
    let numbers: Vec<f64> = text
        .split(|character: char| !(character.is_ascii_digit() || ".-".contains(character)))
        .filter_map(|number| number.parse().ok())
        .collect();
    assert!((numbers[0] + 74.0).abs() < 1e-6 && (numbers[1] - 40.7128).abs() < 1e-6, "{text}");
    let error = read_text("a.geojson", with_crs("My grid")).expect_err("unknown").to_string();
    assert!(error.contains("My grid"), "{error}");
}

#[test]
fn features_are_streamed_across_buffer_edges() {
    let features: Vec<String> = (0..20_000)
        .map(|index| feature(&format!("{{\"i\":{index},\"t\":\"{}\"}}", "x".repeat(index % 37)), POINT))
        .collect();
    let whole = read_text("a.geojson", collection(&features)).expect("valid");
    let values = whole.batch.column(0).as_primitive::<Int64Type>();
    assert!(values.values().iter().copied().eq(0..20_000));
}

#[test]
fn records_are_parsed_strictly() {
    let record =
        parse_record(r#"{"b":1,"a":"x","geometry":{"type":"Point","coordinates":[1,2]}}"#, false).expect("valid");
    let names: Vec<&str> = record.fields.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["b", "a"]);
    assert_eq!(record.geometry.expect("a geometry").len(), 21);
    let record = parse_record(&feature("{\"a\":1}", "null"), false).expect("valid");
    assert_eq!((record.fields.len(), record.geometry, record.id), (1, None, None));
    for (text, words) in [
        ("{\"a\":1,\"a\":2}", "duplicate member name \"a\""),
        ("{\"a\":{\"b\":1,\"b\":2}}", "duplicate member name \"b\""),
        ("{\"a\":1e999}", "out of range"),
        ("{\"a\":\"\\ud800\"}", "byte"),
        ("{\"a\":1} {}", "text after the end"),
        ("{\"a\":1,}", "a member is missing after the comma; add one, or remove the comma (byte 7)"),
        ("[1,]", "a value is missing after the comma; add one, or remove the comma (byte 3)"),
        ("{\"a\":1 \"b\":2}", "a comma or the closing brace is missing before \"\\\"\" (byte 7)"),
        ("[1 2]", "a comma or the closing bracket is missing before \"2\" (byte 3)"),
        ("[1,2}", "a comma or the closing bracket is missing before \"}\" (byte 4)"),
        ("{\"a\":1\"b\":2}", "a comma or the closing brace is missing before \"\\\"\" (byte 6)"),
        ("1,2,3", "there is text after the end of the JSON value, from \",\" on"),
        ("{\"a\" 1}", "the colon after the name of a member is missing before \"1\" (byte 5)"),
        ("{\"a\":\"\\ud800\"}", "half of a surrogate pair, and the other half is missing; write both"),
        ("{\"a\":\"\\ud800\\u0041\"}", "half of a surrogate pair, and the other half is missing; write both"),
        ("{\"a\":\"\\udc00\"}", "half of a surrogate pair, and the other half is missing; write both"),
        ("{\"a\":\"C:\\x\"}", "there is no such escape; in text, write a backslash as \\\\, "),
        ("{\"a\":\"\\u1\"}", "there is no such escape; in text, write a backslash as \\\\, "),
        ("{\"\\u12\":1}", "there is no such escape; in text, write a backslash as \\\\, "),
        ("{\"a\":\"\\u1", "it is cut short"),
        ("{\"\\\\u\":\"", "it is cut short"),
        ("{\"a\":\"1\n2\"}", "write it as an escape, such as \\n or \\t (byte 7)"),
        ("{\"a\":1,,}", "a member is missing before the comma; add one, or remove the comma (byte 7)"),
        ("{,}", "a member is missing before the comma; add one, or remove the comma (byte 1)"),
        ("[1,,2]", "a value is missing before \",\" (byte 3)"),
        ("{\"a\":\"1\t2\"}", "write it as an escape, such as \\n or \\t (byte 7)"),
        ("{\"a\":1", "it is cut short"),
        ("", "there is no JSON value"),
    ] {
        let error = parse_record(text, false).expect_err(text).to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
    let deep = "[".repeat(20_000);
    let error = parse_record(&deep, false).expect_err("too deep").to_string();
    assert!(error.contains("nested more than 127 levels deep"), "{error}");
    let nested = |depth: usize| parse_strict(format!("{}{}", "[".repeat(depth), "]".repeat(depth)).as_bytes());
    assert!(nested(127).is_ok() && nested(128).is_err());
    let error = parse_strict(b"{\"a\":\"\xfc\"}").expect_err("Latin-1");
    assert_eq!((error.kind, error.offset), (JsonErrorKind::Syntax, Some(6)));
}

#[test]
fn what_is_no_json_is_quoted_with_its_place() {
    let is_no_value = |word: &str, byte: usize| {
        format!(
            "{word} is no JSON value: write an object in braces, an array in brackets, a number, true, false, null, \
             or text in double quotes (byte {byte})"
        )
    };
    for (text, words) in [
        ("this is text", is_no_value("\"this\"", 0)),
        ("hello", is_no_value("\"hello\"", 0)),
        ("name,x,y", is_no_value("\"name\"", 0)),
        ("  Größe: 1", is_no_value("\"Größe\"", 2)),
        ("{\"a\":tru}", is_no_value("\"tru\"", 5)),
        ("{\"a\":[1,NaN]}", is_no_value("\"NaN\"", 8)),
        ("{\"a\":-Infinity}", is_no_value("\"-Infinity\"", 5)),
        ("truee", is_no_value("\"truee\"", 0)),
        ("{\"a\":nullx}", is_no_value("\"nullx\"", 5)),
        ("{\"a\":[0x10]}", is_no_value("\"0x10\"", 6)),
        ("{\"a\":01}", is_no_value("\"01\"", 5)),
        ("{\"a\":}", "a value is missing before \"}\" (byte 5)".to_string()),
        ("tru", is_no_value("\"tru\"", 0)),
        (" 1.", is_no_value("\"1.\"", 1)),
        ("{'a':1}", "\"'a'\" is not a member name; put names in double quotes (byte 1)".to_string()),
        ("{\"a\":1,b:2}", "\"b\" is not a member name; put names in double quotes (byte 7)".to_string()),
    ] {
        assert_eq!(parse_strict(text.as_bytes()).expect_err(text).to_string(), words, "{text}");
    }
    let long = parse_strict("y".repeat(1000).as_bytes()).expect_err("no JSON").to_string();
    assert!(long.len() < 300 && long.contains("yyy\"…"), "{long}");
}

#[test]
fn a_file_that_is_no_json_although_its_name_says_so_is_told_of_its_name() {
    for (name, text, words) in [
        ("a.ndjson", "name,x,y\na,1,2\n", "line 1: \"name\" is no JSON value"),
        ("a.ndjson", "name,123456789012345678901234567890\n", "line 1: \"name\" is no JSON value"),
        ("a.ndjson", "5\n6\n", "line 1: "),
        ("a.geojson", "name,x,y\na,1,2\n", "byte 0: this is not GeoJSON"),
    ] {
        let error = read_text(name, text).expect_err(text).to_string();
        assert!(error.contains(words) && error.contains("give it a name that says so"), "{error}");
    }
    let error = read_text("a.ndjson", "{\"a\":tru}\n").expect_err("no value").to_string();
    assert!(error.contains("\"tru\"") && !error.contains("name that says so"), "{error}");
}

#[test]
fn integers_that_a_float_cannot_hold_stay_exact_or_are_refused() {
    let lines = "{\"n\":9007199254740993,\"m\":9007199254740992}\n{\"n\":0.5,\"m\":0.5}\n";
    let whole = read_text("a.ndjson", lines).expect("valid");
    assert_eq!(columns(&whole), ["n: Utf8", "m: Float64"]);
    assert_eq!(texts(&whole, "n"), [Some("9007199254740993".to_string()), Some("0.5".to_string())]);
    let column_types = vec![("n".to_string(), ColumnType::Float64), ("m".to_string(), ColumnType::Float64)];
    let options = ReadOptions { column_types, ..ReadOptions::default() };
    let file = TestFile::new("a.ndjson", lines);
    let whole = read(&file.path, &options).expect("valid");
    assert_eq!(whole.rows, [2]);
    assert!(
        whole.rejected[0].reason.contains("\"n\": \"9007199254740993\" does not fit float64 exactly"),
        "{:?}",
        whole.rejected
    );
}

#[test]
fn names_that_no_column_can_have_are_refused_before_they_are_kept() {
    let of = |length: usize| read_text("a.ndjson", format!("{{\"id\":1}}\n{{\"{}\":1}}\n", "n".repeat(length)));
    assert!(of(255).is_ok());
    let error = of(256).expect_err("a name too long");
    assert!(error.to_string().contains("has 256 bytes") && error.to_string().contains("line 2"), "{error}");
}

#[test]
fn a_geometry_that_is_always_null_leaves_the_place_to_coordinates() {
    let whole = read_text("a.ndjson", "{\"lon\":1,\"lat\":2,\"geometry\":null}\n").expect("valid");
    assert_eq!(columns(&whole), ["lon: Float64", "lat: Float64"]);
    let without = read_text("a.ndjson", "{\"id\":1,\"geometry\":null}\n").expect("valid");
    assert_eq!(columns(&without), ["id: Int64", "geometry: Binary"]);
    let with = read_text("a.ndjson", format!("{{\"lon\":1,\"lat\":2,\"geometry\":null}}\n{{\"geometry\":{POINT}}}\n"));
    assert_eq!(with.expect("valid").source.geometry, GeometryColumns::Column { name: "geometry".into() });
}

#[test]
fn a_geometry_beside_the_columns_gets_the_name_that_it_has_in_the_dataset() {
    let file = TestFile::new("a.ndjson", "{\"id\":1,\"geometry\":{\"type\":\"Point\",\"coordinates\":[1,2]}}\n");
    let named = |own: Option<&str>| ReadOptions {
        geometry: Some("wkt".into()),
        own_geometry_name: own.map(str::to_string),
        ..ReadOptions::default()
    };
    let whole = read(&file.path, &named(Some("wkt"))).expect("valid");
    assert_eq!(columns(&whole), ["id: Int64", "wkt: Binary"]);
    assert_eq!(wkt(&whole).len(), 1);
    assert!(read(&file.path, &named(None)).is_err(), "a name that was given by hand has to be there");
}

#[test]
fn texts_of_too_many_values_are_refused_before_memory_is_taken_for_them() {
    let largest = |count: usize| format!("[{}0]", "0,".repeat(count - 2));
    let error = parse_strict(largest((4 << 20) + 1).as_bytes()).expect_err("one value too many");
    assert_eq!(error.kind, JsonErrorKind::Content);
    assert!(error.reason.contains("4194304 values"), "{error}");
    assert!(parse_strict(largest(4 << 20).as_bytes()).is_ok());
    // Names take memory too.
    let members: Vec<String> = (0..1 << 20).map(|number| format!("\"{number:x}\":0")).collect();
    assert!(parse_strict(format!("{{{}}}", members.join(",")).as_bytes()).is_err());
    assert!(parse_strict(format!("{{{}}}", members[..members.len() / 2].join(",")).as_bytes()).is_ok());
}

#[test]
fn a_value_of_several_lines_where_records_have_one_is_told_of() {
    let point = "{\n  \"type\": \"Feature\",\n  \"properties\": {\"a\": 1},\n  \"geometry\": null\n}\n";
    for (name, text, advice) in [
        ("a.ndjson", point.to_string(), "give it a name in .geojson or .json"),
        ("a.geojsonl", point.to_string(), "give it a name in .geojson or .json"),
        ("a.ndjson", format!("{point}{point}"), "write each record on one line"),
        ("a.json", "{\n\"a\": 1\n}\n".to_string(), "write each record on one line"),
        // As an interrupted write leaves it, with other lines after it.
        ("a.ndjson", "{\"a\":1\n{\"a\":2}\n".to_string(), "write each record on one line"),
        ("a.ndjson", "[\n{\"a\":1},\n{\"a\":2},\n]\n".to_string(), "without the brackets and the commas between"),
    ] {
        let error = match read_text(name, &text) {
            Ok(read) => read.rejected.first().expect("a record that is refused").reason.clone(),
            Err(error) => error.to_string(),
        };
        let fault = "the line ends inside a JSON value, which is cut short or continues on the next line; NDJSON has \
            one record per line: ";
        assert!(error.contains(fault) && error.contains(advice), "{name} {text}: {error}");
        assert!(!error.contains("it is cut short") && !error.contains(".csv"), "{name} {text}: {error}");
    }
    let error = read_text("a.ndjson", "{\"a\":1\n \n\n").expect_err("no more follows").to_string();
    assert!(error.contains("it is cut short (byte 6)"), "{error}");
}

#[test]
fn the_largest_geometry_of_a_record_can_be_read() {
    let positions = vec!["[1.5,2.5]"; 1 << 20].join(",");
    let line = format!("{{\"type\":\"LineString\",\"coordinates\":[{positions}]}}");
    let record = parse_record(&line, false).expect("a million positions");
    assert_eq!(record.geometry.expect("a geometry").len(), 9 + (16 << 20));
}

#[test]
fn integers_beyond_64_bits_are_refused_and_nothing_that_looks_like_them() {
    for (text, offset) in [
        ("18446744073709551616", 0),
        ("[-9223372036854775809]", 2),
        ("{\"a\":\"\\\\\",\"b\":123456789012345678901234567890}", 14),
        ("{\"12345678901234567890123\": \"1\", \"n\": 100000000000000000000000}", 38),
        (&format!("[1, {}, 2]", "7".repeat(310)), 4),
        (&format!("{{\"a\":-{}}}", "7".repeat(400)), 6),
    ] {
        let error = parse_strict(text.as_bytes()).expect_err(text);
        assert_eq!((error.kind, error.offset), (JsonErrorKind::Content, Some(offset)), "{text}: {error}");
        assert!(error.reason.contains("64 bits"), "{error}");
        // Of a document it is one feature that has it.
        let features = [feature(&format!("{{\"n\":{text}}}"), POINT), feature("{}", POINT)];
        let whole = read_text("a.geojson", collection(&features)).expect("the document is whole");
        assert_eq!((whole.rows, whole.rejected.len()), (vec![2], 1), "{text}");
    }
    let error = parse_strict(format!("[1, {}.5]", "7".repeat(310)).as_bytes()).expect_err("beyond float64");
    assert_eq!(error.kind, JsonErrorKind::Syntax, "{error}");
    assert!(error.reason.contains("out of range"), "{error}");
    for text in [
        "18446744073709551615",
        "-9223372036854775808",
        "1844674407370955161.5",
        "0.18446744073709551616",
        "18446744073709551616e2",
        "18446744073709551616.0",
        "1e-00000000000000000000001",
        "1e+00000000000000000000001",
        "\"18446744073709551616\"",
        "{\"\\\"18446744073709551616\":\"\\\\\", \"b\":1}",
        "[\"a\\\"\", \"99999999999999999999999\", 1]",
    ] {
        assert!(parse_strict(text.as_bytes()).is_ok(), "{text}");
    }
}

#[test]
fn members_that_geojson_does_not_define_are_told_of() {
    let plain = r#"{"type":"Feature","id":1,"bbox":[1,2,1,2],"properties":{"a":1},"geometry":null}"#;
    let foreign = r#"{"type":"Feature","properties":{"a":1},"time":"now","geometry":null,"speed":[1],"id":2}"#;
    let later = r#"{"type":"Feature","properties":null,"speed":3,"\u001b":4,"geometry":null}"#;
    let geometry = r#"{"type":"Point","coordinates":[1,2],"time":5}"#;
    let all = collection(&[plain.into(), foreign.into(), later.into()]);
    let named = collection(&[plain.into()]).replacen("{", r#"{"name":"of the collection","#, 1);
    let cases = [
        ("a.geojson", all, Some(r#""time", "speed", "\u{1b}""#)),
        ("a.geojson", named, None),
        ("a.geojson", foreign.to_string(), Some(r#""time", "speed""#)),
        ("a.geojson", geometry.to_string(), Some(r#""time""#)),
        ("a.ndjson", format!("{plain}\n{later}\n{foreign}\n"), Some(r#""speed", "\u{1b}", "time""#)),
        ("a.ndjson", format!("{geometry}\n{plain}\n"), Some(r#""time""#)),
        ("a.ndjson", format!("{plain}\n{POINT}\n"), None),
    ];
    for (name, text, names) in cases {
        let warning = foreign_warning(name, &text);
        let wanted = names.map(|names| {
            format!(
                "members that GeoJSON does not define are ignored: {names}; move them into the features' properties"
            )
        });
        assert_eq!(warning, wanted, "{text}");
    }
    let record = parse_record(foreign, false).expect("valid");
    assert_eq!(record.foreign, ["time", "speed"]);
}

#[test]
fn ever_new_members_beside_properties_take_no_memory_and_fill_no_screen() {
    let long = "long".repeat(1000);
    let features: Vec<String> = (0..10_000)
        .map(|number| format!(r#"{{"type":"Feature","geometry":null,"properties":{{}},"time {number}{long}":0}}"#))
        .collect();
    let warning = foreign_warning("a.geojson", &collection(&features)).expect("a warning");
    assert!(warning.contains("\"time 9long") && !warning.contains("\"time 10"), "{warning}");
    assert!(warning.contains(" and others") && warning.len() < 1000, "{warning}");
}

#[test]
fn lines_of_which_none_can_be_used_are_refused_with_the_first_reason() {
    let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let collection = "{\"type\":\"GeometryCollection\",\"geometries\":[".repeat(100) + &"]}".repeat(100);
    for (lines, line, wanted) in [
        ("{\"a\":\n{\"b\" 1}\n".to_string(), 1, "; nor can any other record of the file be used"),
        ("\n[1]\n".to_string(), 2, "object"),
        (format!("{{\"a\":{}}}\n", deep(100_000)), 1, "nested more than 127 levels deep"),
        (format!("{{\"lon\":1,\"geometry\":{collection}}}\n"), 1, "nested more than 127 levels deep"),
    ] {
        let file = TestFile::new("a.ndjson", &lines);
        let options = ReadOptions { format: Some(Format::Ndjson), ..ReadOptions::default() };
        let error = read(&file.path, &options).expect_err("no record").to_string();
        assert!(error.contains(&format!("a.ndjson, line {line}: ")) && error.contains(wanted), "{error}");
    }
}

/// A reference system that a feature or a geometry declares by itself.
#[test]
fn geometries_that_declare_another_system_are_refused_one_by_one() {
    let crs = |name: &str| format!(r#""crs":{{"type":"name","properties":{{"name":"{name}"}}}}"#);
    let point = r#""type":"Point","coordinates":[-100,40]"#;
    let in_geometry = |crs: &str| feature("{}", &format!("{{{point},{crs}}}"));
    let in_feature = |crs: &str| format!(r#"{{"type":"Feature",{crs},"properties":{{}},"geometry":{{{point}}}}}"#);
    let nested =
        |crs: &str| feature("{}", &format!(r#"{{"type":"GeometryCollection","geometries":[{{{point},{crs}}}]}}"#));
    let bare = |crs: &str| format!("{{{point},{crs}}}");
    let plain = |crs: &str| format!(r#"{{"id":1,"geometry":{{{point},{crs}}}}}"#);
    for (other, same) in [(crs("EPSG:4267"), crs("EPSG:4326")), (crs("urn:ogc:def:crs:EPSG::27700"), crs("EPSG:4979"))]
    {
        for line in [in_geometry(&other), in_feature(&other), nested(&other), bare(&other), plain(&other)] {
            let error = parse_record(&line, false).expect_err(&line).to_string();
            assert!(error.contains("declares EPSG:"), "{error}");
            assert!(parse_record(&line, true).is_ok(), "planar coordinates have no system: {line}");
            let whole = read_text("a.geojsonl", format!("{line}\n{line}\n")).expect("a file");
            assert_eq!((whole.rejected.len(), crate::support::wkt(&whole).len()), (2, 0), "{line}");
        }
        for line in [in_geometry(&same), in_feature(&same), nested(&same), bare(&same), plain(&same)] {
            let record = parse_record(&line, false).expect(&line);
            assert!(record.geometry.is_some() && record.foreign.is_empty(), "{line}");
        }
    }
    let both = format!(
        r#"{{"type":"Feature",{},"properties":{{}},"geometry":{{{point},{}}}}}"#,
        crs("EPSG:4326"),
        crs("EPSG:4267")
    );
    assert!(parse_record(&both, true).is_err(), "which of them?");
    // The file as a whole can be converted, and so can a geometry in it that declares the same
    // system.
    let collection = |outer: &str, inner: &str| {
        format!(r#"{{"type":"FeatureCollection",{outer},"features":[{}]}}"#, in_geometry(inner))
    };
    let converted = read_text("a.geojson", collection(&crs("EPSG:3857"), &crs("EPSG:3857"))).expect("one system");
    assert_eq!(converted.rejected.len(), 0);
    let mixed = read_text("a.geojson", collection(&crs("EPSG:3857"), &crs("EPSG:4326"))).expect("a file");
    assert_eq!(mixed.rejected.len(), 1);
}

#[test]
fn texts_that_name_their_system_are_converted_from_it() {
    for text in ["SRID=3857;POINT (10 20)", "0101000020110F000000000000000024400000000000003440"] {
        let line = format!(r#"{{"id":1,"geometry":"{text}"}}"#);
        let place = |planar| parse_record(&line, planar).expect(text).geometry.as_deref().and_then(as_point);
        assert_eq!(place(false).map(|point| point.x), Some(8.983152841195215e-5), "{text}");
        assert_eq!(place(true).map(|point| point.x), Some(10.0), "{text}");
    }
    let unknown = r#"{"id":1,"geometry":"SRID=999999;POINT (10 20)"}"#;
    let error = parse_record(unknown, false).expect_err("no such system").to_string();
    assert!(error.contains("EPSG:999999"), "{error}");
    assert!(parse_record(r#"{"id":1,"geometry":"SRID=4326;POINT (10 20)"}"#, false).is_ok());
}
