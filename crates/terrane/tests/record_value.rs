//! Values as text and JSON.

use crate::record_support::*;
use proptest::prelude::*;
use serde_json::json;
use terrane::schema::ColumnType;
use terrane::value::{Value, format_date, format_timestamp, parse_date, parse_timestamp};

const DAY: i64 = 86_400_000_000;
const SECOND: i64 = 1_000_000;

proptest! {
    #[test]
    fn dates_survive_a_round_trip_through_text(days in any::<i32>()) {
        prop_assert_eq!(parse_date(&format_date(days)), Ok(days));
    }

    #[test]
    fn timestamps_survive_a_round_trip_through_text(microseconds in any::<i64>(), utc in any::<bool>()) {
        prop_assert_eq!(parse_timestamp(&format_timestamp(microseconds, utc), utc), Ok(microseconds));
    }

    #[test]
    fn consecutive_dates_follow_the_calendar(days in -4_000_000..4_000_000i32) {
        let parts = |text: String| {
            let (rest, day) = text.rsplit_once('-').map(|(rest, day)| (rest.to_owned(), day.to_owned())).expect("a date");
            let (year, month) = rest.rsplit_once('-').expect("a date");
            (year.parse::<i64>().expect("a year"), month.parse::<u32>().expect("a month"), day.parse::<u32>().expect("a day"))
        };
        let (year, month, day) = parts(format_date(days));
        let leap = year.rem_euclid(4) == 0 && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0);
        let length = match month { 2 if leap => 29, 2 => 28, 4 | 6 | 9 | 11 => 30, _ => 31 };
        let next = match (month, day) {
            (12, 31) => (year + 1, 1, 1),
            _ if day == length => (year, month + 1, 1),
            _ => (year, month, day + 1),
        };
        prop_assert_eq!(parts(format_date(days + 1)), next);
    }

    #[test]
    fn values_survive_a_round_trip_through_json(
        (column_type, value) in any_column_type().prop_flat_map(|column_type| (Just(column_type), any_value(column_type))),
    ) {
        let unwritable = match value {
            Value::Float64(number) => !number.is_finite(),
            Value::Float32(number) => !number.is_finite(),
            _ => false,
        };
        let expected = if unwritable { Value::Null } else { value.clone() };
        prop_assert_eq!(Value::from_json(&value.to_json(column_type), column_type), Ok(expected));
    }

    #[test]
    fn parsing_any_text_never_panics(text in ".{0,40}", column_type in any_column_type()) {
        let _ = Value::parse(&text, column_type);
    }

    #[test]
    fn parsing_almost_timestamps_never_panics(text in "[-+]?[0-9]{1,8}-[0-9]{1,2}-[0-9]{1,2}[T ]?[0-9:.]{0,16}[Z+]?[0-9:]{0,5}") {
        let _ = parse_timestamp(&text, true);
        let _ = parse_date(&text);
    }
}

#[test]
fn known_days_have_their_numbers() {
    let known = [
        ("1970-01-01", 0),
        ("1969-12-31", -1),
        ("2000-02-29", 11_016),
        ("2024-02-29", 19_782),
        ("0000-03-01", -719_468),
        ("9999-12-31", 2_932_896),
        ("+010000-01-01", 2_932_897),
        ("-000001-12-31", -719_529),
    ];
    for (text, days) in known {
        assert_eq!(parse_date(text), Ok(days), "{text}");
        assert_eq!(format_date(days), text);
    }
}

#[test]
fn days_that_do_not_exist_are_refused() {
    for text in [
        "2023-02-29",
        "1900-02-29",
        "2024-13-01",
        "2024-00-10",
        "2024-04-31",
        "2024-01-00",
        "24-01-01",
        "2024-1-1",
        "2024-01-01x",
        "",
        "+9999999-01-01",
    ] {
        assert!(parse_date(text).is_err(), "{text}");
    }
}

#[test]
fn timestamps_are_read_in_all_variants() {
    let noon = 19_782 * DAY + 12 * 3600 * SECOND;
    let same = [
        "2024-02-29T12:00:00Z",
        "2024-02-29t12:00z",
        "2024-02-29 12:00:00",
        "2024-02-29T12:00",
        "2024-02-29T14:00:00+02:00",
        "2024-02-29T14:00:00+02",
        "2024-02-29T06:30:00.000-0530",
        "2024-02-29T12:00:00.0000009Z",
    ];
    for text in same {
        assert_eq!(parse_timestamp(text, true), Ok(noon), "{text}");
    }
    assert_eq!(parse_timestamp("2024-02-29", false), Ok(19_782 * DAY));
    assert_eq!(parse_timestamp("2024-02-29T12:00:00.25", false), Ok(noon + 250_000));
    assert_eq!(parse_timestamp("1969-12-31T23:59:59.999999", false), Ok(-1));
}

#[test]
fn wrong_timestamps_are_refused() {
    let wrong = [
        "2024-02-29T24:00:00Z",
        "2024-02-29T12:60:00Z",
        "2024-02-29T12:00:61Z",
        "2024-02-29T12:00:00.Z",
        "2024-02-29T",
        "2024-02-29T12:00:00 Z",
        "2024-02-29T12:00:00+1",
        "2024-02-29T12:00:00+24:00",
        "+999999-01-01T00:00:00Z",
    ];
    for text in wrong {
        assert!(parse_timestamp(text, true).is_err(), "{text}");
    }
    let error = parse_timestamp("2024-02-29T12:00:00Z", false).expect_err("the column has no zone");
    assert!(error.reason.contains("zone"), "{error}");
}

#[test]
fn timestamps_are_written_with_the_digits_they_need() {
    assert_eq!(format_timestamp(0, true), "1970-01-01T00:00:00Z");
    assert_eq!(format_timestamp(1_000, false), "1970-01-01T00:00:00.001");
    assert_eq!(format_timestamp(-1, true), "1969-12-31T23:59:59.999999Z");
}

#[test]
fn values_print_like_their_json() {
    let utc = ColumnType::Timestamp { utc: true };
    assert_eq!(Value::Int(i64::MIN).to_json(ColumnType::Int64), json!(i64::MIN));
    assert_eq!(Value::Float64(f64::NAN).to_json(ColumnType::Float64), json!(null));
    assert_eq!(Value::Binary(vec![1, 2, 3]).to_json(ColumnType::Binary), json!("AQID"));
    assert_eq!(Value::Date(0).to_json(ColumnType::Date), json!("1970-01-01"));
    assert_eq!(Value::Timestamp(0).to_json(utc), json!("1970-01-01T00:00:00Z"));
    assert_eq!(Value::Binary(vec![1, 2, 3]).to_string(), "AQID");
}

#[test]
fn floats_are_compared_by_their_bits() {
    assert_eq!(Value::Float64(f64::NAN), Value::Float64(f64::NAN));
    assert_ne!(Value::Float64(0.0), Value::Float64(-0.0));
    assert_ne!(Value::Int(0), Value::Timestamp(0));
}

#[test]
fn numbers_beyond_a_type_are_refused() {
    assert!(Value::parse("9223372036854775808", ColumnType::Int64).is_err());
    assert!(Value::parse("1e999", ColumnType::Float64).is_err());
    assert!(Value::parse("yes", ColumnType::Bool).is_err());
    assert!(Value::from_json(&json!(1.5), ColumnType::Int64).is_err());
    assert!(Value::from_json(&json!("1"), ColumnType::Int64).is_err());
    assert_eq!(Value::from_json(&json!(3), ColumnType::Float64), Ok(Value::Float64(3.0)));
}
