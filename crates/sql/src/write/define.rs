//! Statements about tables and indexes.

use arrow_schema::{DataType, Field, Schema as ArrowSchema};
use datafusion::sql::sqlparser::ast::{
    AlterTable, AlterTableOperation, ColumnDef, ColumnOption, CreateIndex, CreateTable, Expr, Function,
    FunctionArguments, ObjectName, ObjectType, TableConstraint, Truncate,
};
use futures::StreamExt;
use terrane::schema::{Column, ColumnType, GENERATED_KEY_COLUMN, GeometryColumn, KeyColumn, KeyType, Schema};
use terrane::{CoordinateSystem, DatasetOptions, Error, ImportMode, IndexKind, IndexOptions, StopWords};
use terrane_formats::{detect_coordinates, detect_coordinates_by_name};

use super::rows::RowShape;
use super::target::{Target, last_part};
use super::types::{Declared, declared};
use super::{Written, insert};
use crate::error::SqlError;
use crate::geometry::{is_geometry, is_lonlat, srid_of};
use crate::runner::Runner;

pub(super) async fn create_table(runner: &Runner, table: CreateTable) -> Result<Written, SqlError> {
    if table.or_replace || table.temporary || table.external || table.like.is_some() || table.clone.is_some() {
        return Err(SqlError::refused("CREATE TABLE takes columns, or AS and a query"));
    }
    // Without quotes, a name means a table whose letters are equal in either case.
    let name = match last_part(&table.name)?.quote_style {
        Some(_) => last_part(&table.name)?.value.clone(),
        None => runner.table_name(&table.name)?,
    };
    if table.if_not_exists && runner.store.dataset_names().contains(&name) {
        return Ok(Written::nothing());
    }
    runner.store.check_import(ImportMode::Create, &name)?;
    let key = declared_key(&table)?;
    if let Some(query) = table.query {
        if !table.columns.is_empty() {
            return Err(SqlError::refused("CREATE TABLE … AS takes the columns of its query; leave the others out"));
        }
        let (stream, source) = runner.query(*query).await?;
        let schema = schema_of_query(&source, key)?;
        return fill(runner, &name, schema, stream, &source).await;
    }
    runner.store.create_dataset(&name, schema_of_columns(&table.columns, key)?)?;
    Ok(Written::nothing())
}

/// The column of `PRIMARY KEY`.
fn declared_key(table: &CreateTable) -> Result<Option<String>, SqlError> {
    let mut keys = Vec::new();
    for column in &table.columns {
        for option in &column.options {
            match &option.option {
                ColumnOption::PrimaryKey(_) => keys.push(column.name.value.clone()),
                // A key is never null.
                ColumnOption::Null | ColumnOption::NotNull | ColumnOption::Generated { .. } => {}
                other => {
                    return Err(SqlError::refused(format!(
                        "column {:?}: {other} is not available; only PRIMARY KEY is",
                        column.name.value
                    )));
                }
            }
        }
    }
    for constraint in &table.constraints {
        match constraint {
            TableConstraint::PrimaryKey(key) => match key.columns.as_slice() {
                [column] => match &column.column.expr {
                    Expr::Identifier(name) => keys.push(name.value.clone()),
                    other => return Err(SqlError::refused(format!("{other} is not a column"))),
                },
                _ => return Err(SqlError::refused("a key has one column")),
            },
            other => return Err(SqlError::refused(format!("{other} is not available; only PRIMARY KEY is"))),
        }
    }
    match keys.len() {
        0 | 1 => Ok(keys.pop()),
        _ => Err(SqlError::refused("a table has one primary key, of one column")),
    }
}

fn schema_of_columns(columns: &[ColumnDef], key: Option<String>) -> Result<Schema, SqlError> {
    for (position, column) in columns.iter().enumerate() {
        let is_quoted = |column: &ColumnDef| column.name.quote_style.is_some();
        let is_equal = |before: &ColumnDef| match is_quoted(before) && is_quoted(column) {
            true => before.name.value == column.name.value,
            false => before.name.value.eq_ignore_ascii_case(&column.name.value),
        };
        if columns[..position].iter().any(is_equal) {
            return Err(SqlError::refused(format!("there are two columns named {:?}", column.name.value)));
        }
    }
    let mut key_column = None;
    let mut geometry = None;
    let mut srid = 0;
    let mut attributes = Vec::new();
    for column in columns {
        let name = column.name.value.clone();
        let is_key = key.as_ref() == Some(&name);
        let has_null_option = column.options.iter().any(|option| option.option == ColumnOption::NotNull);
        if has_null_option && !is_key {
            return Err(SqlError::refused(format!(
                "column {name:?}: NOT NULL is only available for the key, because attributes may be null"
            )));
        }
        let is_generated = column.options.iter().any(|option| matches!(option.option, ColumnOption::Generated { .. }));
        match declared(&name, &column.data_type)? {
            Declared::Geometry(..) if is_key => return Err(SqlError::refused("a geometry cannot be the key")),
            Declared::Geometry(system, number) => {
                srid = number;
                if geometry.replace((GeometryColumn::Geometry { name: name.clone() }, system)).is_some() {
                    return Err(SqlError::refused(format!(
                        "{name:?} is a second column of geometries; a table has one"
                    )));
                }
            }
            Declared::Serial if is_key => {
                key_column = Some(KeyColumn { name, key_type: KeyType::Int64, generated: true });
            }
            Declared::Attribute(column_type) if is_key => {
                let key_type = match column_type {
                    ColumnType::Int64 => KeyType::Int64,
                    ColumnType::Utf8 => KeyType::Utf8,
                    ColumnType::Binary => KeyType::Binary,
                    ColumnType::Uuid => KeyType::Uuid,
                    other => {
                        return Err(SqlError::refused(format!(
                            "a key is an integer, a text, bytea or a uuid; {name:?} is {}",
                            other.description()
                        )));
                    }
                };
                key_column = Some(KeyColumn { name, key_type, generated: is_generated && key_type == KeyType::Int64 });
            }
            Declared::Serial => {
                return Err(SqlError::refused(format!("{name:?} is numbered, so it must be the PRIMARY KEY")));
            }
            Declared::Attribute(column_type) => attributes.push(Column::new(name, column_type)),
        }
    }
    if let (Some(wanted), None) = (&key, &key_column) {
        return Err(SqlError::refused(format!("PRIMARY KEY ({wanted}): there is no such column")));
    }
    let (geometry, system) = geometry.unwrap_or_else(|| place_of(&mut attributes));
    let key = key_column.unwrap_or_else(generated_key);
    let order: Vec<String> = columns.iter().map(|column| column.name.value.clone()).collect();
    let schema = Schema::new(key, geometry, system, attributes).map(|schema| schema.with_order(&order).with_srid(srid));
    schema.map_err(|error| SqlError::refused(error.to_string()))
}

/// The place of records without a column of geometries: their coordinates, if two columns of
/// numbers are named like longitude and latitude.
fn place_of(attributes: &mut Vec<Column>) -> (GeometryColumn, CoordinateSystem) {
    let numbers: Vec<&str> = attributes
        .iter()
        .filter(|column| column.column_type == ColumnType::Float64)
        .map(|column| column.name.as_str())
        .collect();
    let found = detect_coordinates_by_name(&numbers).map(|(x, y)| (x.to_owned(), y.to_owned()));
    match found {
        Some((x, y)) => {
            attributes.retain(|column| column.name != x && column.name != y);
            (GeometryColumn::Point { x, y }, CoordinateSystem::LonLat)
        }
        None => (GeometryColumn::None, CoordinateSystem::Planar),
    }
}

fn generated_key() -> KeyColumn {
    KeyColumn { name: GENERATED_KEY_COLUMN.to_owned(), key_type: KeyType::Int64, generated: true }
}

/// The schema of a table with the rows of a query.
fn schema_of_query(source: &ArrowSchema, key: Option<String>) -> Result<Schema, SqlError> {
    let geometries: Vec<&Field> =
        source.fields().iter().map(AsRef::as_ref).filter(|field| is_geometry(field)).collect();
    let (geometry, system) = match geometries.as_slice() {
        [] => match detect_coordinates(source) {
            Some((x, y)) => (GeometryColumn::Point { x, y }, CoordinateSystem::LonLat),
            None => (GeometryColumn::None, CoordinateSystem::Planar),
        },
        [field] => {
            let system = if is_lonlat(field) { CoordinateSystem::LonLat } else { CoordinateSystem::Planar };
            (GeometryColumn::Geometry { name: field.name().clone() }, system)
        }
        several => {
            let names: Vec<&str> = several.iter().map(|field| field.name().as_str()).collect();
            return Err(SqlError::refused(format!(
                "a table has one column of geometries; the query gives {}",
                names.join(", ")
            )));
        }
    };
    // A view of texts is stored as texts.
    let fields: Vec<Field> = source.fields().iter().map(|field| stored_field(field)).collect();
    let order: Vec<String> = fields.iter().map(|field| field.name().clone()).collect();
    let schema = Schema::from_arrow(&ArrowSchema::new(fields), key.as_deref(), geometry, system);
    let srid = geometries.first().and_then(|field| srid_of(field)).and_then(|srid| u32::try_from(srid).ok());
    let schema = schema.map(|schema| schema.with_order(&order).with_srid(srid.unwrap_or(0)));
    schema.map_err(|error| SqlError::refused(error.to_string()))
}

fn stored_field(field: &Field) -> Field {
    let stored = match field.data_type() {
        DataType::Utf8View | DataType::LargeUtf8 => DataType::Utf8,
        DataType::BinaryView | DataType::LargeBinary => DataType::Binary,
        DataType::Decimal128(..) => DataType::Float64,
        other => other.clone(),
    };
    field.clone().with_data_type(stored)
}

/// Creates a table with the rows of a query, all at once.
async fn fill(
    runner: &Runner,
    name: &str,
    schema: Schema,
    mut stream: datafusion::execution::SendableRecordBatchStream,
    source: &ArrowSchema,
) -> Result<Written, SqlError> {
    let names: Vec<String> = source.fields().iter().map(|field| field.name().clone()).collect();
    let shape = RowShape::new(&schema, None, &names)?;
    let mut importer = runner.store.importer_in(ImportMode::Create, name, schema, &DatasetOptions::default())?;
    let mut first = 0;
    while let Some(batch) = stream.next().await {
        let batch = batch.map_err(|error| SqlError::execution(&error, runner.memory_bytes))?;
        let rows = shape.shape(batch.columns(), batch.num_rows(), first)?;
        if let Some(row) = importer.push(&rows)?.first() {
            return Err(insert::refused(first, row.row, &row.error));
        }
        first += rows.num_rows() as u64;
    }
    let report = finish(importer)?;
    Ok(Written { done: "inserted", rows: Some(report.records), returned: None })
}

/// Installs the rows of an import, unless one is refused.
pub(super) fn finish(importer: terrane::Importer) -> Result<terrane::ImportReport, SqlError> {
    let mut refusal = None;
    let finished = importer.finish(&mut |row| {
        refusal = Some(insert::refused(0, row.row, &row.error));
        Err(Error::Cancelled)
    });
    match refusal {
        Some(refusal) => Err(refusal),
        None => Ok(finished?),
    }
}

pub(super) fn create_index(runner: &Runner, index: CreateIndex) -> Result<Written, SqlError> {
    if index.unique || index.predicate.is_some() || !index.include.is_empty() {
        return Err(SqlError::refused("CREATE INDEX takes USING, columns and WITH; only the key is unique"));
    }
    let target = Target::new(runner, &index.table_name)?;
    let mut columns = Vec::new();
    for column in &index.columns {
        match &column.column.expr {
            Expr::Identifier(name) => columns.push(target.column(name)?),
            other => return Err(SqlError::refused(format!("an index is on columns; {other} is an expression"))),
        }
    }
    let is_spatial =
        |name: &String| target.point.as_ref() == Some(name) || target.schema.geometry.names().any(|own| own == name);
    let on_geometry = !columns.is_empty() && columns.iter().all(is_spatial);
    let kind = match &index.using {
        None if on_geometry => IndexKind::RTree,
        None => IndexKind::BTree,
        Some(datafusion::sql::sqlparser::ast::IndexType::GiST) => IndexKind::RTree,
        Some(datafusion::sql::sqlparser::ast::IndexType::GIN) => IndexKind::Inverted,
        Some(kind) => kind.to_string().to_lowercase().parse::<IndexKind>()?,
    };
    // An index on geometries names no column.
    if on_geometry && !matches!(kind, IndexKind::BTree | IndexKind::Inverted) {
        columns.clear();
    }
    let name = match &index.name {
        Some(name) => last_part(name)?.value.clone(),
        None => format!("{}_{}_{kind}", target.dataset.name(), columns.join("_")),
    };
    let owner = owner_of_index(runner, &name)?;
    match owner {
        Some(_) if index.if_not_exists => return Ok(Written::nothing()),
        Some(owner) => {
            return Err(SqlError::refused(format!("the name {name:?} is that of an index of table {owner:?}")));
        }
        None => {}
    }
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    target.dataset.create_index_with(&name, kind, &columns, &index_options(&index.with)?)?;
    Ok(Written::nothing())
}

/// The table that has an index of this name.
fn owner_of_index(runner: &Runner, name: &str) -> Result<Option<String>, SqlError> {
    let info = runner.store.info()?;
    let has_it = |dataset: &&terrane::DatasetInfo| dataset.indexes.iter().any(|index| index.name == name);
    // The two indexes that each table has share their names.
    let is_shared = info.datasets.iter().filter(has_it).count() > 1;
    Ok(info.datasets.iter().find(has_it).filter(|_| !is_shared).map(|dataset| dataset.name.clone()))
}

/// The options of `WITH (levels = 'h,h', domain = '0,0,1,1', cells = 4, stop_words = 'english')`.
fn index_options(with: &[Expr]) -> Result<IndexOptions, SqlError> {
    let mut options = IndexOptions::default();
    for option in with {
        let unknown = || {
            SqlError::refused(format!(
                "WITH ({option}) is not an option; they are levels, domain, cells and stop_words"
            ))
        };
        let Expr::BinaryOp { left, right, .. } = option else { return Err(unknown()) };
        let value = right.to_string();
        let value = value.trim_matches('\'');
        let bad = |reason: String| SqlError::refused(format!("WITH ({option}): {reason}"));
        match left.to_string().to_lowercase().as_str() {
            "levels" => options.levels = Some(value.parse().map_err(|error| bad(format!("{error}")))?),
            "domain" => {
                let numbers: Result<Vec<f64>, _> = value.split(',').map(|number| number.trim().parse()).collect();
                let numbers = numbers.map_err(|error| bad(format!("{error}")))?;
                options.domain = Some(numbers.try_into().map_err(|_| bad("it has four numbers".to_owned()))?);
            }
            "cells" => options.cells_per_object_max = Some(value.parse().map_err(|error| bad(format!("{error}")))?),
            "stop_words" => options.stop_words = Some(StopWords::new(value.split(',').map(str::trim))?),
            _ => return Err(unknown()),
        }
    }
    Ok(options)
}

pub(super) fn drop(
    runner: &Runner,
    object_type: ObjectType,
    if_exists: bool,
    names: &[ObjectName],
) -> Result<Written, SqlError> {
    if object_type == ObjectType::Table && !if_exists {
        // None is dropped if one is missing.
        for name in names {
            runner.store.dataset(&runner.table_name(name)?)?;
        }
    }
    for name in names {
        match object_type {
            ObjectType::Table => {
                let name = runner.table_name(name)?;
                match runner.store.drop_dataset(&name) {
                    Err(Error::UnknownDataset { .. }) if if_exists => {}
                    dropped => dropped?,
                }
            }
            ObjectType::Index => {
                let name = &last_part(name)?.value;
                match owner_of_index(runner, name)? {
                    Some(owner) => runner.store.dataset(&owner)?.drop_index(name)?,
                    None if if_exists => {}
                    None => return Err(SqlError::refused(format!("there is no index {name:?}"))),
                }
            }
            other => return Err(SqlError::refused(format!("DROP {other} is not available"))),
        }
    }
    Ok(Written::nothing())
}

pub(super) fn alter_table(runner: &Runner, alter: &AlterTable) -> Result<Written, SqlError> {
    let target = Target::new(runner, &alter.name)?;
    let dataset = &target.dataset;
    for operation in &alter.operations {
        match operation {
            AlterTableOperation::AddColumn { column_def, if_not_exists, .. } => {
                let name = column_def.name.value.clone();
                if *if_not_exists && target.column_names().contains(&name) {
                    continue;
                }
                if let Some(option) = column_def.options.iter().find(|option| option.option != ColumnOption::Null) {
                    return Err(SqlError::refused(format!("column {name:?}: {} is not available", option.option)));
                }
                match declared(&name, &column_def.data_type)? {
                    Declared::Attribute(column_type) => dataset.add_column(Column::new(name, column_type))?,
                    _ => return Err(SqlError::refused("only attributes can be added")),
                }
            }
            AlterTableOperation::DropColumn { column_names, if_exists, .. } => {
                for name in column_names {
                    match target.column(name) {
                        Ok(name) => dataset.drop_column(&name)?,
                        Err(_) if *if_exists => {}
                        Err(error) => return Err(error),
                    }
                }
            }
            AlterTableOperation::RenameColumn { old_column_name, new_column_name } => {
                dataset.rename_column(&target.column(old_column_name)?, &new_column_name.value)?;
            }
            other => {
                return Err(SqlError::refused(format!(
                    "ALTER TABLE {other} is not available; ADD COLUMN, DROP COLUMN and RENAME COLUMN are"
                )));
            }
        }
    }
    Ok(Written::nothing())
}

pub(super) fn truncate(runner: &Runner, truncate: &Truncate) -> Result<Written, SqlError> {
    for table in &truncate.table_names {
        let target = Target::new(runner, &table.name)?;
        let (schema, options) = (target.schema.as_first(), DatasetOptions::default());
        let importer = runner.store.importer_in(ImportMode::Replace, target.dataset.name(), schema, &options)?;
        finish(importer)?;
    }
    Ok(Written::nothing())
}

/// `CALL checkpoint()`, `compact()`, `check()`.
pub(super) fn call(runner: &Runner, call: &Function) -> Result<Written, SqlError> {
    let has_arguments = match &call.args {
        FunctionArguments::List(list) => !list.args.is_empty(),
        FunctionArguments::None => false,
        FunctionArguments::Subquery(_) => true,
    };
    match call.name.to_string().to_lowercase().as_str() {
        _ if has_arguments => return Err(SqlError::refused("procedures take no arguments")),
        "checkpoint" => runner.store.flush()?,
        "compact" => runner.store.compact()?,
        "check" => {
            let report = runner.store.check(false)?;
            if let Some(finding) = report.findings.first() {
                return Err(SqlError::Store(Error::Failed(format!(
                    "the check found {}; the first: {finding}",
                    terrane::counted(report.findings.len() as u64, "defect", "defects")
                ))));
            }
        }
        _ => {
            return Err(SqlError::refused(format!(
                "{} is not a procedure; checkpoint, compact and check are",
                call.name
            )));
        }
    }
    Ok(Written::nothing())
}
