//! The memory that rows take once their values are written out. In dictionaries and views many rows
//! share one value; each row has a copy of its own after conversion.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{Array, ArrayRef, OffsetSizeTrait, RecordBatch};
use arrow_cast::cast;
use arrow_schema::DataType;

/// The least that a value of another type takes as text.
const VALUE_BYTES: u64 = 16;

/// Bytes of each row of a batch, over all columns with shared values.
pub(crate) fn shared_bytes(batch: &RecordBatch) -> Vec<u64> {
    let mut rows = vec![0u64; batch.num_rows()];
    for column in batch.columns().iter().filter(|column| is_shared(column.data_type())) {
        add(&mut rows, value_bytes(column));
    }
    rows
}

/// Whether rows of a column share values.
pub(crate) fn is_shared(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(..) | DataType::Utf8View | DataType::BinaryView => true,
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => is_shared(field.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| is_shared(field.data_type())),
        _ => false,
    }
}

fn add(sums: &mut [u64], terms: impl IntoIterator<Item = u64>) {
    for (sum, term) in sums.iter_mut().zip(terms) {
        *sum = sum.saturating_add(term);
    }
}

/// Bytes of each value.
fn value_bytes(array: &ArrayRef) -> Vec<u64> {
    match array.data_type() {
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            let values = value_bytes(dictionary.values());
            // The conversion reports keys that do not fit.
            let Ok(keys) = cast(dictionary.keys(), &DataType::UInt64) else { return vec![0; array.len()] };
            let bytes = |key: Option<u64>| values.get(usize::try_from(key?).ok()?).copied();
            keys.as_primitive::<UInt64Type>().iter().map(|key| bytes(key).unwrap_or(0)).collect()
        }
        // The low half of a view is the length.
        DataType::Utf8View => array.as_string_view().views().iter().map(|&view| u64::from(view as u32)).collect(),
        DataType::BinaryView => array.as_binary_view().views().iter().map(|&view| u64::from(view as u32)).collect(),
        DataType::Utf8 => spans(array.as_string::<i32>().value_offsets()),
        DataType::LargeUtf8 => spans(array.as_string::<i64>().value_offsets()),
        DataType::Binary => spans(array.as_binary::<i32>().value_offsets()),
        DataType::LargeBinary => spans(array.as_binary::<i64>().value_offsets()),
        DataType::FixedSizeBinary(length) => vec![u64::try_from(*length).unwrap_or(0); array.len()],
        DataType::List(_) => sums(array.as_list::<i32>().value_offsets(), array.as_list::<i32>().values()),
        DataType::LargeList(_) => sums(array.as_list::<i64>().value_offsets(), array.as_list::<i64>().values()),
        DataType::Map(..) => {
            let entries: ArrayRef = Arc::new(array.as_map().entries().clone());
            sums(array.as_map().value_offsets(), &entries)
        }
        DataType::FixedSizeList(_, length) => {
            let bytes = value_bytes(array.as_fixed_size_list().values());
            let length = usize::try_from(*length).unwrap_or(0).max(1);
            bytes
                .chunks(length)
                .map(|values| values.iter().fold(0, |sum: u64, &bytes| sum.saturating_add(bytes)))
                .collect()
        }
        DataType::Struct(_) => {
            let mut rows = vec![0u64; array.len()];
            for column in array.as_struct().columns() {
                add(&mut rows, value_bytes(column));
            }
            rows
        }
        _ => vec![VALUE_BYTES; array.len()],
    }
}

fn spans<O: OffsetSizeTrait>(offsets: &[O]) -> Vec<u64> {
    offsets.windows(2).map(|pair| (pair[1].as_usize() - pair[0].as_usize()) as u64).collect()
}

/// Bytes of each list.
fn sums<O: OffsetSizeTrait>(offsets: &[O], values: &ArrayRef) -> Vec<u64> {
    let (Some(first), Some(last)) = (offsets.first(), offsets.last()) else { return Vec::new() };
    let bytes = value_bytes(&values.slice(first.as_usize(), last.as_usize() - first.as_usize()));
    let mut rest = bytes.into_iter();
    let lengths = offsets.windows(2).map(|pair| pair[1].as_usize() - pair[0].as_usize());
    lengths.map(|length| rest.by_ref().take(length).fold(0, u64::saturating_add)).collect()
}
