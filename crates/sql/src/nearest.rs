//! `ORDER BY` a distance `LIMIT k` through the engine's search for the nearest records.
//!
//! The engine is asked for more rows than the limit. They contain the answer if the last one is
//! farther than the row at the limit: then no other row can tie with it. Otherwise all rows are
//! read, also for rows without a geometry, which SQL puts last. The sort stays in the plan.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, RecordBatch};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Result, ScalarValue};
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use terrane::{CoordinateSystem, Scan, ScanRows};
use terrane_space::geometry::{as_point, normalise};
use terrane_space::{Point, check_coordinates};

use crate::functions::{Function, SpatialFunction, parse_text};
use crate::scan::{SHARERS, ScanExec, Source};

/// Largest limit for which the nearest records are searched.
const K_MAX: usize = 1000;
/// Least number of rows beyond the limit.
const BEYOND: usize = 32;
/// Relative difference below which two distances may be the same number, computed in two ways.
const SLACK: f64 = 1e-9;

/// A search for the nearest records.
#[derive(Debug)]
pub(crate) struct NearestScan {
    scan: Scan,
    place: Point,
    k: usize,
    wanted: usize,
}

impl NearestScan {
    pub fn new(source: &Source, place: Point, k: usize) -> terrane::Result<Self> {
        let wanted = k + k.max(BEYOND);
        let query = source.query.clone().nearest(place.x, place.y, wanted);
        Ok(Self { scan: source.snapshot.scan(&query, SHARERS)?, place, k, wanted })
    }

    /// Rows that contain the answer; `None` if they may not.
    pub fn find(&self, note: impl FnOnce(&ScanRows)) -> terrane::Result<Option<Vec<RecordBatch>>> {
        let mut rows = self.scan.read(0)?;
        let (mut batches, mut distances) = (Vec::new(), Vec::with_capacity(self.wanted));
        while let Some(batch) = rows.next_batch()? {
            let Some(found) = batch.columns().last().and_then(|column| column.as_primitive_opt::<Float64Type>()) else {
                return Ok(None);
            };
            if found.null_count() > 0 {
                return Ok(None);
            }
            distances.extend_from_slice(found.values());
            batches.push(batch);
        }
        note(&rows);
        let is_complete = match (distances.get(self.k.saturating_sub(1)), distances.last()) {
            // All rows with a distance are there.
            (Some(_), Some(_)) if distances.len() < self.wanted => true,
            (Some(at_limit), Some(last)) => last - at_limit > SLACK * last.max(1.0),
            _ => false,
        };
        Ok(is_complete.then_some(batches))
    }
}

impl fmt::Display for NearestScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "place={} {}, k={}, spatial index: best first", self.place.x, self.place.y, self.k)
    }
}

/// Replaces scans below sorts by searches for the nearest records.
#[derive(Debug)]
pub(crate) struct NearestRule;

impl PhysicalOptimizerRule for NearestRule {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let replace = |plan: Arc<dyn ExecutionPlan>| {
            let replaced = match plan.downcast_ref::<SortExec>() {
                Some(sort) => replace_below(sort)?,
                None => None,
            };
            match replaced {
                Some(input) => Ok(Transformed::yes(with_child(&plan, input)?)),
                None => Ok(Transformed::no(plan)),
            }
        };
        plan.transform_down(replace).data()
    }

    fn name(&self) -> &'static str {
        "terrane_nearest"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn with_child(plan: &Arc<dyn ExecutionPlan>, child: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    replace_children_if_necessary(plan.clone(), vec![child])
}

/// The input of a sort with a search for the nearest records instead of its scan.
fn replace_below(sort: &SortExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(k) = sort.fetch().filter(|k| (1..=K_MAX).contains(k)) else { return Ok(None) };
    let first = sort.expr().first();
    if first.options.descending || first.options.nulls_first {
        return Ok(None);
    }
    replace_in(sort.input(), first.expr.clone(), k)
}

/// Whether a node passes on the rows of its input as they are, though perhaps in another order.
pub(crate) fn keeps_rows(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let passes_on = plan.downcast_ref::<CooperativeExec>().is_some()
        || plan.downcast_ref::<RepartitionExec>().is_some()
        || plan.downcast_ref::<CoalescePartitionsExec>().is_some();
    passes_on && plan.fetch().is_none()
}

/// Replaces the scan below nodes that keep all rows.
fn replace_in(
    plan: &Arc<dyn ExecutionPlan>,
    mut key: Arc<dyn PhysicalExpr>,
    k: usize,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(scan) = plan.downcast_ref::<ScanExec>() {
        return match place_of(&key, scan.source()) {
            Some(place) => Ok(Some(Arc::new(scan.nearest(place, k)?))),
            None => Ok(None),
        };
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let Some(column) = key.downcast_ref::<Column>() else { return Ok(None) };
        let Some(projected) = projection.expr().get(column.index()) else { return Ok(None) };
        key = projected.expr.clone();
    } else if !keeps_rows(plan) {
        return Ok(None);
    }
    let [input] = plan.children()[..] else { return Ok(None) };
    match replace_in(input, key, k)? {
        Some(replaced) => with_child(plan, replaced).map(Some),
        None => Ok(None),
    }
}

/// The place from which the sort key is the distance that the engine ranks by.
fn place_of(key: &Arc<dyn PhysicalExpr>, source: &Source) -> Option<Point> {
    // Rows that a limit has left are not the nearest of all.
    if !source.pushes_down || source.limit.is_some() {
        return None;
    }
    let call = key.downcast_ref::<ScalarFunctionExpr>()?;
    let inner: &dyn Any = call.fun().inner().as_ref();
    let function = inner.downcast_ref::<SpatialFunction>()?.function();
    let system = source.snapshot.schema().system;
    match (function, system) {
        (Function::Distance, CoordinateSystem::Planar) | (Function::DistanceSphere, CoordinateSystem::LonLat) => {}
        _ => return None,
    }
    let is_geometry =
        |expr: &Arc<dyn PhysicalExpr>| expr.downcast_ref::<Column>().map(Column::index) == source.geometry;
    let (first, second) = (call.args().first()?, call.args().get(1)?);
    let other =
        match (source.geometry.is_some() && is_geometry(first), source.geometry.is_some() && is_geometry(second)) {
            (true, false) => second,
            (false, true) => first,
            _ => return None,
        };
    let wkb = match other.downcast_ref::<Literal>()?.value() {
        ScalarValue::Binary(Some(bytes)) => normalise(bytes).ok()?,
        ScalarValue::Utf8(Some(text)) => parse_text(text).ok()?,
        _ => return None,
    };
    as_point(&wkb).filter(|place| check_coordinates(system, place.x, place.y).is_ok())
}
