//! Geometries that are stored as they are although they are invalid by the standard.

use std::path::Path;

use arrow_array::cast::AsArray;
use terrane::counted;
use terrane_formats::{Batch, GeometryColumns};
use terrane_space::geometry::{check_valid, to_geo};

/// WKB codes of a point and a multi-point without Z and M, which are always valid.
const POINTS: [u32; 2] = [1, 4];

/// The number of invalid geometries of an import, and the first of them.
#[derive(Debug, Default)]
pub struct Validity {
    invalid: u64,
    first: Option<String>,
}

impl Validity {
    /// Checks the geometries of a batch.
    pub fn check(&mut self, path: &Path, batch: &Batch, geometry: &GeometryColumns) {
        let GeometryColumns::Column { name } = geometry else { return };
        let column = batch.batch.column_by_name(name).and_then(|column| column.as_binary_opt::<i32>());
        for (wkb, row) in column.into_iter().flatten().zip(&batch.rows) {
            let Some(reason) = wkb.and_then(fault) else { continue };
            self.invalid += 1;
            self.first.get_or_insert_with(|| format!("{}, row {row}: {reason}", path.display()));
        }
    }

    /// A warning that says how many there were; `None` if all were valid.
    pub fn warning(&self) -> Option<String> {
        let first = self.first.as_ref()?;
        let geometries = counted(self.invalid, "geometry is", "geometries are");
        Some(format!(
            "{geometries} not valid and stored as given; spatial conditions on them may give wrong results (first: \
             {first})"
        ))
    }
}

/// Why a geometry is invalid. One that cannot be read is refused elsewhere.
fn fault(wkb: &[u8]) -> Option<String> {
    let code = wkb.get(1..5).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes)?;
    if POINTS.contains(&code) {
        return None;
    }
    to_geo(wkb).ok().and_then(|geometry| check_valid(&geometry).err()).map(|error| error.to_string())
}
