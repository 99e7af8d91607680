//! Columns of Python's `decimal.Decimal`.

use std::sync::Arc;

use arrow_array::{ArrayRef, Decimal128Array};
use pyo3::prelude::*;

use crate::error::RefusedError;

/// Most digits of a column.
const DIGITS_MAX: u8 = 38;

/// A number without its point, and how many of its digits follow the point.
#[derive(Clone, Copy, Debug)]
pub struct Decimal {
    digits: i128,
    scale: u8,
}

/// A `Decimal`, or an integer among them.
pub fn decimal(value: &Bound<'_, PyAny>) -> PyResult<Decimal> {
    let too_long = || RefusedError::new_err(format!("the number {value} has more than {DIGITS_MAX} digits"));
    if !value.hasattr("as_tuple")? {
        return Ok(Decimal { digits: value.extract().map_err(|_| too_long())?, scale: 0 });
    }
    if !value.call_method0("is_finite")?.extract::<bool>()? {
        return Err(RefusedError::new_err(format!("the Decimal {value} is no finite number")));
    }
    let exponent: i64 = value.call_method0("as_tuple")?.getattr("exponent")?.extract()?;
    let scale = u8::try_from((-exponent).max(0)).ok().filter(|scale| *scale <= DIGITS_MAX).ok_or_else(too_long)?;
    let text: String = value.call_method1("__format__", ("f",))?.extract()?;
    let digits = text.replace('.', "").parse().map_err(|_| too_long())?;
    Ok(Decimal { digits, scale })
}

/// The column of some decimals, exact. An error with the row of one that needs too many digits.
pub fn decimals(values: &[Option<Decimal>]) -> Result<ArrayRef, (usize, String)> {
    let scale = values.iter().flatten().map(|value| value.scale).max().unwrap_or(0);
    let too_long = |row| (row, format!("the numbers of the column need more than {DIGITS_MAX} digits"));
    let mut digits = Vec::with_capacity(values.len());
    let mut precision = 1;
    for (row, value) in values.iter().enumerate() {
        let scaled = match value {
            None => None,
            Some(value) => {
                let factor = 10_i128.checked_pow(u32::from(scale - value.scale));
                let scaled = factor.and_then(|factor| value.digits.checked_mul(factor)).ok_or_else(|| too_long(row))?;
                precision = precision.max(scaled.unsigned_abs().checked_ilog10().unwrap_or(0) + 1);
                if precision > u32::from(DIGITS_MAX) {
                    return Err(too_long(row));
                }
                Some(scaled)
            }
        };
        digits.push(scaled);
    }
    let precision = u8::try_from(precision).unwrap_or(DIGITS_MAX).max(scale);
    let scale = i8::try_from(scale).unwrap_or(0);
    let array = Decimal128Array::from(digits).with_precision_and_scale(precision, scale);
    Ok(Arc::new(array.map_err(|error| (0, error.to_string()))?))
}
