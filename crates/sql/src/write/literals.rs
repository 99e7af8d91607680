//! The rows of `VALUES` that are only literals, without a plan.

use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, Float64Builder, Int64Builder, StringBuilder};
use arrow_array::{ArrayRef, NullArray, RecordBatch};
use datafusion::sql::sqlparser::ast::{Expr, UnaryOperator, Value, Values};

/// All integers up to this one are float64s too.
const FLOAT_EXACT_MAX: u64 = 1 << 53;

/// A literal, as the planner reads it.
enum Literal<'v> {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(&'v str),
}

impl<'v> Literal<'v> {
    /// The literal that an expression is; `None` if the planner has to read it.
    fn of(value: &'v Expr, params: &'v [Expr]) -> Option<Self> {
        match value {
            Expr::Value(value) => match &value.value {
                Value::Null => Some(Self::Null),
                Value::Boolean(truth) => Some(Self::Bool(*truth)),
                Value::SingleQuotedString(text) => Some(Self::Text(text)),
                Value::Number(digits, false) => Self::number(digits, false),
                Value::Placeholder(name) => Self::of(parameter(name, params)?, &[]),
                _ => None,
            },
            Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match &**expr {
                Expr::Value(value) => match &value.value {
                    Value::Number(digits, false) => Self::number(digits, true),
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        }
    }

    fn number(digits: &str, is_negative: bool) -> Option<Self> {
        if digits.bytes().all(|byte| byte.is_ascii_digit()) {
            let number: i64 = digits.parse().ok()?;
            return Some(Self::Int(if is_negative { -number } else { number }));
        }
        let number: f64 = digits.parse().ok().filter(|number: &f64| number.is_finite())?;
        Some(Self::Float(if is_negative { -number } else { number }))
    }
}

/// The value of `$1`, `$2`, ….
fn parameter<'v>(name: &str, params: &'v [Expr]) -> Option<&'v Expr> {
    let number: usize = name.strip_prefix('$')?.parse().ok()?;
    params.get(number.checked_sub(1)?)
}

/// Makes the literals of a column texts, if only some are, or if they have no other common type: an
/// integer beside a float may not be one. The column's type reads them then, as in PostgreSQL.
pub(super) fn make_texts(values: &mut Values, params: &[Expr]) {
    let width = values.rows.iter().map(|row| row.content.len()).min().unwrap_or(0);
    for column in 0..width {
        let literals = values.rows.iter().map(|row| Literal::of(&row.content[column], params));
        let Some(literals) = literals.collect::<Option<Vec<_>>>() else { continue };
        let is_text = |literal: &Literal<'_>| matches!(literal, Literal::Text(_));
        let is_float = |literal: &Literal<'_>| matches!(literal, Literal::Float(_));
        let is_long =
            |literal: &Literal<'_>| matches!(literal, Literal::Int(number) if number.unsigned_abs() > FLOAT_EXACT_MAX);
        let is_mixed = literals.iter().any(is_text) && !literals.iter().all(is_text);
        let has_long = literals.iter().any(is_float) && literals.iter().any(is_long);
        if !is_mixed && !has_long {
            continue;
        }
        for value in values.rows.iter_mut().map(|row| &mut row.content[column]) {
            let given = match value {
                Expr::Value(literal) => match &literal.value {
                    Value::Placeholder(name) => parameter(name, params),
                    _ => None,
                },
                _ => None,
            };
            let given = given.unwrap_or(value);
            let is_kept = |literal: &Value| matches!(literal, Value::Null | Value::SingleQuotedString(_));
            let text = match given {
                Expr::Value(literal) if is_kept(&literal.value) => continue,
                number => number.to_string(),
            };
            *value = Expr::Value(Value::SingleQuotedString(text).into());
        }
    }
}

/// The rows of `VALUES`, if each column has literals of one type and nulls.
pub(super) fn literal_rows(values: &Values, params: &[Expr]) -> Option<RecordBatch> {
    let width = values.rows.first()?.content.len();
    if values.rows.iter().any(|row| row.content.len() != width) {
        return None;
    }
    let columns = (0..width).map(|column| {
        let literals = values.rows.iter().map(|row| Literal::of(&row.content[column], params));
        let array = array_of(&literals.collect::<Option<Vec<_>>>()?)?;
        Some((format!("column{}", column + 1), array, true))
    });
    RecordBatch::try_from_iter_with_nullable(columns.collect::<Option<Vec<_>>>()?).ok()
}

/// The literals as an array; `None` if they have several types.
fn array_of(literals: &[Literal<'_>]) -> Option<ArrayRef> {
    macro_rules! array {
        ($builder:expr, $variant:ident) => {{
            let mut builder = $builder;
            for literal in literals {
                match literal {
                    Literal::Null => builder.append_null(),
                    Literal::$variant(value) => builder.append_value(*value),
                    _ => return None,
                }
            }
            Arc::new(builder.finish())
        }};
    }
    Some(match literals.iter().find(|literal| !matches!(literal, Literal::Null)) {
        None | Some(Literal::Null) => Arc::new(NullArray::new(literals.len())),
        Some(Literal::Bool(_)) => array!(BooleanBuilder::new(), Bool),
        Some(Literal::Int(_)) if literals.iter().all(|literal| !matches!(literal, Literal::Float(_))) => {
            array!(Int64Builder::new(), Int)
        }
        Some(Literal::Int(_) | Literal::Float(_)) => {
            let mut builder = Float64Builder::new();
            for literal in literals {
                match literal {
                    Literal::Null => builder.append_null(),
                    Literal::Float(value) => builder.append_value(*value),
                    Literal::Int(value) if value.unsigned_abs() <= FLOAT_EXACT_MAX => {
                        builder.append_value(*value as f64)
                    }
                    _ => return None,
                }
            }
            Arc::new(builder.finish())
        }
        Some(Literal::Text(_)) => array!(StringBuilder::new(), Text),
    })
}
