//! Sets of values of one column, as comparisons define them.

use std::cmp::Ordering;
use std::ops::Bound;

use super::number::compare_floats;
use crate::value::{Value, ValueRef};

/// Values that can be bounds. They have one type and exclude null, so any two have an order.
pub(crate) trait Ordered {
    fn order(&self, other: &Self) -> Ordering;
}

/// Encoded keys.
impl Ordered for Vec<u8> {
    fn order(&self, other: &Self) -> Ordering {
        self.cmp(other)
    }
}

impl Ordered for Value {
    fn order(&self, other: &Self) -> Ordering {
        compare(self.as_ref(), other.as_ref()).unwrap_or(Ordering::Equal)
    }
}

/// The order of two values of one type; `None` for null and values of different types. Floats are
/// compared as in PostgreSQL: the two zeros are equal, NaN equals NaN and is greatest.
pub(crate) fn compare(a: ValueRef<'_>, b: ValueRef<'_>) -> Option<Ordering> {
    match (a, b) {
        (ValueRef::Bool(a), ValueRef::Bool(b)) => Some(a.cmp(&b)),
        (ValueRef::Int(a), ValueRef::Int(b)) | (ValueRef::Timestamp(a), ValueRef::Timestamp(b)) => Some(a.cmp(&b)),
        (ValueRef::Date(a), ValueRef::Date(b)) => Some(a.cmp(&b)),
        (ValueRef::Float32(a), ValueRef::Float32(b)) => Some(compare_floats(a.into(), b.into())),
        (ValueRef::Float64(a), ValueRef::Float64(b)) => Some(compare_floats(a, b)),
        (ValueRef::Utf8(a), ValueRef::Utf8(b)) => Some(a.cmp(b)),
        (ValueRef::Binary(a), ValueRef::Binary(b)) => Some(a.cmp(b)),
        (ValueRef::Uuid(a), ValueRef::Uuid(b)) => Some(a.cmp(&b)),
        _ => None,
    }
}

/// A set of values. Null is in no set.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Domain<T> {
    /// These values, ascending and distinct. The list is empty if the set is.
    OneOf(Vec<T>),
    /// All values from `low` to `high`, with `low` below `high`.
    Interval {
        /// The lower end.
        low: Bound<T>,
        /// The upper end.
        high: Bound<T>,
    },
}

impl<T> Domain<T> {
    /// The set without values.
    pub fn nothing() -> Self {
        Self::OneOf(Vec::new())
    }

    /// Whether no value is in it.
    pub fn is_nothing(&self) -> bool {
        matches!(self, Self::OneOf(values) if values.is_empty())
    }

    /// Whether the set has a value that is not null. `order` compares the value with a bound, and
    /// returns `None` if they have different types.
    pub fn contains(&self, order: impl Fn(&T) -> Option<Ordering>) -> bool {
        match self {
            // A value without an order lies on the same side of all bounds, so it is not found.
            Self::OneOf(values) => {
                values.binary_search_by(|value| order(value).map_or(Ordering::Less, Ordering::reverse)).is_ok()
            }
            Self::Interval { low, high } => {
                let above = match low {
                    Bound::Unbounded => true,
                    Bound::Included(low) => order(low).is_some_and(Ordering::is_ge),
                    Bound::Excluded(low) => order(low).is_some_and(Ordering::is_gt),
                };
                above
                    && match high {
                        Bound::Unbounded => true,
                        Bound::Included(high) => order(high).is_some_and(Ordering::is_le),
                        Bound::Excluded(high) => order(high).is_some_and(Ordering::is_lt),
                    }
            }
        }
    }

    /// Maps the values to another form with the same order.
    pub fn map<U>(self, mut form: impl FnMut(T) -> U) -> Domain<U> {
        match self {
            Self::OneOf(values) => Domain::OneOf(values.into_iter().map(form).collect()),
            Self::Interval { low, high } => Domain::Interval { low: low.map(&mut form), high: high.map(form) },
        }
    }
}

impl<T: Ordered> Domain<T> {
    /// All values between two ends.
    pub fn between(low: Bound<T>, high: Bound<T>) -> Self {
        if let (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) =
            (&low, &high)
        {
            let closed = matches!((&low, &high), (Bound::Included(_), Bound::Included(_)));
            match from.order(to) {
                Ordering::Less => {}
                Ordering::Equal if closed => return Self::OneOf(value_of(low).into_iter().collect()),
                Ordering::Equal | Ordering::Greater => return Self::nothing(),
            }
        }
        Self::Interval { low, high }
    }

    /// The set of these values, given in any order.
    pub fn one_of(mut values: Vec<T>) -> Self {
        values.sort_by(T::order);
        values.dedup_by(|a, b| a.order(b).is_eq());
        Self::OneOf(values)
    }

    /// The values in both sets.
    pub fn intersection(self, other: Self) -> Self {
        match (self, other) {
            (Self::OneOf(mut values), other) | (other, Self::OneOf(mut values)) => {
                values.retain(|value| other.contains(|bound| Some(value.order(bound))));
                Self::OneOf(values)
            }
            (Self::Interval { low: a, high: b }, Self::Interval { low: c, high: d }) => {
                Self::between(tighter(a, c, Ordering::Greater), tighter(b, d, Ordering::Less))
            }
        }
    }
}

fn value_of<T>(bound: Bound<T>) -> Option<T> {
    match bound {
        Bound::Included(value) | Bound::Excluded(value) => Some(value),
        Bound::Unbounded => None,
    }
}

/// The tighter of two bounds: the one whose value compares to the other's as `wanted`. For equal
/// values, the excluded bound.
fn tighter<T: Ordered>(a: Bound<T>, b: Bound<T>, wanted: Ordering) -> Bound<T> {
    let order = match (&a, &b) {
        (Bound::Unbounded, _) => return b,
        (_, Bound::Unbounded) => return a,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => a.order(b),
    };
    let takes_first = match order {
        Ordering::Equal => matches!(a, Bound::Excluded(_)),
        order => order == wanted,
    };
    if takes_first { a } else { b }
}
