//! One JSON object per line.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::error::WriteError;
use super::output::{DroppedMeasures, GeometryIndex, Sink};
use super::row_json::RowMembers;
use super::{WriteOptions, Writer};

/// Bytes after which the buffer is written to the output.
pub(crate) const BUFFER_BYTES: usize = 1 << 16;

pub(crate) struct NdjsonWriter<'a> {
    sink: Sink<'a>,
    options: WriteOptions,
    members: Option<RowMembers>,
    /// The column of geometries.
    geometry: Option<usize>,
    measures: DroppedMeasures,
    buffer: Vec<u8>,
}

impl<'a> NdjsonWriter<'a> {
    pub(crate) fn new(sink: Sink<'a>, options: WriteOptions) -> Self {
        NdjsonWriter {
            sink,
            options,
            members: None,
            geometry: None,
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

impl Writer for NdjsonWriter<'_> {
    fn begin(&mut self, schema: &SchemaRef) -> Result<(), WriteError> {
        self.geometry = match GeometryIndex::find_if_selected(schema, &self.options.geometry) {
            GeometryIndex::Column(index) => Some(index),
            _ => None,
        };
        self.members = Some(RowMembers::new(schema, &[], self.geometry));
        Ok(())
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), WriteError> {
        if let Some(geometry) = self.geometry {
            self.measures.check(batch.column(geometry));
        }
        for row in 0..batch.num_rows() {
            let members = self.members.as_ref().ok_or(WriteError::NotBegun)?;
            members.write(&mut self.buffer, batch, row)?;
            self.buffer.push(b'\n');
            if self.buffer.len() >= BUFFER_BYTES {
                self.drain()?;
            }
        }
        self.drain()
    }

    fn finish(&mut self) -> Result<(), WriteError> {
        self.drain()?;
        Ok(self.sink.flush()?)
    }

    fn notice(&self) -> Option<&'static str> {
        self.measures.notice()
    }
}
