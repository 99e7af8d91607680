//! Forms of statements that stand for others.

use std::collections::HashSet;
use std::ops::ControlFlow;

use arrow_schema::{DataType, Field, Schema, TimeUnit};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, Ident, ObjectName, OrderByExpr, OrderByKind, Query, SelectItem, SelectItemQualifiedWildcardKind,
    SetExpr, Statement as SqlStatement, TableFactor, Value, VisitMut, VisitorMut, WildcardAdditionalOptions, With,
};

use crate::error::SqlError;
use crate::geometry::{is_geography, is_geometry, srid_of};
use crate::statement::parse;

/// The statement in the form that is run: `SHOW TABLES` becomes a query, and the tables of a `WITH`
/// before a statement that changes records go into its queries.
///
/// # Errors
/// A query that locks its rows.
pub(crate) fn common_form(mut statement: Statement) -> Result<Statement, SqlError> {
    if let Statement::Explain(explain) = &mut statement {
        let inner = common_form((*explain.statement).clone())?;
        *explain.statement = inner;
        return Ok(statement);
    }
    let Statement::Statement(inner) = &mut statement else { return Ok(statement) };
    if VisitMut::visit(&mut **inner, &mut Queries).is_break() {
        return Err(SqlError::refused(
            "FOR UPDATE and FOR SHARE are not available: no query locks rows. A statement such as UPDATE … SET n = n + 1 \
             loses no change of another one",
        ));
    }
    if matches!(&**inner, SqlStatement::ShowTables { .. }) && inner.to_string() == "SHOW TABLES" {
        return one(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY table_name",
        );
    }
    if let SqlStatement::Query(query) = &mut **inner
        && query.with.is_some()
        && let SetExpr::Insert(changing)
        | SetExpr::Update(changing)
        | SetExpr::Delete(changing)
        | SetExpr::Merge(changing) = &*query.body
    {
        let mut changing = changing.clone();
        if let Some(with) = query.with.take() {
            let _ = VisitMut::visit(&mut changing, &mut Within { with, depth: 0 });
        }
        **inner = changing;
    }
    Ok(statement)
}

/// The only statement of a text of ours.
fn one(text: &str) -> Result<Statement, SqlError> {
    parse(text)?.pop().ok_or_else(|| SqlError::refused("an empty statement"))
}

/// The query that describes a table by its columns.
pub(crate) fn description(table: &Schema) -> Result<Statement, SqlError> {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let rows: Vec<String> = table
        .fields()
        .iter()
        .enumerate()
        .map(|(number, field)| {
            let nullable = if field.is_nullable() { "YES" } else { "NO" };
            format!("({number}, {}, {}, '{nullable}')", quoted(field.name()), quoted(&type_name(field)))
        })
        .collect();
    one(&format!(
        "SELECT column_name, data_type, is_nullable FROM (VALUES {}) AS columns \
         (position, column_name, data_type, is_nullable) ORDER BY position",
        rows.join(", ")
    ))
}

/// The type of a column as `CREATE TABLE` has it.
fn type_name(field: &Field) -> String {
    if is_geography(field) {
        return "geography".to_owned();
    }
    if is_geometry(field) {
        return match srid_of(field) {
            Some(srid) if srid != 0 => format!("geometry(Geometry,{srid})"),
            _ => "geometry".to_owned(),
        };
    }
    if terrane_literal::is_uuid(field) {
        return "uuid".to_owned();
    }
    match field.data_type() {
        DataType::Boolean => "boolean".to_owned(),
        DataType::Int64 => "bigint".to_owned(),
        DataType::Float32 => "real".to_owned(),
        DataType::Float64 => "double precision".to_owned(),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "text".to_owned(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "bytea".to_owned(),
        DataType::Date32 => "date".to_owned(),
        DataType::Timestamp(TimeUnit::Microsecond, None) => "timestamp".to_owned(),
        DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => "timestamptz".to_owned(),
        other => other.to_string(),
    }
}

/// Names the values of queries, and finds queries that lock rows.
struct Queries;

impl VisitorMut for Queries {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let is_whole = matches!(*query.body, SetExpr::Select(_));
        let mut bodies = vec![&mut *query.body];
        while let Some(body) = bodies.pop() {
            match body {
                SetExpr::Select(select) => {
                    name_values(&mut select.projection);
                    if let (Some(Distinct::Distinct), true, Some(order)) =
                        (&select.distinct, is_whole, &mut query.order_by)
                        && let OrderByKind::Expressions(order) = &mut order.kind
                    {
                        order_by_columns(&select.projection, order);
                    }
                }
                SetExpr::SetOperation { left, right, .. } => bodies.extend([&mut **left, &mut **right]),
                _ => {}
            }
        }
        if query.locks.is_empty() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

/// Names the values of a query: expressions by their text, as `avg(depth)`, and casts by what they
/// cast. The second one of a name has a number: `id, id::TEXT` gives `id` and `id_1`.
fn name_values(items: &mut [SelectItem]) {
    let aliases = items.iter().filter_map(|item| match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
        _ => None,
    });
    let mut names: HashSet<String> = aliases.collect();
    let (mut texts, mut unqualified) = (HashSet::new(), HashSet::new());
    let stars: Vec<String> = items.iter().filter_map(star).collect();
    for item in items {
        let SelectItem::UnnamedExpr(expr) = item else { continue };
        let text = expr.to_string();
        let is_first = texts.insert(text.clone());
        let column = column_of(expr);
        let name = column.and_then(|names| names.last()).map_or(text, folded);
        // Columns of two tables may have one name.
        let may_repeat = matches!(expr, Expr::CompoundIdentifier(_)) && !unqualified.contains(&name);
        if let Expr::Identifier(_) = expr {
            unqualified.insert(name.clone());
        }
        let is_in_star = column.is_some_and(|names| {
            let table: Vec<String> = names[..names.len() - 1].iter().map(ToString::to_string).collect();
            stars.iter().any(|star| star.is_empty() || *star == table.join("."))
        });
        let is_free = !is_in_star && names.insert(name.clone());
        if column.is_some() && is_first && !is_in_star && (is_free || may_repeat) {
            continue;
        }
        let mut names_of = std::iter::once(name.clone()).chain((1..).map(|number| format!("{name}_{number}")));
        let free = match is_free {
            true => names_of.next(),
            false => names_of.skip(1).find(|name| names.insert(name.clone())),
        };
        if let Some(name) = free {
            let expr = std::mem::replace(expr, Expr::Value(Value::Null.into()));
            *item = SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', name) };
        }
    }
}

/// The table whose columns an item gives all, or an empty text for those of all tables.
fn star(item: &SelectItem) -> Option<String> {
    let (table, options) = match item {
        SelectItem::Wildcard(options) => (String::new(), options),
        SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(table), options) => {
            (table.to_string(), options)
        }
        _ => return None,
    };
    (*options == WildcardAdditionalOptions::default()).then_some(table)
}

/// Orders the rows of a query by its columns where the same expressions stand among them, since
/// other values of distinct rows are gone.
fn order_by_columns(items: &[SelectItem], order: &mut [OrderByExpr]) {
    // A name is that of a column of the answer as it is, and a number the position of one.
    for key in order.iter_mut().filter(|key| !matches!(key.expr, Expr::Identifier(_) | Expr::Value(_))) {
        let text = key.expr.to_string();
        let column = items.iter().find_map(|item| match item {
            SelectItem::ExprWithAlias { expr, alias } => (expr.to_string() == text).then_some(alias),
            _ => None,
        });
        if let Some(column) = column {
            key.expr = Expr::Identifier(column.clone());
        }
    }
}

/// The column that an expression is, or casts, after the name of its table.
fn column_of(expr: &Expr) -> Option<&[Ident]> {
    match expr {
        Expr::Identifier(name) => Some(std::slice::from_ref(name)),
        Expr::CompoundIdentifier(names) => Some(names),
        Expr::Cast { expr, .. } | Expr::Nested(expr) => column_of(expr),
        _ => None,
    }
}

fn folded(name: &Ident) -> String {
    if name.quote_style.is_some() { name.value.clone() } else { name.value.to_lowercase() }
}

/// Puts the tables of a `WITH` into the outermost queries of a statement.
struct Within {
    with: With,
    depth: usize,
}

impl Within {
    fn names(&self, name: &ObjectName) -> bool {
        let name = name.to_string();
        self.with.cte_tables.iter().any(|table| table.alias.name.to_string() == name)
    }

    fn put_into(&self, query: &mut Query) {
        match &mut query.with {
            // Its own tables may use those before, and hide them.
            Some(own) => {
                own.recursive |= self.with.recursive;
                own.cte_tables.splice(0..0, self.with.cte_tables.iter().cloned());
            }
            None => query.with = Some(self.with.clone()),
        }
    }
}

impl VisitorMut for Within {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if self.depth == 0 {
            self.put_into(query);
        }
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    /// A table of the `WITH` beside the changed one becomes a query of it, which is visited next.
    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, alias, .. } = factor
            && self.depth == 0
            && self.names(name)
        {
            let alias = alias.take();
            match derived(&name.to_string()) {
                Some(query) => *factor = query,
                None => return ControlFlow::Break(()),
            }
            if let (Some(given), TableFactor::Derived { alias, .. }) = (alias, factor) {
                *alias = Some(given);
            }
        }
        ControlFlow::Continue(())
    }
}

/// A query of all of a table, under its name.
fn derived(name: &str) -> Option<TableFactor> {
    let statement = one(&format!("SELECT * FROM (SELECT * FROM {name}) AS {name}")).ok()?;
    let Statement::Statement(statement) = statement else { return None };
    let SqlStatement::Query(query) = *statement else { return None };
    let SetExpr::Select(select) = *query.body else { return None };
    select.from.into_iter().next().map(|table| table.relation)
}

/// Whether a value of `INSERT` or `SET` is `DEFAULT`.
pub(crate) fn is_default(value: &Expr) -> bool {
    matches!(value, Expr::Identifier(name) if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("default"))
}
