//! Entries are ordered as their values are, and can be taken apart again.

use std::cmp::Ordering;

use proptest::prelude::*;

use super::{BYTES_MAX, WORD_BYTES_MAX, decode, describe, encode, is_told_apart, shortened, split};
use crate::Value;
use crate::schema::ColumnType;
use crate::value::ValueRef;

fn encoded(values: &[Value], key: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    values.iter().for_each(|value| encode(value.as_ref(), values.len(), &mut out));
    out.extend_from_slice(key);
    out
}

/// Compares two numbers without rounding.
fn compare_numbers(one: &Value, other: &Value) -> Ordering {
    match (one, other) {
        (Value::Int(one), Value::Int(other)) => one.cmp(other),
        (Value::Float64(one), Value::Float64(other)) => match (one.is_nan(), other.is_nan()) {
            (false, false) => one.partial_cmp(other).unwrap(),
            (one, other) => one.cmp(&other),
        },
        (Value::Int(one), Value::Float64(other)) => {
            if other.is_nan() || *other >= 9_223_372_036_854_775_808.0 {
                Ordering::Less
            } else if *other < -9_223_372_036_854_775_808.0 {
                Ordering::Greater
            } else {
                // What is behind the point decides only between equal integers.
                let whole = other.trunc() as i64;
                one.cmp(&whole).then_with(|| 0.0.partial_cmp(&other.fract()).unwrap())
            }
        }
        _ => compare_numbers(other, one).reverse(),
    }
}

fn compare(one: &Value, other: &Value) -> Ordering {
    match (one, other) {
        (Value::Null, Value::Null) => Ordering::Equal,
        (Value::Null, _) => Ordering::Less,
        (_, Value::Null) => Ordering::Greater,
        (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
        (Value::Utf8(one), Value::Utf8(other)) => one.as_bytes().cmp(other.as_bytes()),
        (Value::Binary(one), Value::Binary(other)) => one.cmp(other),
        (Value::Uuid(one), Value::Uuid(other)) => one.cmp(other),
        (Value::Date(one), Value::Date(other)) => one.cmp(other),
        (Value::Timestamp(one), Value::Timestamp(other)) => one.cmp(other),
        _ => compare_numbers(one, other),
    }
}

fn any_number() -> impl Strategy<Value = Value> {
    let near = prop::sample::select(vec![0.0, -0.0, 1.0, 9_007_199_254_740_992.0, 9_223_372_036_854_775_808.0, -1e300]);
    prop_oneof![
        any::<i64>().prop_map(Value::Int),
        (-3_i64..4).prop_map(Value::Int),
        (-3_i64..4).prop_map(|near| Value::Int(i64::MAX - 3 - near)),
        (-3_i64..4).prop_map(|near| Value::Int(9_007_199_254_740_992 + near)),
        any::<f64>().prop_map(Value::Float64),
        near.prop_map(Value::Float64),
        prop::sample::select(vec![f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY]).prop_map(Value::Float64),
    ]
}

/// Two values of one column.
fn any_two() -> impl Strategy<Value = (Value, Value)> {
    fn two(values: impl Strategy<Value = Value> + Clone + 'static) -> BoxedStrategy<(Value, Value)> {
        let values = prop_oneof![1 => Just(Value::Null), 9 => values].boxed();
        (values.clone(), values).boxed()
    }
    let bytes = || prop::collection::vec(prop_oneof![Just(0_u8), Just(1), Just(255), any::<u8>()], 0..6);
    prop_oneof![
        two(any::<bool>().prop_map(Value::Bool).boxed()),
        two(any_number().boxed()),
        two(any::<i32>().prop_map(Value::Date).boxed()),
        two(any::<i64>().prop_map(Value::Timestamp).boxed()),
        two(bytes().prop_map(Value::Binary).boxed()),
        two(any::<[u8; 16]>().prop_map(Value::Uuid).boxed()),
        two("[a\u{0}\u{1}é]{0,5}".prop_map(Value::Utf8).boxed()),
    ]
}

proptest! {
    #[test]
    fn entries_are_ordered_as_their_values(pairs in prop::collection::vec(any_two(), 1..4), keys in any::<[[u8; 2]; 2]>()) {
        let (ones, others): (Vec<Value>, Vec<Value>) = pairs.iter().cloned().unzip();
        let by_values = ones.iter().zip(&others).map(|(one, other)| compare(one, other));
        let wanted = by_values.fold(Ordering::Equal, Ordering::then).then(keys[0].cmp(&keys[1]));
        let (one, other) = (encoded(&ones, &keys[0]), encoded(&others, &keys[1]));
        prop_assert_eq!(one.cmp(&other), wanted);
        for (entry, key) in [(&one, &keys[0]), (&other, &keys[1])] {
            prop_assert_eq!(split(entry, ones.len()).unwrap().1, key);
            // Of values alone, the key is what is left: nothing.
            let values = &entry[..entry.len() - 2];
            prop_assert!(split(values, ones.len()).unwrap().1.is_empty());
        }
    }

    #[test]
    fn any_bytes_are_taken_apart_or_refused(entry in prop::collection::vec(0_u8..8, 0..40), columns in 1_usize..5) {
        if let Ok((values, key)) = split(&entry, columns) {
            prop_assert_eq!(values.len() + key.len(), entry.len());
        }
        describe(&entry, columns);
        for column_type in TYPES {
            // Nothing is made of bytes that no value has; what follows is found all the same.
            if let Ok((_, behind)) = decode(&entry, column_type) {
                prop_assert_eq!(behind, split(&entry, 1).unwrap().1);
            }
        }
    }
}

const TYPES: [ColumnType; 8] = [
    ColumnType::Bool,
    ColumnType::Int64,
    ColumnType::Float64,
    ColumnType::Utf8,
    ColumnType::Binary,
    ColumnType::Uuid,
    ColumnType::Date,
    ColumnType::Timestamp { utc: true },
];

#[test]
fn values_are_read_from_entries_as_records_have_them() {
    let text = |text: &str| Value::Utf8(text.into());
    let bytes = |bytes: &[u8]| Value::Binary(bytes.into());
    let far = 1_i64 << 53;
    let integers = [i64::MIN, i64::MIN + 1, -far - 1, -1, 0, 7, far + 1, i64::MAX - 511, i64::MAX - 1, i64::MAX];
    let floats = [f64::NEG_INFINITY, f64::MIN, -1.5, 0.0, f64::MIN_POSITIVE, 1e300, f64::INFINITY];
    let values: [Vec<Value>; 8] = [
        [false, true].map(Value::Bool).into(),
        integers.map(Value::Int).into(),
        floats.map(Value::Float64).into(),
        ["", "a", "Ü b", "x\u{1}", "\u{ff}\u{100}"].map(text).into(),
        [&[][..], &[1, 255, 2], &[200; 30]].map(bytes).into(),
        [[0; 16], [255; 16], [7; 16]].map(Value::Uuid).into(),
        [i32::MIN, -1, 0, i32::MAX].map(Value::Date).into(),
        [i64::MIN, -1, 0, i64::MAX].map(Value::Timestamp).into(),
    ];
    for (of_type, values) in TYPES.into_iter().zip(values) {
        for value in values.into_iter().chain([Value::Null]) {
            let entry = encoded(std::slice::from_ref(&value), b"key");
            for column_type in TYPES {
                let Ok((read, key)) = decode(&entry, column_type) else { continue };
                assert_eq!(key, b"key");
                assert!(column_type != of_type || read == Some(value.as_ref()), "{value:?} is read as {read:?}");
            }
            assert!(decode(&entry, of_type).is_ok());
        }
    }
    // The zeros and all NaNs have one form each; to conditions they are one too.
    let read =
        |value| decode(&encoded(&[Value::Float64(value)], b""), ColumnType::Float64).unwrap().0.map(ValueRef::to_owned);
    assert_eq!(read(-0.0), Some(Value::Float64(0.0)));
    assert!(matches!(read(-f64::NAN), Some(Value::Float64(nan)) if nan.is_nan()));
    // An integer of a column that was widened.
    let integer =
        |value| decode(&encoded(&[Value::Int(value)], b""), ColumnType::Float64).unwrap().0.map(ValueRef::to_owned);
    assert_eq!((integer(far), integer(far + 1)), (Some(Value::Float64(far as f64)), None));
    // What is cut off, or has bytes that are written as others, is left to the record.
    for text in ["x".repeat(2000), "a\0b".into()] {
        assert_eq!(decode(&encoded(&[Value::Utf8(text)], b""), ColumnType::Utf8).unwrap().0, None);
    }
    let no_text = encoded(&[Value::Binary(vec![200])], b"");
    assert!(decode(&no_text, ColumnType::Utf8).is_err());
}

#[test]
fn words_are_told_apart_that_no_longer_one_is_shortened_to() {
    for letter in ["a", "é", "ж", "語", "😀"] {
        for length in WORD_BYTES_MAX - 12..WORD_BYTES_MAX + 12 {
            let word = format!("{}{}", "x".repeat(length % 5), letter.repeat((length - length % 5) / letter.len()));
            let shortens_to_itself = ["a", "é", "語", "😀"].iter().any(|more| {
                let longer = format!("{word}{}", more.repeat(20));
                shortened(&longer) == word
            });
            assert!(!shortens_to_itself || !is_told_apart(&word), "{} bytes of {letter}", word.len());
        }
        assert!(is_told_apart(&letter.repeat(100)));
    }
}

#[test]
fn long_values_are_cut_and_stay_in_order() {
    let text = |length: usize, last: &str| Value::Utf8(format!("{}{last}", "x".repeat(length)));
    for columns in [1, 2, 8] {
        let values = |value: Value| std::iter::repeat_n(value, columns).collect::<Vec<_>>();
        let room = BYTES_MAX / columns - 3;
        let complete = encoded(&values(text(room, "")), b"k");
        let cut = encoded(&values(text(room, "a")), b"k");
        let cut_too = encoded(&values(text(room, "b")), b"k");
        assert_eq!(cut, cut_too, "{columns} columns");
        assert!(complete < cut && cut < encoded(&values(text(room - 1, "y")), b"k"), "{columns} columns");
        assert!(cut.len() <= BYTES_MAX + 1, "{} bytes of {columns} columns", cut.len());
        assert_eq!(split(&cut, columns).unwrap().1, b"k");
        let zeros = encoded(&values(Value::Binary(vec![0; BYTES_MAX])), b"k");
        assert!(zeros.len() <= BYTES_MAX + 1 && split(&zeros, columns).unwrap().1 == b"k");
    }
}

#[test]
fn entries_are_described_by_their_values() {
    let values = [
        Value::Null,
        Value::Bool(true),
        Value::Int(i64::MAX),
        Value::Float64(-1.5),
        Value::Date(1),
        Value::Timestamp(0),
        Value::Utf8("a\"b".into()),
        Value::Utf8("x".repeat(2000)),
    ];
    let text = describe(&encoded(&values, b"key"), values.len());
    let start = "(null, true, 9223372036854775807, -1.5, 1970-01-02, 1970-01-01T00:00:00, \"a\\\"b\", \"xxx";
    assert!(text.starts_with(start) && text.ends_with("x\"…)"), "{text}");
}
