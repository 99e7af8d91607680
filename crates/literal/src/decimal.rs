//! Converts decimal columns to float64: each number to the nearest float, as parsing its text
//! would.
//!
//! Arrow's cast rounds the digits, divides and rounds again. It therefore misses the nearest
//! float64 of many numbers.

use std::fmt::Display;

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, DecimalType};
use arrow_array::{ArrayRef, ArrowNativeTypeOp, Float64Array};
use arrow_schema::{ArrowError, DataType};

/// The powers of ten that float64 holds exactly.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];
/// Up to here float64 holds all integers exactly.
const EXACT_MAX: u64 = 1 << f64::MANTISSA_DIGITS;

/// Most digits of decimal numbers without a fraction that fit int64.
const INT64_DIGITS: u8 = 18;

/// Whether a type is of decimal numbers without a fraction.
pub fn is_whole(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Decimal32(_, 0) | DataType::Decimal64(_, 0) | DataType::Decimal128(_, 0) | DataType::Decimal256(_, 0)
    )
}

/// Whether all numbers of a type are such numbers and fit int64.
pub fn is_int64(data_type: &DataType) -> bool {
    match data_type {
        DataType::Decimal32(digits, 0)
        | DataType::Decimal64(digits, 0)
        | DataType::Decimal128(digits, 0)
        | DataType::Decimal256(digits, 0) => *digits <= INT64_DIGITS,
        _ => false,
    }
}

/// Whether a type is of decimal numbers.
pub fn is_decimal(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal128(..) | DataType::Decimal256(..)
    )
}

/// Converts a column of decimal numbers.
///
/// # Errors
/// When the column is no column of decimal numbers.
pub fn to_float64(array: &ArrayRef) -> Result<Float64Array, ArrowError> {
    match *array.data_type() {
        DataType::Decimal32(_, scale) => converted::<Decimal32Type>(array, scale),
        DataType::Decimal64(_, scale) => converted::<Decimal64Type>(array, scale),
        DataType::Decimal128(_, scale) => converted::<Decimal128Type>(array, scale),
        DataType::Decimal256(_, scale) => converted::<Decimal256Type>(array, scale),
        ref other => Err(ArrowError::CastError(format!("{other} is not a decimal type"))),
    }
}

fn converted<D: DecimalType>(array: &ArrayRef, scale: i8) -> Result<Float64Array, ArrowError>
where
    D::Native: Display,
{
    array.as_primitive::<D>().try_unary(|digits| nearest(digits, scale))
}

/// The float64 nearest to `digits` divided by ten to the power of `scale`.
fn nearest<N: ArrowNativeTypeOp + Display>(digits: N, scale: i8) -> Result<f64, ArrowError> {
    let exact = digits.to_i64().filter(|digits| digits.unsigned_abs() <= EXACT_MAX);
    if let (Some(digits), Some(power)) = (exact, POWERS.get(usize::from(scale.unsigned_abs()))) {
        // Both numbers are exact, so the division rounds once and correctly.
        return Ok(if scale < 0 { digits as f64 * power } else { digits as f64 / power });
    }
    let text = format!("{digits}e{}", -i32::from(scale));
    text.parse().map_err(|error| ArrowError::CastError(format!("{text}: {error}")))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::ArrowPrimitiveType;
    use arrow_array::{Array, PrimitiveArray};
    use arrow_buffer::i256;
    use proptest::prelude::*;

    use super::*;

    /// The floats that a column of these digits is converted to.
    fn floats<D: DecimalType>(digits: Vec<Option<D::Native>>, scale: i8) -> Vec<Option<f64>> {
        let array =
            PrimitiveArray::<D>::from_iter(digits).with_data_type((D::TYPE_CONSTRUCTOR)(D::MAX_PRECISION, scale));
        let array: ArrayRef = Arc::new(array);
        assert!(is_decimal(array.data_type()));
        to_float64(&array).expect("decimal numbers").iter().collect()
    }

    fn parsed(digits: impl Display, scale: i8) -> Option<f64> {
        Some(format!("{digits}e{}", -i32::from(scale)).parse().expect("a number"))
    }

    #[test]
    fn every_number_becomes_the_nearest_float64() {
        let cases: [(i128, i8, f64); 12] = [
            (900_719_925_474_099_300, 2, 9_007_199_254_740_992.0),
            (900_719_925_474_099_301, 2, 9_007_199_254_740_994.0),
            (900_719_925_474_099_500, 2, 9_007_199_254_740_996.0),
            (-900_719_925_474_099_300, 2, -9_007_199_254_740_992.0),
            (9_007_199_254_740_993, 0, 9_007_199_254_740_992.0),
            (1250, 2, 12.5),
            (-5, 2, -0.05),
            (1, 1, 0.1),
            (3, -2, 300.0),
            (1, -23, 1e23),
            (123_456_789_012_345_678, 17, 1.234_567_890_123_456_7),
            (i128::MAX, 38, 1.701_411_834_604_692_3),
        ];
        for (digits, scale, wanted) in cases {
            assert_eq!(floats::<Decimal128Type>(vec![Some(digits)], scale), [Some(wanted)], "{digits}e-{scale}");
            let wide = Some(i256::from_i128(digits));
            assert_eq!(floats::<Decimal256Type>(vec![wide], scale), [Some(wanted)], "{digits}e-{scale}");
        }
        assert_eq!(floats::<Decimal256Type>(vec![Some(i256::MAX)], 76), [Some(5.789_604_461_865_809)]);
        assert_eq!(floats::<Decimal32Type>(vec![Some(i32::MIN), None], 9), [Some(-2.147_483_648), None]);
        assert_eq!(floats::<Decimal64Type>(vec![None, Some(i64::MAX)], 18), [None, Some(9.223_372_036_854_776)]);
    }

    /// Digits of any length; half of the random numbers have the most that fit.
    fn any_length() -> impl Strategy<Value = i128> {
        (any::<i128>(), 0..128_u32).prop_map(|(digits, shift)| digits >> shift)
    }

    proptest! {
        #[test]
        fn they_are_what_their_text_is_parsed_to(digits in any_length(), more in any_length(), scale in any::<i8>()) {
            fn check<D: DecimalType>(digits: <D as ArrowPrimitiveType>::Native, scale: i8) -> Result<(), TestCaseError>
            where
                D::Native: Display,
            {
                let scale = scale.min(D::MAX_SCALE);
                prop_assert_eq!(floats::<D>(vec![Some(digits)], scale), [parsed(digits, scale)]);
                Ok(())
            }
            check::<Decimal32Type>(digits as i32, scale)?;
            check::<Decimal64Type>(digits as i64, scale)?;
            check::<Decimal128Type>(digits, scale)?;
            check::<Decimal256Type>(i256::from_parts(digits as u128, more), scale)?;
        }
    }
}
