//! Columns whose type differs from the dataset's: float64 for int64, and columns without values.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, new_null_array};
use arrow_schema::{ArrowError, DataType, Field};
use terrane::schema::{ColumnType, Schema};
use terrane_literal::exact_integer;

/// The batch with its columns converted to the dataset's types, if their values fit. Columns of
/// float64 stay if not all values are integers; their names are returned.
///
/// # Errors
/// Unexpected errors only.
pub fn fitted(batch: &RecordBatch, schema: &Schema) -> Result<(RecordBatch, Vec<String>), ArrowError> {
    let is_integer = |name: &str| schema.column(name).is_some_and(|column| column.column_type == ColumnType::Int64);
    let (mut fields, mut arrays, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for (field, array) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        let is_float = *field.data_type() == DataType::Float64;
        let is_empty = array.null_count() == array.len();
        let array = match schema.column(field.name()) {
            // A column without values fits any type.
            Some(column) if is_empty => new_null_array(&column.column_type.to_arrow(), array.len()),
            None if is_empty && *field.name() == schema.key.name => {
                new_null_array(&schema.key.key_type.to_arrow(), array.len())
            }
            Some(_) if is_float && is_integer(field.name()) => integers_of(array).unwrap_or_else(|| {
                others.push(field.name().clone());
                Arc::clone(array)
            }),
            _ => Arc::clone(array),
        };
        fields.push(Field::clone(field).with_data_type(array.data_type().clone()));
        arrays.push(array);
    }
    let schema = arrow_schema::Schema::new_with_metadata(fields, batch.schema_ref().metadata().clone());
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok((RecordBatch::try_new_with_options(Arc::new(schema), arrays, &options)?, others))
}

fn integers_of(floats: &ArrayRef) -> Option<ArrayRef> {
    let floats = floats.as_primitive::<Float64Type>().iter();
    let integers: Option<Vec<Option<i64>>> =
        floats.map(|float| float.map_or(Some(None), |float| exact_integer(float).map(Some))).collect();
    Some(Arc::new(Int64Array::from(integers?)))
}
