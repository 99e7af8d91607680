//! Types that the user asks for, compared with those of a dataset.

use terrane::CoordinateSystem;
use terrane::schema::Schema;
use terrane_load::{file_column_type, file_key_type};

use crate::args::{ReadingFlags, TypeOfColumn};
use crate::failure::Failure;

/// Refuses flags that contradict a dataset: types of its columns, and conversions of planar
/// coordinates.
pub fn check_reading(flags: &ReadingFlags, dataset: &str, schema: &Schema) -> Result<(), Failure> {
    if schema.system == CoordinateSystem::Planar && (flags.crs.is_some() || flags.wrap_longitudes) {
        let flag = if flags.crs.is_some() { "--crs" } else { "--wrap-longitudes" };
        return Err(Failure::usage(format!(
            "dataset {dataset:?} has planar coordinates, which are never converted; omit {flag}"
        )));
    }
    for (place, TypeOfColumn { column, demanded }) in flags.types.iter().enumerate() {
        if flags.types[..place].iter().any(|earlier| earlier.column == *column) {
            return Err(Failure::usage(format!("--type names column {column:?} twice; keep one of them")));
        }
        if schema.geometry.names().any(|name| name == column) {
            return Err(Failure::usage(format!(
                "--type names column {column:?}, which holds the geometry of dataset {dataset:?}; omit that type"
            )));
        }
        let existing = match schema.column(column) {
            _ if *column == schema.key.name => {
                Some((file_key_type(schema.key.key_type), schema.key.key_type.to_string()))
            }
            Some(column) => Some((file_column_type(column.column_type), column.column_type.to_string())),
            None => None,
        };
        if let Some((_, shown)) = existing.filter(|(existing, _)| !demanded.fits(*existing)) {
            return Err(Failure::usage(format!(
                "column {column:?} of dataset {dataset:?} is {shown}, and not {demanded}; a column keeps its type"
            )));
        }
    }
    Ok(())
}
