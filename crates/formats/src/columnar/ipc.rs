//! Arrow IPC files and streams.

use std::fs::File;
use std::io::{BufReader, Seek, SeekFrom};

use arrow_array::RecordBatch;
use arrow_ipc::reader::{FileReader, StreamReader};
use arrow_schema::ArrowError;

use super::guard::guarded;
use super::ipc_check;
use super::reader::{ColumnarPlan, RawBatches};
use super::table;
use crate::error::{FormatError, Location};
use crate::format::Format;
use crate::guess::GeometryColumns;
use crate::input::Input;
use crate::source::{Opened, ReadOptions};

/// Advice for batches that are too large.
const ADVICE: &str = "rewrite it with smaller record batches or as Parquet, or allow more memory";

/// The first batch of a file.
fn first_batch(file: File, format: Format) -> Result<Option<RecordBatch>, ArrowError> {
    let file = BufReader::new(file);
    match format {
        Format::ArrowFile => FileReader::try_new(file, None)?.next().transpose(),
        _ => StreamReader::try_new(file, None)?.next().transpose(),
    }
}

/// Opens an Arrow IPC file or stream.
pub(crate) fn open(input: &Input, format: Format, options: &ReadOptions) -> Result<Opened, FormatError> {
    let path = &input.path;
    guarded(path, || {
        let damaged =
            |error: String| FormatError::damaged(path, Location::File, format!("not a whole {format}: {error}"));
        let from_arrow = |error: ArrowError| damaged(error.to_string());
        let mut file = BufReader::new(input.open()?);
        let row_count = match format {
            Format::ArrowFile => ipc_check::check_file(&mut file, options.decoded_bytes_max()),
            _ => ipc_check::check_stream(&mut file, options.decoded_bytes_max()),
        }
        .map_err(|unfit| unfit.into_error(path, &format.to_string(), ADVICE))?;
        file.seek(SeekFrom::Start(0)).map_err(|error| FormatError::reading(path, error))?;
        let (schema, batches): (_, RawBatches) = if format == Format::ArrowFile {
            let reader = FileReader::try_new(file, None).map_err(from_arrow)?;
            (reader.schema(), Box::new(reader))
        } else {
            let reader = StreamReader::try_new(file, None).map_err(from_arrow)?;
            (reader.schema(), Box::new(reader))
        };
        let sample = |index| {
            let first = first_batch(input.open()?, format).map_err(from_arrow)?;
            Ok(first.as_ref().map(|batch| batch.column(index).clone()))
        };
        let declared = |named: Option<&GeometryColumns>, warnings: &mut Vec<String>| {
            table::declared(path, &schema, named, warnings, sample)
        };
        let plan = ColumnarPlan::new(path, &schema, declared, options, |_| false, Vec::new())?;
        Ok(plan.open(path, Some(row_count), batches))
    })
}
