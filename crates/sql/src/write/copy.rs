//! `COPY` between tables and files.

use std::fs::Permissions;
use std::io::BufWriter;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use arrow_schema::Schema as ArrowSchema;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::sql::sqlparser::ast::{CopyLegacyOption, CopyOption, CopySource, CopyTarget};
use futures::StreamExt;
use terrane::schema::Schema;
use terrane::{DatasetOptions, ImportMode};
use terrane_formats::{Format, GeometryColumns, Header, OutputFormat, Quote, ReadOptions, WriteOptions, open, writer};
use terrane_load::{fit_to, fitted};

use super::define::finish;
use super::target::{Target, named, select, table_factor};
use super::{Written, insert};
use crate::error::SqlError;
use crate::geometry::{is_geometry, is_lonlat, srid_of};
use crate::runner::Runner;

pub(super) async fn copy(
    runner: &Runner,
    source: CopySource,
    to: bool,
    target: CopyTarget,
    options: &[CopyOption],
    legacy: &[CopyLegacyOption],
) -> Result<Written, SqlError> {
    let CopyTarget::File { filename } = target else {
        return Err(SqlError::refused(
            "COPY reads and writes files; for standard input and output use terrane import and query",
        ));
    };
    if !runner.reads_files {
        return Err(SqlError::refused("this session does not use files"));
    }
    if let Some(option) = legacy.first() {
        return Err(SqlError::refused(format!("write WITH (…) instead of {option}")));
    }
    let path = PathBuf::from(filename);
    match (source, to) {
        (CopySource::Table { table_name, columns }, false) => {
            if !columns.is_empty() {
                return Err(SqlError::refused(
                    "COPY … FROM takes the columns by the names in the file; leave them out",
                ));
            }
            from_file(&Target::new(runner, &table_name)?, runner, &path, options)
        }
        (CopySource::Query(_), false) => Err(SqlError::refused("COPY … FROM writes into a table")),
        (CopySource::Query(query), true) => {
            let (stream, schema) = runner.query(*query).await?;
            to_file(runner, stream, &schema, &path, options).await
        }
        (CopySource::Table { table_name, columns }, true) => {
            let table = Target::new(runner, &table_name)?;
            let names = match columns.is_empty() {
                true => table.column_names(),
                false => columns.iter().map(|name| table.column(name)).collect::<Result<_, _>>()?,
            };
            let query = select(named(&names), vec![table_factor(table.dataset.name())?], None)?;
            let (stream, schema) = runner.query(query).await?;
            to_file(runner, stream, &schema, &path, options).await
        }
    }
}

fn unavailable(option: &CopyOption) -> SqlError {
    SqlError::refused(format!("COPY … WITH ({option}) is not available"))
}

fn byte(option: &CopyOption, character: char) -> Result<u8, SqlError> {
    u8::try_from(character).ok().filter(u8::is_ascii).ok_or_else(|| unavailable(option))
}

fn input_format(name: &str) -> Result<Format, SqlError> {
    match name {
        "csv" => Ok(Format::Csv),
        "ndjson" | "jsonl" => Ok(Format::Ndjson),
        "json" => Ok(Format::JsonArray),
        "geojson" => Ok(Format::GeoJson),
        "geojsonseq" => Ok(Format::GeoJsonSeq),
        "parquet" => Ok(Format::Parquet),
        "geoparquet" => Ok(Format::GeoParquet),
        "arrow" => Ok(Format::ArrowFile),
        _ => Err(SqlError::refused(format!(
            "FORMAT {name} is not one of csv, ndjson, json, geojson, geojsonseq, parquet, geoparquet and arrow"
        ))),
    }
}

/// Imports a file, all of its rows or none.
fn from_file(target: &Target, runner: &Runner, path: &Path, options: &[CopyOption]) -> Result<Written, SqlError> {
    let mut reading = ReadOptions::default();
    for option in options {
        match option {
            CopyOption::Format(name) => {
                let name = name.value.to_lowercase();
                reading.format = Some(input_format(&name)?);
            }
            CopyOption::Delimiter(delimiter) => reading.separator = Some(byte(option, *delimiter)?),
            CopyOption::Quote(quote) => reading.quote = Quote::Character(byte(option, *quote)?),
            CopyOption::Null(null) => reading.nulls.push(null.clone()),
            CopyOption::Header(true) => reading.header = Header::Present,
            CopyOption::Header(false) => reading.header = Header::Absent,
            other => return Err(unavailable(other)),
        }
    }
    fit_to(&mut reading, &target.schema);
    let failed = |error: terrane_formats::FormatError| SqlError::Refused(error.to_string());
    let mut source = open(path, &reading).map_err(failed)?;
    let name = target.dataset.name();
    let schema = Schema::clone(&target.schema);
    let mut importer = runner.store.importer_in(ImportMode::Append, name, schema, &DatasetOptions::default())?;
    let mut first = 0;
    while let Some(read) = source.next_batch().map_err(failed)? {
        if let Some(row) = read.rejected.first() {
            return Err(SqlError::Refused(format!("{}, row {}: {}", path.display(), row.row, row.reason)));
        }
        let rows = fitted(&read.batch, importer.schema()).map_err(|error| SqlError::Execution(error.to_string()))?.0;
        if let Some(row) = importer.push(&rows)?.first() {
            return Err(insert::refused(first, row.row, &row.error));
        }
        first += rows.num_rows() as u64;
    }
    Ok(Written { done: "inserted", rows: Some(finish(importer)?.records), returned: None })
}

/// Writes the rows of a query to a file, which appears when it is whole.
async fn to_file(
    runner: &Runner,
    mut stream: SendableRecordBatchStream,
    schema: &arrow_schema::SchemaRef,
    path: &Path,
    options: &[CopyOption],
) -> Result<Written, SqlError> {
    let format = output_format(path, options)?;
    let failed = |error: String| SqlError::Execution(format!("cannot write {}: {error}", path.display()));
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // As for any new file: the process's mask decides.
    let permissions = Permissions::from_mode(0o666);
    let part = tempfile::Builder::new().prefix(".copy-").permissions(permissions).tempfile_in(folder);
    let mut part = part.map_err(|error| failed(error.to_string()))?;
    let mut writer = writer(format, BufWriter::new(part.as_file_mut()), write_options(schema));
    writer.begin(schema).map_err(|error| failed(error.to_string()))?;
    let mut rows = 0;
    while let Some(batch) = stream.next().await {
        let batch = batch.map_err(|error| SqlError::execution(&error, runner.memory_bytes))?;
        writer.write(&batch).map_err(|error| failed(error.to_string()))?;
        rows += batch.num_rows() as u64;
    }
    writer.finish().map_err(|error| failed(error.to_string()))?;
    drop(writer);
    // The contents first: after a power loss the name must not lead to less.
    part.as_file().sync_all().map_err(|error| failed(error.to_string()))?;
    part.persist(path).map_err(|error| failed(error.to_string()))?;
    Ok(Written { done: "copied", rows: Some(rows), returned: None })
}

fn output_format(path: &Path, options: &[CopyOption]) -> Result<OutputFormat, SqlError> {
    let mut name = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
    for option in options {
        match option {
            CopyOption::Format(format) => name = format.value.to_lowercase(),
            CopyOption::Header(true) => {}
            other => return Err(unavailable(other)),
        }
    }
    match name.as_str() {
        "jsonl" | "ndjson" => Ok(OutputFormat::Ndjson),
        "json" | "geojson" => Ok(OutputFormat::GeoJson),
        "html" => Ok(OutputFormat::Map),
        "geoparquet" => Ok(OutputFormat::Parquet),
        "arrows" | "feather" => Ok(OutputFormat::Arrow),
        "table" => Err(SqlError::refused("a table is for terminals; take csv")),
        name => name.parse().map_err(|error| {
            SqlError::refused(format!("the format of {} is not known: {error}; write WITH (FORMAT …)", path.display()))
        }),
    }
}

/// How rows with these columns are written. The first column of geometries is that of the rows.
pub fn write_options(schema: &ArrowSchema) -> WriteOptions {
    let geometry = schema.fields().iter().find(|field| is_geometry(field));
    WriteOptions {
        geometry: geometry
            .map_or(GeometryColumns::None, |field| GeometryColumns::Column { name: field.name().clone() }),
        planar: geometry.is_some_and(|field| !is_lonlat(field)),
        srid: geometry.and_then(|field| srid_of(field)).and_then(|srid| u32::try_from(srid).ok()).unwrap_or(0),
        ..WriteOptions::default()
    }
}
