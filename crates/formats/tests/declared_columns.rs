//! The file's declaration of the geometry column in use, in files with several.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{BinaryArray, RecordBatch};
use arrow_schema::Schema;
use parquet::basic::{LogicalType, Repetition, Type as PhysicalType};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use terrane_formats::{CoordinateOptions, GeometryColumns, ReadOptions};

use crate::columnar::{file_bytes, parquet_bytes, point_wkb, shown, table};
use crate::support::{TestFile, Whole, read};

/// A place in longitude and latitude, and the same in Web Mercator (EPSG:3857).
const PLACE: (f64, f64) = (-74.0, 40.7);
const MERCATOR: (f64, f64) = (-8_237_642.318_702_244, 4_970_071.579_142_4);

/// The columns `a` and `b`, both WKB.
fn two_columns() -> RecordBatch {
    let column = |(x, y)| Arc::new(BinaryArray::from(vec![Some(&point_wkb(x, y)[..])])) as _;
    table(vec![("a", column(PLACE)), ("b", column(MERCATOR))])
}

/// The same as fields of extension types, with their metadata.
fn with_extensions(batch: &RecordBatch, extensions: [(&str, &str); 2]) -> RecordBatch {
    let fields = batch.schema_ref().fields().iter().zip(extensions).map(|(field, (name, metadata))| {
        let extension = [("ARROW:extension:name", name), ("ARROW:extension:metadata", metadata)];
        let extension: HashMap<String, String> =
            extension.into_iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        field.as_ref().clone().with_metadata(extension)
    });
    let schema = Schema::new(fields.collect::<Vec<_>>());
    batch.clone().with_schema(Arc::new(schema)).expect("the same columns")
}

fn read_column(bytes: &[u8], name: Option<&str>) -> Whole {
    let file = TestFile::new("a.bin", bytes);
    let options = ReadOptions { geometry: name.map(str::to_string), ..ReadOptions::default() };
    read(&file.path, &options).expect("a file that can be read")
}

fn geo(columns: &str) -> String {
    format!(r#"{{"version":"1.1.0","primary_column":"a","columns":{{{columns}}}}}"#)
}

const MERCATOR_COLUMN: &str = r#""a":{"encoding":"WKB"},"b":{"encoding":"WKB","edges":"spherical","crs":{"id":{"authority":"EPSG","code":3857}}}"#;

#[test]
fn a_named_column_has_the_reference_system_that_the_metadata_declare_for_it() {
    let bytes = parquet_bytes(&two_columns(), Some(&geo(MERCATOR_COLUMN)));
    let whole = read_column(&bytes, Some("b"));
    assert_eq!(whole.source.geometry, GeometryColumns::Column { name: "b".to_string() });
    assert!(shown(&whole)[0].starts_with("POINT(-7"), "{:?}", shown(&whole));
    let warnings = whole.source.warnings.join("\n");
    assert!(warnings.contains("EPSG:3857"), "{warnings}");
    assert!(warnings.contains("column \"b\" declares spherical edges"), "{warnings}");
    assert!(warnings.contains("only the column \"b\" is used as geometry; a stay(s) as stored"), "{warnings}");
    assert!(!warnings.contains("primary"), "{warnings}");
    let primary = read_column(&bytes, None);
    assert_eq!(shown(&primary), ["POINT(-7440.7)"]);
    assert!(primary.source.warnings[0].contains("only the primary geometry \"a\""), "{:?}", primary.source.warnings);
}

/// Degrees of the North American Datum 1927 are metres away from those of WGS 84; a range check
/// would not notice.
#[test]
fn a_named_column_of_a_datum_that_cannot_be_converted_is_refused() {
    let columns = r#""a":{"encoding":"WKB"},"b":{"encoding":"WKB","crs":{"id":{"authority":"EPSG","code":4267}}}"#;
    let file = TestFile::new("a.parquet", parquet_bytes(&two_columns(), Some(&geo(columns))));
    let options = ReadOptions { geometry: Some("b".to_string()), ..ReadOptions::default() };
    let error = read(&file.path, &options).expect_err("another datum").to_string();
    assert!(error.contains("EPSG:4267"), "{error}");
}

#[test]
fn a_column_that_no_metadata_describe_is_read_without_those_of_another() {
    let bytes = parquet_bytes(&two_columns(), Some(&geo(r#""a":{"encoding":"WKX","edges":"spherical"}"#)));
    let file = TestFile::new("a.parquet", bytes);
    let options = ReadOptions {
        geometry: Some("b".to_string()),
        coordinates: CoordinateOptions::planar(),
        ..ReadOptions::default()
    };
    let whole = read(&file.path, &options).expect("binary");
    assert!(shown(&whole)[0].starts_with("POINT(-8237642"), "{:?}", shown(&whole));
    assert!(whole.source.warnings.is_empty(), "{:?}", whole.source.warnings);
}

#[test]
fn a_named_field_has_the_reference_system_of_its_extension_type() {
    let extensions = [("geoarrow.wkb", r#"{"crs":"OGC:CRS84"}"#), ("geoarrow.wkb", r#"{"crs":"EPSG:3857"}"#)];
    let batch = with_extensions(&two_columns(), extensions);
    for bytes in [file_bytes(&batch), parquet_bytes(&batch, None)] {
        assert!(shown(&read_column(&bytes, Some("b")))[0].starts_with("POINT(-7"));
        assert_eq!(shown(&read_column(&bytes, Some("a"))), ["POINT(-7440.7)"]);
        assert_eq!(read_column(&bytes, None).source.geometry, GeometryColumns::Column { name: "a".to_string() });
    }
}

#[test]
fn an_extension_type_that_is_not_read_matters_only_where_its_column_is_used() {
    let mercator = ("geoarrow.wkb", r#"{"crs":"EPSG:3857"}"#);
    let batch = with_extensions(&two_columns(), [("geoarrow.box", ""), mercator]);
    for bytes in [file_bytes(&batch), parquet_bytes(&batch, None)] {
        for name in [None, Some("b")] {
            let whole = read_column(&bytes, name);
            assert_eq!(whole.source.geometry, GeometryColumns::Column { name: "b".to_string() });
            assert!(shown(&whole)[0].starts_with("POINT(-7"), "{:?}", shown(&whole));
            let is_told =
                whole.source.warnings.iter().any(|warning| warning.contains("\"geoarrow.box\" is not supported"));
            assert_eq!(is_told, name.is_none(), "{:?}", whole.source.warnings);
        }
        let file = TestFile::new("a.bin", &bytes);
        let options = ReadOptions { geometry: Some("a".to_string()), ..ReadOptions::default() };
        let error = read(&file.path, &options).expect_err("a type that is not read").to_string();
        assert!(error.contains("\"geoarrow.box\" is not supported"), "{error}");
    }
    let alone = with_extensions(&two_columns(), [("geoarrow.box", ""), ("", "")]);
    let file = TestFile::new("a.bin", file_bytes(&alone));
    let error = read(&file.path, &ReadOptions::default()).expect_err("no geometry").to_string();
    assert!(error.contains("\"geoarrow.box\" is not supported"), "{error}");
}

/// Parquet's own type of geometry, which needs no metadata of the file.
#[test]
fn a_named_column_has_the_reference_system_of_its_logical_type() {
    let field = |name: &str, crs: &str| {
        let logical_type = LogicalType::geometry(Some(crs.to_string()));
        let builder =
            Type::primitive_type_builder(name, PhysicalType::BYTE_ARRAY).with_repetition(Repetition::REQUIRED);
        Arc::new(builder.with_logical_type(Some(logical_type)).build().expect("a type"))
    };
    let fields = vec![field("a", "OGC:CRS84"), field("b", "EPSG:3857")];
    let schema = Type::group_type_builder("root").with_fields(fields).build().expect("a schema");
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, Arc::new(schema), Arc::default()).expect("a writer");
    let mut group = writer.next_row_group().expect("a row group");
    for (x, y) in [PLACE, MERCATOR] {
        let mut column = group.next_column().expect("a vector takes everything").expect("a column");
        let value = ByteArray::from(point_wkb(x, y));
        column.typed::<ByteArrayType>().write_batch(&[value], None, None).expect("a vector takes everything");
        column.close().expect("a vector takes everything");
    }
    group.close().expect("a vector takes everything");
    writer.close().expect("a vector takes everything");
    assert_eq!(shown(&read_column(&bytes, None)), ["POINT(-7440.7)"]);
    assert!(shown(&read_column(&bytes, Some("b")))[0].starts_with("POINT(-7"));
}

/// Edges of Parquet's geographies are great circles unless it says otherwise.
#[test]
fn geographies_are_read_with_a_warning_of_their_edges() {
    let logical_type = LogicalType::geography(Some("OGC:CRS84".to_string()), None);
    let column = Type::primitive_type_builder("geometry", PhysicalType::BYTE_ARRAY)
        .with_repetition(Repetition::REQUIRED)
        .with_logical_type(Some(logical_type))
        .build()
        .expect("a type");
    let schema = Type::group_type_builder("root").with_fields(vec![Arc::new(column)]).build().expect("a schema");
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, Arc::new(schema), Arc::default()).expect("a writer");
    let mut group = writer.next_row_group().expect("a row group");
    let mut column = group.next_column().expect("a vector takes everything").expect("a column");
    let value = ByteArray::from(point_wkb(1.0, 2.0));
    column.typed::<ByteArrayType>().write_batch(&[value], None, None).expect("a vector takes everything");
    column.close().expect("a vector takes everything");
    group.close().expect("a vector takes everything");
    writer.close().expect("a vector takes everything");
    let whole = read_column(&bytes, None);
    assert!(
        whole.source.warnings.iter().any(|warning| warning.contains("spherical edges")),
        "{:?}",
        whole.source.warnings
    );
}
