//! Errors of statements, and what one session keeps from statement to statement.

use terrane_sql::SqlError;

use crate::database::{Database, Mode};

fn error_of(sql: &str) -> SqlError {
    let database = Database::create(Mode::Indexed);
    database.connect().rows(sql).expect_err("the statement must fail")
}

#[test]
fn a_syntax_error_is_marked_under_the_statement() {
    let error = error_of("SELECT 1;\nSELECT count(* FROM places");
    assert_eq!(error.exit_code(), 2);
    let text = error.to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[1..], ["  SELECT count(* FROM places", "                 ^"], "{text}");
}

#[test]
fn an_unknown_column_is_marked_and_named() {
    let error = error_of("SELECT id,\n  nonsense\nFROM places");
    assert_eq!(error.exit_code(), 2);
    let text = error.to_string();
    assert!(text.contains("nonsense") && text.ends_with("  nonsense\n    ^"), "{text}");
}

#[test]
fn statements_that_are_not_available_are_refused() {
    for sql in [
        "SELECT 1 INTO t",
        "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '/tmp/x.csv'",
        "EXPLAIN ANALYZE DELETE FROM places",
        "WITH gone AS (DELETE FROM places) SELECT 1",
    ] {
        assert_eq!(error_of(sql).exit_code(), 2, "{sql}");
    }
}

#[test]
fn long_chains_and_deep_nesting_give_an_answer_or_an_error() {
    let database = Database::create(Mode::Indexed);
    let connection = database.connect();
    let terms: Vec<String> = (0..10_000).map(|id| format!("id = {id}")).collect();
    let sql = format!("SELECT count(*) FROM places WHERE {}", terms.join(" OR "));
    assert_eq!(connection.rows(&sql).unwrap().1, [["7"]]);
    let nested = format!("SELECT {}1{}", "(".repeat(100_000), ")".repeat(100_000));
    assert_eq!(connection.rows(&nested).unwrap_err().exit_code(), 2);
    let nested = format!("SELECT {}1{}", "(".repeat(1_000), ")".repeat(1_000));
    assert_eq!(connection.rows(&nested).unwrap_err().exit_code(), 2);
    for (first, more) in [("SELECT 1", "+1"), ("SELECT 1", " UNION SELECT 1"), ("SELECT ''", "||'x'")] {
        let sql = format!("{first}{}", more.repeat(20_000));
        assert_eq!(connection.rows(&sql).unwrap_err().exit_code(), 2, "{more}");
    }
    let wkt = format!("{}POINT(1 1){}", "GEOMETRYCOLLECTION(".repeat(10_000), ")".repeat(10_000));
    let sql = format!("SELECT ST_AsText('{wkt}')");
    assert!(connection.rows(&sql).is_err());
}

#[test]
fn each_statement_sees_the_newest_state() {
    let database = Database::create(Mode::Indexed);
    let connection = database.connect();
    let count = "SELECT count(*) FROM places WHERE id >= 6";
    assert_eq!(connection.rows(count).unwrap().1, [["2"]]);
    assert!(database.store.dataset("places").unwrap().delete(&7.into()).unwrap());
    assert_eq!(connection.rows(count).unwrap().1, [["1"]]);
}

#[test]
fn a_hash_join_beyond_the_limit_names_it() {
    let database = Database::create(Mode::LittleMemory);
    let sql = "SELECT count(*) FROM (SELECT a.id, repeat(a.class, 500) AS t FROM grid a) a \
               JOIN (SELECT b.id, repeat(b.class, 500) AS t FROM grid b) b ON a.id = b.id AND a.t <= b.t";
    match database.connect().rows(sql) {
        Ok((_, rows)) => assert_eq!(rows, [["25714"]]),
        Err(error) => assert!(matches!(error, SqlError::Memory { .. }), "{error}"),
    }
}

/// The parser once read an argument twice for each level.
#[test]
fn nested_calls_are_read_once() {
    let connection = Database::create(Mode::Indexed).connect();
    let nested = format!("{}-1{}", "abs(".repeat(60), ")".repeat(60));
    assert_eq!(connection.rows(&format!("SELECT {nested}")).unwrap().1, [["1"]]);
}
