//! Checks of tables that other programs hand over in memory.
//!
//! Their arrays are taken without a look at the values. Text that is not UTF-8, or an offset that
//! lies outside of its buffer, would be stored, and reading it is undefined.

use std::path::PathBuf;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int16Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, OffsetSizeTrait, RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, DataType, SchemaRef};
use terrane_formats::FormatError;

/// The name of a table in messages.
pub const NAME: &str = "the data";

/// Batches of Arrow data.
pub type Reader = Box<dyn RecordBatchReader + Send>;

/// A value that contradicts its type, and its row if one row has it.
struct Fault {
    row: Option<usize>,
    reason: String,
}

impl Fault {
    fn of_array(error: &ArrowError) -> Self {
        let error = error.to_string();
        let is_text = error.contains("UTF");
        let reason = match is_text {
            true => "the text is not UTF-8; decode the column first, or hand it over as binary".to_owned(),
            false => format!("the array contradicts itself: {error}"),
        };
        Self { row: None, reason }
    }
}

/// Batches that are checked as they are read.
pub struct Checked {
    batches: Reader,
    /// Rows of the batches before.
    rows: u64,
}

impl Checked {
    pub fn new(batches: Reader) -> Self {
        Self { batches, rows: 0 }
    }
}

impl Iterator for Checked {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.batches.next()?;
        Some(batch.and_then(|batch| {
            check(&batch, self.rows).map_err(|error| ArrowError::ExternalError(Box::new(error)))?;
            self.rows += batch.num_rows() as u64;
            Ok(batch)
        }))
    }
}

impl RecordBatchReader for Checked {
    fn schema(&self) -> SchemaRef {
        self.batches.schema()
    }
}

/// Checks the values of a batch, before which there were other rows.
fn check(batch: &RecordBatch, rows_before: u64) -> Result<(), FormatError> {
    let schema = batch.schema_ref();
    for (field, array) in schema.fields().iter().zip(batch.columns()) {
        if let Some(fault) = fault_of(array) {
            let (path, column) = (PathBuf::from(NAME), field.name().clone());
            let row = fault.row.map(|row| rows_before + row as u64 + 1);
            return Err(FormatError::Value { path, row, column, reason: fault.reason });
        }
    }
    Ok(())
}

/// The first fault of an array and of what is nested in it.
fn fault_of(array: &ArrayRef) -> Option<Fault> {
    if let Err(error) = own_values(array) {
        return Some(Fault { row: first_faulty_row(array), ..Fault::of_array(&error) });
    }
    match array.data_type() {
        DataType::Struct(_) => {
            let faults = array.as_struct().columns().iter().filter_map(fault_of);
            faults.min_by_key(|fault| fault.row)
        }
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            fault_of_items(list.value_offsets(), list.values())
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            fault_of_items(list.value_offsets(), list.values())
        }
        DataType::Map(..) => {
            let map = array.as_map();
            let entries: ArrayRef = std::sync::Arc::new(map.entries().clone());
            fault_of_items(map.value_offsets(), &entries)
        }
        DataType::FixedSizeList(_, length) => {
            let length = usize::try_from(*length).unwrap_or(0).max(1);
            fault_of(array.as_fixed_size_list().values())
                .map(|fault| Fault { row: fault.row.map(|item| item / length), ..fault })
        }
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            fault_of(dictionary.values()).map(|fault| {
                let keys = dictionary.normalized_keys();
                let uses = |row: &usize| !array.is_null(*row) && Some(keys[*row]) == fault.row;
                Fault { row: (0..array.len()).find(uses), ..fault }
            })
        }
        DataType::RunEndEncoded(ends, _) => {
            let values = match ends.data_type() {
                DataType::Int16 => array.as_run::<Int16Type>().values(),
                DataType::Int32 => array.as_run::<Int32Type>().values(),
                _ => array.as_run::<Int64Type>().values(),
            };
            without_row(fault_of(values))
        }
        DataType::ListView(_) => without_row(fault_of(array.as_list_view::<i32>().values())),
        DataType::LargeListView(_) => without_row(fault_of(array.as_list_view::<i64>().values())),
        DataType::Union(fields, _) => {
            let array = array.as_union();
            without_row(fields.iter().find_map(|(id, _)| fault_of(array.child(id))))
        }
        _ => None,
    }
}

/// Checks an array without what is nested in it.
fn own_values(array: &dyn Array) -> Result<(), ArrowError> {
    let data = array.to_data();
    data.validate()?;
    data.validate_values()
}

fn without_row(fault: Option<Fault>) -> Option<Fault> {
    fault.map(|fault| Fault { row: None, ..fault })
}

/// The first fault of the items of lists.
fn fault_of_items<O: OffsetSizeTrait>(offsets: &[O], items: &ArrayRef) -> Option<Fault> {
    let (first, last) = (offsets.first()?.as_usize(), offsets.last()?.as_usize());
    let fault = fault_of(&items.slice(first, last - first))?;
    let row = fault.row.map(|item| offsets.partition_point(|offset| offset.as_usize() <= first + item) - 1);
    Some(Fault { row, ..fault })
}

/// The first row of a faulty array without which it has no fault, found by halving.
fn first_faulty_row(array: &dyn Array) -> Option<usize> {
    let (mut start, mut end) = (0, array.len());
    while end - start > 1 {
        let middle = start + (end - start) / 2;
        match own_values(&*array.slice(start, middle - start)) {
            Ok(()) => start = middle,
            Err(_) => end = middle,
        }
    }
    (end > start).then_some(start)
}
