//! `UPDATE` and `DELETE`.

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;

use arrow_array::RecordBatch;
use datafusion::sql::sqlparser::ast::{
    Assignment, AssignmentTarget, Delete, Expr, FromTable, Ident, Query, Statement, Update, UpdateTableFromKind, Visit,
    Visitor,
};
use futures::StreamExt;
use terrane::{AtomicBatch, Key};

use super::insert::rows_of;
use super::rows::{RowShape, keys_of};
use super::target::{Target, both, column_of, last_part, numbered, select, table_and_alias, table_factor};
use super::{Returning, Written, after_writing};
use crate::error::SqlError;
use crate::runner::Runner;

/// Name of the table of records that another writer changed.
const CHANGED: &str = "terrane changed records";

/// The new values of columns.
pub(super) struct Assignments {
    values: BTreeMap<String, Expr>,
    /// The columns of the new rows: the stored ones, or the point in place of its coordinates.
    names: Vec<String>,
}

impl Assignments {
    pub fn new(target: &Target, assignments: &[Assignment]) -> Result<Self, SqlError> {
        let mut values = BTreeMap::new();
        for assignment in assignments {
            let AssignmentTarget::ColumnName(name) = &assignment.target else {
                return Err(SqlError::refused("assign to one column at a time: SET a = …, b = …"));
            };
            let name = target.column(last_part(name)?)?;
            if values.insert(name.clone(), assignment.value.clone()).is_some() {
                return Err(SqlError::refused(format!("column {name:?} is assigned twice")));
            }
        }
        let mut names = target.column_names();
        if let Some(point) = target.point.as_ref().filter(|point| values.contains_key(*point)) {
            let coordinates: Vec<&str> = target.schema.geometry.names().collect();
            if coordinates.iter().any(|name| values.contains_key(*name)) {
                return Err(SqlError::refused(format!("assign either {point:?} or its coordinates")));
            }
            names.retain(|name| !coordinates.contains(&name.as_str()));
            names.push(point.clone());
        }
        Ok(Self { values, names })
    }

    /// The columns of the new rows.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The values of the new rows, of a table under a name.
    pub fn values(&self, _: &Target, alias: &Ident) -> Vec<Expr> {
        let value = |name: &String| self.values.get(name).cloned().unwrap_or_else(|| column_of(alias, name));
        self.names.iter().map(value).collect()
    }

    pub fn changes_key(&self, target: &Target) -> bool {
        self.values.contains_key(&target.schema.key.name)
    }
}

pub(super) async fn update(runner: &Runner, update: Update) -> Result<Written, SqlError> {
    if update.or.is_some() || !update.order_by.is_empty() || update.limit.is_some() {
        return Err(SqlError::refused("UPDATE takes SET, FROM, WHERE and RETURNING"));
    }
    let (name, alias) = table_and_alias(&update.table)?;
    let target = Target::new(runner, name)?;
    let assignments = Assignments::new(&target, &update.assignments)?;
    let mut from = vec![update.table.clone()];
    if let Some(UpdateTableFromKind::AfterSet(tables) | UpdateTableFromKind::BeforeSet(tables)) = update.from {
        from.extend(tables);
    }
    let old_key = column_of(&alias, &target.schema.key.name);
    let items = numbered(std::iter::once(old_key).chain(assignments.values(&target, &alias)));
    let returning = Returning::new(update.returning, &alias.value);
    let query = select(items, from, update.selection)?;
    let change = Change { alias, query, assignments: Some(assignments), returning, done: "changed", written: 0 };
    change.run(runner, target).await
}

pub(super) async fn delete(runner: &Runner, delete: Delete) -> Result<Written, SqlError> {
    let FromTable::WithFromKeyword(mut from) = delete.from else {
        return Err(SqlError::refused("write DELETE FROM"));
    };
    if !delete.tables.is_empty() || !delete.order_by.is_empty() || delete.limit.is_some() || from.len() != 1 {
        return Err(SqlError::refused("DELETE takes one table, USING, WHERE and RETURNING"));
    }
    let (name, alias) = table_and_alias(&from[0])?;
    let target = Target::new(runner, name)?;
    from.extend(delete.using.unwrap_or_default());
    let returning = Returning::new(delete.returning, &alias.value);
    let mut items = vec![column_of(&alias, &target.schema.key.name)];
    if returning.is_wanted() {
        items.extend(target.column_names().iter().map(|name| column_of(&alias, name)));
    }
    let query = select(numbered(items), from, delete.selection)?;
    let change = Change { alias, query, assignments: None, returning, done: "deleted", written: 0 };
    change.run(runner, target).await
}

/// A change of the records that a query finds. The query gives the old key, and the new rows or
/// those to return.
struct Change {
    alias: Ident,
    query: Query,
    /// `None` for a deletion.
    assignments: Option<Assignments>,
    returning: Returning,
    done: &'static str,
    written: u64,
}

impl Change {
    async fn run(mut self, runner: &Runner, mut target: Target) -> Result<Written, SqlError> {
        let names = match &self.assignments {
            Some(assignments) => assignments.names().to_vec(),
            None if self.returning.is_wanted() => target.column_names(),
            None => Vec::new(),
        };
        let is_own = reads_only_its_table(&self.query);
        let mut runner = runner.clone();
        let mut query = self.query.clone();
        loop {
            let key = RowShape::new(&target.schema, None, std::slice::from_ref(&target.schema.key.name))?;
            let shape = RowShape::new(&target.schema, target.point.as_deref(), &names)?;
            let (mut stream, _) = runner.query(query).await?;
            let mut changed = Vec::new();
            let (mut all, mut kept) = (Vec::new(), 0);
            // A join may find a record several times; the first row counts.
            let mut seen = HashSet::new();
            while let Some(batch) = stream.next().await {
                let rows = batch.map_err(|error| SqlError::execution(&error, runner.memory_bytes)).and_then(|batch| {
                    let keys = key.shape(&batch.columns()[..1], batch.num_rows(), 0)?;
                    let rows = shape.shape(&batch.columns()[1..], batch.num_rows(), self.written)?;
                    if is_own { Ok((keys, rows)) } else { first_ones(&keys, &rows, &target, &mut seen) }
                });
                let rows = rows.map_err(|error| after_writing(error, self.done, self.written))?;
                if runner.is_atomic {
                    kept += rows.0.get_array_memory_size() + rows.1.get_array_memory_size();
                    runner.check_memory(kept)?;
                    all.push(rows);
                    continue;
                }
                let left = self.write(&target, &rows.0, &rows.1);
                changed.extend(left.map_err(|error| after_writing(error, self.done, self.written))?);
            }
            drop(stream);
            if runner.is_atomic {
                self.write_all(&target, &all)?;
            }
            if changed.is_empty() {
                break;
            }
            if !is_own {
                let error = SqlError::Execution(format!(
                    "{} changed by another writer while the statement read other tables; run it again",
                    terrane::counted(
                        changed.iter().map(|batch: &RecordBatch| batch.num_rows() as u64).sum(),
                        "record was",
                        "records were"
                    )
                ));
                return Err(after_writing(error, self.done, self.written));
            }
            // Their newest versions are judged.
            runner = runner.renewed();
            target = target.renewed(&runner)?;
            runner.add_table(CHANGED, &changed[0].schema(), &changed)?;
            query = self.query_of_changed(&target)?;
        }
        let returned = self.returning.finish(&runner, &target).await?;
        Ok(Written { done: self.done, rows: Some(self.written), returned })
    }

    /// The query for the records that were changed.
    fn query_of_changed(&self, target: &Target) -> Result<Query, SqlError> {
        let key = &target.schema.key.name;
        let keys =
            select(numbered([column_of(&super::target::quoted(CHANGED), key)]), vec![table_factor(CHANGED)?], None)?;
        let among =
            Expr::InSubquery { expr: Box::new(column_of(&self.alias, key)), subquery: Box::new(keys), negated: false };
        let mut query = self.query.clone();
        if let datafusion::sql::sqlparser::ast::SetExpr::Select(select) = &mut *query.body {
            select.selection = Some(both(select.selection.take(), among));
        }
        Ok(query)
    }

    /// Writes rows, each in its own transaction. Gives the keys of the records that were changed
    /// since they were read.
    fn write(
        &mut self,
        target: &Target,
        keys: &RecordBatch,
        rows: &RecordBatch,
    ) -> Result<Option<RecordBatch>, SqlError> {
        let Some(assignments) = &self.assignments else {
            let outcome = target.dataset.delete_unchanged(&target.snapshot, keys)?;
            self.written += outcome.written;
            return self.rest(keys, rows, &outcome.changed);
        };
        if assignments.changes_key(target) {
            return self.move_records(target, keys, rows);
        }
        let outcome = target.dataset.replace_unchanged(&target.snapshot, rows)?;
        self.written += outcome.written;
        if let Some(row) = outcome.refused.first() {
            let key = keys_of(&rows_of(keys, &[row.row])?, target)?;
            let key = key.first().map_or_else(String::new, ToString::to_string);
            return Err(SqlError::Refused(format!("the record with the key {key}: {}", row.error)));
        }
        self.rest(keys, rows, &outcome.changed)
    }

    fn rest(
        &mut self,
        keys: &RecordBatch,
        rows: &RecordBatch,
        changed: &[usize],
    ) -> Result<Option<RecordBatch>, SqlError> {
        if self.returning.is_wanted() {
            let mut changed = changed.iter().copied().peekable();
            let done: Vec<usize> = (0..rows.num_rows()).filter(|row| changed.next_if_eq(row).is_none()).collect();
            self.returning.add(rows_of(rows, &done)?);
        }
        match changed.is_empty() {
            true => Ok(None),
            false => rows_of(keys, changed).map(Some),
        }
    }

    /// Gives records new keys. Each is deleted and inserted in one transaction.
    fn move_records(
        &mut self,
        target: &Target,
        keys: &RecordBatch,
        rows: &RecordBatch,
    ) -> Result<Option<RecordBatch>, SqlError> {
        let mut changed = Vec::new();
        for row in 0..rows.num_rows() {
            let (key, new) = (rows_of(keys, &[row])?, rows_of(rows, &[row])?);
            let mut batch = target.dataset.atomic_batch().unchanged_since(&target.snapshot)?;
            delete_records(&mut batch, target, &key)?;
            insert_records(&mut batch, &new)?;
            match batch.commit() {
                Ok(()) => self.written += 1,
                Err(terrane::Error::Changed { .. }) => changed.push(row),
                Err(error) => return Err(error.into()),
            }
        }
        self.rest(keys, rows, &changed)
    }

    /// Writes all rows together.
    fn write_all(&mut self, target: &Target, all: &[(RecordBatch, RecordBatch)]) -> Result<(), SqlError> {
        let mut batch = target.dataset.atomic_batch().unchanged_since(&target.snapshot)?;
        // First all old keys: a new one may be the old one of another record.
        for (keys, _) in all {
            delete_records(&mut batch, target, keys)?;
        }
        for (keys, rows) in all {
            if self.assignments.is_some() {
                insert_records(&mut batch, rows)?;
            }
            self.written += keys.num_rows() as u64;
            self.returning.add(rows.clone());
        }
        batch.commit()?;
        Ok(())
    }
}

fn delete_records(batch: &mut AtomicBatch<'_>, target: &Target, keys: &RecordBatch) -> Result<(), SqlError> {
    for key in keys_of(keys, target)? {
        batch.delete(&key)?;
    }
    Ok(())
}

fn insert_records(batch: &mut AtomicBatch<'_>, rows: &RecordBatch) -> Result<(), SqlError> {
    let outcome = batch.push(rows, terrane::OnConflict::Refuse)?;
    match outcome.refused.first() {
        Some(row) => Err(SqlError::Refused(row.error.to_string())),
        None => Ok(()),
    }
}

/// The rows of keys that did not come before.
fn first_ones(
    keys: &RecordBatch,
    rows: &RecordBatch,
    target: &Target,
    seen: &mut HashSet<Key>,
) -> Result<(RecordBatch, RecordBatch), SqlError> {
    let encoded = keys_of(keys, target)?;
    let first: Vec<usize> =
        encoded.into_iter().enumerate().filter_map(|(row, key)| seen.insert(key).then_some(row)).collect();
    Ok((rows_of(keys, &first)?, rows_of(rows, &first)?))
}

/// Whether a query reads its first table alone.
fn reads_only_its_table(query: &Query) -> bool {
    struct Tables(usize);
    impl Visitor for Tables {
        type Break = ();

        fn pre_visit_relation(&mut self, _: &datafusion::sql::sqlparser::ast::ObjectName) -> ControlFlow<()> {
            self.0 += 1;
            ControlFlow::Continue(())
        }

        fn pre_visit_statement(&mut self, _: &Statement) -> ControlFlow<()> {
            ControlFlow::Continue(())
        }
    }
    let mut tables = Tables(0);
    let _ = Visit::visit(query, &mut tables);
    tables.0 == 1
}
