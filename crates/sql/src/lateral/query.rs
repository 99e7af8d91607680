//! A subquery that gives the rows of a dataset nearest to an outer geometry.

use std::any::Any;
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, Result, TableReference};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::utils::split_conjunction_owned;
use datafusion::logical_expr::{Expr, FetchType, LogicalPlan, SkipType, SortExpr, TableScan};

use crate::functions::{Function, SpatialFunction};
use crate::nearest::{K_MAX, Measure};
use crate::table::DatasetTable;

/// Qualifier of the dataset's columns in the expressions of a [`NearestQuery`]. Other columns are
/// the outer side's.
pub(super) const INNER: &str = "inner row";

/// The rows of a dataset nearest to an outer geometry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Hash)]
pub(super) struct NearestQuery {
    /// The scan of the dataset.
    pub scan: LogicalPlan,
    /// The conditions of wanted rows.
    pub conditions: Vec<Expr>,
    /// The distance is the first.
    pub order: Vec<SortExpr>,
    pub k: usize,
    /// The values of the result.
    pub columns: Vec<Expr>,
}

impl NearestQuery {
    /// The query of a subquery's plan, if it is one.
    pub fn of(plan: &LogicalPlan) -> Result<Option<Self>> {
        let Some(Flat { scan, conditions, columns, order: Some(order), k: Some(k) }) = Flat::of(plan)? else {
            return Ok(None);
        };
        let query = Self { scan, conditions, order, k, columns };
        Ok(query.is_search().then_some(query))
    }

    /// All columns of a table or a simple query on one, nearest to an outer geometry: for each
    /// outer row `k` rows in the order of `key`.
    pub fn of_table(
        plan: &LogicalPlan,
        key: impl FnOnce(&Expr) -> Expr,
        geometry: &Column,
        k: usize,
    ) -> Result<Option<Self>> {
        let Some(Flat { scan, conditions, columns, order: None, k: None }) = Flat::of(plan)? else { return Ok(None) };
        let geometry = plan.schema().maybe_index_of_column(geometry).map(|index| columns[index].clone());
        let Some(geometry) = geometry else { return Ok(None) };
        let order = vec![SortExpr::new(key(&geometry), true, false)];
        let query = Self { scan, conditions, order, k, columns };
        Ok(query.is_search().then_some(query))
    }

    /// The scan.
    pub fn table_scan(&self) -> Option<&TableScan> {
        match &self.scan {
            LogicalPlan::TableScan(scan) => Some(scan),
            _ => None,
        }
    }

    /// The dataset.
    pub fn table(&self) -> Option<Arc<dyn TableProvider>> {
        let provider = source_as_provider(&self.table_scan()?.source).ok()?;
        provider.downcast_ref::<DatasetTable>().is_some().then_some(provider)
    }

    /// Whether the first key is a distance that a search can order by.
    fn is_search(&self) -> bool {
        let Some(table) = self.table() else { return false };
        let (Some(table), Some(first)) = (table.downcast_ref::<DatasetTable>(), self.order.first()) else {
            return false;
        };
        let Expr::ScalarFunction(call) = &first.expr else { return false };
        let callee: &dyn Any = call.func.inner().as_ref();
        let Some(function) = callee.downcast_ref::<SpatialFunction>().map(SpatialFunction::function) else {
            return false;
        };
        let is_geometry = |expr: &Expr| matches!(expr, Expr::Column(column) if is_inner(column) && Some(column.name.as_str()) == table.geometry());
        let is_outer = |expr: &Expr| !expr.column_refs().into_iter().any(is_inner);
        let [a, b] = call.args.as_slice() else { return false };
        let is_distance = matches!(function, Function::Distance | Function::DistanceSphere)
            && (is_geometry(a) && is_outer(b) || is_outer(a) && is_geometry(b));
        is_distance
            && Measure::of(function, table.system()).is_some()
            && first.asc
            && !first.nulls_first
            && (1..=K_MAX).contains(&self.k)
    }

    /// All expressions.
    pub fn expressions(&self) -> impl Iterator<Item = &Expr> {
        self.conditions.iter().chain(self.order.iter().map(|sort| &sort.expr)).chain(&self.columns)
    }

    /// The outer columns that the expressions have.
    pub fn outer_columns(&self) -> Vec<Column> {
        let mut columns: Vec<Column> = Vec::new();
        for column in self.expressions().flat_map(Expr::column_refs) {
            if !is_inner(column) && !columns.contains(column) {
                columns.push(column.clone());
            }
        }
        columns
    }
}

/// Whether a column is the dataset's.
pub(super) fn is_inner(column: &Column) -> bool {
    column.relation.as_ref().is_some_and(|relation| relation.table() == INNER)
}

/// A plan as one scan with conditions, an order, a limit and values.
struct Flat {
    scan: LogicalPlan,
    conditions: Vec<Expr>,
    /// For each column of the plan.
    columns: Vec<Expr>,
    order: Option<Vec<SortExpr>>,
    k: Option<usize>,
}

impl Flat {
    /// `None` if the plan does something else.
    fn of(plan: &LogicalPlan) -> Result<Option<Self>> {
        match plan {
            LogicalPlan::TableScan(scan) if scan.filters.is_empty() && scan.fetch.is_none() => {
                let column = |name: &String| {
                    let relation = Some(TableReference::bare(INNER));
                    Expr::Column(Column { relation, name: name.clone(), spans: Default::default() })
                };
                let columns = scan.projected_schema.fields().iter().map(|field| column(field.name())).collect();
                let (conditions, scan) = (Vec::new(), plan.clone());
                Ok(Some(Self { scan, conditions, columns, order: None, k: None }))
            }
            LogicalPlan::SubqueryAlias(alias) => Self::of(&alias.input),
            LogicalPlan::Filter(filter) => {
                let Some(mut flat) = Self::of(&filter.input)? else { return Ok(None) };
                let Some(condition) = flat.over_scan(&filter.predicate, filter.input.schema())? else {
                    return Ok(None);
                };
                flat.conditions.extend(split_conjunction_owned(condition));
                Ok((flat.order.is_none() && flat.k.is_none()).then_some(flat))
            }
            LogicalPlan::Projection(projection) => {
                let Some(mut flat) = Self::of(&projection.input)? else { return Ok(None) };
                let mut columns = Vec::with_capacity(projection.expr.len());
                for expr in &projection.expr {
                    let Some(expr) = flat.over_scan(expr, projection.input.schema())? else { return Ok(None) };
                    columns.push(expr.unalias_nested().data);
                }
                flat.columns = columns;
                Ok(Some(flat))
            }
            LogicalPlan::Sort(sort) => {
                let Some(mut flat) = Self::of(&sort.input)? else { return Ok(None) };
                let mut order = Vec::with_capacity(sort.expr.len());
                for key in &sort.expr {
                    let Some(expr) = flat.over_scan(&key.expr, sort.input.schema())? else { return Ok(None) };
                    order.push(SortExpr { expr: expr.unalias_nested().data, ..key.clone() });
                }
                let is_plain = flat.order.is_none() && flat.k.is_none();
                (flat.order, flat.k) = (Some(order), sort.fetch);
                Ok(is_plain.then_some(flat))
            }
            LogicalPlan::Limit(limit) => {
                let Some(mut flat) = Self::of(&limit.input)? else { return Ok(None) };
                let (SkipType::Literal(0), FetchType::Literal(Some(k))) =
                    (limit.get_skip_type()?, limit.get_fetch_type()?)
                else {
                    return Ok(None);
                };
                let is_plain = flat.order.is_some() && flat.k.is_none();
                flat.k = Some(k);
                Ok(is_plain.then_some(flat))
            }
            _ => Ok(None),
        }
    }

    /// An expression over the columns of the scan and of the outer side. `None` if it has
    /// something else.
    fn over_scan(&self, expr: &Expr, schema: &DFSchema) -> Result<Option<Expr>> {
        if expr.is_volatile() {
            return Ok(None);
        }
        let mut is_known = true;
        let replaced = expr.clone().transform_down(|expr| match expr {
            Expr::Column(column) => {
                let index = schema.maybe_index_of_column(&column);
                match index.and_then(|index| self.columns.get(index)) {
                    // Its value is not looked at again.
                    Some(over_scan) => Ok(jumped(over_scan.clone())),
                    None => {
                        is_known = false;
                        Ok(Transformed::no(Expr::Column(column)))
                    }
                }
            }
            Expr::OuterReferenceColumn(_, column) => Ok(jumped(Expr::Column(column))),
            Expr::ScalarSubquery(_)
            | Expr::InSubquery(_)
            | Expr::Exists(_)
            | Expr::SetComparison(_)
            | Expr::AggregateFunction(_)
            | Expr::WindowFunction(_) => {
                is_known = false;
                Ok(Transformed::no(expr))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(is_known.then_some(replaced.data))
    }
}

fn jumped(expr: Expr) -> Transformed<Expr> {
    Transformed::new(expr, true, datafusion::common::tree_node::TreeNodeRecursion::Jump)
}
