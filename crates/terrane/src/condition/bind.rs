//! Binding conditions to schemas: columns become ordinals, and literals become values of the
//! columns' types.

use std::collections::HashMap;
use std::ops::Bound;

use super::bound::{BoundCondition, BoundNode, Texts};
use super::domain::{Domain, Ordered};
use super::error::shortened;
use super::number::{compare_floats, float_at_least, float_at_most, integer_at_least, integer_at_most};
use super::text::RequiredWords;
use super::{Condition, ConditionError, IN_ITEMS_MAX, Literal, Node, Operator};
use crate::key::{KeyType, encode_int, encode_uint};
use crate::schema::{ColumnType, Schema};
use crate::value::Value;

type Result<T> = std::result::Result<T, ConditionError>;

impl Condition {
    /// Binds the condition to a schema.
    ///
    /// # Errors
    /// An unknown column, or the geometry; a literal that cannot be compared with the column; a
    /// text without words; a condition that is nested too deeply or has too many items.
    pub(crate) fn bind(&self, schema: &Schema) -> Result<BoundCondition> {
        let mut columns: HashMap<&str, Place> = HashMap::with_capacity(schema.columns.len() + 3);
        columns.insert(&schema.key.name, Place::Key(schema.key.key_type));
        columns.extend(schema.geometry.names().map(|name| (name, Place::Geometry)));
        let attributes = schema.columns.iter().enumerate();
        columns.extend(attributes.map(|(place, column)| (&*column.name, Place::Attribute(place, column.column_type))));
        let node = Binder { schema, columns }.node(&self.node)?;
        Ok(BoundCondition { node })
    }
}

/// The meaning of a name.
#[derive(Clone, Copy)]
enum Place {
    Key(KeyType),
    Attribute(usize, ColumnType),
    Geometry,
}

struct Binder<'s> {
    schema: &'s Schema,
    columns: HashMap<&'s str, Place>,
}

/// A column with values, and its name.
#[derive(Clone, Copy)]
struct Target<'n> {
    name: &'n str,
    column: Valued,
}

#[derive(Clone, Copy)]
enum Valued {
    Key(KeyType),
    Attribute(usize, ColumnType),
}

impl Binder<'_> {
    fn node(&self, node: &Node) -> Result<BoundNode> {
        Ok(match node {
            Node::And(parts) => BoundNode::And(self.nodes(parts)?),
            Node::Or(parts) => BoundNode::Or(self.nodes(parts)?),
            Node::Not(inner) => BoundNode::Not(Box::new(self.node(inner)?)),
            Node::Compare { column, operator, literal } => self.comparison(column, *operator, literal)?,
            Node::Between { column, low, high } => {
                let target = self.target(column)?;
                target.within(Limit::from(low, true), Limit::from(high, true))?
            }
            Node::In { column, items } => self.one_of(column, items)?,
            Node::IsNull(column) => match self.target(column)?.column {
                Valued::Key(_) => BoundNode::IsNull(None),
                Valued::Attribute(place, _) => BoundNode::IsNull(Some(place)),
            },
            Node::Flag(column) => self.flag(column)?,
            Node::Match { column, text } => {
                let words = RequiredWords::of(text);
                if words.is_empty() {
                    return Err(ConditionError::NoWords { text: shortened(text) });
                }
                BoundNode::Words(self.texts(column.as_deref())?, words)
            }
            Node::TooDeep => return Err(ConditionError::TooDeep),
        })
    }

    fn nodes(&self, nodes: &[Node]) -> Result<Vec<BoundNode>> {
        nodes.iter().map(|node| self.node(node)).collect()
    }

    fn target<'n>(&self, name: &'n str) -> Result<Target<'n>> {
        let column = match self.columns.get(name) {
            Some(Place::Key(key_type)) => Valued::Key(*key_type),
            Some(Place::Attribute(place, column_type)) => Valued::Attribute(*place, *column_type),
            Some(Place::Geometry) => {
                let reason = "holds the geometry, and conditions are on key and attributes; ask for a window, a circle or a shape";
                return Err(ConditionError::column(name, reason));
            }
            None => return Err(self.schema.unknown_column(name).into()),
        };
        Ok(Target { name, column })
    }

    fn comparison(&self, column: &str, operator: Operator, literal: &Literal) -> Result<BoundNode> {
        let target = self.target(column)?;
        let (closed, open) = (Limit::from(literal, true), Limit::from(literal, false));
        Ok(match operator {
            Operator::Equal => target.within(closed, closed)?,
            // Unknown for null.
            Operator::NotEqual => BoundNode::Not(Box::new(target.within(closed, closed)?)),
            Operator::Less => target.within(None, open)?,
            Operator::LessOrEqual => target.within(None, closed)?,
            Operator::Greater => target.within(open, None)?,
            Operator::GreaterOrEqual => target.within(closed, None)?,
        })
    }

    fn one_of(&self, column: &str, items: &[Literal]) -> Result<BoundNode> {
        if items.len() > IN_ITEMS_MAX {
            return Err(ConditionError::TooManyItems { items: items.len() });
        }
        let target = self.target(column)?;
        let mut values = Vec::with_capacity(items.len());
        for item in items {
            let limit = Limit::from(item, true);
            match target.domain(limit, limit)? {
                // A column that equals one literal has at most one value.
                Domain::OneOf(found) => values.extend(found),
                Domain::Interval { .. } => {}
            }
        }
        Ok(target.bound(Domain::one_of(values)))
    }

    fn flag(&self, column: &str) -> Result<BoundNode> {
        let target = self.target(column)?;
        match target.column {
            Valued::Attribute(place, ColumnType::Bool) => {
                Ok(BoundNode::Attribute(place, Domain::OneOf(vec![Value::Bool(true)])))
            }
            _ => Err(ConditionError::column(
                column,
                format!("is {} and no condition by itself; compare it with a literal", target.type_name()),
            )),
        }
    }

    /// Where words are searched: in one column, or in all text columns.
    fn texts(&self, column: Option<&str>) -> Result<Vec<Texts>> {
        if let Some(name) = column {
            let target = self.target(name)?;
            return match target.column {
                Valued::Key(KeyType::Utf8) => Ok(vec![Texts::Key]),
                Valued::Attribute(place, ColumnType::Utf8) => Ok(vec![Texts::Attribute(place)]),
                _ => Err(ConditionError::column(
                    name,
                    format!(
                        "is {}, and words are searched in utf8 columns only; compare it with =",
                        target.type_name()
                    ),
                )),
            };
        }
        let key = (self.schema.key.key_type == KeyType::Utf8).then_some(Texts::Key);
        let attributes = self.schema.columns.iter().enumerate();
        let attributes = attributes.filter(|(_, column)| column.column_type == ColumnType::Utf8);
        let texts: Vec<Texts> = key.into_iter().chain(attributes.map(|(place, _)| Texts::Attribute(place))).collect();
        match texts.is_empty() {
            true => Err(ConditionError::NoTexts { known: self.schema.column_names().map(str::to_owned).collect() }),
            false => Ok(texts),
        }
    }
}

/// One end of the values that a comparison accepts.
#[derive(Clone, Copy)]
struct Limit<'l> {
    literal: &'l Literal,
    inclusive: bool,
}

impl<'l> Limit<'l> {
    /// Makes an end of an interval; comparisons without this end use `None`.
    fn from(literal: &'l Literal, inclusive: bool) -> Option<Self> {
        Some(Self { literal, inclusive })
    }
}

/// A value of any column, in a form that keeps the order.
#[derive(Clone, Debug)]
enum Scalar {
    Integer(i128),
    Float(f64),
    Text(String),
    Bytes(Vec<u8>),
    Uuid([u8; 16]),
}

impl Ordered for Scalar {
    fn order(&self, other: &Self) -> std::cmp::Ordering {
        match (self, other) {
            (Self::Integer(a), Self::Integer(b)) => a.cmp(b),
            (Self::Float(a), Self::Float(b)) => compare_floats(*a, *b),
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            (Self::Bytes(a), Self::Bytes(b)) => a.cmp(b),
            (Self::Uuid(a), Self::Uuid(b)) => a.cmp(b),
            _ => std::cmp::Ordering::Equal,
        }
    }
}

/// The side of a limit on which the values lie.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Above,
    Below,
}

impl Target<'_> {
    fn type_name(&self) -> String {
        match self.column {
            Valued::Key(key_type) => key_type.to_string(),
            Valued::Attribute(_, column_type) => column_type.to_string(),
        }
    }

    /// The node that tests whether the column's value lies between two limits.
    fn within(&self, low: Option<Limit<'_>>, high: Option<Limit<'_>>) -> Result<BoundNode> {
        Ok(self.bound(self.domain(low, high)?))
    }

    fn bound(&self, domain: Domain<Scalar>) -> BoundNode {
        match self.column {
            Valued::Key(key_type) => BoundNode::Key(domain.map(|scalar| encoded(key_type, scalar))),
            Valued::Attribute(place, column_type) => {
                BoundNode::Attribute(place, domain.map(|scalar| value(column_type, scalar)))
            }
        }
    }

    fn domain(&self, low: Option<Limit<'_>>, high: Option<Limit<'_>>) -> Result<Domain<Scalar>> {
        let low = low.map_or(Ok(Some(Bound::Unbounded)), |low| self.end(low, Side::Above))?;
        let high = high.map_or(Ok(Some(Bound::Unbounded)), |high| self.end(high, Side::Below))?;
        Ok(match (low, high) {
            (Some(low), Some(high)) => Domain::between(low, high),
            _ => Domain::nothing(),
        })
    }

    /// The end of an interval in the column's values; `None` if no value lies on its side.
    fn end(&self, limit: Limit<'_>, side: Side) -> Result<Option<Bound<Scalar>>> {
        let column_type = match self.column {
            Valued::Key(KeyType::UInt64) => return self.integer_end(limit, side, 0, u64::MAX.into()),
            Valued::Key(KeyType::Int64) => ColumnType::Int64,
            Valued::Key(KeyType::Utf8) => ColumnType::Utf8,
            Valued::Key(KeyType::Binary) => ColumnType::Binary,
            Valued::Key(KeyType::Uuid) => ColumnType::Uuid,
            Valued::Attribute(_, column_type) => column_type,
        };
        let scalar = match (column_type, limit.literal) {
            (ColumnType::Int64, _) => return self.integer_end(limit, side, i64::MIN.into(), i64::MAX.into()),
            (ColumnType::Float32, _) => return self.float32_end(limit, side),
            (ColumnType::Float64, _) => return self.float_end(limit, side),
            (ColumnType::Bool, Literal::Bool(value)) => Scalar::Integer((*value).into()),
            (ColumnType::Utf8, Literal::Text(text)) => Scalar::Text(text.clone()),
            (
                ColumnType::Binary | ColumnType::Uuid | ColumnType::Date | ColumnType::Timestamp { .. },
                Literal::Text(text),
            ) => self.parsed(text, column_type)?,
            _ => return Err(self.misfit(limit.literal)),
        };
        Ok(Some(if limit.inclusive { Bound::Included(scalar) } else { Bound::Excluded(scalar) }))
    }

    /// The end among the integers from `min` to `max`. A fractional limit moves to the next integer
    /// inside.
    fn integer_end(&self, limit: Limit<'_>, side: Side, min: i128, max: i128) -> Result<Option<Bound<Scalar>>> {
        let step = i128::from(!limit.inclusive);
        let end = match (limit.literal, side) {
            // Every integer is less than NaN.
            (Literal::Float(float), Side::Above) if float.is_nan() => return Ok(None),
            (Literal::Float(float), Side::Below) if float.is_nan() => return Ok(Some(Bound::Unbounded)),
            (Literal::Int(integer), Side::Above) => integer.saturating_add(step),
            (Literal::Int(integer), Side::Below) => integer.saturating_sub(step),
            (Literal::Float(float), Side::Above) => integer_at_least(*float, limit.inclusive),
            (Literal::Float(float), Side::Below) => integer_at_most(*float, limit.inclusive),
            _ => return Err(self.misfit(limit.literal)),
        };
        let (is_beyond, is_before) = match side {
            Side::Above => (end > max, end < min),
            Side::Below => (end < min, end > max),
        };
        Ok(match (is_beyond, is_before) {
            (true, _) => None,
            (_, true) => Some(Bound::Unbounded),
            _ => Some(Bound::Included(Scalar::Integer(end))),
        })
    }

    /// The end among floats. An integer that no float equals moves to the next float inside.
    fn float_end(&self, limit: Limit<'_>, side: Side) -> Result<Option<Bound<Scalar>>> {
        let (float, is_exact) = match (limit.literal, side) {
            (Literal::Float(float), _) => (*float, true),
            (Literal::Int(integer), side) => {
                let (least, most) = (float_at_least(*integer), float_at_most(*integer));
                (if side == Side::Above { least } else { most }, least == most)
            }
            _ => return Err(self.misfit(limit.literal)),
        };
        let scalar = Scalar::Float(float);
        Ok(Some(if limit.inclusive || !is_exact { Bound::Included(scalar) } else { Bound::Excluded(scalar) }))
    }

    /// The end among 32-bit floats. The literal is rounded to one. A literal beyond the finite
    /// 32-bit floats lies between the largest of them and infinity.
    fn float32_end(&self, limit: Limit<'_>, side: Side) -> Result<Option<Bound<Scalar>>> {
        let (float, rounded) = match limit.literal {
            Literal::Float(float) => (*float, f64::from(*float as f32)),
            Literal::Int(integer) => (*integer as f64, f64::from(*integer as f32)),
            _ => return Err(self.misfit(limit.literal)),
        };
        let scalar = |float| Scalar::Float(float);
        Ok(Some(match (rounded.is_infinite() && float.is_finite(), side, float > 0.0) {
            (true, Side::Above, true) => Bound::Excluded(scalar(f32::MAX.into())),
            (true, Side::Above, false) => Bound::Included(scalar(f32::MIN.into())),
            (true, Side::Below, true) => Bound::Included(scalar(f32::MAX.into())),
            (true, Side::Below, false) => Bound::Excluded(scalar(f32::MIN.into())),
            _ if limit.inclusive => Bound::Included(scalar(rounded)),
            _ => Bound::Excluded(scalar(rounded)),
        }))
    }

    /// Parses a text as a value of a date, timestamp, UUID or binary column.
    fn parsed(&self, text: &str, column_type: ColumnType) -> Result<Scalar> {
        let refused = |reason: String| ConditionError::column(self.name, format!("is {}: {reason}", self.type_name()));
        let value = Value::parse(text, column_type).map_err(|error| refused(error.to_string()))?;
        let is_cut = matches!(column_type, ColumnType::Timestamp { .. })
            && terrane_literal::parse_timestamp(text).is_ok_and(|read| read.is_cut);
        if is_cut {
            return Err(refused(format!("'{}' has digits beyond the microsecond; leave them out", shortened(text))));
        }
        Ok(match value {
            Value::Date(days) => Scalar::Integer(days.into()),
            Value::Timestamp(microseconds) => Scalar::Integer(microseconds.into()),
            Value::Binary(bytes) => Scalar::Bytes(bytes),
            Value::Uuid(uuid) => Scalar::Uuid(uuid),
            _ => return Err(self.misfit(&Literal::Text(text.to_owned()))),
        })
    }

    /// Why a literal cannot be compared with the column.
    fn misfit(&self, literal: &Literal) -> ConditionError {
        let advice = match self.column {
            Valued::Key(KeyType::Int64 | KeyType::UInt64)
            | Valued::Attribute(_, ColumnType::Int64 | ColumnType::Float32 | ColumnType::Float64) => {
                "write a number, without quotes"
            }
            Valued::Key(KeyType::Utf8) | Valued::Attribute(_, ColumnType::Utf8) => "write a text in single quotes",
            Valued::Key(KeyType::Binary) | Valued::Attribute(_, ColumnType::Binary) => {
                "write padded base64 in single quotes"
            }
            Valued::Key(KeyType::Uuid) | Valued::Attribute(_, ColumnType::Uuid) => {
                "write it in single quotes, as '550e8400-e29b-41d4-a716-446655440000'"
            }
            Valued::Attribute(_, ColumnType::Bool) => "write true or false",
            Valued::Attribute(_, ColumnType::Date) => "write a date in single quotes, as '2026-03-01'",
            Valued::Attribute(_, ColumnType::Timestamp { .. }) => {
                "write a time in single quotes, as '2026-03-01T12:00:00'"
            }
        };
        let (kind, shown) = match literal {
            Literal::Bool(value) => ("bool", value.to_string()),
            Literal::Int(_) | Literal::Float(_) => ("a number", literal.to_string()),
            Literal::Text(text) => ("a text", format!("'{}'", shortened(text))),
        };
        let reason = format!("is {}, and {shown} is {kind}; {advice}", self.type_name());
        ConditionError::column(self.name, reason)
    }
}

/// The attribute at a position in its column's order. Integers are within the column's range.
fn value(column_type: ColumnType, scalar: Scalar) -> Value {
    match (scalar, column_type) {
        (Scalar::Integer(value), ColumnType::Bool) => Value::Bool(value != 0),
        (Scalar::Integer(value), ColumnType::Date) => Value::Date(value as i32),
        (Scalar::Integer(value), ColumnType::Timestamp { .. }) => Value::Timestamp(value as i64),
        (Scalar::Integer(value), _) => Value::Int(value as i64),
        (Scalar::Float(value), ColumnType::Float32) => Value::Float32(value as f32),
        (Scalar::Float(value), _) => Value::Float64(value),
        (Scalar::Text(value), _) => Value::Utf8(value),
        (Scalar::Bytes(value), _) => Value::Binary(value),
        (Scalar::Uuid(value), _) => Value::Uuid(value),
    }
}

/// The encoded key at a position in the keys' order. Texts may be longer than keys can be.
fn encoded(key_type: KeyType, scalar: Scalar) -> Vec<u8> {
    match (scalar, key_type) {
        (Scalar::Integer(value), KeyType::UInt64) => encode_uint(value as u64).to_vec(),
        (Scalar::Integer(value), _) => encode_int(value as i64).to_vec(),
        (Scalar::Text(value), _) => value.into_bytes(),
        (Scalar::Bytes(value), _) => value,
        (Scalar::Uuid(value), _) => value.to_vec(),
        // No key is a float.
        (Scalar::Float(_), _) => Vec::new(),
    }
}
