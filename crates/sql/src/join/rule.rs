//! The rule that replaces nested-loop joins by spatial joins.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinSide, JoinType, Result};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{PhysicalExpr, conjunction, split_conjunction};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::joins::NestedLoopJoinExec;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, Partitioning};
use terrane::CoordinateSystem;
use terrane::schema::GeometryColumn;

use super::execute::{Kept, SpatialJoin, SpatialJoinExec};
use super::predicate::{InnerKind, SpatialPredicate};
use crate::geometry::is_lonlat;
use crate::nearest::keeps_rows;
use crate::scan::{ScanExec, Source};

/// Replaces nested-loop joins by spatial joins.
#[derive(Debug)]
pub(crate) struct SpatialJoinRule;

impl PhysicalOptimizerRule for SpatialJoinRule {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let replace = |plan: Arc<dyn ExecutionPlan>| {
            let replaced = match plan.downcast_ref::<NestedLoopJoinExec>() {
                Some(join) => replace(join)?,
                None => None,
            };
            Ok(replaced.map_or_else(|| Transformed::no(plan), Transformed::yes))
        };
        plan.transform_up(replace).data()
    }

    fn name(&self) -> &'static str {
        "terrane_spatial_join"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// A side that scans a dataset.
struct Inner {
    source: Arc<Source>,
    /// For each column of the side, that of the scan.
    columns: Vec<usize>,
}

fn replace(join: &NestedLoopJoinExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    // The order of the rows would change.
    let (Some(filter), None) = (join.filter(), join.properties().output_ordering()) else { return Ok(None) };
    let (sides, kept): (&[JoinSide], Kept) = match join.join_type() {
        JoinType::Inner => (&[JoinSide::Left, JoinSide::Right], Kept::Pairs),
        JoinType::Left => (&[JoinSide::Left], Kept::PairsAndUnmatched),
        JoinType::Right => (&[JoinSide::Right], Kept::PairsAndUnmatched),
        JoinType::LeftSemi => (&[JoinSide::Left], Kept::Matched),
        JoinType::RightSemi => (&[JoinSide::Right], Kept::Matched),
        JoinType::LeftAnti => (&[JoinSide::Left], Kept::Unmatched),
        JoinType::RightAnti => (&[JoinSide::Right], Kept::Unmatched),
        _ => return Ok(None),
    };
    let mut candidates: Vec<(JoinSide, Inner)> = Vec::new();
    for side in sides {
        let other = if *side == JoinSide::Left { join.right() } else { join.left() };
        candidates.extend(inner_of(other).map(|inner| (*side, inner)));
    }
    // An index of points answers many pairs of one geometry in one search.
    candidates.sort_by_key(|(_, inner)| !inner.holds_points());
    for (side, inner) in candidates {
        if let Some(exec) = with_outer(join, filter, side, &inner, kept)? {
            return Ok(Some(exec));
        }
    }
    Ok(None)
}

impl Inner {
    fn holds_points(&self) -> bool {
        matches!(self.source.snapshot.schema().geometry, GeometryColumn::Point { .. })
    }
}

/// The scan of a side, if nothing else than projections of columns is above it.
fn inner_of(plan: &Arc<dyn ExecutionPlan>) -> Option<Inner> {
    if let Some(scan) = plan.downcast_ref::<ScanExec>() {
        let source = scan.plain_source()?;
        return Some(Inner { source, columns: (0..scan.schema().fields().len()).collect() });
    }
    let [input] = plan.children()[..] else { return None };
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let inner = inner_of(input)?;
        let column = |expr: &Arc<dyn PhysicalExpr>| inner.columns.get(expr.downcast_ref::<Column>()?.index()).copied();
        let columns = projection.expr().iter().map(|projected| column(&projected.expr)).collect::<Option<Vec<usize>>>();
        return Some(Inner { columns: columns?, ..inner });
    }
    if keeps_rows(plan) { inner_of(input) } else { None }
}

/// The join with an outer side, if its condition has a predicate for the index of the other.
fn with_outer(
    join: &NestedLoopJoinExec,
    filter: &JoinFilter,
    side: JoinSide,
    inner: &Inner,
    kept: Kept,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let schema = inner.source.snapshot.schema();
    let kind = InnerKind { system: schema.system, holds_points: inner.holds_points() };
    let outer = if side == JoinSide::Left { join.left() } else { join.right() };
    let is_inner = |expr: &Arc<dyn PhysicalExpr>| {
        let column = expr.downcast_ref::<Column>().and_then(|column| filter.column_indices().get(column.index()));
        column.is_some_and(|column| {
            column.side != side && inner.columns.get(column.index).copied() == inner.source.geometry
        }) && inner.source.geometry.is_some()
    };
    let is_outer = |expr: &Arc<dyn PhysicalExpr>| {
        let Some(expr) = of_outer(expr, filter, side) else { return false };
        // The engine compares in the system of the dataset.
        let field = expr.return_field(outer.schema().as_ref());
        field.is_ok_and(|field| kind.system == CoordinateSystem::LonLat || !is_lonlat(&field))
    };
    let mut conditions = split_conjunction(filter.expression());
    let found = conditions.iter().enumerate().find_map(|(number, condition)| {
        SpatialPredicate::of(condition, kind, &is_inner, &is_outer).map(|predicate| (number, predicate))
    });
    let Some((number, mut predicate)) = found else { return Ok(None) };
    let Some(geometry) = of_outer(&predicate.outer, filter, side) else { return Ok(None) };
    predicate.outer = geometry;
    if predicate.is_exact {
        conditions.remove(number);
    }
    let rest = (!conditions.is_empty()).then(|| {
        let rest = conjunction(conditions.into_iter().cloned());
        JoinFilter::new(rest, filter.column_indices().to_vec(), filter.schema().clone())
    });
    let parts = join.properties().output_partitioning().partition_count();
    let spatial = SpatialJoin {
        source: inner.source.clone(),
        columns: inner.columns.clone(),
        predicate,
        rest,
        side,
        kept,
        projection: join.projection().as_ref().map(|projection| projection.to_vec()),
        schema: join.schema(),
    };
    Ok(Some(Arc::new(SpatialJoinExec::new(Arc::new(spatial), spread(outer, parts)?))))
}

/// The outer side in a number of parts, so that several threads search the index.
pub(crate) fn spread(outer: &Arc<dyn ExecutionPlan>, parts: usize) -> Result<Arc<dyn ExecutionPlan>> {
    let coalesced = outer.downcast_ref::<CoalescePartitionsExec>().filter(|coalesced| coalesced.fetch().is_none());
    let outer = match coalesced {
        Some(coalesced) if parts_of(coalesced.input()) <= parts => coalesced.input().clone(),
        _ => outer.clone(),
    };
    match parts_of(&outer) < parts {
        true => Ok(Arc::new(RepartitionExec::try_new(outer, Partitioning::RoundRobinBatch(parts))?)),
        false => Ok(outer),
    }
}

fn parts_of(plan: &Arc<dyn ExecutionPlan>) -> usize {
    plan.output_partitioning().partition_count()
}

/// An expression over the columns of the outer side, if it is over some of them and no others.
fn of_outer(expr: &Arc<dyn PhysicalExpr>, filter: &JoinFilter, side: JoinSide) -> Option<Arc<dyn PhysicalExpr>> {
    let (mut is_outer, mut columns) = (true, 0);
    let mapped = expr.clone().transform_down(|expr| {
        let Some(column) = expr.downcast_ref::<Column>() else { return Ok(Transformed::no(expr)) };
        match filter.column_indices().get(column.index()) {
            Some(index) if index.side == side => {
                columns += 1;
                let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(column.name(), index.index));
                Ok(Transformed::new(column, true, TreeNodeRecursion::Jump))
            }
            _ => {
                is_outer = false;
                Ok(Transformed::no(expr))
            }
        }
    });
    mapped.ok().filter(|_| is_outer && columns > 0).map(|mapped| mapped.data)
}
