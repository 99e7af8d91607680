//! The examples of the manual's page of statements, in their order.

use std::sync::Arc;

use terrane::{Durability, Options, Store};

use crate::database::Connection;

/// The blocks of a language, each with the one of another that follows it.
fn examples(page: &str) -> Vec<(&str, Option<&str>)> {
    let mut examples = Vec::new();
    for part in page.split("```sql\n").skip(1) {
        let (statements, rest) = part.split_once("```").expect("a block that ends");
        let answer = rest.trim_start().strip_prefix("```text\n").and_then(|text| text.split_once("```"));
        examples.push((statements, answer.map(|(answer, _)| answer)));
    }
    examples
}

fn empty_store() -> (tempfile::TempDir, Connection) {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { durability: Some(Durability::None), ..Options::default() };
    let store = Arc::new(Store::open(folder.path().join("store"), options.clone()).unwrap());
    let connection = Connection::new(&options, store);
    (folder, connection)
}

#[test]
fn the_manual_s_statements_do_what_it_says() {
    let (folder, connection) = empty_store();
    let examples = examples(include_str!("../../../docs/sql-statements.md"));
    assert!(examples.len() > 10, "{} examples", examples.len());
    for (statements, wanted) in examples {
        let files = folder.path().join("cafes.parquet");
        let here = statements.replace("cafes.parquet", files.to_str().unwrap());
        let rows = connection.rows(&here).unwrap_or_else(|error| panic!("{statements}: {error}")).1;
        let found: String = rows.iter().map(|row| row.join(" | ") + "\n").collect();
        if let Some(wanted) = wanted {
            assert_eq!(found, wanted, "{statements}");
        }
    }
}

/// Each recipe runs on the sample data, and its query finds something.
#[test]
fn the_recipes_run() {
    let (folder, connection) = empty_store();
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data");
    let tables = format!(
        "CREATE TABLE rides (PRIMARY KEY (ride_id)) AS SELECT * FROM '{data}/sf_cab_rides.parquet' WHERE cab_id < 40;
         CREATE TABLE areas AS SELECT * FROM '{data}/zcta42.geojson';
         CREATE TABLE cities AS SELECT * FROM '{data}/cities200.csv'"
    );
    connection.rows(&tables).unwrap();
    let examples = examples(include_str!("../../../docs/sql-how-to.md"));
    assert!(examples.len() > 8, "{} examples", examples.len());
    for (statements, _) in examples {
        let file = folder.path().join("cafes.geojson");
        let here = statements.replace("cafes.geojson", file.to_str().unwrap());
        let rows = connection.rows(&here).unwrap_or_else(|error| panic!("{statements}: {error}")).1;
        let is_query = statements.starts_with("SELECT") || statements.starts_with("WITH");
        assert!(!is_query || !rows.is_empty(), "no rows: {statements}");
    }
}
