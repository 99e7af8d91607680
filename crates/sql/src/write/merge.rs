//! `MERGE`, as an update, a deletion or an insertion for each of its clauses, all on one state.

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Merge, MergeAction, MergeClause, MergeClauseKind, MergeInsertExpr, MergeInsertKind, ObjectName, Query,
    SelectItem, Statement, TableWithJoins, Value,
};
use datafusion::sql::sqlparser::parser::Parser;

use super::change::{Seen, delete_where, update_where};
use super::insert::insert;
use super::target::{both, numbered, select, table_and_alias};
use super::transaction::Transaction;
use super::{Written, after_writing};
use crate::dialect::SqlDialect;
use crate::error::SqlError;
use crate::runner::Runner;

pub(super) async fn merge(runner: &Runner, merge: Merge) -> Result<Written, SqlError> {
    if merge.output.is_some() {
        return Err(SqlError::refused("MERGE has no RETURNING"));
    }
    let alone = |relation| TableWithJoins { relation, joins: Vec::new() };
    let (table, source) = (alone(merge.table), alone(merge.source));
    let (name, alias) = table_and_alias(&table)?;
    // The clauses of an atomic statement are committed together.
    let own = (runner.is_atomic && runner.transaction.is_none())
        .then(|| Transaction::new(runner.memory("the rows of an atomic statement")));
    let runner = Runner { transaction: own.clone().or_else(|| runner.transaction.clone()), ..runner.clone() };
    let mut seen = Seen::new(&runner);
    let merging = Merging { runner, name: name.clone(), alias, table: table.clone(), source, on: *merge.on };
    let mut written = 0;
    let mut before: Vec<(Kind, Expr)> = Vec::new();
    for clause in merge.clauses {
        let kind = Kind::of(&clause.clause_kind);
        let condition = clause.predicate.clone().unwrap_or_else(|| Expr::Value(Value::Boolean(true).into()));
        // The first clause whose condition holds is the one of a row.
        let mut wanted = Expr::Nested(Box::new(condition.clone()));
        for (_, earlier) in before.iter().filter(|(of, _)| *of == kind) {
            let is_left = Expr::IsNotTrue(Box::new(Expr::Nested(Box::new(earlier.clone()))));
            wanted = both(Some(wanted), is_left);
        }
        before.push((kind, condition));
        let rows = merging.run(kind, clause, wanted, &mut seen).await;
        written += rows.map_err(|error| after_writing(error, "merged", if own.is_some() { 0 } else { written }))?;
    }
    if let Some(own) = own {
        own.commit()?;
    }
    Ok(Written { done: "merged", rows: Some(written), returned: None })
}

/// The rows that a clause is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Matched,
    /// Rows of the source without a record.
    NotInTarget,
    /// Records without a row of the source.
    NotInSource,
}

impl Kind {
    fn of(kind: &MergeClauseKind) -> Self {
        match kind {
            MergeClauseKind::Matched => Self::Matched,
            MergeClauseKind::NotMatched | MergeClauseKind::NotMatchedByTarget => Self::NotInTarget,
            MergeClauseKind::NotMatchedBySource => Self::NotInSource,
        }
    }
}

struct Merging {
    runner: Runner,
    name: ObjectName,
    alias: Ident,
    table: TableWithJoins,
    source: TableWithJoins,
    on: Expr,
}

impl Merging {
    /// Runs a clause for the rows that it is for, and returns their number.
    async fn run(&self, kind: Kind, clause: MergeClause, wanted: Expr, seen: &mut Seen) -> Result<u64, SqlError> {
        let (from, selection) = match kind {
            Kind::Matched => {
                let on = Expr::Nested(Box::new(self.on.clone()));
                (vec![self.table.clone(), self.source.clone()], both(Some(on), wanted))
            }
            Kind::NotInTarget => (vec![self.source.clone()], both(Some(self.has_no(&self.table)?), wanted)),
            Kind::NotInSource => (vec![self.table.clone()], both(Some(self.has_no(&self.source)?), wanted)),
        };
        let changing = (&self.runner, seen);
        let written = match (kind, clause.action) {
            (Kind::NotInTarget, MergeAction::Insert(insertion)) => self.insert(insertion, from, selection).await?,
            (Kind::Matched | Kind::NotInSource, MergeAction::Update(update)) => {
                if update.update_predicate.is_some() || update.delete_predicate.is_some() {
                    return Err(SqlError::refused(
                        "write the condition after WHEN: WHEN MATCHED AND … THEN UPDATE SET …",
                    ));
                }
                update_where(changing, (&self.name, &self.alias), &update.assignments, from, selection).await?
            }
            (Kind::Matched | Kind::NotInSource, MergeAction::Delete { .. }) => {
                delete_where(changing, (&self.name, &self.alias), from, selection).await?
            }
            _ => {
                return Err(SqlError::refused(
                    "records are updated or deleted WHEN MATCHED or NOT MATCHED BY SOURCE, and rows are inserted WHEN \
                     NOT MATCHED",
                ));
            }
        };
        Ok(written.rows.unwrap_or(0))
    }

    /// The condition that a row has no match in a table.
    fn has_no(&self, table: &TableWithJoins) -> Result<Expr, SqlError> {
        let one = SelectItem::UnnamedExpr(Expr::Value(Value::Number("1".to_owned(), false).into()));
        let matches = select(vec![one], vec![table.clone()], Some(self.on.clone()))?;
        Ok(Expr::Exists { subquery: Box::new(matches), negated: true })
    }

    async fn insert(
        &self,
        insertion: MergeInsertExpr,
        from: Vec<TableWithJoins>,
        selection: Expr,
    ) -> Result<Written, SqlError> {
        let values = match insertion.kind {
            MergeInsertKind::Values(values) if insertion.insert_predicate.is_none() => values.rows,
            _ => return Err(SqlError::refused("write WHEN NOT MATCHED THEN INSERT (columns) VALUES (…)")),
        };
        let [row] = values.as_slice() else {
            return Err(SqlError::refused("INSERT in MERGE has one row of values"));
        };
        let items = numbered(row.content.iter().cloned());
        let query: Query = select(items, from, Some(selection))?;
        let broken = || SqlError::refused("the insertion of MERGE cannot be built");
        let text = format!("INSERT INTO {} SELECT 1", self.name);
        let statement = Parser::parse_sql(&SqlDialect, &text).map_err(|_| broken())?.pop();
        let Some(Statement::Insert(mut statement)) = statement else { return Err(broken()) };
        statement.columns = insertion.columns;
        statement.source = Some(Box::new(query));
        insert(&self.runner, statement).await
    }
}
