//! `ORDER BY` a distance `LIMIT k` through the engine's search for the nearest records.
//!
//! The engine ranks records by their distance from a place. It is asked for more rows than the
//! limit. They contain the answer if the last one is farther than the row at the limit: then no
//! other row can tie with it. The sort stays in the plan.
//!
//! Around a geometry that is no point, the place is the middle of its box. No record is nearer to
//! the geometry by more than half of the diagonal. Degrees are no measure of the engine's: there,
//! its nearest records bound the distance, and a window gives all records within the bound.
//!
//! Where too few rows have a distance, all rows are read: SQL puts those without one last.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{BooleanArray, Float64Array, RecordBatch};
use datafusion::arrow::compute::{filter, filter_record_batch};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue, internal_datafusion_err};
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
use terrane::{CoordinateSystem, Query, ScanRows};
use terrane_space::geometry::{as_point, normalise, summarise};
use terrane_space::{Point, check_coordinates};

use crate::functions::relation::enlarged_rect;
use crate::functions::{Function, SpatialFunction, parse_text};
use crate::scan::{SHARERS, ScanExec, Source, external};

/// Largest limit for which the nearest records are searched.
pub(crate) const K_MAX: usize = 1000;
/// Least number of rows beyond the limit.
const BEYOND: usize = 32;
/// Number of rows beyond which all are read instead.
const WANTED_MAX: usize = 1 << 16;
/// Number of rows, besides twice the limit, up to which a search holds all that it has read.
const HELD_MIN: usize = 1024;
/// Factor of the number of rows if some number was too small.
const GROWTH: usize = 8;
/// Relative difference below which two distances may be the same number, computed in two ways.
const SLACK: f64 = 1e-9;

/// How a distance relates to the engine's rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    /// It is what the engine ranks by.
    Ranked,
    /// It is in degrees.
    Degrees,
}

impl Measure {
    /// The measure of a function in a system.
    pub fn of(function: Function, system: CoordinateSystem) -> Option<Self> {
        match (function, system) {
            (Function::Distance, CoordinateSystem::Planar) | (Function::DistanceSphere, CoordinateSystem::LonLat) => {
                Some(Self::Ranked)
            }
            (Function::Distance, CoordinateSystem::LonLat) => Some(Self::Degrees),
            _ => None,
        }
    }
}

/// Rows with their distances.
pub(crate) struct Measured {
    pub rows: RecordBatch,
    pub distances: Float64Array,
}

/// The search for the rows nearest to one geometry.
pub(crate) struct Search<'s> {
    pub source: &'s Source,
    pub measure: Measure,
    pub k: usize,
    /// Number of rows beyond `k` to begin with.
    pub beyond: usize,
}

impl Search<'_> {
    /// Rows that contain the `k` nearest ones; `None` if they have to be found among all rows.
    /// `judge` leaves out rows that are not wanted, and gives the distances of the others.
    ///
    /// # Errors
    /// Those of reading, and of `judge`.
    pub fn find(
        &self,
        geometry: &[u8],
        judge: &mut dyn FnMut(RecordBatch) -> Result<Measured>,
        note: &mut dyn FnMut(&ScanRows),
    ) -> Result<Option<Vec<Measured>>> {
        let system = self.source.snapshot.schema().system;
        let Some((place, radius)) = middle(geometry)? else { return Ok(None) };
        if (radius > 0.0 && self.measure == Measure::Ranked && system == CoordinateSystem::LonLat)
            || check_coordinates(system, place.x, place.y).is_err()
        {
            return Ok(None);
        }
        let mut wanted = self.k + self.beyond;
        while wanted <= WANTED_MAX {
            let query = self.source.query.clone().nearest(place.x, place.y, wanted);
            let (mut found, mut count, mut last) = (Vec::new(), 0, 0.0);
            self.read(&query, note, &mut |batch, ranks| {
                count += batch.num_rows();
                last = ranks.and_then(|ranks| ranks.values().last().copied()).unwrap_or(last);
                self.add(&mut found, judge(batch)?)
            })?;
            let at_limit = smallest(&found, self.k);
            match (at_limit, self.measure) {
                (Some(_), _) if count < wanted => return Ok(Some(found)),
                (None, _) if count < wanted => return Ok(None),
                (Some(at_limit), Measure::Ranked) if last - radius - at_limit > SLACK * last.max(1.0) => {
                    return Ok(Some(found));
                }
                (Some(at_limit), Measure::Degrees) => return self.within(geometry, at_limit, judge, note),
                _ => wanted *= GROWTH,
            }
        }
        Ok(None)
    }

    /// All rows within a distance in degrees.
    fn within(
        &self,
        geometry: &[u8],
        distance: f64,
        judge: &mut dyn FnMut(RecordBatch) -> Result<Measured>,
        note: &mut dyn FnMut(&ScanRows),
    ) -> Result<Option<Vec<Measured>>> {
        let distance = distance * (1.0 + SLACK);
        let Some(window) = enlarged_rect(geometry, distance, CoordinateSystem::LonLat)? else { return Ok(None) };
        let mut found = Vec::new();
        let query = self.source.query.clone().window(window.x0, window.y0, window.x1, window.y1);
        self.read(&query, note, &mut |batch, _| self.add(&mut found, judge(batch)?))?;
        Ok(Some(found))
    }

    /// Adds rows to those found. If there are many, it leaves out those that are farther than the
    /// `k`th, so that the memory of a search does not depend on how many rows it reads.
    fn add(&self, found: &mut Vec<Measured>, more: Measured) -> Result<()> {
        found.push(more);
        let held: usize = found.iter().map(|measured| measured.rows.num_rows()).sum();
        if held <= 2 * self.k + HELD_MIN {
            return Ok(());
        }
        let Some(farthest) = smallest(found, self.k) else { return Ok(()) };
        for Measured { rows, distances } in found.iter_mut() {
            let is_near: BooleanArray =
                distances.iter().map(|distance| Some(distance.is_some_and(|distance| distance <= farthest))).collect();
            *rows = filter_record_batch(rows, &is_near)?;
            *distances = filter(distances, &is_near)?.as_primitive::<Float64Type>().clone();
        }
        found.retain(|measured| measured.rows.num_rows() > 0);
        Ok(())
    }

    /// Reads the rows of a query in the scan's columns. The engine's ranks come with them, if it
    /// ranks.
    fn read(
        &self,
        query: &Query,
        note: &mut dyn FnMut(&ScanRows),
        take: &mut dyn FnMut(RecordBatch, Option<&Float64Array>) -> Result<()>,
    ) -> Result<()> {
        let scan = self.source.snapshot.scan(query, SHARERS).map_err(external)?;
        for part in 0..scan.parts() {
            let mut rows = scan.read(part).map_err(external)?;
            while let Some(batch) = rows.next_batch().map_err(external)? {
                let ranks = batch.columns().last().and_then(|column| column.as_primitive_opt::<Float64Type>());
                take(self.source.shape(&batch)?, ranks)?;
            }
            note(&rows);
        }
        Ok(())
    }
}

/// The middle of a geometry's box, and half of the diagonal; `None` if it is empty.
fn middle(geometry: &[u8]) -> Result<Option<(Point, f64)>> {
    if let Some(place) = as_point(geometry) {
        return Ok(Some((place, 0.0)));
    }
    let unreadable = |error| internal_datafusion_err!("a stored geometry cannot be read: {error}");
    let summary = summarise(geometry, CoordinateSystem::Planar).map_err(unreadable)?;
    if summary.is_empty {
        return Ok(None);
    }
    let rect = summary.planar_rect;
    let place = Point { x: f64::midpoint(rect.x0, rect.x1), y: f64::midpoint(rect.y0, rect.y1) };
    let radius = (rect.x1 - rect.x0).hypot(rect.y1 - rect.y0) / 2.0;
    Ok(radius.is_finite().then_some((place, radius * (1.0 + SLACK))))
}

/// The `k`th of the distances.
fn smallest(found: &[Measured], k: usize) -> Option<f64> {
    let mut distances: Vec<f64> = found.iter().flat_map(|measured| measured.distances.iter().flatten()).collect();
    let index = k.checked_sub(1)?;
    (index < distances.len()).then(|| *distances.select_nth_unstable_by(index, f64::total_cmp).1)
}

/// The values of a distance.
pub(crate) fn distances(key: &Arc<dyn PhysicalExpr>, rows: &RecordBatch) -> Result<Float64Array> {
    let array = key.evaluate(rows)?.into_array(rows.num_rows())?;
    array.as_primitive_opt::<Float64Type>().cloned().ok_or_else(|| internal_datafusion_err!("no distances"))
}

/// A scan of the rows nearest to a constant geometry.
#[derive(Debug)]
pub(crate) struct NearestScan {
    geometry: Vec<u8>,
    /// The distance, of the scan's columns.
    key: Arc<dyn PhysicalExpr>,
    measure: Measure,
    k: usize,
}

impl NearestScan {
    /// Rows that contain the answer; `None` if they may not.
    pub fn find(&self, source: &Source, note: &mut dyn FnMut(&ScanRows)) -> Result<Option<Vec<RecordBatch>>> {
        let search = Search { source, measure: self.measure, k: self.k, beyond: self.k.max(BEYOND) };
        let mut judge = |rows: RecordBatch| {
            let distances = distances(&self.key, &rows)?;
            Ok(Measured { rows, distances })
        };
        let found = search.find(&self.geometry, &mut judge, note)?;
        Ok(found.map(|found| found.into_iter().map(|measured| measured.rows).collect()))
    }
}

impl fmt::Display for NearestScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "k={}, spatial index: best first", self.k)?;
        match self.measure {
            Measure::Ranked => Ok(()),
            Measure::Degrees => f.write_str(", then the window of the farthest"),
        }
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
        return Ok(nearest_of(key, scan.source(), k).map(|nearest| Arc::new(scan.nearest(nearest)) as _));
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        key = below(key, projection)?;
    } else if !keeps_rows(plan) {
        return Ok(None);
    }
    let [input] = plan.children()[..] else { return Ok(None) };
    match replace_in(input, key, k)? {
        Some(replaced) => with_child(plan, replaced).map(Some),
        None => Ok(None),
    }
}

/// An expression over the columns of a projection as one over those of its input.
fn below(expr: Arc<dyn PhysicalExpr>, projection: &ProjectionExec) -> Result<Arc<dyn PhysicalExpr>> {
    let replaced = expr.transform_down(|expr| {
        let projected = expr.downcast_ref::<Column>().and_then(|column| projection.expr().get(column.index()));
        Ok(match projected {
            Some(projected) => Transformed::new(projected.expr.clone(), true, TreeNodeRecursion::Jump),
            None => Transformed::no(expr),
        })
    });
    replaced.data()
}

/// The search for a sort key that is a distance from a constant.
fn nearest_of(key: Arc<dyn PhysicalExpr>, source: &Source, k: usize) -> Option<NearestScan> {
    // Rows that a limit has left are not the nearest of all.
    if !source.pushes_down || source.limit.is_some() {
        return None;
    }
    let is_geometry = |expr: &Arc<dyn PhysicalExpr>| {
        source.geometry.is_some() && expr.downcast_ref::<Column>().map(Column::index) == source.geometry
    };
    let (function, other) = distance_from(&key, &is_geometry)?;
    let measure = Measure::of(function, source.snapshot.schema().system)?;
    let geometry = match other.downcast_ref::<Literal>()?.value() {
        ScalarValue::Binary(Some(bytes)) => normalise(bytes).ok()?,
        ScalarValue::Utf8(Some(text)) => parse_text(text).ok()?,
        _ => return None,
    };
    Some(NearestScan { geometry, key, measure, k })
}

/// The function and the other argument of a distance from the column of geometries.
pub(crate) fn distance_from<'e>(
    key: &'e Arc<dyn PhysicalExpr>,
    is_geometry: &dyn Fn(&Arc<dyn PhysicalExpr>) -> bool,
) -> Option<(Function, &'e Arc<dyn PhysicalExpr>)> {
    let call = key.downcast_ref::<ScalarFunctionExpr>()?;
    let inner: &dyn Any = call.fun().inner().as_ref();
    let function = inner.downcast_ref::<SpatialFunction>()?.function();
    let [first, second] = call.args() else { return None };
    match (is_geometry(first), is_geometry(second)) {
        (true, false) => Some((function, second)),
        (false, true) => Some((function, first)),
        _ => None,
    }
}
