//! The table that a statement changes.

use arrow_schema::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectName, ObjectNamePart, Query, Select, SelectItem, SetExpr, Statement, TableFactor, TableWithJoins,
};
use datafusion::sql::sqlparser::parser::Parser;
use std::sync::Arc;
use terrane::schema::Schema;
use terrane::{Dataset, Snapshot};

use crate::dialect::SqlDialect;
use crate::error::SqlError;
use crate::runner::Runner;

/// A dataset as the target of a statement.
pub(super) struct Target {
    pub dataset: Dataset,
    /// The state that the statement reads.
    pub snapshot: Snapshot,
    pub schema: Arc<Schema>,
    /// Name of the computed column of points.
    pub point: Option<String>,
    /// The columns of the table.
    pub columns: SchemaRef,
}

impl Target {
    /// The dataset with a name.
    ///
    /// # Errors
    /// There is none.
    pub fn new(runner: &Runner, name: &ObjectName) -> Result<Self, SqlError> {
        let name = runner.table_name(name)?;
        Self::named(runner, &name)
    }

    /// The same dataset in the state of another statement.
    pub fn renewed(&self, runner: &Runner) -> Result<Self, SqlError> {
        Self::named(runner, self.dataset.name())
    }

    fn named(runner: &Runner, name: &str) -> Result<Self, SqlError> {
        let dataset = runner.store.dataset(name)?;
        let table = runner.catalog.target(name)?;
        let snapshot = table.snapshot().clone();
        let schema = snapshot.schema();
        let point = table.point().map(str::to_owned);
        Ok(Self { dataset, snapshot, schema, point, columns: table.schema() })
    }

    /// The names of the stored columns, in the table's order.
    pub fn column_names(&self) -> Vec<String> {
        self.schema.column_names().map(str::to_owned).collect()
    }

    /// The column that a name means: exactly, else without regard to case.
    pub fn column(&self, name: &Ident) -> Result<String, SqlError> {
        let known: Vec<String> = self.schema.column_names().chain(self.point.as_deref()).map(str::to_owned).collect();
        if known.contains(&name.value) {
            return Ok(name.value.clone());
        }
        if name.quote_style.is_none()
            && let Some(found) = crate::statement::found(&known, &name.value)
        {
            return Ok(found.clone());
        }
        Err(SqlError::refused(format!(
            "table {:?} has no column {:?}; its columns are {}",
            self.dataset.name(),
            name.value,
            known.join(", ")
        )))
    }
}

/// The only part of a name.
pub(super) fn last_part(name: &ObjectName) -> Result<&Ident, SqlError> {
    match name.0.last() {
        Some(ObjectNamePart::Identifier(name)) => Ok(name),
        _ => Err(SqlError::refused(format!("{name} is not a name"))),
    }
}

/// A quoted name, which is taken exactly.
pub(super) fn quoted(name: &str) -> Ident {
    Ident::with_quote('"', name)
}

/// A column of a table.
pub(super) fn column_of(table: &Ident, column: &str) -> Expr {
    Expr::CompoundIdentifier(vec![table.clone(), quoted(column)])
}

/// An expression as a column of a result, with a name that no other column has.
pub(super) fn numbered(items: impl IntoIterator<Item = Expr>) -> Vec<SelectItem> {
    let item = |(number, expr)| SelectItem::ExprWithAlias { expr, alias: quoted(&format!("column {number}")) };
    items.into_iter().enumerate().map(item).collect()
}

/// `SELECT projection FROM from WHERE selection`.
pub(super) fn select(
    projection: Vec<SelectItem>,
    from: Vec<TableWithJoins>,
    selection: Option<Expr>,
) -> Result<Query, SqlError> {
    let broken = || SqlError::refused("a query cannot be built");
    let mut statements = Parser::parse_sql(&SqlDialect, "SELECT 1").map_err(|_| broken())?;
    let Some(Statement::Query(mut query)) = statements.pop() else { return Err(broken()) };
    let SetExpr::Select(found) = &mut *query.body else { return Err(broken()) };
    let select: &mut Select = found;
    select.projection = projection;
    select.from = from;
    select.selection = selection;
    Ok(*query)
}

/// The name of a table factor, and what its columns are qualified with.
pub(super) fn table_and_alias(table: &TableWithJoins) -> Result<(&ObjectName, Ident), SqlError> {
    match &table.relation {
        TableFactor::Table { name, alias, .. } if table.joins.is_empty() => {
            let alias = match alias {
                Some(alias) => alias.name.clone(),
                None => last_part(name)?.clone(),
            };
            Ok((name, alias))
        }
        _ => Err(SqlError::refused("the table to change must be one table; name others in FROM or USING")),
    }
}

/// Both conditions.
pub(super) fn both(first: Option<Expr>, second: Expr) -> Expr {
    use datafusion::sql::sqlparser::ast::BinaryOperator;
    match first {
        None => second,
        Some(first) => Expr::BinaryOp {
            left: Box::new(Expr::Nested(Box::new(first))),
            op: BinaryOperator::And,
            right: Box::new(second),
        },
    }
}

/// A table of a statement by its name.
pub(super) fn table_factor(name: &str) -> Result<TableWithJoins, SqlError> {
    let sql = format!("SELECT 1 FROM {}", quoted(name));
    let broken = || SqlError::refused(format!("{name:?} cannot be a table"));
    let mut statements = Parser::parse_sql(&SqlDialect, &sql).map_err(|_| broken())?;
    let Some(Statement::Query(query)) = statements.pop() else { return Err(broken()) };
    match *query.body {
        SetExpr::Select(mut select) => select.from.pop().ok_or_else(broken),
        _ => Err(broken()),
    }
}

/// Columns of a result, exactly by name.
pub(super) fn named(names: &[String]) -> Vec<SelectItem> {
    names.iter().map(|name| SelectItem::UnnamedExpr(Expr::Identifier(quoted(name)))).collect()
}
