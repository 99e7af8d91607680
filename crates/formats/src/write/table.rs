//! Aligned columns for a terminal. The first rows decide the widths. Longer values are cut, and
//! control characters are escaped.

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};

use super::delimited::cell_text;
use super::error::WriteError;
use super::output::{GeometryIndex, Sink};
use super::{WriteOptions, Writer};

/// Number of rows that decide the widths.
const SAMPLE_ROWS: usize = 1000;

pub(crate) struct TableWriter<'a> {
    sink: Sink<'a>,
    options: WriteOptions,
    schema: Option<SchemaRef>,
    geometry: GeometryIndex,
    /// Rows kept until the widths are known.
    sample: Vec<Vec<String>>,
    /// Empty until the widths are known.
    widths: Vec<usize>,
    right_aligned: Vec<bool>,
}

impl<'a> TableWriter<'a> {
    pub(crate) fn new(sink: Sink<'a>, options: WriteOptions) -> Self {
        TableWriter {
            sink,
            options,
            schema: None,
            geometry: GeometryIndex::None,
            sample: Vec::new(),
            widths: Vec::new(),
            right_aligned: Vec::new(),
        }
    }

    fn cut(&self, text: &str) -> String {
        let width = self.options.column_width_max.max(1);
        let mut shown = String::new();
        let mut characters = 0;
        for character in text.chars() {
            if character.is_control() {
                shown.extend(character.escape_default());
                characters += character.escape_default().count();
            } else {
                shown.push(character);
                characters += 1;
            }
            if characters > width {
                let mut cut: String = shown.chars().take(width - 1).collect();
                cut.push('…');
                return cut;
            }
        }
        shown
    }

    /// Fixes the widths and writes the head and the rows kept so far.
    fn start(&mut self, schema: &Schema) -> Result<(), WriteError> {
        let names: Vec<String> = schema.fields().iter().map(|field| self.cut(field.name())).collect();
        let sample = std::mem::take(&mut self.sample);
        self.widths = names.iter().map(|name| name.chars().count()).collect();
        for row in &sample {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        self.right_aligned = schema.fields().iter().map(|field| field.data_type().is_numeric()).collect();
        let rule: Vec<String> = self.widths.iter().map(|&width| "-".repeat(width)).collect();
        let mut text = self.line(&names);
        text.push_str(&self.line(&rule));
        for row in &sample {
            text.push_str(&self.line(row));
        }
        Ok(self.sink.write_all(text.as_bytes())?)
    }

    fn line(&self, cells: &[String]) -> String {
        let mut line = String::new();
        for (index, cell) in cells.iter().enumerate() {
            let width = self.widths.get(index).copied().unwrap_or(0);
            let cell = match cell.chars().count() > width {
                true => {
                    let mut cut: String = cell.chars().take(width.saturating_sub(1)).collect();
                    cut.push('…');
                    cut
                }
                false => cell.clone(),
            };
            if index > 0 {
                line.push_str("  ");
            }
            if self.right_aligned.get(index).copied().unwrap_or(false) {
                line.push_str(&format!("{cell:>width$}"));
            } else {
                line.push_str(&format!("{cell:<width$}"));
            }
        }
        let mut line = line.trim_end().to_string();
        line.push('\n');
        line
    }
}

impl Writer for TableWriter<'_> {
    fn begin(&mut self, schema: &SchemaRef) -> Result<(), WriteError> {
        self.geometry = GeometryIndex::find_if_selected(schema, &self.options.geometry);
        self.schema = Some(SchemaRef::clone(schema));
        Ok(())
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), WriteError> {
        let schema = self.schema.clone().ok_or(WriteError::NotBegun)?;
        for row in 0..batch.num_rows() {
            let mut cells = Vec::with_capacity(batch.num_columns());
            for column in 0..batch.num_columns() {
                let text = cell_text(batch, self.geometry, column, row)?.unwrap_or_default();
                cells.push(self.cut(&text));
            }
            if !self.widths.is_empty() {
                let line = self.line(&cells);
                self.sink.write_all(line.as_bytes())?;
                continue;
            }
            self.sample.push(cells);
            if self.sample.len() == SAMPLE_ROWS {
                self.start(&schema)?;
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), WriteError> {
        let schema = self.schema.clone().ok_or(WriteError::NotBegun)?;
        if self.widths.is_empty() {
            self.start(&schema)?;
        }
        Ok(self.sink.flush()?)
    }
}
