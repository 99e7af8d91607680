//! Orders of columns and reference systems, through changes and through JSON.

use terrane_space::CoordinateSystem;

use super::{Column, ColumnType, GeometryColumn, KeyColumn, KeyType, Schema, SchemaHistory};

fn names(history: &SchemaHistory) -> Vec<String> {
    history.newest().column_names().map(str::to_owned).collect()
}

#[test]
fn an_order_follows_changes_and_survives_storing() {
    let key = KeyColumn { name: "id".into(), key_type: KeyType::Int64, generated: false };
    let columns = vec![Column::new("a", ColumnType::Utf8), Column::new("b", ColumnType::Int64)];
    let geometry = GeometryColumn::Point { x: "x".into(), y: "y".into() };
    let schema = Schema::new(key, geometry, CoordinateSystem::Planar, columns).unwrap().with_srid(25833);
    // A name that is left out comes first, and one that is not there has no effect.
    let schema = schema.with_order(&["b", "y", "x", "none", "a"].map(str::to_owned));
    let history = SchemaHistory::new(schema).unwrap();
    assert_eq!(names(&history), ["id", "b", "y", "x", "a"]);
    let history = history.with_column(Column::new("c", ColumnType::Bool)).unwrap();
    let history = history.rename("x", "lon").unwrap().rename("id", "key").unwrap().without_column("b").unwrap();
    assert_eq!(names(&history), ["key", "y", "lon", "a", "c"]);
    let stored = serde_json::to_string(&history).unwrap();
    let read: SchemaHistory = serde_json::from_str(&stored).unwrap();
    assert_eq!((names(&read), read.newest().srid()), (names(&history), 25833));
    assert!(read.newest().to_arrow().fields().iter().map(|field| field.name()).eq(names(&history).iter()));
    // One that does not have all columns is refused.
    let damaged = stored.replacen("\"order\":[\"id\",", "\"order\":[", 1);
    assert_ne!(damaged, stored);
    assert!(serde_json::from_str::<SchemaHistory>(&damaged).is_err());
}

#[test]
fn a_schema_without_order_and_system_is_stored_as_before() {
    let key = KeyColumn { name: "id".into(), key_type: KeyType::Int64, generated: false };
    let schema = Schema::new(key, GeometryColumn::None, CoordinateSystem::LonLat, Vec::new()).unwrap();
    let stored = serde_json::to_value(&schema).unwrap();
    assert!(stored.get("order").is_none() && stored.get("srid").is_none(), "{stored}");
    assert_eq!(schema.srid(), 4326);
}
