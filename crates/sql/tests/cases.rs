//! Public test vectors: functions and predicates as PostGIS and JTS answer them.

use std::collections::BTreeMap;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type};
use serde_json::Value;
use terrane_space::geometry::{Coordinates, Tree, TreeBody, from_wkt};

use crate::database::{Database, Mode};

/// Functions that lack some or all of the cases, the number of failed cases, and the reason.
const NOT_AVAILABLE: &[(&str, usize, &str)] = &[
    ("replace", 3, "unions of several parts lose Z"),
    ("st_area", 7, "six buffers differ by 1e-8; a buffer on one side is not available"),
    ("st_equals", 2, "of concave hulls whose triangles are not unique"),
    ("st_minimumclearanceline", 3, "another one of several shortest lines"),
    ("st_transform", 1, "to a system with three coordinates is not available"),
    ("st_within", 1, "an invalid argument is an error"),
];

fn cases(name: &str) -> Vec<Value> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(name);
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn predicates_answer_as_jts_does() {
    let database = Database::create(Mode::Indexed);
    let connection = database.connect();
    let mut failures = Vec::new();
    let cases = cases("predicates.jsonl");
    for case in &cases {
        let name = match case["op"].as_str().unwrap() {
            "equalstopo" => "equals",
            other => other,
        };
        let third = case["matrix"].as_str().map_or(String::new(), |matrix| format!(", '{matrix}'"));
        let sql =
            format!("SELECT ST_{name}('{}', '{}'{third})", case["a"].as_str().unwrap(), case["b"].as_str().unwrap());
        let answer = connection.rows(&sql).map(|(_, rows)| rows[0][0].clone());
        if answer.as_deref().ok() != Some(&case["expected"].to_string()) {
            failures.push(format!("{sql}\n  {answer:?}, not {}", case["expected"]));
        }
    }
    assert!(failures.is_empty(), "{} of {} failed:\n{}", failures.len(), cases.len(), failures.join("\n"));
}

#[test]
fn functions_answer_as_postgis_does() {
    let database = Database::create(Mode::Indexed);
    let mut connection = database.connect();
    let mut failures: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let cases = cases("functions.jsonl");
    for case in &cases {
        let sql = case["sql"].as_str().unwrap();
        let failure = match connection.column(sql) {
            Ok(column) if is_equal(&column, &case["expected"]) => continue,
            Ok(column) => format!("{sql}\n  {column:?}, not {}", case["expected"]),
            Err(error) => format!("{sql}\n  {error}"),
        };
        let name = sql.trim_start_matches("SELECT ").split('(').next().unwrap_or_default().to_lowercase();
        failures.entry(name).or_default().push(failure);
    }
    let failed: usize = failures.values().map(Vec::len).sum();
    let counts: Vec<(&str, usize)> = failures.iter().map(|(name, failures)| (name.as_str(), failures.len())).collect();
    let known: Vec<(&str, usize)> = NOT_AVAILABLE.iter().map(|(name, count, _)| (*name, *count)).collect();
    let shown: Vec<&str> = failures.values().flatten().map(String::as_str).collect();
    assert!(counts == known, "{failed} of {} failed:\n{}\n{counts:?}", cases.len(), shown.join("\n"));
}

fn is_equal(column: &ArrayRef, expected: &Value) -> bool {
    if column.is_empty() {
        return false;
    }
    match expected {
        Value::Null => column.is_null(0),
        Value::Array(rows) => rows.len() == 1 && column.is_null(0),
        _ if column.is_null(0) => false,
        Value::Bool(wanted) => column.as_boolean_opt().is_some_and(|found| found.value(0) == *wanted),
        Value::Number(wanted) => number(column).is_some_and(|found| is_near(found, wanted.as_f64().unwrap())),
        Value::Object(wanted) => {
            let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            column
                .as_binary_opt::<i32>()
                .is_some_and(|found| Some(hex(found.value(0)).as_str()) == wanted["hex"].as_str())
        }
        Value::String(wanted) => match column.data_type() {
            DataType::Binary => {
                let Ok(found) = Tree::parse(column.as_binary::<i32>().value(0)) else { return false };
                from_wkt(wanted).is_ok_and(|wanted| is_same(&normal(found), &normal(Tree::parse(&wanted).unwrap())))
            }
            DataType::Utf8 => column.as_string::<i32>().value(0) == wanted,
            _ => number(column).is_some_and(|found| wanted.parse().is_ok_and(|wanted: f64| is_near(found, wanted))),
        },
    }
}

fn number(column: &ArrayRef) -> Option<f64> {
    let floats = column.as_primitive_opt::<Float64Type>().map(|column| column.value(0));
    floats.or_else(|| column.as_primitive_opt::<Int64Type>().map(|column| column.value(0) as f64))
}

fn is_near(a: f64, b: f64) -> bool {
    a == b || (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1e-3)
}

fn order(a: &Coordinates, b: &Coordinates) -> std::cmp::Ordering {
    a.iter().zip(b).map(|(a, b)| a.total_cmp(b)).find(|order| order.is_ne()).unwrap_or(std::cmp::Ordering::Equal)
}

/// The geometry with its rings turned and its members sorted.
fn normal(mut tree: Tree) -> Tree {
    match &mut tree.body {
        TreeBody::Positions(positions) => {
            if let (Some(first), Some(last)) = (positions.first(), positions.last())
                && order(first, last).is_gt()
            {
                positions.reverse();
            }
        }
        TreeBody::Rings(rings) => {
            for ring in rings.iter_mut() {
                ring.pop();
                let start = (0..ring.len()).min_by(|a, b| order(&ring[*a], &ring[*b])).unwrap_or(0);
                ring.rotate_left(start);
                if ring.len() > 2 && order(&ring[1], &ring[ring.len() - 1]).is_gt() {
                    ring[1..].reverse();
                }
                ring.extend(ring.first().copied());
            }
            if let Some((_, holes)) = rings.split_first_mut() {
                holes.sort_by(|a, b| order(&a[0], &b[0]));
            }
        }
        TreeBody::Members(members) => {
            let mut normalised: Vec<Tree> = members.drain(..).map(normal).collect();
            let first = |tree: &Tree| {
                let mut all = Vec::new();
                tree.visit(&mut |position| all.push(*position));
                all
            };
            normalised.sort_by(|a, b| {
                let (a, b) = (first(a), first(b));
                a.iter().zip(&b).map(|(a, b)| order(a, b)).find(|order| order.is_ne()).unwrap_or(a.len().cmp(&b.len()))
            });
            *members = normalised;
        }
    }
    tree
}

fn is_same(a: &Tree, b: &Tree) -> bool {
    let near = |a: &Coordinates, b: &Coordinates| a.iter().zip(b).all(|(a, b)| is_near(*a, *b) || (a - b).abs() < 1e-9);
    let path = |a: &[Coordinates], b: &[Coordinates]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| near(a, b));
    if a.kind != b.kind || a.dimensions != b.dimensions {
        return false;
    }
    match (&a.body, &b.body) {
        (TreeBody::Positions(a), TreeBody::Positions(b)) => path(a, b),
        (TreeBody::Rings(a), TreeBody::Rings(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| path(a, b)),
        (TreeBody::Members(a), TreeBody::Members(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b))
        }
        _ => false,
    }
}
