//! Schemas: refusals, the order of versions, Arrow and JSON.

use std::sync::Arc;

use crate::record_support::*;
use arrow_schema::{DataType, Field, Schema as ArrowSchema, TimeUnit};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::json;
use terrane::key::{Key, KeyType};
use terrane::record::{Geometry, Record, RecordView};
use terrane::schema::{
    CHANGES_MAX, COLUMNS_MAX, Column, ColumnType, GeometryColumn, KeyColumn, Schema, SchemaError, SchemaHistory,
    distance_column_name,
};
use terrane::value::Value;
use terrane_space::{CoordinateSystem, Point};

fn schema(columns: Vec<Column>) -> Result<Schema, SchemaError> {
    Schema::new(key_column(KeyType::Int64), points(), CoordinateSystem::LonLat, columns)
}

/// A change of a schema, by the position of an attribute.
#[derive(Clone, Debug)]
enum Change {
    Add(ColumnType),
    Widen(proptest::sample::Index),
    Rename(proptest::sample::Index),
    Drop(proptest::sample::Index),
}

fn any_change() -> impl Strategy<Value = Change> {
    let index = any::<proptest::sample::Index>;
    prop_oneof![
        2 => any_column_type().prop_map(Change::Add),
        1 => index().prop_map(Change::Widen),
        1 => index().prop_map(Change::Rename),
        1 => index().prop_map(Change::Drop),
    ]
}

proptest! {
    #[test]
    fn records_of_every_version_are_read_under_the_newest(
        (first, record) in any_record(),
        changes in vec(any_change(), 0..12),
        added in vec(any_column_type().prop_flat_map(any_value), 12),
    ) {
        let mut history = first;
        let mut expected = record.clone();
        let mut stored = Vec::new();
        // Names that are free again, for columns of any type.
        let mut free = Vec::new();
        // The model: one record, evolved by hand beside the schema.
        for (number, change) in changes.into_iter().enumerate() {
            let mut bytes = Vec::new();
            expected.encode(&history, &mut bytes).expect("a valid record");
            stored.push((bytes, expected.clone()));
            match change {
                Change::Add(column_type) => {
                    let name = free.pop().unwrap_or_else(|| format!("new{number}"));
                    history = history.with_column(Column::new(name, column_type)).expect("a free name");
                    for (_, record) in &mut stored {
                        record.values.push(Value::Null);
                    }
                    let value = Value::from_json(&added[number].to_json(column_type), column_type).unwrap_or_default();
                    expected.values.push(value);
                }
                Change::Widen(index) if !expected.values.is_empty() => {
                    let index = index.index(expected.values.len());
                    let column = history.newest().columns[index].clone();
                    match history.widen(&column.name) {
                        Ok(wider) => {
                            prop_assert_eq!(column.column_type, ColumnType::Int64);
                            history = wider;
                            let records = stored.iter_mut().map(|(_, record)| record).chain([&mut expected]);
                            for record in records {
                                if let Value::Int(value) = record.values[index] {
                                    record.values[index] = Value::Float64(value as f64);
                                }
                            }
                        }
                        Err(error) => prop_assert!(matches!(error, SchemaError::CannotWiden { .. }), "{}", error),
                    }
                }
                Change::Rename(index) if !expected.values.is_empty() => {
                    let name = history.newest().columns[index.index(expected.values.len())].name.clone();
                    history = history.rename(&name, &format!("renamed{number}")).expect("a free name");
                    free.push(name);
                }
                Change::Drop(index) if !expected.values.is_empty() => {
                    let index = index.index(expected.values.len());
                    let name = history.newest().columns[index].name.clone();
                    history = history.without_column(&name).expect("an attribute");
                    free.push(name);
                    for record in stored.iter_mut().map(|(_, record)| record).chain([&mut expected]) {
                        record.values.remove(index);
                    }
                }
                Change::Widen(_) | Change::Rename(_) | Change::Drop(_) => {}
            }
        }
        let json = serde_json::to_string(&history).expect("JSON");
        let read: SchemaHistory = serde_json::from_str(&json).expect("the same history");
        prop_assert_eq!(&read, &history);
        prop_assert_eq!(read.newest(), history.newest());
        for (bytes, record) in stored {
            let view = RecordView::parse(&bytes, &read).expect("a sound record");
            prop_assert_eq!(view.to_record(record.key.clone()).expect("a sound record"), record);
        }
    }

    #[test]
    fn schemas_survive_round_trips_through_arrow_and_json(
        key_type in any_key_type(),
        geometry in proptest::sample::select(vec![points(), shapes()]),
        types in vec(any_column_type(), 0..10),
    ) {
        let schema = Schema::new(key_column(key_type), geometry.clone(), CoordinateSystem::Planar, columns(&types)).expect("a sound schema");
        let read = Schema::from_arrow(&schema.to_arrow(), Some("id"), geometry, CoordinateSystem::Planar);
        prop_assert_eq!(read.as_ref(), Ok(&schema));
        let json = serde_json::to_string(&schema).expect("JSON");
        prop_assert_eq!(serde_json::from_str::<Schema>(&json).expect("the same schema"), schema);
    }
}

#[test]
fn names_must_be_distinct_and_not_empty() {
    let column = |name: &str| Column::new(name, ColumnType::Bool);
    for name in ["id", "lon", "lat", "twice"] {
        let error = schema(vec![column("twice"), column(name)]).expect_err("a name used twice");
        assert_eq!(error, SchemaError::DuplicateName(name.to_owned()));
    }
    assert_eq!(schema(vec![column("")]), Err(SchemaError::EmptyName { position: 4 }));
    assert!(matches!(schema(vec![column(&"n".repeat(300))]), Err(SchemaError::LongName { bytes: 300, .. })));
    let too_many = (0..=COLUMNS_MAX).map(|index| column(&index.to_string())).collect();
    assert_eq!(schema(too_many), Err(SchemaError::TooManyColumns { columns: COLUMNS_MAX + 1 }));
    let twins = GeometryColumn::Point { x: "x".into(), y: "x".into() };
    let error = Schema::new(key_column(KeyType::Int64), twins, CoordinateSystem::Planar, vec![]);
    assert_eq!(error, Err(SchemaError::DuplicateName("x".into())));
}

#[test]
fn invalid_changes_are_refused() {
    let history = history(KeyType::Int64, points(), &[ColumnType::Utf8]);
    assert!(matches!(history.widen("c0"), Err(SchemaError::CannotWiden { .. })));
    let error = history.widen("c1").expect_err("no such column").to_string();
    assert!(error.contains("lon") && error.contains("c0"), "{error}");
    assert!(matches!(history.with_column(Column::new("lat", ColumnType::Bool)), Err(SchemaError::DuplicateName(_))));
    for taken in ["id", "lon", "lat", "c0"] {
        assert_eq!(history.rename("c0", taken), Err(SchemaError::TakenName(taken.to_owned())));
    }
    assert_eq!(history.rename("c0", ""), Err(SchemaError::EmptyName { position: 4 }));
    assert!(matches!(history.rename("c1", "c2"), Err(SchemaError::UnknownColumn { .. })));
    assert!(matches!(history.without_column("c1"), Err(SchemaError::UnknownColumn { .. })));
    for kept in ["id", "lon", "lat"] {
        assert!(matches!(history.without_column(kept), Err(SchemaError::CannotDrop { .. })), "{kept}");
    }
    let mut later = Schema::clone(history.newest());
    later.version = 2;
    assert!(matches!(SchemaHistory::new(later), Err(SchemaError::Inconsistent(_))));
}

#[test]
fn versions_are_numbered_and_kept() {
    let first = history(KeyType::Int64, points(), &[ColumnType::Int64]);
    let second = first.widen("c0").expect("an int64");
    let third = second.with_column(Column::new("c1", ColumnType::Utf8)).expect("a free name");
    assert_eq!((first.versions(), third.versions(), third.newest().version), (1, 3, 3));
    assert_eq!(third.schema(1).as_ref(), Some(&**first.newest()));
    assert_eq!(third.schema(2).as_ref(), Some(&**second.newest()));
    assert_eq!(third.schema(3).as_ref(), Some(&**third.newest()));
    assert_eq!((third.schema(0), third.schema(4)), (None, None));
    assert!(third.layout(0).is_none() && third.layout(3).is_some() && third.layout(4).is_none());
}

#[test]
fn renamed_and_dropped_columns_leave_the_names_free() {
    let first = history(KeyType::Int64, points(), &[ColumnType::Int64, ColumnType::Utf8]);
    let renamed = first.rename("c0", "size").expect("a free name");
    let dropped = renamed.without_column("c1").expect("an attribute");
    let last = dropped.with_column(Column::new("c1", ColumnType::Bool)).expect("a free name");
    let last = last.rename("lon", "c0").expect("a free name");
    let names: Vec<&str> = last.newest().column_names().collect();
    assert_eq!(names, ["id", "c0", "lat", "size", "c1"]);
    assert_eq!((last.versions(), last.newest().version), (5, 5));
    for (version, schema) in [(1, &first), (2, &renamed), (3, &dropped)] {
        assert_eq!(last.schema(version).as_ref(), Some(&**schema.newest()));
    }
    // The format in docs/format.md.
    let changes = json!([
        { "rename": { "from": "c0", "to": "size" } },
        { "drop": "c1" },
        { "add": { "name": "c1", "type": "bool" } },
        { "rename": { "from": "lon", "to": "c0" } },
    ]);
    assert_eq!(serde_json::to_value(&last).expect("JSON")["changes"], changes);
}

#[test]
fn the_number_of_changes_is_limited() {
    let mut json = serde_json::to_value(history(KeyType::Int64, points(), &[ColumnType::Bool])).expect("JSON");
    let rename = |number: usize| {
        let name = |number: usize| if number == 0 { "c0".to_owned() } else { format!("n{number}") };
        json!({ "rename": { "from": name(number), "to": name(number + 1) } })
    };
    json["changes"] = (0..CHANGES_MAX).map(rename).collect();
    let full: SchemaHistory = serde_json::from_value(json.clone()).expect("as many as can be");
    assert_eq!(full.versions(), CHANGES_MAX + 1);
    assert_eq!(full.rename("id", "key"), Err(SchemaError::TooManyChanges));
    json["changes"].as_array_mut().expect("changes").push(rename(CHANGES_MAX));
    assert!(serde_json::from_value::<SchemaHistory>(json).is_err());
}

#[test]
fn a_record_of_a_missing_version_is_damage() {
    let first = history(KeyType::Int64, points(), &[]);
    let second = first.with_column(Column::new("c0", ColumnType::Bool)).expect("a free name");
    let mut bytes = Vec::new();
    let record =
        Record { key: Key::Int(1), geometry: Some(Geometry::Point(Point::new(1.0, 2.0))), values: vec![Value::Null] };
    record.encode(&second, &mut bytes).expect("a valid record");
    assert!(RecordView::parse(&bytes, &second).is_ok());
    assert_eq!(RecordView::parse(&bytes, &first).expect_err("an unknown version").offset, 2);
}

#[test]
fn stored_json_is_checked() {
    let sound =
        serde_json::to_value(history(KeyType::Int64, points(), &[ColumnType::Timestamp { utc: true }])).expect("JSON");
    assert_eq!(sound["first"]["columns"][0], json!({ "name": "c0", "type": { "timestamp": { "utc": true } } }));
    assert_eq!(sound["first"]["system"], json!("lonlat"));
    let refused = |change: fn(&mut serde_json::Value)| {
        let mut json = sound.clone();
        change(&mut json);
        serde_json::from_value::<SchemaHistory>(json).is_err()
    };
    assert!(!refused(|_| {}));
    assert!(refused(|json| json["first"]["columns"][0]["name"] = json!("id")));
    assert!(refused(|json| json["first"]["version"] = json!(5)));
    assert!(refused(|json| json["first"]["system"] = json!("mercator")));
    assert!(refused(|json| json["changes"] = json!([{ "widen": "c0" }])));
    assert!(refused(|json| json["changes"] = json!([{ "add": { "name": "", "type": "bool" } }])));
    assert!(!refused(|json| json["changes"] = json!([{ "drop": "c0" }])));
    assert!(refused(|json| json["changes"] = json!([{ "drop": "c0" }, { "drop": "c0" }])));
    assert!(refused(|json| json["changes"] = json!([{ "drop": "lon" }])));
    assert!(refused(|json| json["changes"] = json!([{ "rename": { "from": "c1", "to": "c2" } }])));
    assert!(refused(|json| json["changes"] = json!([{ "rename": { "from": "c0", "to": "id" } }])));
    assert!(refused(|json| json["changes"] = json!([{ "narrow": "c0" }])));
    assert!(refused(|json| json["surprise"] = json!(1)));
}

#[test]
fn arrow_schemas_have_the_columns_in_order_and_mark_the_geometry() {
    let schema = Schema::new(
        key_column(KeyType::Utf8),
        shapes(),
        CoordinateSystem::LonLat,
        columns(&[ColumnType::Timestamp { utc: true }]),
    );
    let arrow = schema.expect("a sound schema").to_arrow();
    let fields: Vec<_> = arrow
        .fields()
        .iter()
        .map(|field| (field.name().as_str(), field.data_type().clone(), field.is_nullable()))
        .collect();
    let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    assert_eq!(fields, [("id", DataType::Utf8, false), ("geometry", DataType::Binary, true), ("c0", utc, true)]);
    let metadata = arrow.field(1).metadata();
    assert_eq!(metadata["ARROW:extension:name"], "geoarrow.wkb");
    assert!(metadata["ARROW:extension:metadata"].contains("CRS84"));
}

#[test]
fn foreign_arrow_types_become_the_nearest_types() {
    let field = |name: &str, data_type: DataType| Field::new(name, data_type, true);
    let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::LargeUtf8));
    let arrow = ArrowSchema::new(vec![
        field("x", DataType::Float32),
        field("small", DataType::UInt16),
        field("y", DataType::Int32),
        field("code", dictionary),
        field("at", DataType::Timestamp(TimeUnit::Nanosecond, Some("Europe/Paris".into()))),
        field("price", DataType::Decimal128(10, 2)),
        field("view", DataType::BinaryView),
        field("key", DataType::Utf8),
        field("count", DataType::Decimal128(18, 0)),
        field("heat", DataType::Float32),
    ]);
    let xy = GeometryColumn::Point { x: "x".into(), y: "y".into() };
    let schema = Schema::from_arrow(&arrow, None, xy.clone(), CoordinateSystem::Planar).expect("a sound schema");
    assert_eq!(schema.key, KeyColumn { name: "key_2".into(), key_type: KeyType::Int64, generated: true });
    let types: Vec<_> = schema.columns.iter().map(|column| (column.name.as_str(), column.column_type)).collect();
    let expected = [
        ("small", ColumnType::Int64),
        ("code", ColumnType::Utf8),
        ("at", ColumnType::Timestamp { utc: true }),
        ("price", ColumnType::Float64),
        ("view", ColumnType::Binary),
        ("key", ColumnType::Utf8),
        ("count", ColumnType::Int64),
        ("heat", ColumnType::Float32),
    ];
    assert_eq!(types, expected);
    let keyed = |key| Schema::from_arrow(&arrow, Some(key), xy.clone(), CoordinateSystem::Planar);
    assert_eq!(keyed("code").expect("a text key").key.key_type, KeyType::Utf8);
    assert!(matches!(keyed("price"), Err(SchemaError::UnsupportedType { role: "a key", .. })));
    assert!(matches!(keyed("nothing"), Err(SchemaError::UnknownColumn { .. })));
}

#[test]
fn arrow_types_that_do_not_fit_are_refused() {
    let list = DataType::List(Arc::new(Field::new("item", DataType::Int64, true)));
    let arrow = ArrowSchema::new(vec![Field::new("geometry", DataType::Utf8, true), Field::new("tags", list, true)]);
    let read = |geometry: GeometryColumn| Schema::from_arrow(&arrow, None, geometry, CoordinateSystem::LonLat);
    assert!(matches!(read(shapes()), Err(SchemaError::UnsupportedType { name, .. }) if name == "geometry"));
    assert!(matches!(read(points()), Err(SchemaError::UnknownColumn { name, .. }) if name == "lon"));
    let binary = ArrowSchema::new(vec![Field::new("geometry", DataType::Binary, true), arrow.field(1).clone()]);
    let error = Schema::from_arrow(&binary, None, shapes(), CoordinateSystem::LonLat);
    assert!(matches!(error, Err(SchemaError::UnsupportedType { name, role: "an attribute", .. }) if name == "tags"));
}

#[test]
fn the_distance_column_avoids_taken_names() {
    let name = |columns: &[&str]| {
        let columns = columns.iter().map(|name| Column::new(*name, ColumnType::Float64)).collect();
        distance_column_name(&schema(columns).expect("a sound schema"))
    };
    assert_eq!(name(&[]), "distance");
    assert_eq!(name(&["distance"]), "distance_m");
    assert_eq!(name(&["distance", "distance_m"]), "distance_m_2");
}
