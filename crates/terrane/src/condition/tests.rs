//! Evaluation, parsing and printing of conditions, and the facts that they imply.

use proptest::collection::vec;
use proptest::prelude::*;

use super::bound::BoundNode;
use super::domain::Domain;
use super::plans::{
    COLUMNS, Place, Plan, any_comparison, any_key_type, any_literal, any_place, any_plan, any_record, points, schema,
};
use super::*;
use crate::key::KeyType;
use crate::record::{Record, RecordView};
use crate::schema::{GeometryColumn, SchemaHistory};
use crate::value::Value;

fn history(key_type: KeyType) -> SchemaHistory {
    SchemaHistory::new(schema(key_type, points())).unwrap()
}

/// A record in stored form, with its encoded key.
fn stored(record: &Record, history: &SchemaHistory) -> (Vec<u8>, Vec<u8>) {
    let mut bytes = Vec::new();
    record.encode(history, &mut bytes).unwrap();
    (record.key.to_encoded().unwrap().to_vec(), bytes)
}

fn truth(condition: &Condition, record: &Record, history: &SchemaHistory) -> Option<bool> {
    let bound = condition.bind(history.newest()).unwrap();
    let (key, bytes) = stored(record, history);
    bound.truth(&key, &RecordView::parse(&bytes, history).unwrap()).unwrap()
}

/// A condition and records of one schema.
fn cases() -> impl Strategy<Value = (KeyType, Plan, Vec<Record>)> {
    any_key_type().prop_flat_map(|key_type| (Just(key_type), any_plan(key_type), vec(any_record(key_type), 1..20)))
}

/// Comparisons of one column, mostly numeric, and records.
fn comparisons() -> impl Strategy<Value = (KeyType, Place, Vec<Plan>, Vec<Record>)> {
    let place = |key_type| prop_oneof![3 => any_place(key_type), 2 => Just(Place::Key(key_type)), 4 => (COUNT..=RATIO).prop_map(Place::Attribute)];
    any_key_type().prop_flat_map(move |key_type| (Just(key_type), place(key_type))).prop_flat_map(
        |(key_type, place)| {
            (Just(key_type), Just(place), vec(any_comparison(Just(place)), 1..4), vec(any_record(key_type), 40))
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn conditions_agree_with_a_plain_evaluation((key_type, plan, records) in cases()) {
        let (history, condition) = (history(key_type), plan.condition());
        for record in records {
            prop_assert_eq!(truth(&condition, &record, &history), plan.truth(&record), "{}, {:?}", condition, record);
        }
    }

    #[test]
    fn conditions_parse_as_they_are_printed((_, plan, _) in cases()) {
        let condition = plan.condition();
        let text = condition.to_string();
        prop_assert_eq!(Condition::parse(&text), Ok(condition), "{}", text);
    }

    /// For literals outside the small sets too.
    #[test]
    fn any_literal_parses_as_it_is_printed(
        (place, literal) in (0..COLUMNS.len()).prop_map(Place::Attribute).prop_flat_map(|place| (Just(place), any_literal(place))),
        name in "\\PC{1,8}",
        text in ".{0,12}",
    ) {
        for literal in [literal, Literal::Text(text.clone())] {
            let condition = Condition::on(name.clone()).equals(literal).and(Condition::on(place.name()).matches(text.clone()));
            prop_assert_eq!(Condition::parse(&condition.to_string()), Ok(condition));
        }
    }

    #[test]
    fn implied_facts_hold_for_every_matching_record((key_type, plan, records) in cases()) {
        check_implied(key_type, plan, &records)?;
    }

    /// Conjunctions imply the most.
    #[test]
    fn facts_implied_by_conjunctions_hold_for_every_matching_record(
        (key_type, parts, records) in any_key_type().prop_flat_map(|key_type| {
            (Just(key_type), vec(any_plan(key_type), 2..4), vec(any_record(key_type), 1..20))
        })
    ) {
        check_implied(key_type, Plan::And(parts), &records)?;
    }

    /// For comparisons alone, the sets of values are the whole condition.
    #[test]
    fn comparisons_are_implied_exactly((key_type, place, parts, records) in comparisons()) {
        let history = history(key_type);
        let plan = match parts.len() {
            1 => parts[0].clone(),
            _ => Plan::And(parts),
        };
        let implied = plan.condition().bind(history.newest()).unwrap().implied();
        for record in records {
            let (key, bytes) = stored(&record, &history);
            let view = RecordView::parse(&bytes, &history).unwrap();
            let lies_within = match place {
                Place::Key(_) => implied.key.as_ref().unwrap().contains(|bound| Some(key.cmp(bound))),
                Place::Attribute(place) => {
                    let value = view.value(place).unwrap();
                    !value.is_null()
                        && implied.attributes[&place].contains(|bound| domain::compare(value, bound.as_ref()))
                }
            };
            prop_assert_eq!(lies_within, plan.truth(&record) == Some(true), "{} {:?}", plan.condition(), record);
            prop_assert!(!(lies_within && implied.is_impossible()), "{}", plan.condition());
        }
    }

    #[test]
    fn parsing_any_text_does_not_panic(text in any::<String>()) {
        check_hostile(&text)?;
    }

    /// Tokens of the language in any order.
    #[test]
    fn parsing_any_tokens_does_not_panic(pieces in vec(proptest::sample::select(PIECES.to_vec()), 0..24), glue in " ?") {
        check_hostile(&pieces.join(&glue))?;
    }
}

const PIECES: [&str; 42] = [
    "and",
    "or",
    "not",
    "between",
    "in",
    "is",
    "null",
    "match",
    "true",
    "false",
    "nan",
    "infinity",
    "a",
    "\"b c\"",
    "\"",
    "'",
    "'x'",
    "''",
    "(",
    ")",
    ",",
    "*",
    "=",
    "!=",
    "<>",
    "<",
    "<=",
    ">",
    ">=",
    "!",
    "-",
    "+",
    "1",
    ".5",
    "1e5",
    "1e999",
    "0x",
    "é",
    "\u{301}",
    "AND",
    "\n",
    "99999999999999999999999999999999999999999",
];

fn check_hostile(text: &str) -> Result<(), TestCaseError> {
    match Condition::parse(text) {
        Ok(condition) => prop_assert_eq!(Condition::parse(&condition.to_string()), Ok(condition)),
        Err(ConditionError::Syntax { position, .. }) => {
            prop_assert!((1..=text.chars().count() + 1).contains(&position), "{position} in {text:?}");
        }
        Err(error) => prop_assert!(false, "{error} of {text:?}"),
    }
    Ok(())
}

fn check_implied(key_type: KeyType, plan: Plan, records: &[Record]) -> Result<(), TestCaseError> {
    let (history, condition) = (history(key_type), plan.condition());
    let implied = condition.bind(history.newest()).unwrap().implied();
    for record in records.iter().filter(|record| plan.truth(record) == Some(true)) {
        let what = || format!("{condition} implies {implied:?}, {record:?}");
        let (key, bytes) = stored(record, &history);
        let view = RecordView::parse(&bytes, &history).unwrap();
        prop_assert!(!implied.is_impossible(), "{}", what());
        let key_lies_within = implied.key.as_ref().is_none_or(|domain| domain.contains(|bound| Some(key.cmp(bound))));
        prop_assert!(key_lies_within, "{}", what());
        for (place, domain) in &implied.attributes {
            let value = view.value(*place).unwrap();
            prop_assert!(!value.is_null(), "{}", what());
            prop_assert!(domain.contains(|bound| domain::compare(value, bound.as_ref())), "{}", what());
        }
        for (place, words) in &implied.words {
            let crate::value::ValueRef::Utf8(text) = view.value(*place).unwrap() else { panic!("{}", what()) };
            let found: Vec<_> = text::words(text).collect();
            prop_assert!(words.iter().all(|word| found.iter().any(|found| found == word)), "{}", what());
        }
        if let Some(scattered) = &implied.scattered {
            let mut texts = Vec::new();
            for place in &scattered.attributes {
                if let crate::value::ValueRef::Utf8(text) = view.value(*place).unwrap() {
                    texts.push(text);
                }
            }
            let found: Vec<_> = texts.into_iter().flat_map(text::words).collect();
            let is_found = |word: &String| scattered.in_key || found.iter().any(|found| found == word);
            prop_assert!(scattered.words.iter().all(is_found), "{}", what());
        }
    }
    Ok(())
}

fn bound(text: &str) -> Result<BoundCondition, ConditionError> {
    Condition::parse(text)?.bind(&schema(KeyType::Int64, points()))
}

fn implied(text: &str) -> implied::Implied {
    bound(text).unwrap().implied()
}

const COUNT: usize = 1;
const RATIO: usize = 2;
const NAME: usize = 3;

#[test]
fn conjunctions_imply_intervals_and_words() {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    let int = Value::Int;
    let of_count = [
        ("count > 3 and count <= 7", Domain::Interval { low: Included(int(4)), high: Included(int(7)) }),
        (
            "count > 2.5 and (count < 1e300 and count >= -4)",
            Domain::Interval { low: Included(int(3)), high: Unbounded },
        ),
        ("count between 3 and 9 and count in (1, 9, 3.0, 5, 9, 4.5)", Domain::OneOf([3, 5, 9].map(int).to_vec())),
        ("count between 3 and 9 and count between 9 and 12", Domain::OneOf(vec![int(9)])),
        ("count > 3 and count < 4", Domain::nothing()),
        ("count = 0.5", Domain::nothing()),
        ("count >= 9223372036854775808", Domain::nothing()),
    ];
    for (text, wanted) in of_count {
        let implied = implied(text);
        assert_eq!(implied.attributes.get(&COUNT), Some(&wanted), "{text}");
        assert_eq!(implied.is_impossible(), wanted.is_nothing(), "{text}");
        assert_eq!(implied.attributes.len(), 1, "{text}");
    }
    let float = Value::Float64;
    let of_ratio = [
        ("ratio > 1 and ratio >= 1", Domain::Interval { low: Excluded(float(1.0)), high: Unbounded }),
        ("ratio <= 1 and ratio < 1", Domain::Interval { low: Unbounded, high: Excluded(float(1.0)) }),
        ("ratio >= 1 and ratio <= 1", Domain::OneOf(vec![float(1.0)])),
        ("ratio >= 1 and ratio < 1", Domain::nothing()),
        ("ratio > 9007199254740993", Domain::Interval { low: Included(float(9007199254740994.0)), high: Unbounded }),
    ];
    for (text, wanted) in of_ratio {
        assert_eq!(implied(text).attributes[&RATIO], wanted, "{text}");
    }
    let implied =
        implied("ratio > 0.5 and id < 7 and name match 'Zwei WORTE' and name match 'worte Drei' and not flag");
    let above = Domain::Interval { low: Excluded(Value::Float64(0.5)), high: Unbounded };
    assert_eq!(implied.attributes.into_iter().collect::<Vec<_>>(), [(RATIO, above)]);
    assert_eq!(implied.words[&NAME], ["drei", "worte", "zwei"]);
    let seven = crate::key::encode_int(6).to_vec();
    assert_eq!(implied.key, Some(Domain::Interval { low: Unbounded, high: Included(seven) }));
}

#[test]
fn alternatives_and_negations_imply_nothing() {
    for text in [
        "count = 1 or count = 2",
        "not count = 1",
        "count != 1",
        "count is null",
        "not * match 'a'",
        "count not in (1)",
    ] {
        assert_eq!(implied(text), implied::Implied::default(), "{text}");
    }
    assert_eq!(implied("count = 1 and (count = 1 or ratio = 2)").attributes.len(), 1);
}

/// A record in which one attribute has a value and the others are null.
fn with(name: &str, value: Value) -> Record {
    let mut values = vec![Value::Null; COLUMNS.len()];
    values[COLUMNS.iter().position(|(column, _)| *column == name).unwrap()] = value;
    Record::at(1, 0.0, 0.0, values)
}

fn says(text: &str, record: &Record) -> Option<bool> {
    let condition = Condition::parse(text).unwrap_or_else(|error| panic!("{error}"));
    truth(&condition, record, &history(KeyType::Int64))
}

#[test]
fn integers_and_floats_are_compared_exactly() {
    let odd = with("count", Value::Int((1 << 53) + 1));
    assert_eq!(says("count = 9007199254740992.0", &odd), Some(false));
    assert_eq!(says("count > 9007199254740992.0 and count < 9007199254740994.0", &odd), Some(true));
    let even = with("ratio", Value::Float64(9_007_199_254_740_992.0));
    assert_eq!(says("ratio = 9007199254740993", &even), Some(false));
    assert_eq!(says("ratio < 9007199254740993 and ratio > 9007199254740991", &even), Some(true));
    let beyond = with("ratio", Value::Float64(2f64.powi(127)));
    assert_eq!(says("ratio > 170141183460469231731687303715884105727", &beyond), Some(true));
    let largest = with("count", Value::Int(i64::MAX));
    assert_eq!(says("count < 9223372036854775808.0 and count >= 9223372036854774784.0", &largest), Some(true));
    assert_eq!(says("count <= 9223372036854775807 and count = 9223372036854775807", &largest), Some(true));
    for (text, truth) in [("> 2.0", false), (">= 2.0", true), ("< 2.0", false), ("<= 2.0", true), ("= 2.0", true)] {
        assert_eq!(says(&format!("count {text}"), &with("count", Value::Int(2))), Some(truth), "{text}");
        assert_eq!(
            says(&format!("ratio {}", text.replace(".0", "")), &with("ratio", Value::Float64(2.0))),
            Some(truth)
        );
    }
    assert_eq!(says("count < infinity and count > -infinity", &largest), Some(true));
}

#[test]
fn nan_equals_itself_and_is_greatest() {
    let nan = with("ratio", Value::Float64(f64::NAN));
    for text in ["ratio = 1", "ratio < nan", "ratio between -infinity and infinity", "ratio != nan", "ratio > nan"] {
        assert_eq!(says(text, &nan), Some(false), "{text}");
    }
    for text in ["ratio = nan", "ratio >= nan", "ratio <= nan", "ratio in (1, nan)", "ratio > infinity", "ratio != 1"] {
        assert_eq!(says(text, &nan), Some(true), "{text}");
    }
    let one = with("ratio", Value::Float64(1.0));
    assert_eq!(says("ratio < nan and ratio <= nan and ratio != nan and not ratio >= nan", &one), Some(true));
    let count = with("count", Value::Int(i64::MAX));
    assert_eq!(says("count < nan and not count >= nan and count != nan", &count), Some(true));
}

#[test]
fn comparisons_with_null_are_unknown() {
    let null = with("count", Value::Null);
    for text in [
        "count = 1",
        "count != 1",
        "not count = 1",
        "count in ()",
        "count not in (1)",
        "count between 1 and 2",
        "flag",
        "name match 'a'",
        "count = 1 or count != 1",
        "count = 1 and id = 1",
    ] {
        assert_eq!(says(text, &null), None, "{text}");
    }
    assert_eq!(says("count = 1 or id = 1", &null), Some(true));
    assert_eq!(says("count = 1 and id = 2", &null), Some(false));
    assert_eq!(says("count is null and not count is not null and id is not null", &null), Some(true));
}

#[test]
fn words_are_those_of_unicode_in_lower_case() {
    let text = "The quick (“brown”) fox can’t jump 32.3 feet, right? ÆTHER-Straße Ночь 你好";
    let record = with("name", Value::Utf8(text.into()));
    for word in
        ["the", "QUICK", "brown", "can’t", "32.3", "right", "æther", "strasse-", "straße", "ночь", "你", "fox the FOX"]
    {
        assert_eq!(says(&format!("name match '{word}'"), &record), Some(word != "strasse-"), "{word}");
    }
    for word in ["bro", "can", "32", "fox cat", "é"] {
        assert_eq!(says(&format!("name match '{word}'"), &record), Some(false), "{word}");
    }
    let condition = "* match 'quick jump' and * match 'feet fox'";
    assert_eq!(says(condition, &record), Some(true));
    assert_eq!(says("* match 'quick cat'", &record), None, "the other column could have it");
}

#[test]
fn times_are_read_as_everywhere() {
    let record = with("größe", Value::Timestamp(86_400_000_000));
    assert_eq!(says("größe = '1970-01-02T00:00:00Z' and größe = '1970-01-02 02:00:00+02:00'", &record), Some(true));
    assert_eq!(says("größe >= '1970-01-02' and größe < '1970-01-03'", &record), Some(true));
    assert_eq!(says("\"in\" between '1970-01-01' and '1970-01-02'", &with("in", Value::Date(1))), Some(true));
    assert_eq!(says("data = 'AQI='", &with("data", Value::Binary(vec![1, 2]))), Some(true));
}

#[test]
fn syntax_errors_name_the_position_and_the_expected_token() {
    let cases: [(&str, usize, &str, &str); 27] = [
        ("", 1, "the name of a column, \"not\" or \"(\"", "→"),
        ("a > 3 and", 10, "the name of a column, \"not\" or \"(\", found the end", "a > 3 and→"),
        ("a > 3 and = 4", 11, "found \"=\"", "a > 3 and →= 4"),
        ("a > b", 5, "texts are in single quotes, and columns are not compared", "a > →b"),
        ("a = \"x\"", 5, "found the column \"x\"", "a = →\"x\""),
        ("a = null", 5, "\"is null\"", "a = →null"),
        ("3 < a", 1, "column, which comes first", "→3 < a"),
        ("a 5", 3, "=, !=, <, <=, >, >=, \"between\", \"in\", \"is\" or \"match\"", "a →5"),
        ("(a = 1", 7, "\")\"", "(a = 1→"),
        ("a = 1)", 6, "\"and\", \"or\" or the end, found \")\"", "a = 1→)"),
        ("a = 1 b = 2", 7, "\"and\", \"or\" or the end, found \"b\"", "a = 1 →b = 2"),
        ("a between 1 or 2", 13, "\"and\" and the upper end", "a between 1 →or 2"),
        ("a in 1", 6, "\"(\"", "a in →1"),
        ("a in (1 2)", 9, "\",\" or \")\"", "a in (1 →2)"),
        ("a in (1,)", 9, "a number", "a in (1,→)"),
        ("a is 3", 6, "\"null\" or \"not null\"", "a is →3"),
        ("a not 3", 7, "\"between\", \"in\" or \"match\"", "a not →3"),
        ("a match b", 9, "words in single quotes", "a match →b"),
        ("* = 3", 3, "\"match\"", "* →= 3"),
        ("match = 3", 1, "in double quotes", "→match = 3"),
        ("ä = 'x", 5, "no closing '", "ä = →'x"),
        ("\"ä = 3", 1, "no closing \"", "→\"ä = 3"),
        ("a = 12ab", 5, "12ab is not a number", "a = →12ab"),
        ("a = - x", 7, "a number behind the sign", "a = - →x"),
        ("a = 1e999", 5, "beyond the range", "a = →1e999"),
        ("a.b = 3", 2, "", "a→.b = 3"),
        ("a & 3", 3, "'&' has no meaning here", "a →& 3"),
    ];
    for (text, place, expected, shown) in cases {
        match Condition::parse(text) {
            Err(error @ ConditionError::Syntax { .. }) => {
                let ConditionError::Syntax { position, reason, around } = &error else { unreachable!() };
                assert_eq!((*position, around.as_str()), (place, shown), "{text}: {error}");
                assert!(reason.contains(expected), "{text}: {error}");
                assert!(error.to_string().contains(&format!("character {place} of the condition")), "{error}");
            }
            other => panic!("{text}: {other:?}"),
        }
    }
    let long = format!("{} = ", "x".repeat(100));
    let Err(ConditionError::Syntax { around, .. }) = Condition::parse(&long) else { panic!() };
    assert_eq!(around, format!("…{} = →", "x".repeat(27)));
    let many = "a = 340282366920938463463374607431768211456";
    assert!(Condition::parse(many).unwrap_err().to_string().contains("too large; write it with an exponent"));
}

#[test]
fn keywords_are_of_any_case_and_names_are_not() {
    let text = "NOT a Between 1 AND 2 OR A is NOT Null aNd b IN (TRUE, False, NaN)";
    assert_eq!(
        Condition::parse(text).unwrap().to_string(),
        "a not between 1 and 2 or A is not null and b in (true, false, nan)"
    );
    assert_eq!(Condition::parse("a <> 1"), Condition::parse("a!=1"));
    assert_eq!(Condition::parse("((a)) and (b and c)"), Condition::parse("a and b and c"));
    assert_ne!(Condition::parse("a = 1"), Condition::parse("a = 1.0"));
    assert_ne!(Condition::parse("a or b and c"), Condition::parse("(a or b) and c"));
    let negated = !Condition::on("a").equals(1);
    assert_eq!(Condition::parse("not a = 1 and b"), Ok(negated.and(Condition::on("b").is_true())));
}

#[test]
fn mismatches_with_the_schema_are_refused_with_advice() {
    let cases = [
        ("cuont = 3", "there is no column \"cuont\"; the columns are id, x, y, flag, count"),
        ("x > 3", "column \"x\" holds the geometry"),
        ("count = 'x'", "column \"count\" is int64, and 'x' is a text; write a number, without quotes"),
        ("ratio = true", "column \"ratio\" is float64, and true is bool; write a number"),
        ("name = 5", "column \"name\" is utf8, and 5 is a number; write a text in single quotes"),
        ("flag = 1", "column \"flag\" is bool, and 1 is a number; write true or false"),
        ("flag in (true, 'x')", "column \"flag\" is bool"),
        ("\"in\" < 5", "column \"in\" is date, and 5 is a number; write a date in single quotes"),
        ("\"in\" < '2026-13-01'", "column \"in\" is date: \"2026-13-01\" is not a date: there is no such day"),
        ("time_1 < '2026-01-01T00:00:00Z'", "leave the zone out"),
        ("time_1 < '2026-01-01T00:00:00.1234567'", "digits beyond the microsecond"),
        ("data = 'not base64'", "column \"data\" is binary: \"not base64\" is not binary data: write padded base64"),
        ("id = 'x'", "column \"id\" is int64, and 'x' is a text"),
        ("count", "column \"count\" is int64 and no condition by itself"),
        ("id or flag", "column \"id\" is int64 and no condition by itself"),
        ("count match 'x'", "column \"count\" is int64, and words are searched in utf8 columns only"),
        ("name match '...'", "\"...\" has no words to search for"),
        ("* match ''", "has no words to search for"),
    ];
    for (text, message) in cases {
        let error = bound(text).unwrap_err();
        assert!(error.to_string().contains(message), "{text}: {error}");
        let error = crate::Error::from(error);
        assert_eq!(error.exit_code(), crate::Error::USAGE, "{text}: {error}");
    }
    let no_texts = schema(KeyType::Int64, points()).without_attributes();
    let error = Condition::matches_anywhere("x").bind(&no_texts).unwrap_err();
    assert!(error.to_string().contains("no text column to search for words; the columns are id, x, y"), "{error}");
    let shapes = schema(KeyType::Int64, GeometryColumn::Geometry { name: "shape".into() });
    assert!(Condition::parse("shape is null").unwrap().bind(&shapes).is_err());
}

#[test]
fn conditions_are_bounded_in_depth_length_and_items() {
    let nested = |levels: usize| format!("{}a = 1{}", "(".repeat(levels), ")".repeat(levels));
    assert!(Condition::parse(&nested(CONDITION_DEPTH_MAX)).is_ok());
    let nots = |levels: usize| format!("{}a", "not ".repeat(levels));
    assert!(Condition::parse(&nots(CONDITION_DEPTH_MAX - 1)).is_ok());
    let alternating = |levels| (0..levels).fold("a".to_owned(), |inner, _| format!("(a or b and {inner})"));
    let alternate = alternating(CONDITION_DEPTH_MAX / 2 - 1);
    let condition = Condition::parse(&alternate).unwrap();
    assert_eq!(Condition::parse(&condition.to_string()), Ok(condition));
    for text in [
        nested(CONDITION_DEPTH_MAX + 1),
        nested(CONDITION_BYTES_MAX / 4),
        nots(CONDITION_DEPTH_MAX),
        nots(CONDITION_BYTES_MAX / 8),
        "(".repeat(CONDITION_BYTES_MAX),
        alternating(CONDITION_DEPTH_MAX / 2),
    ] {
        assert_eq!(Condition::parse(&text), Err(ConditionError::TooDeep), "{} bytes", text.len());
    }
    let long = "x".repeat(CONDITION_BYTES_MAX + 1);
    assert_eq!(Condition::parse(&long), Err(ConditionError::TooLong { bytes: long.len() }));
    let items = |count: usize| format!("count in ({})", vec!["1"; count].join(","));
    assert!(bound(&items(IN_ITEMS_MAX)).is_ok());
    assert!(bound(&items(IN_ITEMS_MAX + 1)).unwrap_err().to_string().contains("more than 10000 items"));
    let made = Condition::on("count").one_of(vec![1; IN_ITEMS_MAX + 1]);
    let error = made.bind(&schema(KeyType::Int64, points())).unwrap_err();
    assert_eq!(error, ConditionError::TooManyItems { items: IN_ITEMS_MAX + 1 });
}

/// Building, dropping, printing and binding them does not overflow the stack.
#[test]
fn conditions_built_too_deep_are_refused_when_bound() {
    let leaf = || Condition::on("flag").is_true();
    let nots = (0..1_000_000).fold(leaf(), |condition, _| !condition);
    let alternating = (0..100_000).fold(leaf(), |condition, _| condition.and(leaf()).or(leaf()));
    for condition in [nots, alternating] {
        let error = condition.bind(&schema(KeyType::Int64, points())).unwrap_err();
        assert_eq!(error, ConditionError::TooDeep);
        assert!(condition.to_string().contains("nested too deeply"));
    }
    let wide = (0..100_000).fold(leaf(), |condition, _| condition.and(leaf()));
    let bound = wide.bind(&schema(KeyType::Int64, points())).unwrap();
    assert!(matches!(bound.node, BoundNode::And(parts) if parts.len() == 100_001));
}
