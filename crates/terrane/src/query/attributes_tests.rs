//! The spans of an index have the entries of every matching record, and are ascending and disjoint.

use std::collections::BTreeMap;
use std::ops::Bound;

use proptest::prelude::*;

use super::{KeySpan, RANGES_MAX, behind_prefix, spans};
use crate::Value;
use crate::condition::{Domain, Implied};
use crate::secondary::encode_attribute;

fn entry(values: &[Option<i64>], key: &[u8]) -> Vec<u8> {
    let mut entry = Vec::new();
    for value in values {
        let value = value.map_or(Value::Null, Value::Int);
        encode_attribute(value.as_ref(), values.len(), &mut entry);
    }
    entry.extend_from_slice(key);
    entry
}

fn any_domain() -> impl Strategy<Value = Option<Domain<Value>>> {
    let bound = || {
        prop_oneof![
            Just(Bound::Unbounded),
            (-6_i64..6).prop_map(|value| Bound::Included(Value::Int(value))),
            (-6_i64..6).prop_map(|value| Bound::Excluded(Value::Int(value))),
        ]
    };
    prop_oneof![
        Just(None),
        prop::collection::vec((-6_i64..6).prop_map(Value::Int), 0..4).prop_map(|values| Some(Domain::one_of(values))),
        (bound(), bound()).prop_map(|(low, high)| Some(Domain::between(low, high))),
    ]
}

fn allows(domain: Option<&Domain<Value>>, value: Option<i64>) -> bool {
    let number = |bound: &Value| match bound {
        Value::Int(bound) => *bound,
        other => panic!("not an integer: {other:?}"),
    };
    domain.is_none_or(|domain| value.is_some_and(|value| domain.contains(|bound| Some(value.cmp(&number(bound))))))
}

fn is_in(spans: &[KeySpan], entry: &[u8]) -> bool {
    spans.iter().any(|span| entry >= span.from.as_slice() && span.to.as_deref().is_none_or(|to| entry < to))
}

proptest! {
    #[test]
    fn spans_have_every_value_that_can_match(
        domains in prop::collection::vec(any_domain(), 1..4),
        records in prop::collection::vec(prop::collection::vec(prop::option::of(-7_i64..7), 3), 1..40),
    ) {
        let columns: Vec<usize> = (0..domains.len()).collect();
        let attributes: BTreeMap<usize, Domain<Value>> = domains.iter().cloned().enumerate()
            .filter_map(|(column, domain)| Some((column, domain?))).collect();
        let implied = Implied { attributes, ..Implied::default() };
        let Some(spans) = spans(&columns, &implied) else {
            prop_assert!(domains[0].is_none());
            return Ok(());
        };
        // They are ascending and disjoint.
        for pair in spans.windows(2) {
            let to = pair[0].to.as_deref();
            prop_assert!(to.is_some_and(|to| to <= pair[1].from.as_slice()), "{:?}", spans);
        }
        for record in &records {
            let values = &record[..domains.len()];
            let can_match = values.iter().zip(&domains).all(|(value, domain)| allows(domain.as_ref(), *value));
            for key in [&b""[..], b"\xff\xff", b"k"] {
                let found = is_in(&spans, &entry(values, key));
                prop_assert!(found || !can_match, "{:?} is not in {:?}", values, spans);
                // With one attribute, spans have no other values except excluded ends.
                if domains.len() == 1 && found && !can_match {
                    let at_an_end = matches!(&domains[0], Some(Domain::Interval { low, high })
                        if [low, high].into_iter().any(|end| matches!(end, Bound::Excluded(Value::Int(end)) if Some(*end) == values[0])));
                    prop_assert!(at_an_end, "{:?} is in {:?}", values, spans);
                }
            }
        }
    }
}

#[test]
fn many_values_become_one_range() {
    let values = |count: i64| Domain::one_of((0..count).map(Value::Int).collect());
    let implied = |second: i64| Implied {
        attributes: BTreeMap::from([(0, values(40)), (1, values(second))]),
        ..Implied::default()
    };
    assert_eq!(spans(&[0, 1], &implied(20)).unwrap().len(), 800);
    assert_eq!(spans(&[0, 1], &implied(RANGES_MAX as i64)).unwrap().len(), 40);
    assert_eq!(spans(&[1], &implied(5000)).unwrap().len(), 5000, "those of the first are kept apart");
    assert_eq!(spans(&[2, 0], &implied(1)), None);
}

#[test]
fn the_key_behind_a_prefix_is_the_next() {
    assert_eq!(behind_prefix(b"ab"), Some(b"ac".to_vec()));
    assert_eq!(behind_prefix(b"a\xff\xff"), Some(b"b".to_vec()));
    assert_eq!(behind_prefix(b"\xff"), None);
    assert_eq!(behind_prefix(b""), None);
}
