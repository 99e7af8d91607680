//! `ON CONFLICT`.

use std::collections::HashSet;

use arrow_array::{Array, RecordBatch};
use datafusion::sql::sqlparser::ast::{BinaryOperator, ConflictTarget, Expr, Ident, OnConflict, OnConflictAction};
use futures::StreamExt;
use terrane::{Error, Key, OnConflict as EngineConflict};

use super::Returning;
use super::change::Assignments;
use super::insert::{refused, rows_of};
use super::rows::{RowShape, completed, keys_of};
use super::target::{Target, both, column_of, numbered, quoted, select, table_factor};
use crate::error::SqlError;
use crate::runner::{Memory, Runner};

/// Name of the table of rows whose keys exist.
const EXCLUDED: &str = "excluded";

/// What is done with a row whose key exists.
pub(super) struct Conflicts {
    pub action: OnConflictAction,
    /// The name of the table in its expressions.
    alias: Ident,
}

impl Conflicts {
    pub fn new(target: &Target, alias: Ident, conflict: OnConflict) -> Result<Self, SqlError> {
        let key = &target.schema.key.name;
        let names_key = match &conflict.conflict_target {
            None => true,
            Some(ConflictTarget::Columns(columns)) => match columns.as_slice() {
                [column] => target.column(column)? == *key,
                _ => false,
            },
            Some(ConflictTarget::OnConstraint(_)) => false,
        };
        if !names_key {
            return Err(SqlError::refused(format!("only the key is unique; write ON CONFLICT ({})", quoted(key))));
        }
        if let OnConflictAction::DoUpdate(update) = &conflict.action {
            Assignments::new(target, &update.assignments)?.check_key(target)?;
        }
        Ok(Self { action: conflict.action, alias })
    }

    /// Notes the keys of rows, from row `first` on; no statement changes a record twice.
    pub fn note_keys(
        &self,
        rows: &RecordBatch,
        first: u64,
        target: &Target,
        (seen, memory): (&mut HashSet<Key>, &Memory),
    ) -> Result<(), SqlError> {
        if rows.column_by_name(&target.schema.key.name).is_none() {
            // They were numbered, and had no conflicts.
            return Ok(());
        }
        let keys = keys_of(rows, target)?;
        memory.take(rows.column(0).get_array_memory_size() + keys.len() * size_of::<Key>())?;
        for (row, key) in keys.into_iter().enumerate() {
            if !seen.insert(key) {
                return Err(SqlError::Refused(format!(
                    "row {} has a key that an earlier row of the statement has too; ON CONFLICT DO UPDATE changes a \
                     record once",
                    first + row as u64 + 1
                )));
            }
        }
        Ok(())
    }

    /// Changes the records that have the keys of rows. A key whose record is gone meanwhile is
    /// inserted. Returns the number of rows written.
    pub async fn update(
        &self,
        runner: &Runner,
        target: &Target,
        mut rows: RecordBatch,
        returning: &mut Returning,
    ) -> Result<u64, SqlError> {
        let mut written = 0;
        while rows.num_rows() > 0 {
            let runner = runner.renewed();
            let now = target.renewed(&runner)?;
            let Replacements { mut found, batches } = self.replacements(&runner, &now, &rows).await?;
            for new in batches {
                let outcome = now.dataset.replace_unchanged(&now.snapshot, &new)?;
                if let Some(row) = outcome.refused.first() {
                    return Err(refused(0, row.row, &row.error));
                }
                written += outcome.written;
                let changed = keys_of(&rows_of(&new, &outcome.changed)?, &now)?;
                changed.iter().for_each(|key| {
                    found.remove(key);
                });
                if returning.is_wanted() {
                    let done: Vec<usize> = (0..new.num_rows()).filter(|row| !outcome.changed.contains(row)).collect();
                    returning.add(rows_of(&new, &done)?)?;
                }
            }
            // Rows whose record was changed meanwhile, or is gone.
            let keys = keys_of(&rows, target)?;
            let left: Vec<usize> = (0..rows.num_rows()).filter(|row| !found.contains(&keys[*row])).collect();
            rows = rows_of(&rows, &left)?;
            let outcome = target.dataset.write_batch(&rows, EngineConflict::Refuse)?;
            written += outcome.keys.len() as u64;
            let mut taken = Vec::new();
            for row in &outcome.refused {
                match row.error {
                    Error::DuplicateKey { .. } => taken.push(row.row),
                    _ => return Err(refused(0, row.row, &row.error)),
                }
            }
            if returning.is_wanted() {
                let done: Vec<usize> = (0..rows.num_rows()).filter(|row| !taken.contains(row)).collect();
                returning.add(rows_of(&rows, &done)?)?;
            }
            rows = rows_of(&rows, &taken)?;
        }
        Ok(written)
    }

    /// The new values of the records that have the keys of rows, in the state of a target.
    async fn replacements(&self, runner: &Runner, now: &Target, rows: &RecordBatch) -> Result<Replacements, SqlError> {
        let mut replacements = Replacements { found: HashSet::new(), batches: Vec::new() };
        let OnConflictAction::DoUpdate(update) = &self.action else { return Ok(replacements) };
        let assignments = Assignments::new(now, &update.assignments)?;
        let key = &now.schema.key.name;
        runner.add_table(EXCLUDED, &now.columns, &[completed(rows, now)?])?;
        let mut from = table_factor(now.dataset.name())?;
        set_alias(&mut from, &self.alias);
        let same_key = Expr::BinaryOp {
            left: Box::new(column_of(&self.alias, key)),
            op: BinaryOperator::Eq,
            right: Box::new(column_of(&Ident::new(EXCLUDED), key)),
        };
        // All records, to tell those that are left alone by WHERE from those that are gone.
        let condition = update
            .selection
            .clone()
            .unwrap_or_else(|| Expr::Value(datafusion::sql::sqlparser::ast::Value::Boolean(true).into()));
        let values = assignments.values(&self.alias);
        let items = numbered(values.into_iter().chain([condition]));
        let query = select(items, vec![from, table_factor(EXCLUDED)?], Some(both(None, same_key)))?;
        let (mut stream, source) = runner.query(query).await?;
        let shape = RowShape::new(&now.schema, now.point.as_deref(), assignments.names())?;
        shape.check_systems(&now.schema, source.fields())?;
        while let Some(batch) = stream.next().await {
            let batch = batch.map_err(|error| SqlError::execution(&error, runner.memory_bytes))?;
            let count = shape.columns();
            let new = shape.shape(&batch.columns()[..count], batch.num_rows(), 0)?;
            replacements.found.extend(keys_of(&new, now)?);
            let is_chosen = super::rows::truths(batch.column(count))?;
            let chosen: Vec<usize> = (0..new.num_rows()).filter(|row| is_chosen[*row]).collect();
            replacements.batches.push(rows_of(&new, &chosen)?);
        }
        Ok(replacements)
    }

    /// What is written for all rows of a statement in the state of a target: rows with new keys,
    /// and then the records that replace others.
    pub async fn resolve(
        &self,
        runner: &Runner,
        now: &Target,
        rows: &RecordBatch,
        memory: &Memory,
    ) -> Result<Resolved, SqlError> {
        if rows.column_by_name(&now.schema.key.name).is_none() {
            // They are numbered, and have no conflicts.
            return Ok(Resolved { new: rows.clone(), replaced: Vec::new() });
        }
        let mut seen = HashSet::new();
        if let OnConflictAction::DoUpdate(_) = self.action {
            self.note_keys(rows, 0, now, (&mut seen, memory))?;
        }
        let (mut new, mut known) = (Vec::new(), Vec::new());
        let mut added = HashSet::new();
        for (row, key) in keys_of(rows, now)?.into_iter().enumerate() {
            match now.snapshot.get(&key)?.is_some() {
                true => known.push(row),
                // Without an update, a later row with the key of an earlier one is left out too.
                false if added.insert(key) => new.push(row),
                false => {}
            }
        }
        let known = rows_of(rows, &known)?;
        let replaced = match known.num_rows() {
            0 => Vec::new(),
            _ => self.replacements(runner, now, &known).await?.batches,
        };
        memory.take(replaced.iter().map(RecordBatch::get_array_memory_size).sum())?;
        Ok(Resolved { new: rows_of(rows, &new)?, replaced })
    }
}

/// The new values of records, and the keys of all records that were found.
struct Replacements {
    found: HashSet<Key>,
    batches: Vec<RecordBatch>,
}

/// What a statement writes as a whole.
pub(super) struct Resolved {
    pub new: RecordBatch,
    pub replaced: Vec<RecordBatch>,
}

fn set_alias(table: &mut datafusion::sql::sqlparser::ast::TableWithJoins, name: &Ident) {
    use datafusion::sql::sqlparser::ast::{TableAlias, TableFactor};
    if let TableFactor::Table { alias, .. } = &mut table.relation {
        *alias = Some(TableAlias { explicit: true, name: name.clone(), columns: Vec::new(), at: None });
    }
}

impl Assignments {
    /// Refuses a new key.
    fn check_key(&self, target: &Target) -> Result<(), SqlError> {
        match self.changes_key(target) {
            false => Ok(()),
            true => Err(SqlError::refused("ON CONFLICT DO UPDATE does not change the key")),
        }
    }
}
