//! `UPDATE` and `DELETE`.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use datafusion::arrow::row::{Row, RowConverter, SortField};
use datafusion::sql::sqlparser::ast::{
    Assignment, AssignmentTarget, Delete, Expr, FromTable, Ident, ObjectName, Query, SelectItem, SetExpr, Statement,
    TableWithJoins, Update, UpdateTableFromKind, Value, Visit, Visitor,
};
use futures::StreamExt;
use terrane::{AtomicBatch, Key};

use super::insert::rows_of;
use super::rows::{RowShape, keys_of};
use super::target::{Target, both, column_of, last_part, numbered, select, table_and_alias, table_factor};
use super::{Returning, Written, after_writing};
use crate::error::SqlError;
use crate::forms::is_default;
use crate::runner::{Memory, Runner};

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
            let value = match is_default(&assignment.value) {
                true => Expr::Value(Value::Null.into()),
                false => assignment.value.clone(),
            };
            if values.insert(name.clone(), value).is_some() {
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
    pub fn values(&self, alias: &Ident) -> Vec<Expr> {
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
    let mut from = vec![update.table.clone()];
    if let Some(UpdateTableFromKind::AfterSet(tables) | UpdateTableFromKind::BeforeSet(tables)) = update.from {
        from.extend(tables);
    }
    let change =
        Changing { runner, name, alias: &alias, from, selection: update.selection, returning: update.returning };
    change.update(&update.assignments, &mut Seen::new(runner)).await
}

/// Updates the records of a table, under an alias, that a join finds. What other joins of the
/// statement have found must not be changed otherwise.
pub(super) async fn update_where(
    (runner, seen): (&Runner, &mut Seen),
    (name, alias): (&ObjectName, &Ident),
    assignments: &[Assignment],
    from: Vec<TableWithJoins>,
    selection: Expr,
) -> Result<Written, SqlError> {
    let change = Changing { runner, name, alias, from, selection: Some(selection), returning: None };
    change.update(assignments, seen).await
}

/// Deletes such records.
pub(super) async fn delete_where(
    (runner, seen): (&Runner, &mut Seen),
    (name, alias): (&ObjectName, &Ident),
    from: Vec<TableWithJoins>,
    selection: Expr,
) -> Result<Written, SqlError> {
    Changing { runner, name, alias, from, selection: Some(selection), returning: None }.delete(seen).await
}

/// A statement that changes the records which a query finds.
struct Changing<'s> {
    runner: &'s Runner,
    name: &'s ObjectName,
    alias: &'s Ident,
    /// The table first.
    from: Vec<TableWithJoins>,
    selection: Option<Expr>,
    returning: Option<Vec<SelectItem>>,
}

impl Changing<'_> {
    async fn update(self, assignments: &[Assignment], seen: &mut Seen) -> Result<Written, SqlError> {
        let Self { runner, alias, .. } = self;
        let target = Target::new(runner, self.name)?;
        let assignments = Assignments::new(&target, assignments)?;
        let old_key = column_of(alias, &target.schema.key.name);
        let items = numbered(std::iter::once(old_key).chain(assignments.values(alias)));
        let returning = Returning::new(runner, self.returning, &alias.value);
        let query = select(items, self.from, self.selection)?;
        let assignments = Some(assignments);
        let change = Change { alias: alias.clone(), query, assignments, returning, done: "changed", written: 0 };
        change.run(runner, target, seen).await
    }

    async fn delete(self, seen: &mut Seen) -> Result<Written, SqlError> {
        let Self { runner, alias, .. } = self;
        let target = Target::new(runner, self.name)?;
        let returning = Returning::new(runner, self.returning, &alias.value);
        let mut items = vec![column_of(alias, &target.schema.key.name)];
        if returning.is_wanted() {
            items.extend(target.column_names().iter().map(|name| column_of(alias, name)));
        }
        let query = select(numbered(items), self.from, self.selection)?;
        let change = Change { alias: alias.clone(), query, assignments: None, returning, done: "deleted", written: 0 };
        change.run(runner, target, seen).await
    }
}

pub(super) async fn delete(runner: &Runner, delete: Delete) -> Result<Written, SqlError> {
    let FromTable::WithFromKeyword(mut from) = delete.from else {
        return Err(SqlError::refused("write DELETE FROM"));
    };
    if !delete.tables.is_empty() || !delete.order_by.is_empty() || delete.limit.is_some() || from.len() != 1 {
        return Err(SqlError::refused("DELETE takes one table, USING, WHERE and RETURNING"));
    }
    let table = from[0].clone();
    let (name, alias) = table_and_alias(&table)?;
    from.extend(delete.using.unwrap_or_default());
    let (selection, returning) = (delete.selection, delete.returning);
    Changing { runner, name, alias: &alias, from, selection, returning }.delete(&mut Seen::new(runner)).await
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
    async fn run(mut self, runner: &Runner, mut target: Target, seen: &mut Seen) -> Result<Written, SqlError> {
        let names = match &self.assignments {
            Some(assignments) => assignments.names().to_vec(),
            None if self.returning.is_wanted() => target.column_names(),
            None => Vec::new(),
        };
        let is_own = reads_only_its_table(&self.query);
        let mut runner = runner.clone();
        let mut query = self.query.clone();
        loop {
            let changed = self.pass(seen, &runner, &target, query, &names, is_own).await?;
            let Some(changed) = changed else { break };
            if !is_own {
                let error = SqlError::Execution(format!(
                    "{} changed by another writer while the statement read other tables; run it again",
                    terrane::counted(
                        changed.iter().map(|keys| keys.num_rows() as u64).sum(),
                        "record was",
                        "records were"
                    )
                ));
                return Err(after_writing(error, self.done, self.written));
            }
            // Their newest versions are judged.
            runner = runner.renewed();
            target = target.renewed(&runner)?;
            query = self.query.clone();
            // An atomic statement has written nothing, and begins again.
            if !runner.is_whole() {
                runner.add_table(CHANGED, &changed[0].schema(), &changed)?;
                query = self.query_of_changed(&target)?;
            }
        }
        let returned = self.returning.finish(&runner, &target).await?;
        Ok(Written { done: self.done, rows: Some(self.written), returned })
    }

    /// Writes the rows of a query. Gives the keys of records that were changed since they were
    /// read, if there are any.
    async fn pass(
        &mut self,
        seen: &mut Seen,
        runner: &Runner,
        target: &Target,
        query: Query,
        names: &[String],
        is_own: bool,
    ) -> Result<Option<Vec<RecordBatch>>, SqlError> {
        let key = RowShape::new(&target.schema, None, std::slice::from_ref(&target.schema.key.name))?;
        let shape = RowShape::new(&target.schema, target.point.as_deref(), names)?;
        let (mut stream, source) = runner.query(query).await?;
        shape.check_systems(&target.schema, source.fields().get(1..).unwrap_or_default())?;
        let (mut all, memory) = (Vec::new(), runner.memory("the rows of an atomic statement"));
        let mut changed = Vec::new();
        while let Some(batch) = stream.next().await {
            let rows = batch.map_err(|error| SqlError::execution(&error, runner.memory_bytes)).and_then(|batch| {
                let keys = key.shape(&batch.columns()[..1], batch.num_rows(), 0)?;
                let rows = shape.shape(&batch.columns()[1..], batch.num_rows(), self.written)?;
                if is_own {
                    Ok((keys, rows))
                } else {
                    seen.first_ones(&keys, &rows, target, self.assignments.is_some())
                }
            });
            let (keys, rows) = rows.map_err(|error| after_writing(error, self.done, self.written))?;
            if runner.is_whole() {
                memory.take(keys.get_array_memory_size() + rows.get_array_memory_size())?;
                all.push((keys, rows));
                continue;
            }
            let left = self.write(target, &keys, &rows);
            changed.extend(left.map_err(|error| after_writing(error, self.done, self.written))?);
        }
        if runner.is_whole() {
            changed.extend(self.write_all(runner, target, &all)?);
        }
        Ok(Some(changed).filter(|changed| !changed.is_empty()))
    }

    /// The query for the records that were changed.
    fn query_of_changed(&self, target: &Target) -> Result<Query, SqlError> {
        let key = &target.schema.key.name;
        let keys =
            select(numbered([column_of(&super::target::quoted(CHANGED), key)]), vec![table_factor(CHANGED)?], None)?;
        let among =
            Expr::InSubquery { expr: Box::new(column_of(&self.alias, key)), subquery: Box::new(keys), negated: false };
        let mut query = self.query.clone();
        if let SetExpr::Select(select) = &mut *query.body {
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
            self.returning.add(rows_of(rows, &done)?)?;
        }
        match changed.is_empty() {
            true => Ok(None),
            false => rows_of(keys, changed).map(Some),
        }
    }

    /// Gives records new keys. Each is deleted and inserted in one transaction, alone or with
    /// others.
    fn move_records(
        &mut self,
        target: &Target,
        keys: &RecordBatch,
        rows: &RecordBatch,
    ) -> Result<Option<RecordBatch>, SqlError> {
        /// Records that are tried in one transaction first, which is much faster.
        const TOGETHER: usize = 256;
        let commit = |from: usize, count: usize| {
            let mut batch = target.dataset.atomic_batch().unchanged_since(&target.snapshot)?;
            for row in from..from + count {
                delete_records(&mut batch, target, &keys.slice(row, 1))?;
                insert_records(&mut batch, &rows.slice(row, 1))?;
            }
            batch.commit().map_err(SqlError::from)
        };
        let mut changed = Vec::new();
        for first in (0..rows.num_rows()).step_by(TOGETHER) {
            let count = TOGETHER.min(rows.num_rows() - first);
            if commit(first, count).is_ok() {
                self.written += count as u64;
                continue;
            }
            // One by one: each that can be changed is, up to the first error.
            for row in first..first + count {
                match commit(row, 1) {
                    Ok(()) => self.written += 1,
                    Err(SqlError::Store(terrane::Error::Changed { .. })) => changed.push(row),
                    Err(error) => return Err(error),
                }
            }
        }
        self.rest(keys, rows, &changed)
    }

    /// Writes all rows together, or none: then it gives the key of a record that was changed since
    /// it was read.
    fn write_all(
        &mut self,
        runner: &Runner,
        target: &Target,
        all: &[(RecordBatch, RecordBatch)],
    ) -> Result<Option<RecordBatch>, SqlError> {
        let add = |batch: &mut AtomicBatch| {
            // First all old keys: a new one may be the old one of another record.
            for (keys, _) in all {
                delete_records(batch, target, keys)?;
            }
            match self.assignments {
                Some(_) => all.iter().try_for_each(|(_, rows)| insert_records(batch, rows)),
                None => Ok(()),
            }
        };
        if let Some(transaction) = &runner.transaction {
            let bytes =
                all.iter().map(|(keys, rows)| keys.get_array_memory_size() + rows.get_array_memory_size()).sum();
            transaction.add(target, bytes, true, add)?;
        } else {
            let mut batch = target.dataset.atomic_batch().unchanged_since(&target.snapshot)?;
            add(&mut batch)?;
            match batch.commit() {
                Ok(()) => {}
                Err(terrane::Error::Changed { .. }) => return Ok(all.first().map(|(keys, _)| keys.slice(0, 1))),
                Err(error) => return Err(error.into()),
            }
        }
        for (keys, rows) in all {
            self.written += keys.num_rows() as u64;
            self.returning.add(rows.clone())?;
        }
        Ok(None)
    }
}

fn delete_records(batch: &mut AtomicBatch, target: &Target, keys: &RecordBatch) -> Result<(), SqlError> {
    for key in keys_of(keys, target)? {
        batch.delete(&key)?;
    }
    Ok(())
}

fn insert_records(batch: &mut AtomicBatch, rows: &RecordBatch) -> Result<(), SqlError> {
    let outcome = batch.push(rows, terrane::OnConflict::Refuse)?;
    match outcome.refused.first() {
        Some(row) => Err(SqlError::Refused(row.error.to_string())),
        None => Ok(()),
    }
}

/// The records that the joins of a statement have found so far, which may be several times.
pub(super) struct Seen {
    /// A digest of the new row of each key; `None` of one that is deleted.
    rows: HashMap<Key, Option<u64>>,
    memory: Memory,
}

impl Seen {
    pub fn new(runner: &Runner) -> Self {
        Self { rows: HashMap::new(), memory: runner.memory("the keys of a join") }
    }

    /// The rows of keys that did not come before. Those that replace one record must be equal,
    /// because the order in which a join finds them is not defined.
    fn first_ones(
        &mut self,
        keys: &RecordBatch,
        rows: &RecordBatch,
        target: &Target,
        replaces: bool,
    ) -> Result<(RecordBatch, RecordBatch), SqlError> {
        let digests = match replaces {
            true => digests(rows)?.into_iter().map(Some).collect(),
            false => vec![None; keys.num_rows()],
        };
        self.memory.take(keys.get_array_memory_size() + keys.num_rows() * size_of::<(Key, Option<u64>)>())?;
        let mut first = Vec::new();
        for (row, (key, digest)) in keys_of(keys, target)?.into_iter().zip(digests).enumerate() {
            match self.rows.entry(key) {
                Entry::Vacant(place) => {
                    place.insert(digest);
                    first.push(row);
                }
                Entry::Occupied(before) if *before.get() == digest => {}
                Entry::Occupied(before) => {
                    return Err(SqlError::Refused(format!(
                        "the join gives different new values for the record with the key {}; aggregate them, or \
                         narrow WHERE",
                        before.key()
                    )));
                }
            }
        }
        Ok((rows_of(keys, &first)?, rows_of(rows, &first)?))
    }
}

/// A digest of each row.
fn digests(rows: &RecordBatch) -> Result<Vec<u64>, SqlError> {
    let failed = |error: ArrowError| SqlError::Execution(error.to_string());
    let fields = rows.schema_ref().fields().iter().map(|field| SortField::new(field.data_type().clone()));
    let converter = RowConverter::new(fields.collect()).map_err(failed)?;
    let rows = converter.convert_columns(rows.columns()).map_err(failed)?;
    let digest = |row: Row<'_>| {
        let mut hasher = DefaultHasher::new();
        row.hash(&mut hasher);
        hasher.finish()
    };
    Ok(rows.iter().map(digest).collect())
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
    // VALUES and functions are no names, and give rows too.
    let is_alone = matches!(&*query.body, SetExpr::Select(select)
        if matches!(select.from.as_slice(), [table] if table.joins.is_empty()));
    tables.0 == 1 && is_alone
}
