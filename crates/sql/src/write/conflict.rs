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

    /// Notes the keys of rows; no statement changes a record twice.
    pub fn note_keys(
        &self,
        rows: &RecordBatch,
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
                    row + 1
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
        let OnConflictAction::DoUpdate(update) = &self.action else { return Ok(0) };
        let assignments = Assignments::new(target, &update.assignments)?;
        let key = &target.schema.key.name;
        let excluded = Ident::new(EXCLUDED);
        let mut written = 0;
        while rows.num_rows() > 0 {
            let runner = runner.renewed();
            let now = target.renewed(&runner)?;
            runner.add_table(EXCLUDED, &target.columns, &[completed(&rows, target)?])?;
            let mut from = table_factor(target.dataset.name())?;
            set_alias(&mut from, &self.alias);
            let same_key = Expr::BinaryOp {
                left: Box::new(column_of(&self.alias, key)),
                op: BinaryOperator::Eq,
                right: Box::new(column_of(&excluded, key)),
            };
            // All records, to tell those that are left alone by WHERE from those that are gone.
            let condition = update
                .selection
                .clone()
                .unwrap_or_else(|| Expr::Value(datafusion::sql::sqlparser::ast::Value::Boolean(true).into()));
            let values = assignments.values(&self.alias);
            let items = numbered(values.into_iter().chain([condition]));
            let query = select(items, vec![from, table_factor(EXCLUDED)?], Some(both(None, same_key)))?;
            let (mut stream, _) = runner.query(query).await?;
            let shape = RowShape::new(&now.schema, now.point.as_deref(), assignments.names())?;
            let mut found: HashSet<Key> = HashSet::new();
            while let Some(batch) = stream.next().await {
                let batch = batch.map_err(|error| SqlError::execution(&error, runner.memory_bytes))?;
                let count = shape.columns();
                let new = shape.shape(&batch.columns()[..count], batch.num_rows(), 0)?;
                found.extend(keys_of(&new, &now)?);
                let is_chosen = super::rows::truths(batch.column(count))?;
                let chosen: Vec<usize> = (0..new.num_rows()).filter(|row| is_chosen[*row]).collect();
                let new = rows_of(&new, &chosen)?;
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
