//! Filters of SQL as conditions of the engine.
//!
//! A filter is pushed down exactly where the engine's condition is the same function, and inexactly
//! where the engine's condition is weaker: then DataFusion evaluates the filter on the rows that
//! are left. A filter that the engine would refuse stays with DataFusion.

use std::any::Any;

use datafusion::common::{Column, ScalarValue};
use datafusion::logical_expr::expr::{InList, ScalarFunction};
use datafusion::logical_expr::{Between, BinaryExpr, Expr, Operator};
use geo_types::Coord;
use terrane::condition::{Literal, RequiredWords};
use terrane::key::KeyType;
use terrane::schema::{ColumnType, GeometryColumn, Schema};
use terrane::{Condition, CoordinateSystem, Filter, Query};
use terrane_literal::{format_date, format_timestamp};
use terrane_space::geometry::{as_point, normalise, to_geo};
use terrane_space::{EXACT_COORDINATE_MAX, Point};

use crate::comparisons::NumberFunction;
use crate::functions::relation::{enlarged_rect, prepare};
use crate::functions::{Function, SpatialFunction, parse_text};
use crate::words::MatchesFunction;

/// Deepest filter that is pushed down.
const DEPTH_MAX: usize = 50;

/// A filter in the engine's terms.
#[derive(Clone, Debug)]
pub(crate) struct Pushed {
    condition: EngineCondition,
    /// Whether it is the whole filter.
    pub is_exact: bool,
}

#[derive(Clone, Debug)]
enum EngineCondition {
    /// All records meet it.
    Everything,
    Spatial(Filter),
    Attributes(Condition),
}

impl Pushed {
    /// Adds the condition to a query.
    pub fn add_to(self, query: Query) -> Query {
        match self.condition {
            EngineCondition::Everything => query,
            EngineCondition::Spatial(filter) => query.filter(filter),
            EngineCondition::Attributes(condition) => query.condition(condition),
        }
    }
}

/// Translates filters on one table.
pub(crate) struct Translator<'s> {
    pub schema: &'s Schema,
    /// The table's column of geometries, if it has one.
    pub geometry: Option<&'s str>,
}

impl Translator<'_> {
    /// The filter in the engine's terms, if it has one.
    pub fn translate(&self, filter: &Expr) -> Option<Pushed> {
        if let Expr::Literal(ScalarValue::Boolean(holds), _) = filter {
            // What the optimizer makes of a filter that the keys decide.
            let condition = match holds {
                Some(true) => EngineCondition::Everything,
                Some(false) | None => EngineCondition::Attributes(Condition::on(&self.schema.key.name).is_null()),
            };
            return Some(Pushed { condition, is_exact: true });
        }
        if let Some(pushed) = self.spatial(filter).or_else(|| self.coordinate(filter)) {
            return Some(pushed);
        }
        let condition = self.condition(filter, DEPTH_MAX)?;
        Some(Pushed { condition: EngineCondition::Attributes(condition), is_exact: true })
    }

    fn spatial(&self, filter: &Expr) -> Option<Pushed> {
        match filter {
            Expr::ScalarFunction(call) => {
                let function = spatial_function(call)?;
                let (shape, column_first) = self.column_and_shape(&call.args)?;
                let limit = call.args.get(2).and_then(number);
                self.predicate(function, &shape, column_first, limit)
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                let (call, limit, is_strict) = match (&**left, op, &**right) {
                    (Expr::ScalarFunction(call), Operator::Lt | Operator::LtEq, limit) => {
                        (call, number(limit)?, *op == Operator::Lt)
                    }
                    (limit, Operator::Gt | Operator::GtEq, Expr::ScalarFunction(call)) => {
                        (call, number(limit)?, *op == Operator::Gt)
                    }
                    _ => return None,
                };
                let function = match spatial_function(call)? {
                    Function::Distance => Function::DWithin,
                    Function::DistanceSphere => Function::DWithinSphere,
                    _ => return None,
                };
                let (shape, column_first) = self.column_and_shape(&call.args)?;
                let mut pushed = self.predicate(function, &shape, column_first, Some(limit))?;
                pushed.is_exact &= !is_strict;
                Some(pushed)
            }
            _ => None,
        }
    }

    /// The half of the plane, or the strip, that a comparison of a coordinate leaves.
    fn coordinate(&self, filter: &Expr) -> Option<Pushed> {
        let (column, [from, to]) = match filter {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => match (&**left, &**right) {
                (Expr::Column(column), value) => (column, bounds(*op, number(value)?)?),
                (Expr::ScalarFunction(call), Expr::Literal(ScalarValue::Int64(Some(0)), _)) => {
                    // The order of an integer and the coordinate.
                    let [Expr::Literal(integer, _), Expr::Column(column)] = order_of_numbers(call)? else {
                        return None;
                    };
                    let ScalarValue::Int64(Some(integer)) = integer else { return None };
                    let float = integer.unsigned_abs().checked_ilog2().is_none_or(|bits| bits < f64::MANTISSA_DIGITS);
                    (column, bounds(op.swap()?, float.then_some(*integer as f64)?)?)
                }
                (value, Expr::Column(column)) => (column, bounds(op.swap()?, number(value)?)?),
                _ => return None,
            },
            Expr::Between(Between { expr, negated: false, low, high }) => match &**expr {
                Expr::Column(column) => (column, [number(low)?, number(high)?]),
                _ => return None,
            },
            _ => return None,
        };
        let GeometryColumn::Point { x, y } = &self.schema.geometry else { return None };
        let [x_max, y_max] = match self.schema.system {
            CoordinateSystem::LonLat => [180.0, 90.0],
            CoordinateSystem::Planar => [f64::MAX, f64::MAX],
        };
        // An empty range, or one beyond the system, is left to the filter.
        let within = |max: f64| {
            let (from, to) = (from.max(-max), to.min(max));
            (from <= to).then_some([from, to])
        };
        let ([x0, x1], [y0, y1]) = match column.name.as_str() {
            name if name == x => (within(x_max)?, [-y_max, y_max]),
            name if name == y => ([-x_max, x_max], within(y_max)?),
            _ => return None,
        };
        let condition = EngineCondition::Spatial(Filter::Window { x0, y0, x1, y1 });
        Some(Pushed { condition, is_exact: false })
    }

    /// The constant geometry beside the table's column, and whether the column comes first.
    fn column_and_shape(&self, args: &[Expr]) -> Option<(Vec<u8>, bool)> {
        let is_column =
            |expr: &Expr| matches!(expr, Expr::Column(column) if Some(column.name.as_str()) == self.geometry);
        match args {
            [column, shape, ..] if is_column(column) => Some((geometry(shape)?, true)),
            [shape, column, ..] if is_column(column) => Some((geometry(shape)?, false)),
            _ => None,
        }
    }

    fn predicate(&self, function: Function, shape: &[u8], column_first: bool, limit: Option<f64>) -> Option<Pushed> {
        let system = self.schema.system;
        let (filter, is_exact) = match (function, column_first) {
            (Function::Intersects, _) => match self.rectangle(shape) {
                Some(window) => (window, true),
                None => (self.shape_filter(shape, Filter::Intersects)?, true),
            },
            (Function::Within, true) | (Function::Contains, false) => (self.shape_filter(shape, Filter::Within)?, true),
            // What is covered by a geometry, or covers it, meets it.
            (Function::Within | Function::Contains | Function::Covers | Function::CoveredBy, _) => {
                (self.shape_filter(shape, Filter::Intersects)?, false)
            }
            // The boxes of other geometries may meet where they do not.
            (Function::BoxesIntersect, _) if self.holds_points() => (self.window(shape, 0.0)?, false),
            (Function::DWithin, _) => {
                let limit = limit.filter(|limit| limit.is_finite() && *limit >= 0.0)?;
                match as_point(shape) {
                    Some(place) if system == CoordinateSystem::Planar => (circle(place, limit), true),
                    _ => (self.window(shape, limit)?, false),
                }
            }
            (Function::DWithinSphere, _) if system == CoordinateSystem::LonLat => {
                let limit = limit.filter(|limit| limit.is_finite() && *limit >= 0.0)?;
                (circle(as_point(shape)?, limit), true)
            }
            _ => return None,
        };
        // A place or a window outside of the system would be refused.
        let is_accepted = match &filter {
            Filter::Circle { x, y, .. } => terrane_space::check_exact_coordinates(system, *x, *y).is_ok(),
            _ => true,
        };
        is_accepted.then_some(Pushed { condition: EngineCondition::Spatial(filter), is_exact })
    }

    fn shape_filter(&self, shape: &[u8], filter: fn(Vec<u8>) -> Filter) -> Option<Filter> {
        prepare(shape, self.schema.system, true).is_ok().then(|| filter(shape.to_vec()))
    }

    /// The window that a polygon is, if it is one, which is searched faster.
    fn rectangle(&self, shape: &[u8]) -> Option<Filter> {
        let Ok(geo_types::Geometry::Polygon(polygon)) = to_geo(shape) else { return None };
        let ring = polygon.exterior();
        let [a, b, c, d, e] = ring.0.as_slice() else { return None };
        let turns = |a: &Coord, b: &Coord, c: &Coord, d: &Coord| a.x == b.x && b.y == c.y && c.x == d.x && d.y == a.y;
        let is_rectangle = a == e && (turns(a, b, c, d) || turns(b, c, d, a)) && a.x != c.x && a.y != c.y;
        let (x0, y0, x1, y1) = (a.x.min(c.x), a.y.min(c.y), a.x.max(c.x), a.y.max(c.y));
        let max = match self.schema.system {
            CoordinateSystem::LonLat => Coord { x: 180.0, y: 90.0 },
            CoordinateSystem::Planar => Coord { x: EXACT_COORDINATE_MAX, y: EXACT_COORDINATE_MAX },
        };
        let is_within = -max.x <= x0 && x1 <= max.x && -max.y <= y0 && y1 <= max.y;
        let is_window = is_rectangle && is_within && polygon.interiors().is_empty();
        is_window.then_some(Filter::Window { x0, y0, x1, y1 })
    }

    /// A window that every geometry within a planar distance of the shape meets.
    fn window(&self, shape: &[u8], distance: f64) -> Option<Filter> {
        let rect = enlarged_rect(shape, distance, self.schema.system).ok()??;
        Some(Filter::Window { x0: rect.x0, y0: rect.y0, x1: rect.x1, y1: rect.y1 })
    }

    fn holds_points(&self) -> bool {
        matches!(self.schema.geometry, GeometryColumn::Point { .. })
    }

    /// A condition on key and attributes that is the same function.
    fn condition(&self, filter: &Expr, depth: usize) -> Option<Condition> {
        let depth = depth.checked_sub(1)?;
        match filter {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
                Some(self.condition(left, depth)?.and(self.condition(right, depth)?))
            }
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
                Some(self.condition(left, depth)?.or(self.condition(right, depth)?))
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => match (&**left, &**right) {
                (Expr::Column(column), Expr::Literal(literal, _)) => self.comparison(column, *op, literal),
                (Expr::Literal(literal, _), Expr::Column(column)) => self.comparison(column, op.swap()?, literal),
                (Expr::ScalarFunction(call), Expr::Literal(ScalarValue::Int64(Some(0)), _)) => self.ordered(call, *op),
                _ => None,
            },
            Expr::Not(inner) => Some(!self.condition(inner, depth)?),
            Expr::ScalarFunction(call) => self.words(call),
            Expr::IsNull(inner) => self.null_test(inner),
            Expr::IsNotNull(inner) => Some(!self.null_test(inner)?),
            Expr::Column(column) => match self.column_type(column)? {
                Type::Attribute(ColumnType::Bool) => Some(Condition::on(&column.name).is_true()),
                _ => None,
            },
            Expr::Between(Between { expr, negated, low, high }) => {
                let Expr::Column(column) = &**expr else { return None };
                let (Expr::Literal(low, _), Expr::Literal(high, _)) = (&**low, &**high) else { return None };
                let from = self.comparison(column, Operator::GtEq, low)?;
                let both = from.and(self.comparison(column, Operator::LtEq, high)?);
                Some(if *negated { !both } else { both })
            }
            Expr::InList(InList { expr, list, negated }) => {
                let Expr::Column(column) = &**expr else { return None };
                let column_type = self.column_type(column)?;
                let literal = |item: &Expr| match item {
                    Expr::Literal(value, _) => literal_of(column_type, value),
                    _ => None,
                };
                if list.len() > terrane::condition::IN_ITEMS_MAX {
                    return None;
                }
                let items = list.iter().map(literal).collect::<Option<Vec<Literal>>>()?;
                let one_of = Condition::on(&column.name).one_of(items);
                Some(if *negated { !one_of } else { one_of })
            }
            _ => None,
        }
    }

    /// Words that a column must have.
    fn words(&self, call: &ScalarFunction) -> Option<Condition> {
        let inner: &dyn Any = call.func.inner().as_ref();
        inner.downcast_ref::<MatchesFunction>()?;
        let [Expr::Column(column), Expr::Literal(ScalarValue::Utf8(Some(text)), _)] = call.args.as_slice() else {
            return None;
        };
        let is_text = matches!(self.column_type(column)?, Type::Key(KeyType::Utf8) | Type::Attribute(ColumnType::Utf8));
        (is_text && !RequiredWords::of(text).is_empty()).then(|| Condition::on(&column.name).matches(text.as_str()))
    }

    /// A comparison of an integer with a float. One of them is a column.
    fn ordered(&self, call: &ScalarFunction, operator: Operator) -> Option<Condition> {
        match order_of_numbers(call)? {
            [Expr::Column(column), Expr::Literal(ScalarValue::Float64(Some(float)), _)] => {
                match self.column_type(column)? {
                    Type::Key(KeyType::Int64 | KeyType::UInt64) | Type::Attribute(ColumnType::Int64) => {
                        compared(column, operator, (*float).into())
                    }
                    _ => None,
                }
            }
            [Expr::Literal(integer, _), Expr::Column(column)] => match self.column_type(column)? {
                Type::Attribute(ColumnType::Float64) => compared(column, operator.swap()?, integer_of(integer)?),
                _ => None,
            },
            _ => None,
        }
    }

    fn comparison(&self, column: &Column, operator: Operator, value: &ScalarValue) -> Option<Condition> {
        let column_type = self.column_type(column)?;
        let literal = literal_of(column_type, value)?;
        compared(column, operator, literal)
    }

    fn null_test(&self, inner: &Expr) -> Option<Condition> {
        let Expr::Column(column) = inner else { return None };
        self.column_type(column)?;
        Some(Condition::on(&column.name).is_null())
    }

    /// The type of a column on which the engine has conditions.
    fn column_type(&self, column: &Column) -> Option<Type> {
        if column.name == self.schema.key.name {
            return Some(Type::Key(self.schema.key.key_type));
        }
        self.schema.column(&column.name).map(|column| Type::Attribute(column.column_type))
    }
}

fn compared(column: &Column, operator: Operator, literal: Literal) -> Option<Condition> {
    let on = Condition::on(&column.name);
    Some(match operator {
        Operator::Eq => on.equals(literal),
        Operator::NotEq => on.differs_from(literal),
        Operator::Lt => on.less_than(literal),
        Operator::LtEq => on.at_most(literal),
        Operator::Gt => on.greater_than(literal),
        Operator::GtEq => on.at_least(literal),
        _ => return None,
    })
}

/// The arguments of the order of an integer and a float.
fn order_of_numbers(call: &ScalarFunction) -> Option<&[Expr]> {
    let inner: &dyn Any = call.func.inner().as_ref();
    inner.downcast_ref::<NumberFunction>().filter(|function| function.is_order())?;
    Some(&call.args)
}

/// The least and the greatest number that a comparison with a number leaves, or numbers around
/// these.
fn bounds(operator: Operator, number: f64) -> Option<[f64; 2]> {
    match operator {
        _ if !number.is_finite() => None,
        Operator::Eq => Some([number, number]),
        Operator::Lt | Operator::LtEq => Some([f64::MIN, number]),
        Operator::Gt | Operator::GtEq => Some([number, f64::MAX]),
        _ => None,
    }
}

fn integer_of(value: &ScalarValue) -> Option<Literal> {
    match value {
        ScalarValue::Int64(Some(value)) => Some((*value).into()),
        ScalarValue::UInt64(Some(value)) => Some((*value).into()),
        _ => None,
    }
}

#[derive(Clone, Copy)]
enum Type {
    Key(KeyType),
    Attribute(ColumnType),
}

/// The literal with which a column of a type is compared, if both compare in the same way.
fn literal_of(column_type: Type, value: &ScalarValue) -> Option<Literal> {
    use ScalarValue as S;
    match (column_type, value) {
        (Type::Key(KeyType::Int64) | Type::Attribute(ColumnType::Int64), S::Int64(Some(value))) => {
            Some((*value).into())
        }
        (Type::Key(KeyType::UInt64), S::UInt64(Some(value))) => Some((*value).into()),
        (Type::Attribute(ColumnType::Float64), S::Float64(Some(value))) => Some((*value).into()),
        (Type::Attribute(ColumnType::Float32), S::Float32(Some(value))) => Some(f64::from(*value).into()),
        (
            Type::Key(KeyType::Utf8) | Type::Attribute(ColumnType::Utf8),
            S::Utf8(Some(text)) | S::Utf8View(Some(text)) | S::LargeUtf8(Some(text)),
        ) => Some(text.as_str().into()),
        (Type::Attribute(ColumnType::Bool), S::Boolean(Some(value))) => Some((*value).into()),
        (Type::Attribute(ColumnType::Date), S::Date32(Some(days))) => {
            let text = format_date(*days);
            (terrane_literal::parse_date(&text) == Ok(*days)).then(|| text.into())
        }
        (Type::Attribute(ColumnType::Timestamp { utc }), S::TimestampMicrosecond(Some(microseconds), _)) => {
            let text = format_timestamp(*microseconds, utc);
            let read = terrane_literal::parse_timestamp(&text).ok()?;
            (read.microseconds == *microseconds && !read.is_cut).then(|| text.into())
        }
        _ => None,
    }
}

fn spatial_function(call: &ScalarFunction) -> Option<Function> {
    let inner: &dyn Any = call.func.inner().as_ref();
    inner.downcast_ref::<SpatialFunction>().map(SpatialFunction::function)
}

/// A constant geometry in the stored form.
fn geometry(expr: &Expr) -> Option<Vec<u8>> {
    let Expr::Literal(value, _) = expr else { return None };
    match value {
        ScalarValue::Binary(Some(bytes)) => normalise(bytes).ok(),
        ScalarValue::Utf8(Some(text)) => parse_text(text).ok(),
        _ => None,
    }
}

fn number(expr: &Expr) -> Option<f64> {
    match expr {
        Expr::Literal(ScalarValue::Float64(value), _) => *value,
        _ => None,
    }
}

fn circle(place: Point, radius: f64) -> Filter {
    Filter::Circle { x: place.x, y: place.y, radius }
}
