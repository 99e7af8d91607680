//! Writing batches.

use std::io::{self, Write};
use std::sync::Arc;

use crate::support::{TestFile, read_text, written};
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Float64Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray, UInt64Array,
};
use parquet::file::reader::{FileReader, SerializedFileReader};
use terrane_formats::{Format, GeometryColumns, OutputFormat, WriteError, WriteOptions, writer};

fn sample() -> RecordBatch {
    let wkb = terrane_space::geometry::from_wkt("LINESTRING (0 1, 2 3)").expect("valid");
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from(vec![i64::MAX, -1]))),
        ("big", Arc::new(UInt64Array::from(vec![u64::MAX, 0]))),
        ("lon", Arc::new(Float64Array::from(vec![Some(0.1), None]))),
        ("lat", Arc::new(Float64Array::from(vec![Some(-5.0), Some(f64::NAN)]))),
        ("ok", Arc::new(BooleanArray::from(vec![Some(true), None]))),
        ("name", Arc::new(StringArray::from(vec![Some("a \"b\", c\n"), Some("")]))),
        ("raw", Arc::new(BinaryArray::from(vec![Some(&b"\x00\xff"[..]), None]))),
        ("day", Arc::new(Date32Array::from(vec![Some(0), None]))),
        ("at", Arc::new(TimestampMicrosecondArray::from(vec![Some(1_500_000), None]).with_timezone("UTC"))),
        ("geometry", Arc::new(BinaryArray::from(vec![Some(&wkb[..]), None]))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true)))
        .expect("columns of one length")
}

fn column() -> GeometryColumns {
    GeometryColumns::Column { name: "geometry".to_string() }
}

fn text(format: OutputFormat, geometry: GeometryColumns) -> String {
    String::from_utf8(written(format, &[sample()], geometry)).expect("UTF-8")
}

#[test]
fn ndjson_has_json_types_and_geojson_geometries() {
    let lines = text(OutputFormat::Ndjson, column());
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!(
        lines,
        [
            r#"{"id":9223372036854775807,"big":18446744073709551615,"lon":0.1,"lat":-5.0,"ok":true,"name":"a \"b\", c\n","raw":"AP8=","day":"1970-01-01","at":"1970-01-01T00:00:01.500Z","geometry":{"type":"LineString","coordinates":[[0.0,1.0],[2.0,3.0]]}}"#,
            r#"{"id":-1,"big":0,"lon":null,"lat":null,"ok":null,"name":"","raw":null,"day":null,"at":null,"geometry":null}"#,
        ]
    );
}

#[test]
fn csv_quotes_what_needs_it_and_writes_wkt() {
    let csv = text(OutputFormat::Csv, column());
    let wkt =
        terrane_space::geometry::to_wkt(&terrane_space::geometry::from_wkt("LINESTRING (0 1, 2 3)").expect("valid"))
            .expect("valid");
    let expected = format!(
        "id,big,lon,lat,ok,name,raw,day,at,geometry\n\
         9223372036854775807,18446744073709551615,0.1,-5.0,true,\"a \"\"b\"\", c\n\",AP8=,1970-01-01,1970-01-01T00:00:01.500Z,\"{wkt}\"\n\
         -1,0,,NaN,,\"\",,,,\n"
    );
    assert_eq!(csv, expected);
}

#[test]
fn geojson_takes_its_geometry_from_wkb_or_coordinates() {
    let whole = read_text("a.geojson", text(OutputFormat::GeoJson, column())).expect("valid");
    assert_eq!(whole.source.format, Format::GeoJson);
    assert_eq!(crate::support::wkt(&whole).iter().flatten().count(), 1);
    let coordinates = GeometryColumns::Coordinates { x: "lon".to_string(), y: "lat".to_string() };
    let geojson = text(OutputFormat::GeoJson, coordinates);
    assert!(geojson.contains(r#""geometry":{"type":"Point","coordinates":[0.1,-5.0]}"#), "{geojson}");
    assert!(geojson.contains(r#""geometry":null"#) && !geojson.contains("\"lon\""), "{geojson}");
}

#[test]
fn row_groups_of_parquet_end_when_their_memory_is_used() {
    let numbers: Vec<i64> = (0..200_000).map(|number: i64| number.wrapping_mul(0x5851_f42d_4c95_7f2d)).collect();
    let batches: Vec<RecordBatch> = numbers
        .chunks(5000)
        .map(|chunk| RecordBatch::try_from_iter([("n", Arc::new(Int64Array::from(chunk.to_vec())) as ArrayRef)]))
        .collect::<Result<_, _>>()
        .expect("a column");
    let row_groups = |row_group_bytes_max| {
        let mut bytes = Vec::new();
        let mut output =
            writer(OutputFormat::Parquet, &mut bytes, WriteOptions { row_group_bytes_max, ..WriteOptions::default() });
        output.begin(&batches[0].schema()).expect("a schema");
        batches.iter().for_each(|batch| output.write(batch).expect("a vector takes everything"));
        output.finish().expect("a vector takes everything");
        drop(output);
        let file = TestFile::new("a.parquet", bytes);
        let file = std::fs::File::open(&file.path).expect("a file");
        SerializedFileReader::new(file).expect("Parquet").num_row_groups()
    };
    assert_eq!(row_groups(64 << 20), 1);
    let several = row_groups(400_000);
    assert!((3..=40).contains(&several), "{several}");
}

#[test]
fn tables_are_aligned_cut_and_free_of_control_characters() {
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("n", Arc::new(Int64Array::from(vec![Some(7), Some(1234), None]))),
        ("text", Arc::new(StringArray::from(vec!["\u{1b}[2J", "x", &"long ".repeat(50)]))),
    ];
    let batch = RecordBatch::try_from_iter(columns).expect("columns of one length");
    let table = written(OutputFormat::Table, &[batch], GeometryColumns::None);
    let table = String::from_utf8(table).expect("UTF-8");
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines[0], "   n  text");
    assert_eq!(lines[2], "   7  \\u{1b}[2J");
    assert_eq!(lines[3], "1234  x");
    assert!(lines[4].ends_with('…') && lines[4].chars().count() <= 46, "{}", lines[4]);
}

#[test]
fn empty_results_are_whole_files() {
    let empty = sample().slice(0, 0);
    for format in OutputFormat::ALL {
        let bytes = written(format, std::slice::from_ref(&empty), column());
        match format {
            OutputFormat::Ndjson => assert!(bytes.is_empty()),
            OutputFormat::Table => assert!(!bytes.is_empty()),
            OutputFormat::Map => assert!(bytes.ends_with(b"</html>\n")),
            _ => {
                let name = format.name();
                let whole = read_text("a.bin", bytes).expect(name);
                assert_eq!(whole.batch.num_rows(), 0, "{format}");
            }
        }
    }
}

#[test]
fn maps_hold_the_rows_as_geojson_that_ends_no_element() {
    let wkb: ArrayRef = Arc::new(BinaryArray::from(vec![&point_wkb(1.0, 2.0)[..]]));
    let text: ArrayRef = Arc::new(StringArray::from(vec!["</script><b>&"]));
    let batch = RecordBatch::try_from_iter([("wkt", wkb), ("name", text)]).expect("a batch");
    let column = || GeometryColumns::Column { name: "wkt".into() };
    let geojson =
        String::from_utf8(written(OutputFormat::GeoJson, std::slice::from_ref(&batch), column())).expect("UTF-8");
    let page = String::from_utf8(written(OutputFormat::Map, &[batch], column())).expect("UTF-8");
    let rows = page.split("<script id=\"rows\" type=\"application/json\">").nth(1).expect("rows");
    let rows = rows.split("</script>").next().expect("an end");
    assert_eq!(rows.replace("\\u003c", "<"), geojson);
    assert!(geojson.contains("</script><b>&"), "{geojson}");
}

/// Takes some bytes, then is closed.
struct ClosingPipe(usize);

impl Write for ClosingPipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0 == 0 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let count = bytes.len().min(self.0);
        self.0 -= count;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_all(format: OutputFormat, output: ClosingPipe) -> Result<(), WriteError> {
    let options = WriteOptions { geometry: column(), ..WriteOptions::default() };
    let batch = sample();
    let mut out = writer(format, output, options);
    out.begin(&batch.schema())?;
    out.write(&batch)?;
    out.finish()
}

#[test]
fn a_closed_pipe_is_told_from_other_failures() {
    for format in OutputFormat::ALL {
        for room in [0, 1, 10, 100] {
            let error = write_all(format, ClosingPipe(room)).expect_err("the pipe closes");
            assert!(error.is_broken_pipe(), "{format} after {room} bytes: {error}");
        }
    }
}

#[test]
fn formats_have_names_and_need_their_columns() {
    for format in OutputFormat::ALL {
        assert_eq!(format.name().parse(), Ok(format));
    }
    assert!("xml".parse::<OutputFormat>().is_err());
    let options =
        WriteOptions { geometry: GeometryColumns::Column { name: "shape".to_string() }, ..WriteOptions::default() };
    let mut out = writer(OutputFormat::GeoJson, io::sink(), options);
    let error = out.begin(&sample().schema()).expect_err("no such column");
    assert!(matches!(error, WriteError::MissingColumn(name) if name == "shape"));
}

fn point_wkb(x: f64, y: f64) -> Vec<u8> {
    [&[1, 1, 0, 0, 0][..], &x.to_le_bytes(), &y.to_le_bytes()].concat()
}

#[test]
fn ndjson_has_geometries_where_readers_look_for_them() {
    let wkb: ArrayRef = Arc::new(BinaryArray::from(vec![&point_wkb(1.0, 2.0)[..]]));
    let text: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
    let column = || GeometryColumns::Column { name: "wkt".into() };
    let json = |names: [&str; 2]| {
        let batch = RecordBatch::try_from_iter([(names[0], wkb.clone()), (names[1], text.clone())]).expect("a batch");
        String::from_utf8(written(OutputFormat::Ndjson, &[batch], column())).expect("UTF-8")
    };
    let geojson = r#"{"type":"Point","coordinates":[1.0,2.0]}"#;
    assert_eq!(json(["wkt", "name"]), format!("{{\"geometry\":{geojson},\"name\":\"a\"}}\n"));
    assert_eq!(json(["wkt", "geometry"]), format!("{{\"wkt\":{geojson},\"geometry\":\"a\"}}\n"));
}

#[test]
fn csv_refuses_nul_characters_which_no_import_takes() {
    let column: ArrayRef = Arc::new(StringArray::from(vec!["a", "b\0"]));
    let table = |name: &str| RecordBatch::try_from_iter([(name, Arc::clone(&column))]).expect("a column");
    let errors = ["n", "n\0"].map(|name| {
        let mut bytes = Vec::new();
        let mut out = writer(OutputFormat::Csv, &mut bytes, WriteOptions::default());
        let batch = table(name);
        out.begin(&batch.schema()).and_then(|()| out.write(&batch)).expect_err("a NUL character").to_string()
    });
    let reason = "the text holds a NUL character, which CSV cannot have; choose another output format";
    assert_eq!(errors[0], format!("row 1 of the batch, column \"n\": {reason}"));
    assert_eq!(errors[1], format!("cannot encode the output: column \"n\\0\": {reason}"));
}
