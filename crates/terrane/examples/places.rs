//! A store of places, and how many of them are near.

use terrane::schema::{Column, ColumnType, GeometryColumn, KeyColumn, KeyType, Schema};
use terrane::{CoordinateSystem, Options, Query, Record, Store, Value};

fn main() -> terrane::Result<()> {
    let store = Store::open("places.terrane", Options::default())?;
    let key = KeyColumn { name: "id".into(), key_type: KeyType::Int64, generated: false };
    let geometry = GeometryColumn::Point { x: "lon".into(), y: "lat".into() };
    let schema = Schema::new(key, geometry, CoordinateSystem::LonLat, vec![Column::new("name", ColumnType::Utf8)])?;
    let places = store.open_or_create_dataset("places", schema)?;
    places.upsert(&Record::at(1, -122.4194, 37.7749, vec![Value::Utf8("San Francisco".into())]))?;

    // Everything within 5 km of the ferry building.
    let near = Query::new().circle(-122.3937, 37.7955, 5_000.0);
    println!("near the ferry building: {}", places.snapshot().count(&near)?);
    store.close()
}
