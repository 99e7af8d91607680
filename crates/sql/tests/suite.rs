//! The tests of SQL, in one program: each file of `slt` with the indexes of the datasets, without
//! them, with push-down switched off, and at a small memory limit. The rows are the same.

mod callers;
mod cases;
mod crashes;
mod database;
mod manual;
mod prepared;
mod statements;
mod writing;

use std::path::PathBuf;

use database::{Database, Mode};

#[test]
fn answers_are_the_same_with_indexes_without_them_and_in_little_memory() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/slt");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    let mut failures = Vec::new();
    for mode in [Mode::Indexed, Mode::NoPushdown, Mode::NoIndexes, Mode::LittleMemory] {
        let database = Database::create(mode);
        for file in &files {
            let mut runner = sqllogictest::Runner::new(|| {
                let connection = database.connect();
                async move { Ok::<_, terrane_sql::SqlError>(connection) }
            });
            runner.add_label(&format!("{mode:?}").to_lowercase());
            runner.with_column_validator(sqllogictest::strict_column_validator);
            if let Err(error) = runner.run_file(file) {
                failures.push(format!("{mode:?}: {error}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}
