//! `terrane sql`: statements in order, parameters, formats, exit codes.

use serde_json::json;

use crate::support::{Sandbox, import, sample, terrane};

fn cities() -> Sandbox {
    let sandbox = Sandbox::new();
    import(&sandbox.store(), "cities", &sample("cities200.csv"), &[]).exits(0);
    sandbox
}

#[test]
fn statements_run_in_order_until_the_first_error() {
    let sandbox = cities();
    let sql = ["SELECT count(*) AS n FROM cities; SELECT 1 AS one", "SELECT 1/0 AS x", "SELECT 2 AS two"];
    let answer = terrane("sql", &sandbox.store(), &sql).exits(1);
    assert_eq!(answer.text(), "{\"n\":200}\n{\"one\":1}\n");
}

#[test]
fn parameters_and_spatial_filters_give_rows_in_any_format() {
    let sandbox = cities();
    let sql = "SELECT name, geometry FROM Cities WHERE ST_DWithinSphere(geometry, $1, $2) AND NAME <> $3";
    let params = ["--param", "POINT(2.35 48.86)", "--param", "5000", "--param", "x"];
    let rows = terrane("sql", &sandbox.store(), &[&[sql][..], &params].concat()).exits(0).json_lines();
    assert_eq!((rows.len(), &rows[0]["name"]), (1, &json!("Paris")));
    assert_eq!(rows[0]["geometry"]["type"], json!("Point"));
    let csv = [&[sql, "--format", "csv"][..], &params].concat();
    let text = terrane("sql", &sandbox.store(), &csv).exits(0).text();
    assert!(text.starts_with("name,geometry\nParis,POINT"), "{text}");
    terrane("sql", &sandbox.store(), &[sql]).exits(2).says("$1 has no value");
}

#[test]
fn what_does_not_parse_is_marked_and_a_missing_dataset_named() {
    let sandbox = cities();
    terrane("sql", &sandbox.store(), &["SELECT FROM WHERE"]).exits(2).says("SELECT FROM WHERE");
    terrane("sql", &sandbox.store(), &["SELECT * FROM towns"]).exits(2).says("towns");
}

#[test]
fn a_table_is_made_filled_and_exported_by_sql_alone() {
    let sandbox = Sandbox::new();
    let (store, file) = (sandbox.store(), sandbox.path("cafes.geojson"));
    let create = "CREATE TABLE cafes (id BIGINT PRIMARY KEY, name TEXT, geom GEOMETRY(Point, 4326))";
    let copy = format!("COPY cafes TO '{}'", file.display());
    let insert = "INSERT INTO cafes VALUES (7, $1, 'POINT(-122.42 37.77)'), (8, NULL, 'POINT(-122.4 37.8)')";
    let answer = terrane("sql", &store, &[create, insert, &copy, "--param", "Corner"]).exits(0);
    answer.says("2 rows inserted").says("2 rows copied");
    import(&store, "copied", &file, &[]).exits(0);
    let rows = terrane("sql", &store, &["SELECT id, name FROM copied ORDER BY id"]).exits(0).json_lines();
    assert_eq!(rows, [json!({"id": 7, "name": "Corner"}), json!({"id": 8, "name": null})]);
    terrane("sql", &store, &["INSERT INTO cafes (id) VALUES (9), (7)"]).exits(5).says("1 row was inserted before");
    terrane("sql", &store, &["DELETE FROM cafes", "--read-only"]).exits(2).says("--read-only");
    terrane("sql", &store, &["UPDATE cafes SET name = 'x' WHERE id = 9 RETURNING id"]).exits(0).says("1 row changed");
    terrane("sql", &store, &["BEGIN; DELETE FROM cafes"]).exits(0).says("was not committed");
    terrane("sql", &store, &["BEGIN; DELETE FROM cafes WHERE id > 7; COMMIT"]).exits(0);
    assert_eq!(terrane("sql", &store, &["SELECT id FROM cafes"]).exits(0).json_lines(), [json!({"id": 7})]);
}
