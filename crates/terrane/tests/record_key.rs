//! Keys: their bytes have the same order, and decode to the same keys.

use crate::record_support::*;
use proptest::prelude::*;
use serde_json::json;
use terrane::key::{EncodedKey, KEY_BYTES_INLINE, KEY_BYTES_MAX, Key, KeyError, KeyType};

fn encoded(key: &Key) -> Vec<u8> {
    let mut out = Vec::new();
    key.encode(&mut out).expect("a short key");
    out
}

fn any_two_keys() -> impl Strategy<Value = (Key, Key)> {
    any_key_type().prop_flat_map(|key_type| (any_key(key_type), any_key(key_type)))
}

proptest! {
    #[test]
    fn keys_are_ordered_like_their_bytes((a, b) in any_two_keys()) {
        prop_assert_eq!(a.cmp(&b), encoded(&a).cmp(&encoded(&b)));
        let (short, long) = (a.to_encoded().expect("a short key"), b.to_encoded().expect("a short key"));
        prop_assert_eq!(a.cmp(&b), short.cmp(&long));
        prop_assert_eq!(a == b, short == long);
    }

    #[test]
    fn keys_survive_round_trips_through_bytes_json_and_text((key, _) in any_two_keys()) {
        let key_type = key.key_type();
        prop_assert_eq!(&Key::decode(key_type, &encoded(&key)), &Ok(key.clone()));
        prop_assert_eq!(&Key::from_json(key_type, &key.to_json()), &Ok(key.clone()));
        prop_assert_eq!(&key.to_string(), &key.to_json().to_string());
        let text = match key.to_json() {
            serde_json::Value::String(text) => text,
            number => number.to_string(),
        };
        prop_assert_eq!(Key::parse(key_type, &text), Ok(key));
    }

    #[test]
    fn decoding_any_bytes_never_panics(key_type in any_key_type(), bytes in proptest::collection::vec(any::<u8>(), 0..20)) {
        if let Ok(key) = Key::decode(key_type, &bytes) {
            prop_assert_eq!(encoded(&key), bytes);
        }
    }
}

#[test]
fn integers_around_zero_and_the_limits_are_in_order() {
    let signed = [i64::MIN, -1_000_000, -256, -1, 0, 1, 255, 256, i64::MAX].map(|key| encoded(&Key::Int(key)));
    assert!(signed.is_sorted_by(|a, b| a < b));
    let unsigned = [0, 1, 255, 256, u64::MAX - 1, u64::MAX].map(|key| encoded(&Key::UInt(key)));
    assert!(unsigned.is_sorted_by(|a, b| a < b));
}

#[test]
fn long_keys_are_refused_everywhere() {
    let longest = "k".repeat(KEY_BYTES_MAX);
    assert!(Key::parse(KeyType::Utf8, &longest).is_ok());
    let longer = "k".repeat(KEY_BYTES_MAX + 1);
    let too_long = KeyError::TooLong { bytes: KEY_BYTES_MAX + 1 };
    assert_eq!(Key::parse(KeyType::Utf8, &longer), Err(too_long.clone()));
    assert_eq!(Key::from_json(KeyType::Utf8, &json!(longer)), Err(too_long.clone()));
    assert_eq!(EncodedKey::new(longer.as_bytes()).err(), Some(too_long.clone()));
    assert_eq!(Key::decode(KeyType::Binary, longer.as_bytes()), Err(too_long.clone()));
    let mut out = vec![1];
    assert_eq!(Key::Utf8(longer).encode(&mut out), Err(too_long));
    assert_eq!(out, [1]);
}

#[test]
fn short_keys_are_stored_in_place() {
    for length in [0, 1, KEY_BYTES_INLINE, KEY_BYTES_INLINE + 1, KEY_BYTES_MAX] {
        let bytes = vec![7; length];
        let key = EncodedKey::new(&bytes).expect("not too long");
        assert_eq!(*key, *bytes);
        assert_eq!(key.heap_bytes(), if length <= KEY_BYTES_INLINE { 0 } else { length });
    }
}

#[test]
fn keys_of_another_type_are_refused() {
    assert!(Key::from_json(KeyType::Int64, &json!("1")).is_err());
    assert!(Key::from_json(KeyType::Int64, &json!(1.5)).is_err());
    assert!(Key::from_json(KeyType::UInt64, &json!(-1)).is_err());
    assert!(Key::from_json(KeyType::Utf8, &json!(1)).is_err());
    assert!(Key::from_json(KeyType::Utf8, &json!(null)).is_err());
    assert!(Key::parse(KeyType::Int64, "9223372036854775808").is_err());
    assert!(Key::parse(KeyType::Binary, "not base64!").is_err());
    assert!(Key::decode(KeyType::Int64, &[1, 2, 3]).is_err());
    assert!(Key::decode(KeyType::Utf8, &[0xFF]).is_err());
}

#[test]
fn keys_are_printed_as_json_scalars() {
    assert_eq!(Key::Int(-5).to_string(), "-5");
    assert_eq!(Key::UInt(u64::MAX).to_string(), "18446744073709551615");
    assert_eq!(Key::from("a \"b\"\n").to_string(), r#""a \"b\"\n""#);
    assert_eq!(Key::Binary(vec![0, 255]).to_string(), r#""AP8=""#);
}
