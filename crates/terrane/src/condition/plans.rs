//! A plain evaluation that judges conditions, and random conditions. The values come from two small
//! sets: common values, so that conditions often match, and difficult numbers.
#![allow(dead_code, reason = "each test uses a part")]

use std::cell::OnceCell;
use std::cmp::Ordering;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use terrane::condition::{Condition, Literal};
use terrane::schema::{Column, ColumnType, GeometryColumn, KeyColumn, KeyType, Schema};
use terrane::{CoordinateSystem, Key, Record, Value};

/// Attributes of every type. Some names need quotes.
pub const COLUMNS: [(&str, ColumnType); 11] = [
    ("flag", ColumnType::Bool),
    ("count", ColumnType::Int64),
    ("ratio", ColumnType::Float64),
    ("name", ColumnType::Utf8),
    ("Not \"e\"", ColumnType::Utf8),
    ("data", ColumnType::Binary),
    ("in", ColumnType::Date),
    ("time_1", ColumnType::Timestamp { utc: false }),
    ("größe", ColumnType::Timestamp { utc: true }),
    ("measure", ColumnType::Float32),
    ("owner", ColumnType::Uuid),
];

/// The name of the key.
pub const KEY: &str = "id";

/// A schema with these attributes, in the plane.
pub fn schema(key_type: KeyType, geometry: GeometryColumn) -> Schema {
    schema_in(CoordinateSystem::Planar, key_type, geometry)
}

pub fn schema_in(system: CoordinateSystem, key_type: KeyType, geometry: GeometryColumn) -> Schema {
    let columns = COLUMNS.map(|(name, column_type)| Column::new(name, column_type)).to_vec();
    let key = KeyColumn { name: KEY.into(), key_type, generated: false };
    Schema::new(key, geometry, system, columns).unwrap()
}

pub fn points() -> GeometryColumn {
    GeometryColumn::Point { x: "x".into(), y: "y".into() }
}

/// A column of a condition: the key, or an attribute by its ordinal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Place {
    Key(KeyType),
    Attribute(usize),
}

impl Place {
    pub fn name(self) -> &'static str {
        match self {
            Self::Key(_) => KEY,
            Self::Attribute(place) => COLUMNS[place].0,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Sign {
    Equal,
    Differs,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

const SIGNS: [Sign; 6] = [Sign::Equal, Sign::Differs, Sign::Less, Sign::AtMost, Sign::Greater, Sign::AtLeast];

/// A condition, in the form of the plain evaluation.
#[derive(Clone, Debug)]
pub enum Plan {
    And(Vec<Plan>),
    Or(Vec<Plan>),
    Not(Box<Plan>),
    Compare(Place, Sign, Literal),
    Between(Place, Literal, Literal),
    In(Place, Vec<Literal>),
    IsNull(Place),
    Flag(Place),
    /// In one column, or in any text column.
    Match(Option<Place>, Vec<&'static str>),
}

impl Plan {
    /// Builds the condition by its constructors.
    pub fn condition(&self) -> Condition {
        let joined = |parts: &[Plan], join: fn(Condition, Condition) -> Condition| {
            parts.iter().map(Plan::condition).reduce(join).unwrap()
        };
        match self {
            Self::And(parts) => joined(parts, Condition::and),
            Self::Or(parts) => joined(parts, Condition::or),
            Self::Not(inner) => !inner.condition(),
            Self::Compare(place, sign, literal) => {
                let (column, literal) = (Condition::on(place.name()), literal.clone());
                match sign {
                    Sign::Equal => column.equals(literal),
                    Sign::Differs => column.differs_from(literal),
                    Sign::Less => column.less_than(literal),
                    Sign::AtMost => column.at_most(literal),
                    Sign::Greater => column.greater_than(literal),
                    Sign::AtLeast => column.at_least(literal),
                }
            }
            Self::Between(place, low, high) => Condition::on(place.name()).between(low.clone(), high.clone()),
            Self::In(place, items) => Condition::on(place.name()).one_of(items.clone()),
            Self::IsNull(place) => Condition::on(place.name()).is_null(),
            Self::Flag(place) => Condition::on(place.name()).is_true(),
            Self::Match(Some(place), words) => Condition::on(place.name()).matches(words.join(", ")),
            Self::Match(None, words) => Condition::matches_anywhere(words.join(" ")),
        }
    }

    /// Whether a record meets it; `None` if that is unknown.
    pub fn truth(&self, record: &Record) -> Option<bool> {
        self.truths(&[Facts::of(record)])[0]
    }

    /// Whether each of the records meets it; `None` if that is unknown.
    pub fn truths(&self, records: &[Facts<'_>]) -> Vec<Option<bool>> {
        let compared = |place: Place, literal: &Literal, holds: &dyn Fn(Ordering) -> bool| {
            let literal = literal_datum(place, literal);
            let truth = |value: &Datum| holds(value.cmp(&literal));
            records.iter().map(|record| record.datum(place).map(truth)).collect::<Vec<_>>()
        };
        let joined = |parts: &[Vec<Option<bool>>], join: &dyn Fn(&mut dyn Iterator<Item = Option<bool>>) -> _| {
            (0..records.len()).map(|row| join(&mut parts.iter().map(|part| part[row]))).collect()
        };
        let of = |parts: &[Plan]| parts.iter().map(|part| part.truths(records)).collect::<Vec<_>>();
        match self {
            Self::And(parts) => joined(&of(parts), &|truths| both(truths)),
            Self::Or(parts) => joined(&of(parts), &|truths| either(truths)),
            Self::Not(inner) => inner.truths(records).into_iter().map(|truth| truth.map(|truth| !truth)).collect(),
            Self::Compare(place, sign, literal) => compared(*place, literal, &|order| match sign {
                Sign::Equal => order.is_eq(),
                Sign::Differs => order.is_ne(),
                Sign::Less => order.is_lt(),
                Sign::AtMost => order.is_le(),
                Sign::Greater => order.is_gt(),
                Sign::AtLeast => order.is_ge(),
            }),
            Self::Between(place, low, high) => {
                let above = compared(*place, low, &|order| order.is_ge());
                let below = compared(*place, high, &|order| order.is_le());
                joined(&[above, below], &|truths| both(truths))
            }
            Self::In(place, items) => {
                let equals = |item: &Literal| compared(*place, item, &|order| order.is_eq());
                let equal: Vec<_> = items.iter().map(equals).collect();
                let found: Vec<Option<bool>> = joined(&equal, &|truths| either(truths));
                // For an empty list too, null is unknown.
                records.iter().zip(found).map(|(record, found)| record.datum(*place).and(found)).collect()
            }
            Self::IsNull(place) => records.iter().map(|record| Some(record.datum(*place).is_none())).collect(),
            Self::Flag(place) => compared(*place, &Literal::Bool(true), &|order| order.is_eq()),
            Self::Match(place, words) => {
                let occur = |record: &Facts<'_>| {
                    let places = place.map_or_else(|| text_places(record.record), |place| vec![place]);
                    both(words.iter().map(|word| either(places.iter().map(|place| occurs(word, *place, record)))))
                };
                records.iter().map(occur).collect()
            }
        }
    }

    /// Whether the condition restricts a column such that an index on it can find the matches: by a
    /// comparison that `and` joins to the rest.
    pub fn demands_of(&self, column: Place) -> bool {
        match self {
            Self::And(parts) => parts.iter().any(|part| part.demands_of(column)),
            Self::Compare(_, Sign::Differs, _) => false,
            Self::Compare(place, ..) | Self::Between(place, ..) | Self::In(place, _) | Self::Flag(place) => {
                *place == column
            }
            Self::Or(_) | Self::Not(_) | Self::IsNull(_) | Self::Match(..) => false,
        }
    }

    /// Words that the condition demands of a text column, as an index on them could find.
    pub fn words_of(&self, column: Place) -> Vec<&'static str> {
        match self {
            Self::And(parts) => parts.iter().flat_map(|part| part.words_of(column)).collect(),
            Self::Match(Some(place), words) if *place == column => words.clone(),
            _ => Vec::new(),
        }
    }
}

/// A record with its values in comparable form. Each is made when it is first needed.
pub struct Facts<'r> {
    record: &'r Record,
    key: OnceCell<Option<Datum>>,
    values: Vec<OnceCell<Option<Datum>>>,
}

impl<'r> Facts<'r> {
    pub fn of(record: &'r Record) -> Self {
        Self { record, key: OnceCell::new(), values: vec![OnceCell::new(); record.values.len()] }
    }

    /// The value in a column: `None` if it is null.
    fn datum(&self, place: Place) -> Option<&Datum> {
        let cell = match place {
            Place::Attribute(place) => &self.values[place],
            Place::Key(_) => &self.key,
        };
        cell.get_or_init(|| datum(place, self.record)).as_ref()
    }
}

/// True if all are true, else false if one is false.
fn both(truths: impl IntoIterator<Item = Option<bool>>) -> Option<bool> {
    let mut all = Some(true);
    for truth in truths {
        match truth {
            Some(false) => return Some(false),
            Some(true) => {}
            None => all = None,
        }
    }
    all
}

fn either(truths: impl IntoIterator<Item = Option<bool>>) -> Option<bool> {
    both(truths.into_iter().map(|truth| truth.map(|truth| !truth))).map(|truth| !truth)
}

fn text_places(record: &Record) -> Vec<Place> {
    let key = matches!(record.key, Key::Utf8(_)).then_some(Place::Key(KeyType::Utf8));
    let attributes = (0..COLUMNS.len()).filter(|place| COLUMNS[*place].1 == ColumnType::Utf8).map(Place::Attribute);
    key.into_iter().chain(attributes).collect()
}

fn occurs(word: &str, place: Place, record: &Facts<'_>) -> Option<bool> {
    match record.datum(place)? {
        Datum::Text(text) => {
            let word = word.to_lowercase();
            Some(text.split(|c: char| !c.is_alphanumeric()).any(|found| found.to_lowercase() == word))
        }
        other => panic!("{other:?}"),
    }
}

/// A value with an order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Datum {
    Bool(bool),
    Number(Decimal),
    /// Greater than all numbers.
    NaN,
    Text(String),
    Bytes(Vec<u8>),
    Time(i64),
}

/// All digits of a number.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Decimal {
    is_negative: bool,
    digits: String,
}

/// Digits of the largest float before the point, and one more.
const WHOLE: usize = 310;
/// Digits of the least float behind the point.
const FRACTION: usize = 1074;

impl Decimal {
    fn new(is_negative: bool, whole: &str, fraction: &str) -> Self {
        let digits = format!("{whole:0>WHOLE$}{fraction:0<FRACTION$}");
        Self { is_negative: is_negative && digits.bytes().any(|digit| digit != b'0'), digits }
    }

    fn integer(integer: i128) -> Self {
        Self::new(integer < 0, &integer.unsigned_abs().to_string(), "")
    }
}

fn float_datum(float: f64) -> Datum {
    if float.is_nan() {
        return Datum::NaN;
    }
    if float.is_infinite() {
        return Datum::Number(Decimal::new(float < 0.0, &"9".repeat(WHOLE), ""));
    }
    let text = format!("{:.FRACTION$}", float.abs());
    let (whole, fraction) = text.split_once('.').unwrap();
    Datum::Number(Decimal::new(float < 0.0, whole, fraction))
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.is_negative, other.is_negative) {
            (false, false) => self.digits.cmp(&other.digits),
            (true, true) => other.digits.cmp(&self.digits),
            (first, _) => {
                if first {
                    Ordering::Less
                } else {
                    Ordering::Greater
                }
            }
        }
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A value of a record: `None` if it is null.
fn datum(place: Place, record: &Record) -> Option<Datum> {
    let value = match place {
        Place::Attribute(place) => record.values[place].clone(),
        Place::Key(_) => {
            return Some(match &record.key {
                Key::Int(key) => Datum::Number(Decimal::integer((*key).into())),
                Key::UInt(key) => Datum::Number(Decimal::integer((*key).into())),
                Key::Utf8(key) => Datum::Text(key.clone()),
                Key::Binary(key) => Datum::Bytes(key.clone()),
                Key::Uuid(key) => Datum::Bytes(key.to_vec()),
            });
        }
    };
    value_datum(value)
}

fn value_datum(value: Value) -> Option<Datum> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(value) => Datum::Bool(value),
        Value::Int(value) => Datum::Number(Decimal::integer(value.into())),
        Value::Float32(value) => float_datum(value.into()),
        Value::Float64(value) => float_datum(value),
        Value::Utf8(value) => Datum::Text(value),
        Value::Binary(value) => Datum::Bytes(value),
        Value::Uuid(value) => Datum::Bytes(value.to_vec()),
        Value::Date(value) => Datum::Time(value.into()),
        Value::Timestamp(value) => Datum::Time(value),
    })
}

/// A literal as a value of the column.
fn literal_datum(place: Place, literal: &Literal) -> Datum {
    let column_type = match place {
        Place::Attribute(place) => COLUMNS[place].1,
        Place::Key(KeyType::Binary) => ColumnType::Binary,
        Place::Key(KeyType::Uuid) => ColumnType::Uuid,
        Place::Key(_) => ColumnType::Utf8,
    };
    match literal {
        Literal::Bool(value) => Datum::Bool(*value),
        // Rounded, if it is within range.
        Literal::Int(value) if column_type == ColumnType::Float32 && (*value as f32).is_finite() => {
            float_datum((*value as f32).into())
        }
        Literal::Float(value) if column_type == ColumnType::Float32 && (*value as f32).is_finite() => {
            float_datum((*value as f32).into())
        }
        Literal::Int(value) => Datum::Number(Decimal::integer(*value)),
        Literal::Float(value) => float_datum(*value),
        Literal::Text(text) => value_datum(Value::parse(text, column_type).unwrap()).unwrap(),
    }
}

const INTEGERS: [i64; 10] = [-2, -1, 0, 1, 2, (1 << 53) - 1, 1 << 53, (1 << 53) + 1, i64::MIN, i64::MAX];
const FLOATS: [f64; 18] = [
    -2.0,
    -0.5,
    -0.0,
    0.0,
    f64::MIN_POSITIVE,
    0.5,
    1.0,
    2.0,
    9_007_199_254_740_992.0,
    9_007_199_254_740_994.0,
    9_223_372_036_854_775_808.0,
    -9_223_372_036_854_775_808.0,
    18_446_744_073_709_551_616.0,
    (1_u128 << 127) as f64,
    1e300,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
];
/// The words that texts consist of, apart from a rare one.
const WORDS: [&str; 6] = ["north", "Süd", "STATION", "7", "straße", "Ночь"];
const RARE_WORD: &str = "Zaunkönig";
const TIMES: [i64; 7] = [i64::MIN, -1, 0, 1, 86_400_000_000, 1_700_000_000_123_456, i64::MAX];
const DAYS: [i32; 6] = [i32::MIN, -1, 0, 1, 20_000, i32::MAX];

fn text() -> impl Strategy<Value = String> {
    let word = prop_oneof![60 => select(WORDS.to_vec()), 1 => Just(RARE_WORD)];
    vec(word, 0..4).prop_map(|words| words.join(" - "))
}

/// Words to search for.
pub fn any_words() -> impl Strategy<Value = Vec<&'static str>> + Clone {
    vec(prop_oneof![6 => select(WORDS.to_vec()), 1 => Just(RARE_WORD)], 1..3)
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(select(vec![0_u8, 1, 255]), 0..3)
}

fn uuid() -> impl Strategy<Value = [u8; 16]> {
    select(vec![[0; 16], [0xAB; 16], [255; 16], *b"\x55\x0e\x84\x00\xe2\x9b\x41\xd4\xa7\x16\x44\x66\x55\x44\x00\x00"])
}

fn any_value(column_type: ColumnType) -> BoxedStrategy<Value> {
    let value = match column_type {
        ColumnType::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        ColumnType::Int64 => select(INTEGERS.to_vec()).prop_map(Value::Int).boxed(),
        ColumnType::Float32 => {
            let bits = any::<u32>().prop_map(f32::from_bits);
            let known = select(FLOATS.to_vec()).prop_map(|float| float as f32);
            prop_oneof![5 => known, 1 => bits].prop_map(Value::Float32).boxed()
        }
        ColumnType::Float64 => {
            let bits = any::<u64>().prop_map(f64::from_bits);
            prop_oneof![5 => select(FLOATS.to_vec()), 1 => bits].prop_map(Value::Float64).boxed()
        }
        ColumnType::Utf8 => text().prop_map(Value::Utf8).boxed(),
        ColumnType::Binary => bytes().prop_map(Value::Binary).boxed(),
        ColumnType::Uuid => uuid().prop_map(Value::Uuid).boxed(),
        ColumnType::Date => select(DAYS.to_vec()).prop_map(Value::Date).boxed(),
        ColumnType::Timestamp { .. } => select(TIMES.to_vec()).prop_map(Value::Timestamp).boxed(),
    };
    prop_oneof![1 => Just(Value::Null), 3 => value].boxed()
}

pub fn any_key(key_type: KeyType) -> BoxedStrategy<Key> {
    match key_type {
        KeyType::Int64 => prop_oneof![select(INTEGERS.to_vec()), -99..99_i64].prop_map(Key::Int).boxed(),
        KeyType::UInt64 => {
            let large = select(vec![(1 << 53) + 1, (1 << 63) - 1, 1 << 63, u64::MAX]);
            prop_oneof![1 => large, 2 => 0..99_u64].prop_map(Key::UInt).boxed()
        }
        KeyType::Utf8 => text().prop_map(Key::Utf8).boxed(),
        KeyType::Binary => bytes().prop_map(Key::Binary).boxed(),
        KeyType::Uuid => prop_oneof![1 => uuid(), 2 => any::<[u8; 16]>()].prop_map(Key::Uuid).boxed(),
    }
}

pub fn any_key_type() -> impl Strategy<Value = KeyType> {
    select(vec![KeyType::Int64, KeyType::UInt64, KeyType::Utf8, KeyType::Binary, KeyType::Uuid])
}

/// Values of all attributes.
pub fn any_values() -> impl Strategy<Value = Vec<Value>> {
    COLUMNS.map(|(_, column_type)| any_value(column_type)).to_vec()
}

/// A record on a coarse grid.
pub fn any_record(key_type: KeyType) -> impl Strategy<Value = Record> {
    (any_key(key_type), 0..8_i32, 0..8_i32, any_values())
        .prop_map(|(key, x, y, values)| Record::at(key, x.into(), y.into(), values))
}

fn any_number() -> BoxedStrategy<Literal> {
    let large = [1_i128 << 63, (1 << 64) - 1, 1 << 64, -(1 << 63) - 1, i128::MAX, i128::MIN];
    prop_oneof![
        4 => select(INTEGERS.to_vec()).prop_map(Literal::from),
        4 => select(FLOATS.to_vec()).prop_map(Literal::from),
        1 => select(large.to_vec()).prop_map(Literal::Int),
        1 => any::<i64>().prop_map(Literal::from),
        1 => any::<u64>().prop_map(|bits| Literal::Float(f64::from_bits(bits))),
    ]
    .boxed()
}

/// A literal with which a column is compared.
pub fn any_literal(place: Place) -> BoxedStrategy<Literal> {
    let column_type = match place {
        Place::Key(KeyType::Int64 | KeyType::UInt64) => ColumnType::Int64,
        Place::Key(KeyType::Utf8) => ColumnType::Utf8,
        Place::Key(KeyType::Binary) => ColumnType::Binary,
        Place::Key(KeyType::Uuid) => ColumnType::Uuid,
        Place::Attribute(place) => COLUMNS[place].1,
    };
    let written = move |value: Value| match value.to_json(column_type) {
        serde_json::Value::String(text) => Literal::Text(text),
        other => panic!("{other}"),
    };
    match column_type {
        ColumnType::Bool => any::<bool>().prop_map(Literal::Bool).boxed(),
        ColumnType::Int64 | ColumnType::Float32 | ColumnType::Float64 => any_number(),
        ColumnType::Utf8 => {
            prop_oneof![3 => text(), 1 => ".{0,3}", 1 => Just("it's".to_owned())].prop_map(Literal::Text).boxed()
        }
        ColumnType::Binary => bytes().prop_map(|bytes| Literal::from(&bytes[..])).boxed(),
        ColumnType::Uuid => {
            let text = uuid().prop_map(Value::Uuid).prop_map(|uuid| uuid.to_string());
            let spelled = (text, any::<bool>()).prop_map(|(text, otherwise)| match otherwise {
                true => text.replace('-', "").to_uppercase(),
                false => text,
            });
            spelled.prop_map(Literal::Text).boxed()
        }
        ColumnType::Date => select(DAYS.to_vec()).prop_map(Value::Date).prop_map(written).boxed(),
        ColumnType::Timestamp { .. } => select(TIMES.to_vec()).prop_map(Value::Timestamp).prop_map(written).boxed(),
    }
}

/// The key or an attribute.
pub fn any_place(key_type: KeyType) -> impl Strategy<Value = Place> {
    prop_oneof![1 => Just(Place::Key(key_type)), 5 => (0..COLUMNS.len()).prop_map(Place::Attribute)]
}

fn is_of_texts(place: Place) -> bool {
    match place {
        Place::Key(key_type) => key_type == KeyType::Utf8,
        Place::Attribute(place) => COLUMNS[place].1 == ColumnType::Utf8,
    }
}

fn any_leaf(key_type: KeyType) -> impl Strategy<Value = Plan> {
    any_place(key_type).prop_flat_map(|place| {
        let words = any_words();
        let anywhere = words.clone().prop_map(|words| Plan::Match(None, words)).boxed();
        let special = match place {
            _ if is_of_texts(place) => words.prop_map(move |words| Plan::Match(Some(place), words)).boxed(),
            Place::Attribute(0) => Just(Plan::Flag(place)).boxed(),
            _ => anywhere.clone(),
        };
        let literal = || any_literal(place);
        prop_oneof![
            8 => (select(SIGNS.to_vec()), literal()).prop_map(move |(sign, literal)| Plan::Compare(place, sign, literal)),
            3 => (literal(), literal()).prop_map(move |(low, high)| Plan::Between(place, low, high)),
            3 => vec(literal(), 0..5).prop_map(move |items| Plan::In(place, items)),
            2 => Just(Plan::IsNull(place)),
            3 => special,
            1 => anywhere,
        ]
    })
}

/// A random comparison of one column, without its negation.
pub fn any_comparison(place: impl Strategy<Value = Place>) -> impl Strategy<Value = Plan> {
    place.prop_flat_map(|place| {
        let literal = || any_literal(place);
        let signs = vec![Sign::Equal, Sign::Less, Sign::AtMost, Sign::Greater, Sign::AtLeast];
        prop_oneof![
            5 => (select(signs), literal()).prop_map(move |(sign, literal)| Plan::Compare(place, sign, literal)),
            2 => (literal(), literal()).prop_map(move |(low, high)| Plan::Between(place, low, high)),
            1 => vec(literal(), 0..9).prop_map(move |items| Plan::In(place, items)),
        ]
    })
}

/// A random condition for a schema with keys of a type.
pub fn any_plan(key_type: KeyType) -> impl Strategy<Value = Plan> {
    any_leaf(key_type).prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            3 => vec(inner.clone(), 2..4).prop_map(Plan::And),
            3 => vec(inner.clone(), 2..4).prop_map(Plan::Or),
            2 => inner.prop_map(|inner| Plan::Not(Box::new(inner))),
        ]
    })
}
