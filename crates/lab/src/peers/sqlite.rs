//! SQLite with its R*Tree module, set up as its documentation advises.
//!
//! The R*Tree stores boxes as float32 rounded outwards, so it alone returns points just outside a
//! window. The exact coordinates are in an ordinary table. Each candidate is joined with it and
//! checked.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, ensure};
use rusqlite::{Connection, params};

use crate::system::{Reader, Role, SPATIAL_INDEX, System, Visitor, Writer};
use crate::workload::{Location, Points, Record, Window};

/// SQLite by its `synchronous` setting; the journal is always a write-ahead log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sqlite {
    /// Every commit is synced.
    Full,
    /// Only checkpoints are synced: commits survive a killed process, not a power loss.
    Normal,
    /// Nothing is synced.
    Off,
}

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS point (id INTEGER PRIMARY KEY, time INTEGER NOT NULL, x REAL NOT NULL, y REAL NOT NULL);
    CREATE VIRTUAL TABLE IF NOT EXISTS p USING rtree (id, x0, x1, y0, y1);";
const INSERT_POINT: &str = "INSERT INTO point (id, time, x, y) VALUES (?1, ?2, ?3, ?4)";
const INSERT_BOX: &str = "INSERT INTO p (id, x0, x1, y0, y1) VALUES (?1, ?2, ?2, ?3, ?3)";
const DELETE_POINT: &str = "DELETE FROM point WHERE id = ?1";
const DELETE_BOX: &str = "DELETE FROM p WHERE id = ?1";
const WINDOW: &str = "
    SELECT point.id, point.x, point.y FROM p JOIN point ON point.id = p.id
    WHERE p.x1 >= ?1 AND p.x0 <= ?2 AND p.y1 >= ?3 AND p.y0 <= ?4
      AND point.x BETWEEN ?1 AND ?2 AND point.y BETWEEN ?3 AND ?4";
const RECORDS: &str = "SELECT id, time, x, y FROM point";

/// Half-width of the first window that a nearest query tries. It is about right in the dense parts
/// of the workload.
const FIRST_REACH: f64 = 0.01;
const LAST_REACH: f64 = 1e3;

impl System for Sqlite {
    fn name(&self) -> &'static str {
        match self {
            Sqlite::Full => "sqlite-full",
            Sqlite::Normal => "sqlite-normal",
            Sqlite::Off => "sqlite-off",
        }
    }

    fn settings(&self) -> &'static str {
        match self {
            Sqlite::Full => "R*Tree and table, WAL, synchronous FULL, page cache 1 GiB",
            Sqlite::Normal => "R*Tree and table, WAL, synchronous NORMAL: a commit survives a kill, not a power loss",
            Sqlite::Off => "R*Tree and table, WAL, synchronous OFF",
        }
    }

    fn roles(&self) -> &'static [Role] {
        match self {
            Sqlite::Full => &[Role::Build, Role::Queries, Role::DurableWrites, Role::Reopen],
            Sqlite::Normal => &[Role::DurableWrites],
            Sqlite::Off => &[Role::UnsyncedWrites],
        }
    }

    fn build(&self, parts: &[Points], dir: &Path) -> Result<Box<dyn Reader>> {
        let database = Database::open(*self, dir)?;
        for part in parts {
            database.insert_all(part)?;
        }
        Ok(Box::new(database))
    }

    fn import(&self, file: &Path, dir: &Path) -> Result<Box<dyn Reader>> {
        let database = Database::open(*self, dir)?;
        database
            .in_one_transaction(|connection| crate::parquet_file::read(file, |record| insert(connection, &record)))?;
        Ok(Box::new(database))
    }

    fn open_reader(&self, dir: &Path) -> Result<Box<dyn Reader>> {
        Ok(Box::new(Database::open(*self, dir)?))
    }

    fn open_writer(&self, dir: &Path) -> Result<Box<dyn Writer>> {
        Ok(Box::new(Database::open(*self, dir)?))
    }
}

/// One connection for all threads: they queue for it here rather than in SQLite's sleeping busy
/// handler.
struct Database {
    connection: Mutex<Connection>,
    path: PathBuf,
}

fn insert(connection: &Connection, record: &Record) -> Result<()> {
    let Location { x, y } = record.location;
    connection.prepare_cached(INSERT_POINT)?.execute(params![record.id, record.time_us, x, y])?;
    connection.prepare_cached(INSERT_BOX)?.execute(params![record.id, x, y])?;
    Ok(())
}

impl Database {
    fn open(setting: Sqlite, dir: &Path) -> Result<Self> {
        let path = dir.join("points.sqlite");
        let connection = Connection::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        let synchronous = match setting {
            Sqlite::Full => "FULL",
            Sqlite::Normal => "NORMAL",
            Sqlite::Off => "OFF",
        };
        connection.pragma_update(None, "synchronous", synchronous)?;
        // A negative size counts KiB. The default of 2 MiB would measure the operating system's
        // cache instead.
        connection.pragma_update(None, "cache_size", -(1_i64 << 20))?;
        connection.execute_batch(SCHEMA)?;
        Ok(Self { connection: Mutex::new(connection), path })
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        // A thread that panicked inside a transaction has rolled it back by dropping it.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn in_one_transaction(&self, work: impl FnOnce(&Connection) -> Result<()>) -> Result<()> {
        let mut connection = self.connection();
        let transaction = connection.transaction()?;
        work(&transaction)?;
        transaction.commit()?;
        Ok(())
    }
}

impl Reader for Database {
    fn window(&self, window: &Window, visit: &mut Visitor<'_>) -> Result<()> {
        let connection = self.connection();
        let mut statement = connection.prepare_cached(WINDOW)?;
        let mut rows = statement.query(params![window.x0, window.x1, window.y0, window.y1])?;
        while let Some(row) = rows.next()? {
            visit(row.get(0)?);
        }
        Ok(())
    }

    /// SQLite has no nearest neighbours: windows are widened until the k-th nearest point lies
    /// within the reach.
    fn nearest(&self, from: Location, k: usize, visit: &mut Visitor<'_>) -> Result<()> {
        let connection = self.connection();
        let mut statement = connection.prepare_cached(WINDOW)?;
        let mut reach = FIRST_REACH;
        loop {
            let window = Window::around(from, reach);
            let mut found: Vec<(f64, i64)> = Vec::new();
            let mut rows = statement.query(params![window.x0, window.x1, window.y0, window.y1])?;
            while let Some(row) = rows.next()? {
                let (dx, dy) = (row.get::<_, f64>(1)? - from.x, row.get::<_, f64>(2)? - from.y);
                found.push((dx * dx + dy * dy, row.get(0)?));
            }
            found.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            let complete = k
                .checked_sub(1)
                .and_then(|last| found.get(last))
                .is_some_and(|&(distance, _)| distance <= reach * reach);
            if complete || k == 0 || reach >= LAST_REACH {
                found.into_iter().take(k).for_each(|(_, id)| visit(id));
                return Ok(());
            }
            reach *= 2.0;
        }
    }

    fn records(&self, visit: &mut dyn FnMut(&Record)) -> Result<()> {
        let connection = self.connection();
        let mut statement = connection.prepare_cached(RECORDS)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let location = Location { x: row.get(2)?, y: row.get(3)? };
            visit(&Record { id: row.get(0)?, time_us: row.get(1)?, location });
        }
        Ok(())
    }

    fn footprint(&self) -> Result<Vec<(String, u64)>> {
        // The log's content moves into the database, so that its file is complete.
        let connection = self.connection();
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        let mut tables = Vec::new();
        // The dbstat table may not be compiled in; then only the file is reported.
        if let Ok(mut statement) =
            connection.prepare("SELECT sum(pgsize) FROM dbstat WHERE name LIKE 'p!_%' ESCAPE '!'")
        {
            let bytes: i64 = statement.query_row([], |row| row.get(0))?;
            tables.push((SPATIAL_INDEX.to_owned(), bytes.unsigned_abs()));
        }
        tables.push(("files".to_owned(), fs::metadata(&self.path)?.len()));
        Ok(tables)
    }
}

impl Writer for Database {
    fn insert(&self, record: &Record) -> Result<()> {
        self.in_one_transaction(|connection| insert(connection, record))
    }

    fn insert_all(&self, points: &Points) -> Result<()> {
        self.in_one_transaction(|connection| points.records().try_for_each(|record| insert(connection, &record)))
    }

    fn delete(&self, record: &Record) -> Result<()> {
        self.in_one_transaction(|connection| {
            let deleted = connection.prepare_cached(DELETE_POINT)?.execute([record.id])?;
            ensure!(deleted == 1, "sqlite: no record {}", record.id);
            connection.prepare_cached(DELETE_BOX)?.execute([record.id])?;
            Ok(())
        })
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(Borrowed(self)))
    }
}

struct Borrowed<'a>(&'a Database);

impl Reader for Borrowed<'_> {
    fn window(&self, window: &Window, visit: &mut Visitor<'_>) -> Result<()> {
        self.0.window(window, visit)
    }

    fn nearest(&self, from: Location, k: usize, visit: &mut Visitor<'_>) -> Result<()> {
        self.0.nearest(from, k, visit)
    }

    fn footprint(&self) -> Result<Vec<(String, u64)>> {
        self.0.footprint()
    }
}
