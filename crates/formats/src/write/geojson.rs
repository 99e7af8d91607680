//! A FeatureCollection, one feature per line.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::error::WriteError;
use super::ndjson::BUFFER_BYTES;
use super::output::{DroppedMeasures, GeometryIndex, Sink};
use super::row_json::{RowMembers, write_json};
use super::{WriteOptions, Writer};

pub(crate) struct GeoJsonWriter<'a> {
    sink: Sink<'a>,
    options: WriteOptions,
    columns: Option<(GeometryIndex, RowMembers)>,
    has_features: bool,
    measures: DroppedMeasures,
    buffer: Vec<u8>,
}

impl<'a> GeoJsonWriter<'a> {
    pub(crate) fn new(sink: Sink<'a>, options: WriteOptions) -> Self {
        GeoJsonWriter {
            sink,
            options,
            columns: None,
            has_features: false,
            measures: DroppedMeasures::default(),
            buffer: Vec::new(),
        }
    }

    fn drain(&mut self) -> Result<(), WriteError> {
        self.sink.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

impl Writer for GeoJsonWriter<'_> {
    fn begin(&mut self, schema: &SchemaRef) -> Result<(), WriteError> {
        let geometry = GeometryIndex::find(schema, &self.options.geometry)?;
        let left_out = match geometry {
            GeometryIndex::None => vec![],
            GeometryIndex::Column(index) => vec![index],
            GeometryIndex::Coordinates(x, y) => vec![x, y],
        };
        self.columns = Some((geometry, RowMembers::new(schema, &left_out, None)));
        self.buffer.extend_from_slice(b"{\"type\":\"FeatureCollection\",");
        if self.options.planar && self.options.srid != 0 {
            // As in GeoJSON before RFC 7946, which knows longitude and latitude alone.
            let name = format!("urn:ogc:def:crs:EPSG::{}", self.options.srid);
            self.buffer.extend_from_slice(b"\"crs\":");
            write_json(&mut self.buffer, &serde_json::json!({"type": "name", "properties": {"name": name}}))?;
            self.buffer.push(b',');
        }
        self.buffer.extend_from_slice(b"\"features\":[");
        Ok(())
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), WriteError> {
        if let Some((GeometryIndex::Column(geometry), _)) = self.columns {
            self.measures.check(batch.column(geometry));
        }
        for row in 0..batch.num_rows() {
            let (geometry, members) = self.columns.as_ref().ok_or(WriteError::NotBegun)?;
            let separator: &[u8] = if self.has_features { b",\n" } else { b"\n" };
            self.buffer.extend_from_slice(separator);
            self.buffer.extend_from_slice(b"{\"type\":\"Feature\",\"properties\":");
            members.write(&mut self.buffer, batch, row)?;
            self.buffer.extend_from_slice(b",\"geometry\":");
            write_json(&mut self.buffer, &geometry.geojson(batch, row)?)?;
            self.buffer.push(b'}');
            self.has_features = true;
            if self.buffer.len() >= BUFFER_BYTES {
                self.drain()?;
            }
        }
        self.drain()
    }

    fn finish(&mut self) -> Result<(), WriteError> {
        if self.columns.is_none() {
            return Err(WriteError::NotBegun);
        }
        self.buffer.extend_from_slice(b"\n]}\n");
        self.drain()?;
        Ok(self.sink.flush()?)
    }

    fn notice(&self) -> Option<&'static str> {
        self.measures.notice()
    }
}
