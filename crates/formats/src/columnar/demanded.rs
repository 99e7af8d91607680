//! Converts a column to the type that the user asks for, by way of the text of each value.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, LargeStringArray};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType};
use terrane_literal::{format_uuid, uuid_at};

use crate::demand::DemandedType;
use crate::rows::{ColumnBuilder, ColumnPlan, Role, Scalar, text_scalar};
use crate::types::ColumnType;

/// The plan for a column of type `found`, if the user asks for another type. Without a pattern,
/// timestamps are read as UTC, since the values are not known yet.
pub(crate) fn plan(name: &str, found: ColumnType, demanded: &DemandedType) -> Option<ColumnPlan> {
    let pattern = demanded.pattern().cloned();
    (pattern.is_some() || !demanded.fits(found)).then(|| ColumnPlan {
        name: name.to_string(),
        role: Role::Value(demanded.column_type(true)),
        pattern,
    })
}

/// Converts a column. A value that cannot be converted becomes null and is reported with its row.
///
/// # Errors
/// When the values of the column have no text form.
pub(crate) fn convert(
    values: &ArrayRef,
    column: &ColumnPlan,
    refuse: &mut impl FnMut(usize, String),
) -> Result<ArrayRef, ArrowError> {
    let texts = match values.as_fixed_size_binary_opt() {
        Some(uuids) => {
            let text = |row| uuid_at(uuids, row).map(format_uuid);
            Arc::new((0..uuids.len()).map(text).collect::<LargeStringArray>()) as ArrayRef
        }
        None => cast(values, &DataType::LargeUtf8)?,
    };
    let mut builder = ColumnBuilder::new(column.role.column_type(), values.len());
    for (row, text) in texts.as_string::<i64>().iter().enumerate() {
        // An empty text is not null.
        let scalar = text.map_or(Ok(Scalar::Null), |text| text_scalar(text, true, column, false));
        builder.append(&scalar.unwrap_or_else(|reason| {
            refuse(row, reason);
            Scalar::Null
        }));
    }
    debug_assert_eq!(texts.len(), values.len());
    Ok(builder.finish())
}
