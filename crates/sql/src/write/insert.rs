//! `INSERT`.

use std::collections::HashSet;

use arrow_array::{RecordBatch, RecordBatchOptions, UInt64Array};
use arrow_schema::ArrowError;
use datafusion::arrow::compute::{concat_batches, take_record_batch};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::sql::sqlparser::ast::{
    Expr, Insert, OnConflictAction, OnInsert, Parens, SelectItem, SetExpr, TableObject, Value, Values,
};
use futures::{StreamExt, stream};
use terrane::schema::GeometryColumn;
use terrane::{AtomicBatch, Error, Key, OnConflict, RefusedRow};

use super::conflict::{Conflicts, Resolved};
use super::literals::{literal_rows, make_texts};
use super::rows::{RowShape, with_keys};
use super::target::{Target, last_part, quoted};
use super::{Returning, Written, after_writing};
use crate::error::SqlError;
use crate::forms::is_default;
use crate::functions::IN_SYSTEM;
use crate::runner::{Memory, Runner};
use crate::statement::call;

pub(super) async fn insert(runner: &Runner, insert: Insert) -> Result<Written, SqlError> {
    let TableObject::TableName(name) = &insert.table else {
        return Err(SqlError::refused(format!("{} is not a table", insert.table)));
    };
    if insert.overwrite || insert.replace_into || insert.or.is_some() || !insert.assignments.is_empty() {
        return Err(SqlError::refused("INSERT takes VALUES or a query; ON CONFLICT (key) DO UPDATE replaces records"));
    }
    let target = Target::new(runner, name)?;
    let alias = match &insert.table_alias {
        Some(alias) => alias.alias.clone(),
        None => last_part(name)?.clone(),
    };
    let Some(mut source) = insert.source else {
        return Err(SqlError::refused("INSERT without VALUES or a query is not available"));
    };
    let mut named: Vec<String> =
        insert.columns.iter().map(|name| target.column(last_part(name)?)).collect::<Result<_, _>>()?;
    let mut literals = None;
    let is_plain =
        source.with.is_none() && source.order_by.is_none() && source.limit_clause.is_none() && source.fetch.is_none();
    let is_values = match &mut *source.body {
        SetExpr::Values(values) => {
            set_defaults(values, &mut named, &target)?;
            let names = if named.is_empty() { target.column_names() } else { named.clone() };
            make_texts(values, &runner.params);
            make_geometries(values, &names, &target);
            literals = literal_rows(values, &runner.params).filter(|_| is_plain);
            true
        }
        SetExpr::Select(select) => {
            name_values(&mut select.projection);
            false
        }
        _ => false,
    };
    let (mut stream, source) = match literals {
        Some(rows) => {
            let source = rows.schema();
            let rows = RecordBatchStreamAdapter::new(source.clone(), stream::iter([Ok(rows)]));
            (Box::pin(rows) as SendableRecordBatchStream, source)
        }
        None => runner.query(*source).await?,
    };
    let names = match named.is_empty() {
        true => default_columns(&target, source.fields().len(), is_values)?,
        false => named,
    };
    let shape = RowShape::new(&target.schema, target.point.as_deref(), &names)?;
    shape.check_systems(&target.schema, source.fields())?;
    let count = source.fields().len();
    let ignores_point = insert.columns.is_empty() && !is_values && target.point.is_some() && count == names.len() + 1;
    if shape.columns() != count && !ignores_point {
        return Err(SqlError::refused(format!(
            "INSERT has {} for {} of {:?}",
            terrane::counted(count as u64, "value", "values"),
            terrane::counted(names.len() as u64, "column", "columns"),
            target.dataset.name()
        )));
    }
    let conflicts = match insert.on {
        None => None,
        Some(OnInsert::OnConflict(conflict)) => Some(Conflicts::new(&target, alias.clone(), conflict)?),
        Some(OnInsert::DuplicateKeyUpdate(_)) => {
            return Err(SqlError::refused("use ON CONFLICT (key) DO UPDATE SET … = excluded.…"));
        }
        Some(_) => return Err(SqlError::refused("this clause of INSERT is not available")),
    };
    let returning = Returning::new(runner, insert.returning, &alias.value);
    let mut insertion = Insertion {
        runner,
        target: &target,
        conflicts,
        returning,
        seen: HashSet::new(),
        memory: runner.memory("the keys of the statement"),
        written: 0,
    };
    let mut first = 0;
    let (mut all, memory) = (Vec::new(), runner.memory("the rows of an atomic statement"));
    while let Some(batch) = stream.next().await {
        let batch = batch.map_err(|error| SqlError::execution(&error, runner.memory_bytes));
        let rows = batch.and_then(|batch| shape.shape(batch.columns(), batch.num_rows(), first));
        let rows = rows.map_err(|error| after_writing(error, "inserted", insertion.written))?;
        let count = rows.num_rows() as u64;
        if runner.is_whole() {
            memory.take(rows.get_array_memory_size())?;
            all.push(rows);
        } else {
            let added = insertion.add(&rows, first).await;
            added.map_err(|error| after_writing(error, "inserted", insertion.written))?;
        }
        first += count;
    }
    if runner.is_whole() {
        insertion.add_all(all).await?;
    }
    let rows = Some(insertion.written);
    let returned = insertion.returning.finish(runner, &target).await?;
    Ok(Written { done: "inserted", rows, returned })
}

/// Gives values names, since equal ones would have equal names.
fn name_values(items: &mut [SelectItem]) {
    for (number, item) in items.iter_mut().enumerate() {
        if let SelectItem::UnnamedExpr(expr) = item {
            let expr = std::mem::replace(expr, Expr::Value(Value::Null.into()));
            *item = SelectItem::ExprWithAlias { expr, alias: quoted(&format!("column {number}")) };
        }
    }
}

/// Sets `DEFAULT`: null, or the next number of a key that the store numbers, which is left out.
fn set_defaults(values: &mut Values, named: &mut Vec<String>, target: &Target) -> Result<(), SqlError> {
    let names = if named.is_empty() { target.column_names() } else { named.clone() };
    let key = &target.schema.key;
    let key_column = names.iter().position(|name| *name == key.name).filter(|_| key.generated);
    if let Some(column) = key_column {
        let is_set = |row: &Parens<Vec<Expr>>| row.content.get(column).is_some_and(is_default);
        let numbered = values.rows.iter().filter(|row| is_set(row)).count();
        if numbered > 0 && numbered < values.rows.len() {
            return Err(SqlError::refused(format!(
                "column {:?}: write DEFAULT in all rows or in none, because the store numbers all of them or none",
                key.name
            )));
        }
        if numbered > 0 {
            let width = values.rows.iter().map(|row| row.content.len()).max().unwrap_or(0);
            values.rows.iter_mut().for_each(|row| drop(row.content.remove(column)));
            *named = names.into_iter().take(width).collect();
            named.remove(column);
        }
    }
    for value in values.rows.iter_mut().flat_map(|row| &mut row.content).filter(|value| is_default(value)) {
        *value = Expr::Value(Value::Null.into());
    }
    Ok(())
}

/// Makes the values of a column geometries if some are computed: the rows must have one type.
fn make_geometries(values: &mut Values, names: &[String], target: &Target) {
    let is_place = |name: &String| match &target.schema.geometry {
        GeometryColumn::Geometry { name: geometry } => name == geometry,
        GeometryColumn::Point { .. } => target.point.as_ref() == Some(name),
        GeometryColumn::None => false,
    };
    for column in (0..names.len()).filter(|column| is_place(&names[*column])) {
        let places = || values.rows.iter().filter_map(|row| row.content.get(column));
        if places().all(|value| matches!(value, Expr::Value(_))) {
            continue;
        }
        let srid = target.schema.srid();
        for value in values.rows.iter_mut().filter_map(|row| row.content.get_mut(column)) {
            let srid = Expr::Value(Value::Number(srid.to_string(), false).into());
            *value = call(IN_SYSTEM, vec![std::mem::replace(value, Expr::Value(Value::Null.into())), srid]);
        }
    }
}

/// The columns that values without names go to: the first ones of the table. A key that the store
/// numbers itself is left out if there is a value for each other column.
fn default_columns(target: &Target, count: usize, is_values: bool) -> Result<Vec<String>, SqlError> {
    let mut columns = target.column_names();
    let all = columns.len() + usize::from(target.point.is_some() && !is_values);
    if target.schema.key.generated && count + 1 == columns.len() {
        columns.retain(|name| *name != target.schema.key.name);
    }
    if count > all {
        return Err(SqlError::refused(format!(
            "INSERT has {} for {} of {:?}",
            terrane::counted(count as u64, "value", "values"),
            terrane::counted(columns.len() as u64, "column", "columns"),
            target.dataset.name()
        )));
    }
    columns.truncate(count);
    Ok(columns)
}

/// An insertion in progress.
struct Insertion<'a> {
    runner: &'a Runner,
    target: &'a Target,
    conflicts: Option<Conflicts>,
    returning: Returning,
    /// The keys of the statement so far, if a conflict changes the stored record.
    seen: HashSet<Key>,
    memory: Memory,
    written: u64,
}

impl Insertion<'_> {
    /// Writes rows, each in its own transaction.
    async fn add(&mut self, rows: &RecordBatch, first: u64) -> Result<(), SqlError> {
        let outcome = self.target.dataset.write_batch(rows, OnConflict::Refuse)?;
        self.written += outcome.keys.len() as u64;
        let mut taken = Vec::new();
        let mut error = None;
        for RefusedRow { row, error: refusal } in &outcome.refused {
            match refusal {
                Error::DuplicateKey { .. } if self.conflicts.is_some() => taken.push(*row),
                _ if error.is_none() => error = Some(refused(first, *row, refusal)),
                _ => {}
            }
        }
        if let Some(error) = error {
            return Err(error);
        }
        if self.returning.is_wanted() {
            let kept = rows_without(rows, outcome.refused.iter().map(|refused| refused.row))?;
            self.returning.add(with_keys(&kept, &outcome.keys, self.target)?)?;
        }
        if let Some(conflicts) = &self.conflicts
            && let OnConflictAction::DoUpdate(_) = conflicts.action
        {
            conflicts.note_keys(rows, first, self.target, (&mut self.seen, &self.memory))?;
            if !taken.is_empty() {
                let taken = rows_of(rows, &taken)?;
                self.written += conflicts.update(self.runner, self.target, taken, &mut self.returning).await?;
            }
        }
        Ok(())
    }

    /// Writes all rows together.
    async fn add_all(&mut self, batches: Vec<RecordBatch>) -> Result<(), SqlError> {
        let Some(conflicts) = self.conflicts.take().filter(|_| !batches.is_empty()) else {
            return self.add_new(&batches);
        };
        let name = self.target.dataset.name();
        if self
            .runner
            .transaction
            .as_ref()
            .is_some_and(|transaction| transaction.changed_table().as_deref() == Some(name))
        {
            return Err(SqlError::refused(format!(
                "ON CONFLICT reads table {name:?}, which was changed in this transaction; COMMIT before"
            )));
        }
        let rows = concat_batches(batches[0].schema_ref(), &batches)
            .map_err(|error| SqlError::Execution(error.to_string()))?;
        loop {
            let runner = self.runner.renewed();
            let now = self.target.renewed(&runner)?;
            let resolved = conflicts.resolve(&runner, &now, &rows, &self.memory).await?;
            if self.add_resolved(&now, &resolved)? {
                return Ok(());
            }
        }
    }

    /// Writes what a statement with conflicts comes to in one state. Returns whether it is done: if
    /// another writer was faster, nothing was changed.
    fn add_resolved(&mut self, now: &Target, resolved: &Resolved) -> Result<bool, SqlError> {
        let mut keys = Vec::new();
        let mut add = |batch: &mut AtomicBatch| {
            let outcome = batch.push(&resolved.new, OnConflict::Refuse)?;
            if let Some(RefusedRow { row, error }) = outcome.refused.first() {
                return Err(refused(0, *row, error));
            }
            keys = outcome.keys;
            for rows in &resolved.replaced {
                let outcome = batch.push(rows, OnConflict::Replace)?;
                if let Some(RefusedRow { row, error }) = outcome.refused.first() {
                    return Err(refused(0, *row, error));
                }
            }
            Ok(())
        };
        if let Some(transaction) = &self.runner.transaction {
            // What was read decides only if records are replaced.
            let all = resolved.replaced.iter().chain([&resolved.new]);
            let bytes = all.map(RecordBatch::get_array_memory_size).sum();
            transaction.add(now, bytes, !resolved.replaced.is_empty(), add)?;
        } else {
            let mut batch = now.dataset.atomic_batch().unchanged_since(&now.snapshot)?;
            add(&mut batch)?;
            match batch.commit() {
                Ok(()) => {}
                Err(Error::Changed { .. } | Error::DuplicateKey { .. }) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        self.written = resolved.new.num_rows() as u64;
        if self.returning.is_wanted() {
            self.returning.add(with_keys(&resolved.new, &keys, self.target)?)?;
        }
        for rows in &resolved.replaced {
            self.written += rows.num_rows() as u64;
            if self.returning.is_wanted() {
                self.returning.add(rows.clone())?;
            }
        }
        Ok(true)
    }

    /// Writes rows together whose keys have to be new.
    fn add_new(&mut self, batches: &[RecordBatch]) -> Result<(), SqlError> {
        let mut keys = Vec::new();
        let mut count = 0;
        let mut add = |batch: &mut AtomicBatch| {
            for rows in batches {
                let outcome = batch.push(rows, OnConflict::Refuse)?;
                if let Some(RefusedRow { row, error }) = outcome.refused.first() {
                    return Err(refused(count, *row, error));
                }
                count += rows.num_rows() as u64;
                keys.push(outcome.keys);
            }
            Ok(())
        };
        if let Some(transaction) = &self.runner.transaction {
            let bytes = batches.iter().map(RecordBatch::get_array_memory_size).sum();
            transaction.add(self.target, bytes, false, add)?;
        } else {
            let mut batch = self.target.dataset.atomic_batch();
            add(&mut batch)?;
            batch.commit()?;
        }
        self.written = count;
        for (rows, keys) in batches.iter().zip(&keys) {
            if self.returning.is_wanted() {
                self.returning.add(with_keys(rows, keys, self.target)?)?;
            }
        }
        Ok(())
    }
}

/// A refused row as an error.
pub(super) fn refused(first: u64, row: usize, error: &Error) -> SqlError {
    SqlError::Refused(format!("row {}: {error}", first + row as u64 + 1))
}

/// Some rows of a batch.
pub(super) fn rows_of(batch: &RecordBatch, rows: &[usize]) -> Result<RecordBatch, SqlError> {
    let failed = |error: ArrowError| SqlError::Execution(error.to_string());
    if batch.num_columns() == 0 {
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        return RecordBatch::try_new_with_options(batch.schema(), Vec::new(), &options).map_err(failed);
    }
    let indices = UInt64Array::from_iter_values(rows.iter().map(|row| *row as u64));
    take_record_batch(batch, &indices).map_err(failed)
}

/// The rows of a batch but some, which ascend.
fn rows_without(batch: &RecordBatch, left_out: impl Iterator<Item = usize>) -> Result<RecordBatch, SqlError> {
    let mut left_out = left_out.peekable();
    let kept: Vec<usize> = (0..batch.num_rows()).filter(|row| left_out.next_if_eq(row).is_none()).collect();
    match kept.len() == batch.num_rows() {
        true => Ok(batch.clone()),
        false => rows_of(batch, &kept),
    }
}
