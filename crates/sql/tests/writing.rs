//! Statements that change the store: by several writers at once, and with files.

use terrane_sql::SqlError;

use crate::database::{Connection, Database, Mode};

/// The threads share one session, which keeps the states of their statements apart.
#[test]
fn no_update_is_lost_among_threads() {
    const THREADS: usize = 4;
    const UPDATES: usize = 50;
    let database = Database::create(Mode::Indexed);
    database.connect().rows("UPDATE places SET population = 0 WHERE id <= 2").unwrap();
    let connection = database.connect();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let connection = &connection;
            scope.spawn(move || {
                let own = 100 + thread;
                for _ in 0..UPDATES {
                    let statements = format!(
                        "UPDATE places SET population = population + 1 WHERE id <= 2; \
                         INSERT INTO places AS p (id, population) VALUES (77, 1), ({own}, {thread}) \
                         ON CONFLICT (id) DO UPDATE SET population = p.population + excluded.population"
                    );
                    connection.rows(&statements).unwrap();
                }
            });
        }
    });
    for thread in 0..THREADS {
        let sql = format!("SELECT population FROM places WHERE id = {}", 100 + thread);
        assert_eq!(connection.rows(&sql).unwrap().1, [[(thread * UPDATES).to_string()]]);
    }
    connection.rows("SET terrane.atomic = true").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            let add = "UPDATE places SET population = population + 1 WHERE id <= 2 OR id = 77; \
                       INSERT INTO places AS p (id, population) VALUES (78, 1), (79, 1) \
                       ON CONFLICT (id) DO UPDATE SET population = p.population + excluded.population";
            scope.spawn(|| (0..UPDATES).for_each(|_| connection.rows(add).map(drop).unwrap()));
        }
    });
    let sql = "SELECT population FROM places WHERE id IN (1, 2, 77)";
    let total = (2 * THREADS * UPDATES).to_string();
    assert_eq!(database.connect().rows(sql).unwrap().1, vec![vec![total]; 3]);
    let sql = "SELECT population FROM places WHERE id IN (78, 79)";
    assert_eq!(database.connect().rows(sql).unwrap().1, vec![vec![(THREADS * UPDATES).to_string()]; 2]);
}

#[test]
fn copies_come_back_with_the_same_rows() {
    let database = Database::create(Mode::Indexed);
    let connection = database.connect();
    let folder = tempfile::tempdir().unwrap();
    let query = "SELECT id, \"Name\", population, capital, ST_AsText(geometry) FROM copied ORDER BY id";
    let wanted = connection.rows(&query.replace("copied", "places")).unwrap().1;
    for format in ["csv", "ndjson", "parquet", "arrow"] {
        let file = folder.path().join(format!("places.{format}"));
        let file = file.display();
        let copy = format!(
            "CREATE TABLE copied (PRIMARY KEY (id)) AS SELECT id, lon, lat, \"Name\", population, height, founded, seen, \
             capital FROM places; \
             TRUNCATE copied; COPY places TO '{file}'; COPY copied FROM '{file}'"
        );
        connection.rows(&copy).unwrap();
        assert_eq!(connection.rows(query).unwrap().1, wanted, "{format}");
        connection.rows("DROP TABLE copied").unwrap();
    }
    let file = folder.path().join("some.unknown");
    let error = connection.rows(&format!("COPY (SELECT 1 AS one) TO '{}'", file.display())).unwrap_err();
    assert!(matches!(error, SqlError::Statement { .. }) && !file.exists(), "{error}");
}

/// A writer adds to one table and then to another, so at each moment the first one has as many rows
/// as the second, or one more.
#[test]
fn a_statement_sees_all_its_tables_at_one_moment() {
    const ROWS: usize = 300;
    let database = Database::create(Mode::Indexed);
    let (writer, reader) = (database.connect(), database.connect());
    writer.rows("CREATE TABLE first (id BIGINT PRIMARY KEY); CREATE TABLE second (id BIGINT PRIMARY KEY)").unwrap();
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            for id in 0..ROWS {
                writer.rows(&format!("INSERT INTO first (id) VALUES ({id})")).unwrap();
                writer.rows(&format!("INSERT INTO second (id) VALUES ({id})")).unwrap();
            }
        });
        // The last answer is one after the writer's end.
        let mut is_over = false;
        while !is_over {
            is_over = writing.is_finished();
            let sql = "SELECT (SELECT count(*) FROM second) AS s, (SELECT count(*) FROM first) AS f";
            let counts: Vec<usize> =
                reader.rows(sql).unwrap().1[0].iter().map(|count| count.parse().unwrap()).collect();
            assert!(counts[1] == counts[0] || counts[1] == counts[0] + 1, "{counts:?}");
        }
    });
}

/// Without the optimizer, some conditions cannot be planned. Then nothing is deleted.
#[test]
fn what_is_deleted_does_not_rest_on_the_optimizer() {
    let database = Database::create(Mode::Indexed);
    let connection = database.connect();
    connection.rows("SET datafusion.optimizer.max_passes = 0").unwrap();
    let left = |connection: &Connection| connection.rows("SELECT count(*) FROM places").unwrap().1;
    for condition in ["false", "id IN (SELECT id FROM places WHERE false)", "EXISTS (SELECT 1 FROM grid WHERE id < 0)"]
    {
        let deleted = connection.rows(&format!("DELETE FROM places WHERE {condition}"));
        assert!(deleted.is_ok() || condition.contains("SELECT"), "{condition}: {deleted:?}");
        assert_eq!(left(&connection), [["7"]], "{condition}");
    }
    connection.rows("EXPLAIN DELETE FROM places").unwrap_err();
    connection.rows("DELETE FROM places WHERE id = 1 LIMIT 0").unwrap_err();
    connection.rows("DELETE FROM places WHERE id = 1").unwrap();
    assert_eq!(left(&connection), [["6"]]);
}

/// The writers mark geometries themselves.
#[test]
fn a_plane_with_a_number_is_written_to_files() {
    let database = Database::create(Mode::Indexed);
    let connection = database.connect();
    let folder = tempfile::tempdir().unwrap();
    connection.rows("CREATE TABLE plots (id BIGINT PRIMARY KEY, shape GEOMETRY(Point, 25833))").unwrap();
    connection.rows("INSERT INTO plots VALUES (1, ST_Point(391390, 5817855)), (2, NULL)").unwrap();
    connection.rows("CREATE TABLE others (id BIGINT PRIMARY KEY, shape GEOMETRY(Point, 3857))").unwrap();
    for format in ["csv", "ndjson", "geojson", "parquet", "arrow"] {
        let file = folder.path().join(format!("plots.{format}"));
        let file = file.display();
        let copy = format!("COPY plots TO '{file}'; TRUNCATE plots; COPY plots FROM '{file}'");
        connection.rows(&copy).unwrap_or_else(|error| panic!("{format}: {error}"));
        if ["geojson", "parquet", "arrow"].contains(&format) {
            // The file says where its plane is.
            let error = connection.rows(&format!("COPY others FROM '{file}'")).unwrap_err().to_string();
            assert!(error.contains("the file is in EPSG:25833, the dataset in EPSG:3857"), "{format}: {error}");
            let places =
                format!("SELECT ST_AsText(ST_SnapToGrid(geometry, 0.001)) FROM '{file}' WHERE geometry IS NOT NULL");
            let places = places.replace("geometry", if format == "geojson" { "geometry" } else { "shape" });
            assert_eq!(connection.rows(&places).unwrap().1, [["POINT(13.4 52.5)"]], "{format}");
        }
        let rows = connection.rows("SELECT id, ST_AsEWKT(shape) FROM plots ORDER BY id").unwrap().1;
        assert_eq!(rows, [["1", "SRID=25833;POINT(391390 5817855)"], ["2", "NULL"]], "{format}");
    }
}
