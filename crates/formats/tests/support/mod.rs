//! Shared by the tests: files with given content, and reading them to the end.

#![allow(dead_code, reason = "every test binary uses some of it")]

pub mod thrift;

use std::io::Write;
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_select::concat::concat_batches;
use terrane_formats::{
    CoordinateOptions, FormatError, GeometryColumns, JsonError, JsonRecord, OutputFormat, ReadOptions, RecordOptions,
    RecordReader, RejectedRow, Source, WriteOptions, open, writer,
};

/// A file that is removed when the value is dropped.
pub struct TestFile {
    _folder: tempfile::TempDir,
    pub path: PathBuf,
}

impl TestFile {
    pub fn new(name: &str, content: impl AsRef<[u8]>) -> TestFile {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join(name);
        let mut file = std::fs::File::create(&path).expect("a new file");
        file.write_all(content.as_ref()).expect("space in the temporary folder");
        TestFile { _folder: folder, path }
    }
}

/// A file that has been read to its end.
#[derive(Debug)]
pub struct Whole {
    pub source: Source,
    pub batch: RecordBatch,
    pub rows: Vec<u64>,
    pub rejected: Vec<RejectedRow>,
}

pub fn read(path: &Path, options: &ReadOptions) -> Result<Whole, FormatError> {
    let mut source = open(path, options)?;
    let mut batches = Vec::new();
    let mut rows = Vec::new();
    let mut rejected = Vec::new();
    while let Some(part) = source.next_batch()? {
        assert_eq!(part.batch.num_rows(), part.rows.len());
        assert_eq!(part.batch.schema(), source.schema());
        assert!(part.batch.num_rows() + part.rejected.len() > 0, "an empty batch");
        batches.push(part.batch);
        rows.extend(part.rows);
        rejected.extend(part.rejected);
    }
    assert!(source.next_batch()?.is_none(), "the end stays the end");
    let batch = concat_batches(&source.schema(), &batches).expect("batches of one schema");
    Ok(Whole { source, batch, rows, rejected })
}

pub fn read_text(name: &str, content: impl AsRef<[u8]>) -> Result<Whole, FormatError> {
    let file = TestFile::new(name, content);
    read(&file.path, &ReadOptions::default())
}

/// Names and types of the columns, as `name: Type`.
pub fn columns(whole: &Whole) -> Vec<String> {
    let fields = whole.batch.schema_ref().fields().iter();
    fields.map(|field| format!("{}: {}", field.name(), field.data_type())).collect()
}

pub fn texts(whole: &Whole, column: &str) -> Vec<Option<String>> {
    let column = whole.batch.column_by_name(column).expect("the column");
    let texts = column.as_string::<i32>().iter();
    texts.map(|text| text.map(str::to_string)).collect()
}

pub fn floats(whole: &Whole, column: &str) -> Vec<Option<f64>> {
    let column = whole.batch.column_by_name(column).expect("the column");
    column.as_primitive::<Float64Type>().iter().collect()
}

/// The geometry column as WKT.
pub fn wkt(whole: &Whole) -> Vec<Option<String>> {
    let GeometryColumns::Column { name } = &whole.source.geometry else {
        panic!("no geometry column: {:?}", whole.source.geometry);
    };
    let column = whole.batch.column_by_name(name).expect("the column");
    let geometries = column.as_binary::<i32>().iter();
    geometries.map(|wkb| wkb.map(|wkb| terrane_space::geometry::to_wkt(wkb).expect("WKB"))).collect()
}

/// The output of a writer for the batches.
pub fn written(format: OutputFormat, batches: &[RecordBatch], geometry: GeometryColumns) -> Vec<u8> {
    let mut bytes = Vec::new();
    let options = WriteOptions { geometry, ..WriteOptions::default() };
    let mut out = writer(format, &mut bytes, options);
    out.begin(&batches[0].schema()).expect("a vector takes everything");
    for batch in batches {
        out.write(batch).expect("a vector takes everything");
    }
    out.finish().expect("a vector takes everything");
    drop(out);
    bytes
}

/// A Parquet file of these pages and this footer.
pub fn parquet_file(pages: &[u8], footer: &[u8]) -> Vec<u8> {
    [b"PAR1", pages, footer, &(footer.len() as u32).to_le_bytes(), b"PAR1"].concat()
}

/// A record that belongs to no file.
pub fn parse_record(line: &str, planar: bool) -> Result<JsonRecord, JsonError> {
    let coordinates = CoordinateOptions { planar, ..CoordinateOptions::default() };
    let options = RecordOptions { coordinates, ..RecordOptions::default() };
    RecordReader::new(options).expect("no reference system is named").parse(line)
}
