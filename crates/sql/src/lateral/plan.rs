//! Physical plans of lateral joins.

use std::sync::Arc;

use arrow_schema::{Field, Schema};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, DFSchemaRef, Result, TableReference, internal_datafusion_err};
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Expr, LogicalPlan, SortExpr, UserDefinedLogicalNode};
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr, conjunction, expressions};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner};

use super::apply::ApplyExec;
use super::nearest::{NearestJoin, NearestJoinExec};
use super::node::{Inner, LateralJoin};
use super::query::{INNER, NearestQuery, is_inner};
use crate::join::spread;
use crate::nearest::{Measure, distance_from};
use crate::scan::ScanExec;
use crate::table::DatasetTable;

/// Plans queries with lateral joins.
#[derive(Debug)]
pub(crate) struct LateralQueryPlanner;

#[async_trait]
impl QueryPlanner for LateralQueryPlanner {
    async fn create_physical_plan(&self, plan: &LogicalPlan, session: &dyn Session) -> Result<Arc<dyn ExecutionPlan>> {
        let planner = DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(LateralPlanner)]);
        planner.create_physical_plan(plan, session).await
    }
}

struct LateralPlanner;

#[async_trait]
impl ExtensionPlanner for LateralPlanner {
    async fn plan_extension(
        &self,
        planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _: &[&LogicalPlan],
        inputs: &[Arc<dyn ExecutionPlan>],
        session: &dyn Session,
        context: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let (Some(join), [outer]) = (node.as_any().downcast_ref::<LateralJoin>(), inputs) else { return Ok(None) };
        let schema = Arc::new(node.schema().as_arrow().clone());
        let outer = spread(outer, session.config().target_partitions())?;
        let plan: Arc<dyn ExecutionPlan> = match &join.inner {
            Inner::Nearest(query) => {
                let planned = Planning { planner, session, context, join, query };
                Arc::new(NearestJoinExec::new(Arc::new(planned.join(schema).await?), outer))
            }
            Inner::Plan(plan) => {
                let state = session.as_any().downcast_ref::<SessionState>();
                let state = state.ok_or_else(|| internal_datafusion_err!("the session has another kind of state"))?;
                let (plan, columns) = (plan.clone(), references(join)?);
                Arc::new(ApplyExec::new(outer, plan, columns, join.is_left, state.clone(), schema))
            }
        };
        Ok(Some(plan))
    }
}

/// The outer columns that the inner query has, and their positions.
fn references(join: &LateralJoin) -> Result<Vec<(Column, usize)>> {
    let position = |column: &Column| Ok((column.clone(), join.outer.schema().index_of_column(column)?));
    join.references.iter().map(position).collect()
}

struct Planning<'p> {
    planner: &'p dyn PhysicalPlanner,
    session: &'p dyn Session,
    context: &'p PhysicalPlanningContext,
    join: &'p LateralJoin,
    query: &'p NearestQuery,
}

impl Planning<'_> {
    async fn join(&self, schema: Arc<Schema>) -> Result<NearestJoin> {
        let changed = || internal_datafusion_err!("the search of a lateral join has changed since it was planned");
        let provider = self.query.table().ok_or_else(changed)?;
        let table = provider.downcast_ref::<DatasetTable>().ok_or_else(changed)?;
        // The scan judges what it can. What it does not judge exactly stays here.
        let (mut filters, mut conditions) = (Vec::new(), Vec::new());
        for condition in &self.query.conditions {
            let scanned = condition.column_refs().iter().all(|column| is_inner(column)).then(|| of_scan(condition));
            let is_exact = scanned.as_ref().and_then(|scanned| table.is_exact(scanned));
            filters.extend(is_exact.and(scanned));
            if is_exact != Some(true) {
                conditions.push(condition.clone());
            }
        }
        let positions = self.scanned(table)?;
        let plan = provider.scan(self.session, Some(&positions), &filters, None).await?;
        let source = plan.downcast_ref::<ScanExec>().ok_or_else(changed)?.shared_source();
        let (references, pair_schema) = self.pair_schema(&source.schema)?;
        let physical = |expr: &Expr| self.planner.create_physical_expr(expr, &pair_schema, self.session, self.context);
        let all = |exprs: &[Expr]| exprs.iter().map(physical).collect::<Result<Vec<Arc<dyn PhysicalExpr>>>>();
        let sort = |sort: &SortExpr| {
            let options = arrow_schema::SortOptions { descending: !sort.asc, nulls_first: sort.nulls_first };
            Ok(PhysicalSortExpr { expr: physical(&sort.expr)?, options })
        };
        let order = self.query.order.iter().map(sort).collect::<Result<Vec<_>>>()?;
        let geometry = source.geometry.map(|geometry| references.len() + geometry);
        let is_geometry = |expr: &Arc<dyn PhysicalExpr>| {
            geometry.is_some() && expr.downcast_ref::<expressions::Column>().map(expressions::Column::index) == geometry
        };
        let key = order.first().ok_or_else(changed)?.expr.clone();
        let (function, place) = distance_from(&key, &is_geometry).ok_or_else(changed)?;
        Ok(NearestJoin {
            measure: Measure::of(function, table.system()).ok_or_else(changed)?,
            place: place.clone(),
            key: key.clone(),
            order,
            k: self.query.k,
            condition: (!conditions.is_empty()).then_some(conjunction(all(&conditions)?)),
            columns: all(&self.query.columns)?,
            references,
            pair_schema: Arc::new(pair_schema.as_arrow().clone()),
            is_left: self.join.is_left,
            source,
            schema,
        })
    }

    /// The positions of the dataset's columns that are needed.
    fn scanned(&self, table: &DatasetTable) -> Result<Vec<usize>> {
        let schema = TableProvider::schema(table);
        let mut positions = Vec::new();
        for column in self.query.expressions().flat_map(Expr::column_refs).filter(|column| is_inner(column)) {
            positions.push(schema.index_of(&column.name)?);
        }
        positions.sort_unstable();
        positions.dedup();
        Ok(positions)
    }

    /// The outer columns that the query has, by position, and then the scan's columns.
    fn pair_schema(&self, scanned: &Schema) -> Result<(Vec<usize>, DFSchemaRef)> {
        let outer = self.join.outer.schema();
        let mut positions = Vec::new();
        let mut fields: Vec<(Option<TableReference>, Arc<Field>)> = Vec::new();
        for (column, position) in references(self.join)? {
            positions.push(position);
            fields.push((column.relation, outer.field(position).clone()));
        }
        fields.extend(scanned.fields().iter().map(|field| (Some(TableReference::bare(INNER)), field.clone())));
        Ok((positions, Arc::new(DFSchema::new_with_metadata(fields, Default::default())?)))
    }
}

/// A condition in the names of the table.
fn of_scan(condition: &Expr) -> Expr {
    let named = condition.clone().transform(|expr| match expr {
        Expr::Column(column) => Ok(Transformed::yes(Expr::Column(Column::from_name(column.name)))),
        other => Ok(Transformed::no(other)),
    });
    named.map_or_else(|_| condition.clone(), |named| named.data)
}
