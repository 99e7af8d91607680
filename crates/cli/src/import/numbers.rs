//! Numbers of a file whose column is float64 where the dataset's is int64.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, DataType, Field};
use terrane::schema::{ColumnType, Schema};
use terrane_literal::exact_integer;

/// The batch with such columns as integers as far as all their values are, and the names of the others.
///
/// # Errors
/// None but defects.
pub fn as_integers(batch: &RecordBatch, schema: &Schema) -> Result<(RecordBatch, Vec<String>), ArrowError> {
    let is_integer = |name: &str| schema.column(name).is_some_and(|column| column.column_type == ColumnType::Int64);
    let (mut fields, mut arrays, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for (field, array) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        let is_float = *field.data_type() == DataType::Float64;
        let integers = match is_float && is_integer(field.name()) {
            true => integers_of(array),
            false => Some(Arc::clone(array)),
        };
        if integers.is_none() {
            others.push(field.name().clone());
        }
        let array = integers.unwrap_or_else(|| Arc::clone(array));
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
