//! Arrow IPC streams and Parquet.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{Field, Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use serde_json::json;

use super::error::WriteError;
use super::output::{Failure, GeometryIndex, Output, Sink};
use super::{WriteOptions, Writer};

/// Least buffer of a column in a row group, however little memory there is. Each row group adds
/// some hundreds of bytes per column to the footer, which is in memory until the end.
const COLUMN_BYTES_MIN: usize = 16 << 10;

/// The schema with the geometry column marked as GeoArrow WKB.
fn marked_schema(schema: &Schema, options: &WriteOptions) -> SchemaRef {
    let GeometryIndex::Column(geometry) = GeometryIndex::find_if_selected(schema, &options.geometry) else {
        return Arc::new(schema.clone());
    };
    let crs = match (options.planar, options.plane()) {
        (true, None) => json!({}),
        (true, Some(plane)) => json!({"crs": plane, "crs_type": "authority_code"}),
        (false, _) => json!({"crs": "OGC:CRS84", "crs_type": "authority_code"}),
    };
    let fields: Vec<Field> = schema
        .fields()
        .iter()
        .enumerate()
        .map(|(index, field)| {
            let mut field = field.as_ref().clone();
            if index == geometry {
                let mut metadata = field.metadata().clone();
                metadata.insert("ARROW:extension:name".into(), "geoarrow.wkb".into());
                metadata.insert("ARROW:extension:metadata".into(), crs.to_string());
                field.set_metadata(metadata);
            }
            field
        })
        .collect();
    Arc::new(Schema::new(fields))
}

/// The batch under the marked schema.
fn marked(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, WriteError> {
    Ok(batch.clone().with_schema(Arc::clone(schema))?)
}

pub(crate) struct ArrowStreamWriter<'a> {
    sink: Option<Sink<'a>>,
    options: WriteOptions,
    open: Option<(StreamWriter<Output<'a>>, SchemaRef, Failure)>,
}

impl<'a> ArrowStreamWriter<'a> {
    pub(crate) fn new(sink: Sink<'a>, options: WriteOptions) -> Self {
        ArrowStreamWriter { sink: Some(sink), options, open: None }
    }
}

impl Writer for ArrowStreamWriter<'_> {
    fn begin(&mut self, schema: &SchemaRef) -> Result<(), WriteError> {
        let schema = marked_schema(schema, &self.options);
        let (output, failure) = Output::new(self.sink.take().ok_or(WriteError::NotBegun)?);
        let stream = StreamWriter::try_new(output, &schema).map_err(|error| failure.explain(error))?;
        self.open = Some((stream, schema, failure));
        Ok(())
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), WriteError> {
        let (stream, schema, failure) = self.open.as_mut().ok_or(WriteError::NotBegun)?;
        let batch = marked(batch, schema)?;
        stream.write(&batch).map_err(|error| failure.explain(error))
    }

    fn finish(&mut self) -> Result<(), WriteError> {
        let (stream, _, failure) = self.open.as_mut().ok_or(WriteError::NotBegun)?;
        stream.finish().map_err(|error| failure.explain(error))?;
        stream.flush().map_err(|error| failure.explain(error))
    }
}

pub(crate) struct ParquetWriter<'a> {
    sink: Option<Sink<'a>>,
    options: WriteOptions,
    open: Option<(ArrowWriter<Output<'a>>, SchemaRef, Failure)>,
}

impl<'a> ParquetWriter<'a> {
    pub(crate) fn new(sink: Sink<'a>, options: WriteOptions) -> Self {
        ParquetWriter { sink: Some(sink), options, open: None }
    }

    /// The `geo` metadata of GeoParquet 1.1. A missing `crs` means longitude and latitude; a null
    /// `crs` means that it is unknown. The specification wants PROJJSON for any other one, which
    /// needs the database of PROJ. So a plane has its name there, which GeoPandas and GDAL read.
    fn geo_metadata(&self, schema: &Schema) -> Option<String> {
        let GeometryIndex::Column(index) = GeometryIndex::find_if_selected(schema, &self.options.geometry) else {
            return None;
        };
        let name = schema.field(index).name();
        let mut column = json!({"encoding": "WKB", "geometry_types": []});
        if self.options.planar {
            column["crs"] = self.options.plane().into();
        }
        let metadata = json!({
            "version": "1.1.0",
            "primary_column": name,
            "columns": {name: column},
        });
        Some(metadata.to_string())
    }
}

impl Writer for ParquetWriter<'_> {
    fn begin(&mut self, schema: &SchemaRef) -> Result<(), WriteError> {
        let geo = self.geo_metadata(schema);
        let key_values = geo.map(|geo| vec![KeyValue::new("geo".to_string(), geo)]);
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_key_value_metadata(key_values)
            .set_created_by("terrane".to_string())
            .build();
        let options = ArrowWriterOptions::new().with_properties(properties);
        let (output, failure) = Output::new(self.sink.take().ok_or(WriteError::NotBegun)?);
        let file = ArrowWriter::try_new_with_options(output, Arc::clone(schema), options)
            .map_err(|error| failure.explain(error))?;
        self.open = Some((file, Arc::clone(schema), failure));
        Ok(())
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), WriteError> {
        let (file, schema, failure) = self.open.as_mut().ok_or(WriteError::NotBegun)?;
        let batch = marked(batch, schema)?;
        file.write(&batch).map_err(|error| failure.explain(error))?;
        let least = schema.fields().len() * COLUMN_BYTES_MIN;
        if file.memory_size() > self.options.row_group_bytes_max.max(least) {
            file.flush().map_err(|error| failure.explain(error))?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), WriteError> {
        let (file, _, failure) = self.open.as_mut().ok_or(WriteError::NotBegun)?;
        file.finish().map_err(|error| failure.explain(error))?;
        Ok(std::io::Write::flush(file.inner_mut())?)
    }
}
