use terrane::schema::{KeyColumn, KeyType};
use terrane_formats::{RecordOptions, RecordReader};
use terrane_space::geometry::as_point;

use super::*;

fn schema(geometry: GeometryColumn) -> Schema {
    let key = KeyColumn { name: "id".into(), key_type: KeyType::Int64, generated: false };
    let columns = vec![Column::new("n", ColumnType::Int64), Column::new("at", ColumnType::Timestamp { utc: true })];
    Schema::new(key, geometry, CoordinateSystem::LonLat, columns).expect("a consistent schema")
}

fn points() -> Schema {
    schema(GeometryColumn::Point { x: "lon".into(), y: "lat".into() })
}

fn shapes() -> Schema {
    schema(GeometryColumn::Geometry { name: "geometry".into() })
}

fn converted(line: &str, schema: &Schema) -> Result<Row, String> {
    let records = RecordReader::new(RecordOptions::default())?;
    let record = records.parse(line).map_err(|error| error.to_string())?;
    convert(record, schema, &Reading { records, demanded: Vec::new() }, 1)
}

#[test]
fn members_become_key_point_and_attributes() {
    let row = converted(r#"{"id":7,"lon":-1,"lat":2.5,"n":3,"at":"2020-01-01T00:00:00Z"}"#, &points()).expect("valid");
    assert_eq!(row.key, Some(Key::Int(7)));
    assert_eq!(row.geometry.as_deref().and_then(as_point), Some(Point::new(-1.0, 2.5)));
    let values = [("n".to_string(), Value::Int(3)), ("at".to_string(), Value::Timestamp(1_577_836_800_000_000))];
    assert_eq!(row.values, values);
    assert!(row.added.is_empty() && row.widened.is_empty());
}

#[test]
fn unknown_members_become_columns_and_fractions_widen() {
    let line = r#"{"id":7,"n":0.5,"name":"x","tags":["a"],"ok":true,"f":1.5,"w":1.0,"none":null}"#;
    let row = converted(line, &points()).expect("valid");
    let added: Vec<_> = row.added.iter().map(|column| (column.name.as_str(), column.column_type)).collect();
    let wanted = [
        ("name", ColumnType::Utf8),
        ("tags", ColumnType::Utf8),
        ("ok", ColumnType::Bool),
        ("f", ColumnType::Float64),
        ("w", ColumnType::Int64),
    ];
    assert_eq!(added, wanted);
    assert_eq!(row.widened, ["n"]);
    assert_eq!(row.geometry, None);
}

#[test]
fn a_number_that_is_no_int64_widens_a_column_if_it_is_a_float64() {
    for (number, value) in [("9223372036854775808", 9_223_372_036_854_775_808.0), ("1e300", 1e300), ("-0.5", -0.5)] {
        let row = converted(&format!(r#"{{"id":7,"n":{number}}}"#), &points()).expect("valid");
        assert_eq!(
            (row.widened.as_slice(), row.values),
            (&["n".to_string()][..], vec![("n".into(), Value::Float64(value))])
        );
    }
    let row = converted(r#"{"id":7,"n":9223372036854775807}"#, &points()).expect("valid");
    assert!(row.widened.is_empty(), "{row:?}");
}

#[test]
fn coordinates_and_geometries_are_taken_for_each_other() {
    let feature = r#"{"type":"Feature","id":1,"properties":{},"geometry":{"type":"Point","coordinates":[3,4]}}"#;
    let coordinates = r#"{"id":1,"lon":3,"lat":4}"#;
    for schema in [points(), shapes()] {
        let (one, other) = (converted(feature, &schema), converted(coordinates, &schema));
        assert!(one.as_ref().is_ok_and(|row| row.geometry.is_some()), "{one:?}");
        assert_eq!(one, other);
    }
    let wkt = converted(r#"{"id":1,"geometry":"POINT (3 4)"}"#, &shapes());
    assert_eq!(wkt, converted(feature, &shapes()));
}

#[test]
fn what_does_not_fit_is_refused_with_its_column() {
    let refused = [
        (r#"{"lon":1,"lat":2}"#, "\"id\""),
        (r#"{"id":1.5,"lon":1,"lat":2}"#, "\"id\""),
        (r#"{"id":"a","lon":1,"lat":2}"#, "\"id\""),
        (r#"{"id":1,"lon":1}"#, "\"lat\""),
        (r#"{"id":1,"lat":1}"#, "\"lon\""),
        (r#"{"id":1,"lon":"1","lat":2}"#, "\"lon\""),
        (r#"{"id":1,"lon":1,"lat":95}"#, "95"),
        (r#"{"id":1,"lon":1,"lat":2,"n":"three"}"#, "\"n\""),
        (r#"{"id":1,"lon":1,"lat":2,"n":9223372036854775809}"#, "beyond the range of int64"),
        (r#"{"id":1,"lon":1,"lat":2,"at":"yesterday"}"#, "\"at\""),
        (r#"{"id":1,"lon":1,"lat":2,"big":9223372036854775808}"#, "\"big\""),
        (r#"{"id":1,"geometry":{"type":"LineString","coordinates":[[0,0],[1,1]]}}"#, "two-dimensional points"),
        (r#"{"id":1,"geometry":{"type":"Point","coordinates":[0,0,5]}}"#, "two-dimensional points"),
        (r#"{"id":1,"lon":1,"lat":2,"geometry":{"type":"Point","coordinates":[0,0]}}"#, "leave one of them out"),
        (r#"{"type":"Feature","id":1,"properties":{"id":2},"geometry":null}"#, "property \"id\" is 2"),
    ];
    for (line, part) in refused {
        let outcome = converted(line, &points());
        assert!(outcome.as_ref().is_err_and(|reason| reason.contains(part)), "{line}: {outcome:?}");
    }
}
