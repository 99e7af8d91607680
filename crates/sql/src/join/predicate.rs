//! The spatial predicate of a join, in the engine's terms.

use std::any::Any;
use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Literal};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use terrane::{CoordinateSystem, JoinOn};

use crate::functions::{Function, SpatialFunction};

/// What is compared with the inner geometries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Reach {
    /// The outer geometry.
    Geometry,
    /// Its box, enlarged by this distance.
    Box(f64),
}

/// A predicate of an outer and an inner geometry.
#[derive(Clone, Debug)]
pub(super) struct SpatialPredicate {
    pub on: JoinOn,
    pub reach: Reach,
    /// Whether the engine's predicate is the whole one.
    pub is_exact: bool,
    /// Of the outer side.
    pub outer: Arc<dyn PhysicalExpr>,
}

/// The inner side, as far as predicates depend on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct InnerKind {
    pub system: CoordinateSystem,
    pub holds_points: bool,
}

impl SpatialPredicate {
    /// The predicate of a condition. `is_inner` tells whether an expression is the inner side's
    /// column of geometries, and `is_outer` whether it is of the outer side alone.
    pub fn of(
        condition: &Arc<dyn PhysicalExpr>,
        inner: InnerKind,
        is_inner: &dyn Fn(&Arc<dyn PhysicalExpr>) -> bool,
        is_outer: &dyn Fn(&Arc<dyn PhysicalExpr>) -> bool,
    ) -> Option<Self> {
        let (call, limit) = match condition.downcast_ref::<BinaryExpr>() {
            None => (condition.downcast_ref::<ScalarFunctionExpr>()?, None),
            Some(binary) => {
                let (call, limit, is_strict) = match binary.op() {
                    Operator::Lt | Operator::LtEq => (binary.left(), binary.right(), *binary.op() == Operator::Lt),
                    Operator::Gt | Operator::GtEq => (binary.right(), binary.left(), *binary.op() == Operator::Gt),
                    _ => return None,
                };
                (call.downcast_ref::<ScalarFunctionExpr>()?, Some((number(limit)?, is_strict)))
            }
        };
        let callee: &dyn Any = call.fun().inner().as_ref();
        let function = callee.downcast_ref::<SpatialFunction>()?.function();
        let [first, second, ..] = call.args() else { return None };
        let (outer, inner_first) = match (is_inner(first), is_inner(second)) {
            (true, false) if is_outer(second) => (second, true),
            (false, true) if is_outer(first) => (first, false),
            _ => return None,
        };
        let (on, reach, is_exact) = match (function, limit) {
            (Function::Distance | Function::DistanceSphere, Some((limit, is_strict))) => {
                let (on, reach, is_exact) = within(function == Function::DistanceSphere, limit, inner)?;
                (on, reach, is_exact && !is_strict)
            }
            (_, Some(_)) => return None,
            (Function::DWithin | Function::DWithinSphere, None) => {
                within(function == Function::DWithinSphere, number(call.args().get(2)?)?, inner)?
            }
            (Function::Intersects, None) => (JoinOn::Intersects, Reach::Geometry, true),
            (Function::Within, None) if inner_first => (JoinOn::Within, Reach::Geometry, true),
            (Function::Within, None) => (JoinOn::Contains, Reach::Geometry, true),
            (Function::Contains, None) if inner_first => (JoinOn::Contains, Reach::Geometry, true),
            (Function::Contains, None) => (JoinOn::Within, Reach::Geometry, true),
            // What covers another geometry shares a point with it.
            (Function::Covers | Function::CoveredBy, None) => (JoinOn::Intersects, Reach::Geometry, false),
            // The boxes of other geometries may meet where they do not.
            (Function::BoxesIntersect, None) if inner.holds_points => (JoinOn::Intersects, Reach::Box(0.0), false),
            _ => return None,
        };
        Some(Self { on, reach, is_exact, outer: outer.clone() })
    }
}

/// The predicate of a distance: in metres on the sphere, or in units of the coordinates.
fn within(on_sphere: bool, limit: f64, inner: InnerKind) -> Option<(JoinOn, Reach, bool)> {
    if !limit.is_finite() || limit < 0.0 {
        return None;
    }
    match (on_sphere, inner.system) {
        (true, CoordinateSystem::LonLat) | (false, CoordinateSystem::Planar) => {
            Some((JoinOn::WithinDistance(limit), Reach::Geometry, true))
        }
        (false, CoordinateSystem::LonLat) => Some((JoinOn::Intersects, Reach::Box(limit), false)),
        (true, CoordinateSystem::Planar) => None,
    }
}

fn number(expr: &Arc<dyn PhysicalExpr>) -> Option<f64> {
    match expr.downcast_ref::<Literal>()?.value() {
        ScalarValue::Float64(value) => *value,
        _ => None,
    }
}
