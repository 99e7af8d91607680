//! Parquet's deprecated 96-bit times: a day and the nanoseconds of that day.
//!
//! The decoder converts them to int64 in the unit it is asked for, and wraps values that do not
//! fit. In nanoseconds, only the years 1677 to 2262 fit. This module therefore asks for
//! microseconds, and finds the rows that do not even fit those beforehand.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Schema, TimeUnit};
use parquet::basic::Type;
use parquet::column::reader::{get_column_reader, get_typed_column_reader};
use parquet::data_type::{Int96, Int96Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::schema::types::SchemaDescriptor;

/// The Julian day that begins with 1970, without the half of a day.
const EPOCH_DAY: i128 = 2_440_588;

const DAY_MICROSECONDS: i128 = 86_400_000_000;

/// Most rows that are refused one by one. With more, the whole file is refused.
const UNFIT_MAX: usize = 1000;

/// The schema with microseconds for all 96-bit times, and the names of the columns that have some;
/// `None` if there are none.
///
/// # Errors
/// When Arrow's columns do not match those of the file.
pub(crate) fn in_microseconds(
    schema: &Schema,
    parquet_schema: &SchemaDescriptor,
) -> Result<Option<(Schema, Vec<String>)>, String> {
    let is_int96: Vec<bool> =
        parquet_schema.columns().iter().map(|column| column.physical_type() == Type::INT96).collect();
    if !is_int96.contains(&true) {
        return Ok(None);
    }
    let (mut fields, mut names) = (Vec::new(), Vec::new());
    let mut leaves = is_int96.into_iter();
    for field in schema.fields() {
        let converted = converted(field, &mut leaves)?;
        if converted.data_type() != field.data_type() {
            names.push(field.name().clone());
        }
        fields.push(converted);
    }
    if leaves.next().is_some() {
        return Err("the Arrow schema has fewer columns than the Parquet schema".to_string());
    }
    Ok(Some((Schema::new_with_metadata(fields, schema.metadata().clone()), names)))
}

/// A field whose 96-bit leaves are microseconds. `leaves` tells for each leaf whether it is one.
fn converted(field: &FieldRef, leaves: &mut impl Iterator<Item = bool>) -> Result<FieldRef, String> {
    let data_type = match field.data_type() {
        DataType::List(inner) => DataType::List(converted(inner, leaves)?),
        DataType::LargeList(inner) => DataType::LargeList(converted(inner, leaves)?),
        DataType::ListView(inner) => DataType::ListView(converted(inner, leaves)?),
        DataType::LargeListView(inner) => DataType::LargeListView(converted(inner, leaves)?),
        DataType::FixedSizeList(inner, length) => DataType::FixedSizeList(converted(inner, leaves)?, *length),
        DataType::Map(inner, is_sorted) => DataType::Map(converted(inner, leaves)?, *is_sorted),
        DataType::Struct(fields) => {
            DataType::Struct(fields.iter().map(|field| converted(field, leaves)).collect::<Result<_, _>>()?)
        }
        other => match (leaves.next(), other) {
            (Some(true), DataType::Timestamp(_, zone)) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
            (Some(false), other) => other.clone(),
            _ => return Err(format!("column {:?} differs between the Arrow and the Parquet schema", field.name())),
        },
    };
    Ok(Arc::new(Field::clone(field).with_data_type(data_type)))
}

/// The reasons why rows are refused, by row number from 1.
pub(crate) type UnfitRows = BTreeMap<u64, String>;

/// Finds the rows with times that do not fit microseconds. At a value that cannot be decoded, the
/// search in its column ends; reading will end there too.
///
/// # Errors
/// The name of a column that has too many such rows.
pub(crate) fn unfit_times(
    file: &Arc<File>,
    metadata: &ParquetMetaData,
    batch_rows: usize,
) -> Result<UnfitRows, String> {
    let mut unfit = UnfitRows::new();
    for (index, column) in metadata.file_metadata().schema_descr().columns().iter().enumerate() {
        if column.physical_type() == Type::INT96 {
            // Reading reports what cannot be decoded.
            let _ = search_column(file, metadata, index, batch_rows, &mut unfit);
            if unfit.len() > UNFIT_MAX {
                return Err(column.path().string());
            }
        }
    }
    Ok(unfit)
}

fn search_column(
    file: &Arc<File>,
    metadata: &ParquetMetaData,
    index: usize,
    batch_rows: usize,
    unfit: &mut UnfitRows,
) -> Result<(), ParquetError> {
    let descriptor = metadata.file_metadata().schema_descr().column(index);
    let mut next_group_row = 0;
    for row_group in metadata.row_groups() {
        // The number of the last row that has begun.
        let mut row = next_group_row;
        let rows = usize::try_from(row_group.num_rows())?;
        next_group_row += rows as u64;
        let pages = SerializedPageReader::new(Arc::clone(file), row_group.column(index), rows, None)?;
        let reader = get_column_reader(Arc::clone(&descriptor), Box::new(pages));
        let mut reader = get_typed_column_reader::<Int96Type>(reader);
        let (mut definitions, mut repetitions, mut times) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            definitions.clear();
            repetitions.clear();
            times.clear();
            let (_, _, levels) =
                reader.read_records(batch_rows, Some(&mut definitions), Some(&mut repetitions), &mut times)?;
            if levels == 0 {
                break;
            }
            let mut times = times.iter();
            for level in 0..levels {
                // Without levels, every value begins a row and none is missing.
                row += u64::from(repetitions.get(level).is_none_or(|&repetition| repetition == 0));
                let is_value =
                    definitions.get(level).is_none_or(|&definition| definition == descriptor.max_def_level());
                if is_value && times.next().is_some_and(|time| !fits(time)) {
                    let name = descriptor.path().string();
                    let reason =
                        format!("column {name:?}: a 96-bit time is outside of the range of int64 microseconds");
                    unfit.entry(row).or_insert(reason);
                    if unfit.len() > UNFIT_MAX {
                        return Ok(());
                    }
                }
            }
        }
    }
    Ok(())
}

fn fits(time: &Int96) -> bool {
    let [low, high, day] = [0, 1, 2].map(|word| time.data().get(word).copied().unwrap_or(0));
    let nanoseconds = i64::from(high as i32) << 32 | i64::from(low);
    let microseconds = (i128::from(day as i32) - EPOCH_DAY) * DAY_MICROSECONDS + i128::from(nanoseconds / 1000);
    i64::try_from(microseconds).is_ok()
}
