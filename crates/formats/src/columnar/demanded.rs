//! Columns whose values become another type than the file has, as demanded: by their texts.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, LargeStringArray};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType};
use terrane_literal::{format_uuid, uuid_at};

use crate::demand::DemandedType;
use crate::rows::{ColumnBuilder, ColumnPlan, Role, Scalar, text_scalar};
use crate::types::ColumnType;

/// The plan of a column of the type `found`, if the demanded type is another. Without a pattern, timestamps become those
/// in UTC, since their values are not looked at before.
pub(crate) fn plan(name: &str, found: ColumnType, demanded: &DemandedType) -> Option<ColumnPlan> {
    let pattern = demanded.pattern().cloned();
    (pattern.is_some() || !demanded.fits(found)).then(|| ColumnPlan {
        name: name.to_string(),
        role: Role::Value(demanded.column_type(true)),
        pattern,
    })
}

/// Converts a column; a value that cannot be is told with its row and becomes null.
///
/// # Errors
/// When the column has no texts.
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
        // A text that is there is not null, be it empty.
        let scalar = text.map_or(Ok(Scalar::Null), |text| text_scalar(text, true, column, false));
        builder.append(&scalar.unwrap_or_else(|reason| {
            refuse(row, reason);
            Scalar::Null
        }));
    }
    debug_assert_eq!(texts.len(), values.len());
    Ok(builder.finish())
}
