//! The workload as a Parquet file: `id` int64, `time` timestamp in microseconds, `x` and `y`
//! float64.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, TimestampMicrosecondArray};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use crate::workload::{Location, Points, Record};

const BATCH_ROWS: usize = 8_192;

/// Writes the points, Snappy-compressed as most tools do by default.
pub fn write(points: &Points, path: &Path) -> Result<()> {
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("time", DataType::Timestamp(TimeUnit::Microsecond, None), false),
        Field::new("x", DataType::Float64, false),
        Field::new("y", DataType::Float64, false),
    ]));
    let properties =
        WriterProperties::builder().set_compression(Compression::SNAPPY).set_dictionary_enabled(false).build();
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    let mut writer = ArrowWriter::try_new(file, schema.clone(), Some(properties))?;
    let mut row = 0;
    while row < points.len() {
        let end = points.len().min(row + BATCH_ROWS);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(points.id[row..end].to_vec())),
            Arc::new(TimestampMicrosecondArray::from(points.time_us[row..end].to_vec())),
            Arc::new(Float64Array::from(points.x[row..end].to_vec())),
            Arc::new(Float64Array::from(points.y[row..end].to_vec())),
        ];
        writer.write(&RecordBatch::try_new(schema.clone(), columns)?)?;
        row = end;
    }
    writer.close()?;
    Ok(())
}

/// Calls `each` with every record of a file that [`write()`] made.
pub fn read(path: &Path, mut each: impl FnMut(Record) -> Result<()>) -> Result<()> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let reader = ParquetRecordBatchReaderBuilder::try_new(file)?.with_batch_size(BATCH_ROWS).build()?;
    for batch in reader {
        let batch = batch?;
        let column =
            |name: &str| batch.column_by_name(name).with_context(|| format!("{}: no column {name}", path.display()));
        let wrong = |name: &str| format!("{}: column {name} has another type", path.display());
        let id = column("id")?.as_primitive_opt::<Int64Type>().with_context(|| wrong("id"))?;
        let time = column("time")?.as_primitive_opt::<TimestampMicrosecondType>().with_context(|| wrong("time"))?;
        let x = column("x")?.as_primitive_opt::<Float64Type>().with_context(|| wrong("x"))?;
        let y = column("y")?.as_primitive_opt::<Float64Type>().with_context(|| wrong("y"))?;
        for row in 0..batch.num_rows() {
            each(Record {
                id: id.value(row),
                time_us: time.value(row),
                location: Location { x: x.value(row), y: y.value(row) },
            })?;
        }
    }
    Ok(())
}

/// The whole file in memory.
pub fn read_points(path: &Path) -> Result<Points> {
    let mut points = Points::default();
    read(path, |record| {
        points.push(record);
        Ok(())
    })?;
    Ok(points)
}
