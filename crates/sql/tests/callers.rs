//! Tables of the caller.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::arrow::array::{Int64Array, RecordBatch};
use terrane_formats::{FormatError, ReadOptions, open_batches};
use terrane_sql::{Answer, CallerTable, CallerTables, SqlError};

use crate::database::{Connection, Database, Mode};

/// A table of one column `n`; `opened` counts how often it is opened.
fn numbers(values: &[i64], opened: &Arc<AtomicUsize>) -> CallerTable {
    let column: Arc<_> = Arc::new(Int64Array::from(values.to_vec()));
    let batch = RecordBatch::try_from_iter([("n", column as _)]).unwrap();
    let opened = opened.clone();
    CallerTable::new(move || {
        opened.fetch_add(1, Ordering::Relaxed);
        open_batches("numbers", &batch.schema(), [Ok(batch.clone())].into_iter(), &ReadOptions::default())
    })
}

fn first(
    connection: &Connection,
    database: &Database,
    callers: &Arc<CallerTables>,
    sql: &str,
) -> Result<i64, SqlError> {
    let mut script = connection.session.parse(sql)?;
    let mut answer: Answer = connection.session.run_next_with(&mut script, &database.store, &[], callers)?.unwrap();
    let batch = answer.next_batch()?.unwrap();
    Ok(batch.column(0).as_any().downcast_ref::<Int64Array>().unwrap().value(0))
}

#[test]
fn tables_of_the_caller_are_read_unless_a_dataset_has_their_name() {
    let database = Database::create(Mode::Indexed);
    let connection = database.connect();
    let opened = Arc::default();
    let tables = ["counts", "Places"].map(|name| (name.to_owned(), numbers(&[1, 2, 4], &opened)));
    let callers = Arc::new(CallerTables::from(tables));
    assert_eq!(first(&connection, &database, &callers, "SELECT sum(n) FROM counts").unwrap(), 7);
    assert_eq!(opened.swap(0, Ordering::Relaxed), 1, "what was opened for the schema is read");
    let twice = "SELECT count(*) FROM counts a JOIN Counts b ON a.n < b.n";
    assert_eq!(first(&connection, &database, &callers, twice).unwrap(), 3);
    assert_eq!(opened.swap(0, Ordering::Relaxed), 2);
    assert!(first(&connection, &database, &callers, "SELECT count(id) FROM Places").unwrap() > 3);
    assert_eq!(opened.load(Ordering::Relaxed), 0, "a dataset is read instead");
    assert!(matches!(
        first(&connection, &database, &Arc::default(), "SELECT sum(n) FROM counts"),
        Err(SqlError::Statement { .. })
    ));
}

#[test]
fn a_table_that_cannot_be_opened_says_why() {
    let database = Database::create(Mode::Indexed);
    let connection = database.connect();
    let refused = || Err(FormatError::Usage { path: "numbers".into(), reason: "it was read".to_owned() });
    let callers = Arc::new(CallerTables::from([("counts".to_owned(), CallerTable::new(refused))]));
    let error = first(&connection, &database, &callers, "SELECT * FROM counts").unwrap_err();
    assert!(error.to_string().contains("numbers: it was read"), "{error}");
}
