//! Columns of GeoJSON geometries, in every format that has columns.

use std::sync::Arc;

use crate::columnar::{file_bytes, parquet_bytes, shown, table};
use crate::support::{TestFile, columns, read, read_text, wkt};
use arrow_array::StringArray;
use terrane_formats::{GeometryColumns, ReadOptions};

const POINT: &str = r#"{"type":"Point","coordinates":[1,2]}"#;

#[test]
fn columns_of_geojson_become_geometry() {
    let rows = r#"
1,"{""type"":""Point"",""coordinates"":[1,2]}"
2,
3," {""type"":""LineString"",""coordinates"":[[0,0],[1,1]]} "
4,"{""type"":""Point"",""type"":""Point"",""coordinates"":[1,2]}"
5,"{""type"":""Point"",""coordinates"":[1,2],""crs"":{""type"":""name"",""properties"":{""name"":""EPSG:3857""}}}"
6,"{""type"":""Feature"",""properties"":{},""geometry"":{""type"":""Point"",""coordinates"":[1,2]}}"
"#;
    for name in ["geo_shape", "Geo Shape", "geometry"] {
        let whole = read_text("a.csv", format!("id,{name}{rows}")).expect("valid");
        let shown: Vec<String> = wkt(&whole).into_iter().flatten().collect();
        assert_eq!(shown, ["POINT (1 2)", "LINESTRING (0 0, 1 1)"]);
        let reasons: Vec<&str> = whole.rejected.iter().map(|bad| bad.reason.as_str()).collect();
        for (reason, part) in reasons.iter().zip(["duplicate member name", "EPSG:3857", "this is a Feature"]) {
            assert!(reason.contains(part), "{part:?} is not in {reason}");
        }
        assert_eq!(reasons.len(), 3);
    }
    let file = TestFile::new("a.csv", format!("id,place{rows}"));
    assert_eq!(read(&file.path, &ReadOptions::default()).expect("valid").source.geometry, GeometryColumns::None);
    let options = ReadOptions { geometry: Some("place".to_string()), ..ReadOptions::default() };
    assert_eq!(read(&file.path, &options).expect("valid").rows, [1, 2, 3]);
}

#[test]
fn a_member_with_the_name_of_a_geometry_may_be_geojson_or_its_text() {
    let text = POINT.replace('"', "\\\"");
    for name in ["geometry", "geom"] {
        let lines = format!("{{\"id\":1,\"{name}\":{POINT}}}\n{{\"id\":2,\"{name}\":\"{text}\"}}\n{{\"id\":3}}\n");
        let whole = read_text("a.ndjson", lines).expect("valid");
        assert_eq!(columns(&whole), ["id: Int64".to_string(), format!("{name}: Binary")]);
        assert_eq!(wkt(&whole), [Some("POINT (1 2)".to_string()), Some("POINT (1 2)".to_string()), None]);
    }
    let whole = read_text("a.ndjson", "{\"id\":1,\"geom\":{\"type\":\"Point\"},\"lon\":1,\"lat\":2}\n").expect("valid");
    assert_eq!(columns(&whole), ["id: Int64", "geom: Utf8", "lon: Float64", "lat: Float64"]);
}

#[test]
fn columns_of_geojson_text_are_geometry_when_named() {
    let texts = vec![r#"{"type":"Point","coordinates":[1,2]}"#, r#"{"type":"Point","coordinates":[1]}"#, "POINT (3 4)"];
    let batch = table(vec![("outline", Arc::new(StringArray::from(texts)))]);
    let options = ReadOptions { geometry: Some("outline".to_string()), ..ReadOptions::default() };
    for (name, bytes) in [("a.parquet", parquet_bytes(&batch, None)), ("a.arrow", file_bytes(&batch))] {
        let whole = read(&TestFile::new(name, bytes).path, &options).expect("valid");
        assert_eq!(shown(&whole), ["POINT(12)", "POINT(34)"]);
        assert_eq!(whole.rejected[0].row, 2);
        assert!(whole.rejected[0].reason.contains("two or three numbers"), "{}", whole.rejected[0].reason);
    }
}
