//! Batches of another program, in memory or one after the other.

use std::path::Path;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, Schema};

use super::geo_metadata::{self, Declared};
use super::guard::guarded;
use super::plain;
use super::reader::{ColumnarPlan, RawBatches};
use crate::error::{FormatError, Location};
use crate::guess::GeometryColumns;
use crate::source::{Opened, ReadOptions};

/// The geometry that a schema declares: by extension types, else by GeoParquet's metadata, which
/// pyarrow keeps in tables. If it declares none, `sample` gives the first values of a column.
pub(super) fn declared(
    path: &Path,
    schema: &Schema,
    named: Option<&GeometryColumns>,
    warnings: &mut Vec<String>,
    sample: impl Fn(usize) -> Result<Option<ArrayRef>, FormatError>,
) -> Result<Declared, FormatError> {
    geo_metadata::from_extensions(path, schema, named, warnings, |warnings| match schema.metadata().get("geo") {
        Some(geo) => geo_metadata::from_geoparquet(path, geo, schema, named, warnings),
        None if named.is_some() => Ok(Declared::default()),
        None => {
            let first = |index| {
                let values: Option<ArrayRef> = sample(index)?;
                Ok(values.map(|values| values.slice(0, values.len().min(plain::SAMPLE_ROWS))))
            };
            Ok(Declared { geometry: plain::find(path, schema, first)?, coverings: Vec::new() })
        }
    })
}

/// Opens batches of a schema.
pub(crate) fn open(
    path: &Path,
    schema: &Schema,
    mut batches: RawBatches,
    options: &ReadOptions,
) -> Result<Opened, FormatError> {
    guarded(path, || {
        let from_arrow = |error: ArrowError| {
            FormatError::decoding(error, |error| FormatError::damaged(path, Location::File, error.to_string()))
        };
        let first: Option<RecordBatch> = batches.next().transpose().map_err(from_arrow)?;
        let sample = |index: usize| Ok(first.as_ref().map(|batch| batch.column(index).clone()));
        let declared = |geometry: Option<&GeometryColumns>, warnings: &mut Vec<String>| {
            declared(path, schema, geometry, warnings, sample)
        };
        let plan = ColumnarPlan::new(path, schema, declared, options, |_| false, Vec::new())?;
        Ok(plan.open(path, None, Box::new(first.map(Ok).into_iter().chain(batches))))
    })
}
