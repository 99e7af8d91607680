//! Reading Parquet, GeoParquet and Arrow IPC.

use std::collections::HashMap;
use std::sync::Arc;

use crate::support::thrift::integer;
use crate::support::{TestFile, columns, floats, read, read_text, texts, wkt};
use arrow_array::builder::{Float64Builder, ListBuilder, StructBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int32Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, Decimal128Array, DictionaryArray, FixedSizeListArray, Float32Array, Float64Array,
    Int32Array, LargeStringArray, ListArray, RecordBatch, StringArray, StringViewArray, StructArray,
    TimestampNanosecondArray, UInt8Array,
};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use arrow_schema::{DataType, Field, Fields, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::{BrotliLevel, Compression, Encoding, GzipLevel, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{WriterProperties, WriterVersion};
use terrane_formats::{CoordinateOptions, Format, FormatError, GeometryColumns, ReadOptions, open};

pub fn table(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true)))
        .expect("columns of one length")
}

pub fn parquet_bytes(batch: &RecordBatch, geo: Option<&str>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).expect("a writer");
    writer.write(batch).expect("a vector takes everything");
    if let Some(geo) = geo {
        writer.append_key_value_metadata(KeyValue::new("geo".to_string(), geo.to_string()));
    }
    writer.close().expect("a vector takes everything");
    bytes
}

pub fn stream_bytes(batch: &RecordBatch) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = StreamWriter::try_new(&mut bytes, &batch.schema()).expect("a writer");
    writer.write(batch).expect("a vector takes everything");
    writer.write(batch).expect("a vector takes everything");
    writer.finish().expect("a vector takes everything");
    drop(writer);
    bytes
}

pub fn file_bytes(batch: &RecordBatch) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = FileWriter::try_new(&mut bytes, &batch.schema()).expect("a writer");
    writer.write(batch).expect("a vector takes everything");
    writer.finish().expect("a vector takes everything");
    drop(writer);
    bytes
}

/// Marks the column `geometry` as an extension type.
fn with_extension(batch: &RecordBatch, name: &str, metadata: &str) -> RecordBatch {
    let fields: Vec<Field> = batch
        .schema_ref()
        .fields()
        .iter()
        .map(|field| match field.name().as_str() {
            "geometry" => field.as_ref().clone().with_metadata(HashMap::from([
                ("ARROW:extension:name".to_string(), name.to_string()),
                ("ARROW:extension:metadata".to_string(), metadata.to_string()),
            ])),
            _ => field.as_ref().clone(),
        })
        .collect();
    batch.clone().with_schema(Arc::new(Schema::new(fields))).expect("the same columns")
}

pub fn point_wkb(x: f64, y: f64) -> Vec<u8> {
    [&[1, 1, 0, 0, 0][..], &x.to_le_bytes(), &y.to_le_bytes()].concat()
}

pub fn shown(whole: &crate::support::Whole) -> Vec<String> {
    let geometries = wkt(whole).into_iter();
    geometries.map(|text| text.unwrap_or_else(|| "null".to_string()).replace([' ', ','], "")).collect()
}

#[test]
fn types_are_brought_to_the_few_that_leave() {
    let nested: ArrayRef =
        Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None]), None]));
    let dictionary: DictionaryArray<Int32Type> = ["a", "b"].into_iter().collect();
    let decimals = Decimal128Array::from(vec![1250, -5]).with_precision_and_scale(10, 2).expect("in range");
    let batch = table(vec![
        ("i", Arc::new(Int32Array::from(vec![Some(1), None]))),
        ("u", Arc::new(UInt8Array::from(vec![255, 0]))),
        ("f", Arc::new(Float32Array::from(vec![0.1, 2.5]))),
        ("d", Arc::new(decimals)),
        ("l", Arc::new(LargeStringArray::from(vec!["x", "y"]))),
        ("v", Arc::new(StringViewArray::from(vec!["x", "y"]))),
        ("t", Arc::new(TimestampNanosecondArray::from(vec![1_999, -1]).with_timezone("Europe/Paris"))),
        ("dict", Arc::new(dictionary)),
        ("nested", nested),
    ]);
    for (name, bytes) in [("a.parquet", parquet_bytes(&batch, None)), ("a.arrow", file_bytes(&batch))] {
        let whole = read_text(name, bytes).expect(name);
        assert_eq!(
            columns(&whole),
            [
                "i: Int64",
                "u: Int64",
                "f: Float32",
                "d: Float64",
                "l: Utf8",
                "v: Utf8",
                "t: Timestamp(µs, \"UTC\")",
                "dict: Utf8",
                "nested: Utf8",
            ]
        );
        let narrow = whole.batch.column_by_name("f").expect("the column").as_primitive::<Float32Type>();
        assert_eq!(narrow.value(0), 0.1_f32);
        assert_eq!(floats(&whole, "d"), [Some(12.5), Some(-0.05)]);
        assert_eq!(texts(&whole, "nested"), [Some("[1,null]".to_string()), None]);
        assert_eq!(texts(&whole, "dict"), [Some("a".to_string()), Some("b".to_string())]);
        assert!(whole.source.warnings.iter().any(|warning| warning.contains("nanoseconds")));
    }
}

#[test]
fn formats_are_told_by_their_content() {
    let batch =
        table(vec![("lon", Arc::new(Float64Array::from(vec![1.0]))), ("lat", Arc::new(Int32Array::from(vec![2])))]);
    for (bytes, format, rows) in [
        (parquet_bytes(&batch, None), Format::Parquet, 1),
        (file_bytes(&batch), Format::ArrowFile, 1),
        (stream_bytes(&batch), Format::ArrowStream, 2),
    ] {
        let whole = read_text("misnamed.csv", bytes).expect("told by content");
        assert_eq!(whole.source.format, format);
        assert_eq!(whole.source.row_count_hint, Some(rows));
        assert_eq!(whole.rows.len() as u64, rows);
        assert_eq!(columns(&whole), ["lon: Float64", "lat: Float64"]);
        assert!(matches!(whole.source.geometry, GeometryColumns::Coordinates { .. }));
    }
}

#[test]
fn large_batches_are_cut() {
    let values = Float64Array::from_iter_values((0..100_000).map(f64::from));
    let batch = table(vec![("v", Arc::new(values))]);
    for bytes in [parquet_bytes(&batch, None), file_bytes(&batch)] {
        let file = TestFile::new("a.bin", bytes);
        let mut source = terrane_formats::open(&file.path, &ReadOptions::default()).expect("valid");
        let mut count = 0;
        while let Some(part) = source.next_batch().expect("valid") {
            assert!(part.rows.len() <= terrane_formats::BATCH_ROWS_MAX);
            let values = part.batch.column(0).as_primitive::<Float64Type>();
            assert!(values.values().iter().zip(&part.rows).all(|(&value, &row)| value + 1.0 == row as f64));
            count += part.rows.len();
        }
        assert_eq!(count, 100_000);
    }
}

#[test]
fn one_missing_coordinate_refuses_the_row() {
    let batch = table(vec![
        ("lon", Arc::new(Float64Array::from(vec![Some(1.0), None, None]))),
        ("lat", Arc::new(Float64Array::from(vec![Some(1.0), Some(2.0), None]))),
    ]);
    let whole = read_text("a.parquet", parquet_bytes(&batch, None)).expect("valid");
    assert_eq!(whole.rows, [1, 3]);
    assert_eq!(whole.rejected[0].reason, "column \"lon\": the coordinate is missing");
}

#[test]
fn geoparquet_is_checked_against_its_metadata() {
    let wkb = BinaryArray::from(vec![Some(&point_wkb(1.0, 2.0)[..]), None, Some(&[1, 2, 3])]);
    let batch = table(vec![("id", Arc::new(Int32Array::from(vec![1, 2, 3]))), ("geometry", Arc::new(wkb))]);
    let geo = |column: &str| {
        format!(r#"{{"version":"1.1.0","primary_column":"geometry","columns":{{"geometry":{column}}}}}"#)
    };
    let whole = read_text("a.parquet", parquet_bytes(&batch, Some(&geo(r#"{"encoding":"WKB","bbox":[50,50,51,51]}"#))))
        .expect("valid");
    assert_eq!(whole.source.format, Format::GeoParquet);
    assert_eq!(shown(&whole), ["POINT(12)", "null"]);
    assert_eq!(whole.rejected.iter().map(|bad| bad.row).collect::<Vec<_>>(), [3]);
    for (metadata, words) in [
        (geo(r#"{"encoding":"WKX"}"#), "\"WKX\""),
        (geo(r#"{"encoding":"WKB","crs":{"type":"ProjectedCRS","name":"Site"}}"#), "Site"),
        (geo(r#"{"encoding":"point"}"#), "coordinates were expected"),
        ("{".to_string(), "\"geo\" metadata"),
        (r#"{"version":"1.1.0","primary_column":"x","columns":{}}"#.to_string(), "not in the file"),
    ] {
        let error = read_text("a.parquet", parquet_bytes(&batch, Some(&metadata))).expect_err(words);
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn other_reference_systems_are_converted_unless_planar() {
    let wkb = BinaryArray::from(vec![Some(&point_wkb(-8_237_642.318_702_244, 4_970_071.579_142_4)[..])]);
    let batch = table(vec![("geometry", Arc::new(wkb))]);
    let geo = r#"{"version":"1.0.0","primary_column":"geometry","columns":{"geometry":{"encoding":"WKB","crs":{"name":"Web","id":{"authority":"EPSG","code":3857}}}}}"#;
    let bytes = parquet_bytes(&batch, Some(geo));
    let marked = with_extension(&batch, "geoarrow.wkb", r#"{"crs":"EPSG:3857"}"#);
    for bytes in [bytes.clone(), stream_bytes(&marked)] {
        let whole = read_text("a.bin", bytes).expect("known system");
        assert!(shown(&whole)[0].starts_with("POINT(-7"), "{:?}", shown(&whole));
        assert!(whole.source.warnings[0].contains("EPSG:3857"));
    }
    let file = TestFile::new("a.parquet", bytes);
    let options = ReadOptions { coordinates: CoordinateOptions::planar(), ..ReadOptions::default() };
    let whole = read(&file.path, &options).expect("valid");
    assert!(shown(&whole)[0].starts_with("POINT(-8237642"), "{:?}", shown(&whole));
}

/// The system number of a geometry overrides the file's declaration.
#[test]
fn geometries_that_name_their_system_are_converted_from_it() {
    let numbered = |srid: u32| {
        let mut wkb = point_wkb(10.0, 20.0);
        wkb[4] |= 0x20;
        wkb.splice(5..5, srid.to_le_bytes());
        wkb
    };
    let values: Vec<Vec<u8>> = [3857, 4326, 0, 999_999].map(numbered).into();
    let wkb = BinaryArray::from_iter_values(&values);
    let batch = table(vec![("geometry", Arc::new(wkb))]);
    let metres = "POINT (0.00008983152841195215 0.00017966305682360983)";
    for (crs, unnamed) in
        [(r#"{"crs":"EPSG:3857"}"#, metres), (r#"{"crs":"EPSG:4326"}"#, "POINT (10 20)"), ("{}", "POINT (10 20)")]
    {
        let whole = read_text("a.arrow", stream_bytes(&with_extension(&batch, "geoarrow.wkb", crs))).expect("valid");
        // The stream has the batch twice.
        let texts: Vec<String> = wkt(&whole).into_iter().flatten().take(3).collect();
        assert_eq!(texts, [metres, "POINT (10 20)", unnamed], "{crs}");
        let refused: Vec<&str> = whole.rejected.iter().map(|bad| bad.reason.as_str()).collect();
        assert!(refused[0].contains("EPSG:999999"), "{refused:?}");
        assert_eq!(whole.rejected.iter().map(|bad| bad.row).collect::<Vec<_>>(), [4, 8]);
    }
}

#[test]
fn columns_that_are_not_declared_are_geometry_by_name_and_values() {
    let point = point_wkb(1.0, 2.0);
    let binary = |values: Vec<Option<&[u8]>>| Arc::new(BinaryArray::from(values)) as ArrayRef;
    let text = |values: Vec<Option<&str>>| Arc::new(StringArray::from(values)) as ArrayRef;
    let files = |values: &ArrayRef| {
        let batch = table(vec![("geometry", Arc::clone(values))]);
        [("a.parquet", parquet_bytes(&batch, None)), ("a.arrow", stream_bytes(&batch))]
    };
    let hexadecimal: String = point.iter().map(|byte| format!("{byte:02x}")).collect();
    for values in [
        binary(vec![None, Some(&point)]),
        text(vec![Some("POINT (1 2)"), None]),
        text(vec![Some("SRID=4326;POINT (1 2)"), Some(" ")]),
        text(vec![Some(&hexadecimal)]),
    ] {
        for (name, bytes) in files(&values) {
            let whole = read_text(name, bytes).expect("valid");
            assert_eq!(whole.source.geometry, GeometryColumns::Column { name: "geometry".into() }, "{name}");
            assert!(shown(&whole).contains(&"POINT(12)".to_string()), "{name}");
        }
    }
    for values in [binary(vec![Some(&point), Some(b"x")]), text(vec![Some("POINT (1 2)"), Some("x")]), text(vec![None])]
    {
        for (name, bytes) in files(&values) {
            assert_eq!(read_text(name, bytes).expect("valid").source.geometry, GeometryColumns::None, "{name}");
        }
    }
    let in_base64 = text(vec![Some("AQEAAAAAAAAAAADwPwAAAAAAAABA")]);
    for (name, bytes) in files(&in_base64) {
        let error = read_text(name, bytes).expect_err("base64").to_string();
        assert!(error.contains("base64") && error.contains("WKT"), "{error}");
    }
}

fn positions(values: &[(f64, f64)]) -> StructArray {
    let axis =
        |pick: fn(&(f64, f64)) -> f64| Arc::new(Float64Array::from_iter_values(values.iter().map(pick))) as ArrayRef;
    let fields =
        Fields::from(vec![Field::new("x", DataType::Float64, false), Field::new("y", DataType::Float64, false)]);
    StructArray::new(fields, vec![axis(|p| p.0), axis(|p| p.1)], None)
}

/// Lists of the given lengths around `values`.
fn lists(values: ArrayRef, lengths: &[usize]) -> ArrayRef {
    let field = Arc::new(Field::new("item", values.data_type().clone(), true));
    let offsets = arrow_buffer::OffsetBuffer::from_lengths(lengths.iter().copied());
    Arc::new(ListArray::new(field, offsets, values, None))
}

const RING: [(f64, f64); 4] = [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 0.0)];

#[test]
fn native_encodings_of_geoarrow_become_wkb() {
    let ring = || Arc::new(positions(&RING)) as ArrayRef;
    for (name, array, expected) in [
        ("point", Arc::new(positions(&[(1.0, 2.0)])) as ArrayRef, "POINT(12)"),
        ("linestring", lists(ring(), &[4]), "LINESTRING(00101100)"),
        ("multipoint", lists(ring(), &[4]), "MULTIPOINT((00)(10)(11)(00))"),
        ("polygon", lists(lists(ring(), &[4]), &[1]), "POLYGON((00101100))"),
        ("multilinestring", lists(lists(ring(), &[2, 2]), &[2]), "MULTILINESTRING((0010)(1100))"),
        ("multipolygon", lists(lists(lists(ring(), &[4]), &[1]), &[1]), "MULTIPOLYGON(((00101100)))"),
        ("polygon", lists(lists(ring(), &[]), &[0]), "POLYGONEMPTY"),
    ] {
        let batch = table(vec![("geometry", array)]);
        let marked = with_extension(&batch, &format!("geoarrow.{name}"), "");
        let whole = read_text("a.arrows", stream_bytes(&marked)).expect(name);
        assert_eq!(shown(&whole)[0], expected, "{name}");
        let geo = format!(
            r#"{{"version":"1.1.0","primary_column":"geometry","columns":{{"geometry":{{"encoding":"{name}"}}}}}}"#
        );
        let whole = read_text("a.parquet", parquet_bytes(&batch, Some(&geo))).expect(name);
        assert_eq!(shown(&whole), [expected], "{name}");
    }
}

#[test]
fn interleaved_positions_with_z_and_unclosed_rings_are_judged() {
    let field = Arc::new(Field::new("xyz", DataType::Float64, false));
    let values: ArrayRef = Arc::new(Float64Array::from(vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
    let points = FixedSizeListArray::new(field, 3, values, None);
    let batch = table(vec![("geometry", Arc::new(points))]);
    let marked = with_extension(&batch, "geoarrow.point", "{}").slice(1, 1);
    let whole = read_text("a.arrow", file_bytes(&marked)).expect("valid");
    assert_eq!(shown(&whole), ["POINTZ(456)"]);
    let open: ArrayRef = Arc::new(positions(&RING[..3]));
    let batch = table(vec![("geometry", lists(lists(open, &[3]), &[1]))]);
    let marked = with_extension(&batch, "geoarrow.polygon", "{}");
    let whole = read_text("a.arrow", file_bytes(&marked)).expect("the file is whole");
    assert_eq!(whole.rejected.len(), 1);
}

#[test]
fn missing_coordinates_inside_a_geometry_refuse_the_row() {
    let fields = vec![Field::new("x", DataType::Float64, true), Field::new("y", DataType::Float64, true)];
    let mut builder = ListBuilder::new(StructBuilder::from_fields(fields, 2));
    for x in [Some(1.0), None] {
        let position = builder.values();
        position.field_builder::<Float64Builder>(0).expect("x").append_option(x);
        position.field_builder::<Float64Builder>(1).expect("y").append_value(2.0);
        position.append(true);
    }
    builder.append(true);
    let batch = table(vec![("geometry", Arc::new(builder.finish()))]);
    let marked = with_extension(&batch, "geoarrow.linestring", "{}");
    let whole = read_text("a.arrow", file_bytes(&marked)).expect("the file is whole");
    assert!(whole.rejected[0].reason.contains("a coordinate is missing"), "{:?}", whole.rejected);
}

#[test]
fn cut_files_are_damaged_not_short() {
    let values = arrow_array::PrimitiveArray::<Int64Type>::from_iter_values(0..1000);
    let batch = table(vec![("id", Arc::new(values))]);
    for bytes in [parquet_bytes(&batch, None), file_bytes(&batch), stream_bytes(&batch)] {
        for length in [9, 30, bytes.len() / 2, bytes.len() - 20] {
            let outcome = read_text("a.bin", &bytes[..length]);
            assert!(matches!(outcome, Err(FormatError::Damaged { .. })), "{length}: {outcome:?}");
        }
    }
}

#[test]
fn coordinates_that_are_no_finite_numbers_are_refused_by_row_and_column() {
    let (nan, infinity) = (f64::NAN, f64::INFINITY);
    let batch = table(vec![
        ("lon", Arc::new(Float64Array::from(vec![Some(nan), Some(nan), Some(1.0), Some(1.0), Some(nan), None]))),
        ("lat", Arc::new(Float64Array::from(vec![Some(2.0), Some(nan), Some(-infinity), Some(2.0), None, None]))),
        ("speed", Arc::new(Float64Array::from(vec![Some(nan); 6]))),
    ]);
    for (name, bytes) in [("a.parquet", parquet_bytes(&batch, None)), ("a.arrow", file_bytes(&batch))] {
        let whole = read_text(name, bytes).expect("valid");
        assert_eq!(whole.rows, [4, 6], "an attribute may be any number, and a place may be missing");
        let reasons: Vec<_> = whole.rejected.iter().map(|bad| (bad.row, bad.reason.as_str())).collect();
        let wanted = [
            (1, "column \"lon\": NaN is not a finite number"),
            (2, "column \"lon\": NaN is not a finite number"),
            (3, "column \"lat\": -inf is not a finite number"),
            (5, "column \"lon\": NaN is not a finite number"),
        ];
        assert_eq!(reasons, wanted);
    }
}

/// Decimal text of a coordinate is rounded as any parser of numbers does; a binary integer means
/// its exact value.
#[test]
fn coordinates_are_rounded_from_text_and_never_from_binary_integers() {
    let (beyond, nearest) = ((1_i64 << 53) + 1, (1_i64 << 53) as f64);
    let csv = read_text("a.csv", format!("x,y\n{beyond},1\n")).expect("valid");
    let json = read_text("a.ndjson", format!("{{\"x\":{beyond},\"y\":1}}\n")).expect("valid");
    for whole in [csv, json] {
        assert_eq!(floats(&whole, "x"), [Some(nearest)], "{:?}", whole.source.format);
    }
    let position = format!("{{\"type\":\"Point\",\"coordinates\":[{beyond},1]}}");
    let feature = format!("{{\"type\":\"Feature\",\"properties\":{{}},\"geometry\":{position}}}");
    let whole = read_text("a.geojson", feature).expect("valid");
    assert_eq!(wkt(&whole), [Some(format!("POINT ({nearest} 1)"))]);
    let numbers = |x: i64| Arc::new(arrow_array::Int64Array::from(vec![x]));
    for (x, fits) in [(beyond, false), (beyond - 1, true)] {
        let batch = table(vec![("x", numbers(x)), ("y", numbers(1))]);
        for (name, bytes) in [("a.parquet", parquet_bytes(&batch, None)), ("a.arrow", file_bytes(&batch))] {
            let whole = read_text(name, bytes).expect("valid");
            let reasons: Vec<_> = whole.rejected.iter().map(|bad| bad.reason.as_str()).collect();
            let wanted = format!("column \"x\": float64 cannot hold {x} exactly; store the column as float64");
            assert_eq!((whole.rows.len() == 1, reasons.is_empty()), (fits, fits), "{x} in {name}: {reasons:?}");
            assert!(fits || reasons == [wanted], "{reasons:?}");
        }
    }
}

/// Decimal numbers are text by nature, as coordinates, as attributes and in a dictionary.
#[test]
fn decimal_columns_are_rounded_to_the_nearest_float64() {
    let number = || {
        let digits = Decimal128Array::from(vec![900_719_925_474_099_300]);
        Arc::new(digits.with_precision_and_scale(18, 2).expect("in range"))
    };
    let dictionary = DictionaryArray::<Int32Type>::new(Int32Array::from(vec![0]), number());
    let batch = table(vec![("x", number()), ("y", number()), ("plain", number()), ("shared", Arc::new(dictionary))]);
    for (name, bytes) in [("a.parquet", parquet_bytes(&batch, None)), ("a.arrow", file_bytes(&batch))] {
        let whole = read_text(name, bytes).expect(name);
        for column in ["x", "y", "plain", "shared"] {
            assert_eq!(floats(&whole, column), [Some(9_007_199_254_740_992.0)], "{column} in {name}");
        }
        let warning = "column \"shared\": decimal numbers become float64, each the nearest".to_string();
        assert!(whole.source.warnings.contains(&warning), "{:?}", whole.source.warnings);
    }
}

#[test]
fn geometry_that_parquet_itself_declares_makes_no_geoparquet() {
    let wkb = BinaryArray::from(vec![Some(&point_wkb(1.0, 2.0)[..])]);
    let batch = with_extension(&table(vec![("geometry", Arc::new(wkb))]), "geoarrow.wkb", "{}");
    let whole = read_text("a.parquet", parquet_bytes(&batch, None)).expect("valid");
    assert_eq!(whole.source.format, Format::Parquet);
    assert_eq!(wkt(&whole).len(), 1, "and is taken all the same");
}

/// Zeros, which compress to next to nothing.
fn zeros() -> RecordBatch {
    let count = BOMB_BYTES / size_of::<f64>();
    table(vec![("value", Arc::new(Float64Array::from(vec![0.0; count])))])
}

/// Bytes that the files of these tests expand to.
const BOMB_BYTES: usize = 4 << 20;

fn compressed_stream(batch: &RecordBatch, compression: CompressionType) -> Vec<u8> {
    let options = IpcWriteOptions::default().try_with_compression(Some(compression)).expect("a known compression");
    let mut bytes = Vec::new();
    let mut writer = StreamWriter::try_new_with_options(&mut bytes, &batch.schema(), options).expect("a writer");
    writer.write(batch).expect("a vector takes everything");
    writer.finish().expect("a vector takes everything");
    drop(writer);
    bytes
}

fn parquet_of(batch: &RecordBatch, properties: WriterProperties) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).expect("a writer");
    writer.write(batch).expect("a vector takes everything");
    writer.close().expect("a vector takes everything");
    bytes
}

/// A file in pages of any size, with or without a dictionary.
fn zstd_parquet(batch: &RecordBatch, dictionary: bool) -> Vec<u8> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_dictionary_enabled(dictionary)
        .set_dictionary_page_size_limit(usize::MAX)
        .set_data_page_size_limit(usize::MAX)
        .set_write_batch_size(usize::MAX)
        .set_data_page_row_count_limit(usize::MAX)
        .build();
    parquet_of(batch, properties)
}

/// A file of one page, without a dictionary.
fn compressed_parquet(batch: &RecordBatch, compression: Compression, version: WriterVersion) -> Vec<u8> {
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .set_writer_version(version)
        .set_encoding(Encoding::PLAIN)
        .set_dictionary_enabled(false)
        .set_data_page_size_limit(usize::MAX)
        .set_write_batch_size(usize::MAX)
        .set_data_page_row_count_limit(usize::MAX)
        .build();
    parquet_of(batch, properties)
}

fn read_within(name: &str, bytes: &[u8], decoded_bytes_max: Option<u64>) -> Result<usize, FormatError> {
    let file = TestFile::new(name, bytes);
    let options = ReadOptions { decoded_bytes_max, ..ReadOptions::default() };
    read(&file.path, &options).map(|whole| whole.batch.num_rows())
}

#[test]
fn what_is_too_large_when_decoded_is_refused_with_advice() {
    let batch = zeros();
    // Text in a dictionary, one value per row, so that the dictionary is large.
    let texts: Vec<String> = (0..BOMB_BYTES >> 10).map(|number| format!("{number:01024}")).collect();
    let text = table(vec![("text", Arc::new(StringArray::from(texts)))]);
    let keys: Int32Array = (0..1000).collect();
    let values = text.column(0).clone();
    let dictionary = table(vec![("text", Arc::new(DictionaryArray::new(keys, values)))]);
    for (name, bytes, advice) in [
        ("lz4.arrows", compressed_stream(&batch, CompressionType::LZ4_FRAME), "smaller record batches or as Parquet"),
        ("zstd.arrows", compressed_stream(&batch, CompressionType::ZSTD), "smaller record batches or as Parquet"),
        ("plain.arrow", file_bytes(&batch), "smaller record batches or as Parquet"),
        ("dictionary.arrow", file_bytes(&dictionary), "smaller record batches or as Parquet"),
        ("plain.parquet", zstd_parquet(&batch, false), "smaller pages"),
        ("dictionary.parquet", zstd_parquet(&text, true), "smaller pages"),
    ] {
        let fits = BOMB_BYTES as u64 * 3;
        for bytes_max in [None, Some(fits)] {
            let rows = read_within(name, &bytes, bytes_max).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(rows >= 1000, "{name}: {rows} rows");
        }
        let error = read_within(name, &bytes, Some(BOMB_BYTES as u64 / 4 * 3)).expect_err(name);
        assert!(matches!(error, FormatError::Refused { .. }), "{name}: {error:?}");
        let error = error.to_string();
        assert!(error.contains("decoding ") && error.contains(" takes ") && error.contains(advice), "{error}");
    }
}

/// Ordinary pages do not count against the limit. Otherwise files of many columns could not be read
/// within a small one.
#[test]
fn many_parquet_columns_of_ordinary_pages_are_accepted_whatever_they_add_up_to() {
    let columns: Vec<(String, ArrayRef)> = (0..20)
        .map(|number| {
            let values = Float64Array::from_iter_values((0..150_000).map(|row| f64::from(row * 31 % 65_537 + number)));
            (format!("column_{number}"), Arc::new(values) as ArrayRef)
        })
        .collect();
    let batch = table(columns.iter().map(|(name, array)| (name.as_str(), array.clone())).collect());
    assert_eq!(read_within("a.parquet", &parquet_bytes(&batch, None), Some(2 << 20)).expect("it fits"), 150_000);
}

#[test]
fn lz4_that_expands_to_more_than_it_claims_is_refused_before_it_is_decoded() {
    let mut bytes = compressed_stream(&zeros(), CompressionType::LZ4_FRAME);
    let claim = (BOMB_BYTES as u64).to_le_bytes();
    let place = bytes.windows(8).rposition(|window| window == claim).expect("the claimed length");
    bytes[place..place + 8].copy_from_slice(&64u64.to_le_bytes());
    let error = read_within("a.arrows", &bytes, Some(1 << 20)).expect_err("a lie").to_string();
    assert!(error.contains("a buffer expands to more than the 64 bytes that it claims"), "{error}");
}

/// The file with the claim of its first page replaced by one of the same width.
fn with_page_claim(mut bytes: Vec<u8>, claim: impl Fn(usize) -> usize) -> Vec<u8> {
    // The type, and then the length when decompressed.
    assert_eq!((bytes[4], bytes[6]), (0x15, 0x15), "a page's header");
    let width = bytes[7..].iter().position(|byte| byte & 0x80 == 0).expect("an end") + 1;
    let raw = bytes[7..7 + width].iter().rev().fold(0, |sum, &byte| sum << 7 | usize::from(byte & 0x7f));
    let new = integer(claim(raw >> 1) as i64);
    assert_eq!(new.len(), width);
    bytes[7..7 + width].copy_from_slice(&new);
    bytes
}

#[test]
fn parquet_pages_that_expand_to_more_than_they_claim_are_refused_before_they_are_decoded() {
    let batch = zeros();
    for compression in [Compression::GZIP(GzipLevel::default()), Compression::BROTLI(BrotliLevel::default())] {
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            let name = format!("{compression} in {version:?}");
            let bytes = compressed_parquet(&batch, compression, version);
            let rows = read_within("a.parquet", &bytes, None).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(rows, BOMB_BYTES / 8, "{name}");
            let lie = with_page_claim(bytes, |claim| claim / 2);
            let error = read_within("a.parquet", &lie, Some(3 << 20)).expect_err(&name).to_string();
            assert!(error.contains("a page expands to more than the"), "{name}: {error}");
        }
    }
}

#[test]
fn values_that_many_rows_share_are_written_out_in_batches_that_fit() {
    const VALUE_BYTES: usize = 100_000;
    const ROWS: usize = 1000;
    let bytes_max = 4 << 20;
    let value = "x".repeat(VALUE_BYTES);
    let text = || StringArray::from(vec![value.as_str()]);
    let dictionary: ArrayRef = Arc::new(DictionaryArray::new(Int32Array::from(vec![0; ROWS]), Arc::new(text())));
    let keys = arrow_array::UInt32Array::from(vec![0; ROWS]);
    let views = arrow_select::take::take(&StringViewArray::from_iter_values([&value]), &keys, None).expect("in range");
    let lists = lists(dictionary.clone(), &[2; ROWS / 2]);
    for (name, bytes, rows, per_row) in [
        ("dictionary.parquet", parquet_bytes(&table(vec![("text", dictionary.clone())]), None), ROWS, 1),
        ("views.parquet", parquet_bytes(&table(vec![("text", views.clone())]), None), ROWS, 1),
        ("lists.parquet", parquet_bytes(&table(vec![("text", lists.clone())]), None), ROWS / 2, 2),
        ("dictionary.arrow", file_bytes(&table(vec![("text", dictionary)])), ROWS, 1),
        ("views.arrow", file_bytes(&table(vec![("text", views)])), ROWS, 1),
        ("lists.arrow", file_bytes(&table(vec![("text", lists)])), ROWS / 2, 2),
    ] {
        assert!(bytes.len() < 4 * VALUE_BYTES, "{name} stores the value once: {}", bytes.len());
        let file = TestFile::new(name, bytes);
        let options = |bytes_max| ReadOptions { decoded_bytes_max: Some(bytes_max), ..ReadOptions::default() };
        let mut source = open(&file.path, &options(bytes_max)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut count = 0;
        while let Some(batch) = source.next_batch().unwrap_or_else(|error| panic!("{name}: {error}")) {
            let texts: usize = batch.batch.column(0).as_string::<i32>().iter().flatten().map(str::len).sum();
            assert!(texts as u64 <= bytes_max + 100, "{name}: {texts} bytes");
            assert!(texts >= batch.batch.num_rows() * per_row * VALUE_BYTES, "{name}: a value is missing");
            count += batch.batch.num_rows();
        }
        assert_eq!(count, rows, "{name}");
    }
}

#[test]
fn a_row_that_does_not_fit_once_shared_values_are_written_out_is_refused_with_advice() {
    let text: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(100_000)]));
    let dictionary: ArrayRef = Arc::new(DictionaryArray::new(Int32Array::from(vec![0; 100]), text));
    let batch = table(vec![("text", lists(dictionary, &[100]))]);
    for (name, bytes) in [("a.parquet", parquet_bytes(&batch, None)), ("a.arrow", file_bytes(&batch))] {
        assert_eq!(read_within(name, &bytes, None).expect("it fits"), 1);
        let error = read_within(name, &bytes, Some(4 << 20)).expect_err(name);
        assert!(matches!(error, FormatError::Refused { .. }), "{name}: {error:?}");
        assert!(error.to_string().contains("or allow more memory"), "{error}");
    }
}
