//! Prepared queries whose plan is kept: each execution has the rows of the query with the values
//! written into it.

use crate::database::{Database, Mode};

/// A query, values for it, and whether its plan is kept for the first of them.
type Case = (&'static str, &'static [&'static [&'static str]], bool);

const CASES: &[Case] = &[
    (
        "SELECT id, class, ST_AsText(geometry) FROM grid WHERE ST_Intersects(geometry, ST_MakeEnvelope($1, $2, $3, $4))",
        &[
            &["10.5", "20.5", "13.5", "23.5"],
            &["100.5", "150.5", "101.5", "190.5"],
            // Other types, an empty window, and one that no number bounds.
            &["10", "20", "13", "23"],
            &["13.5", "23.5", "10.5", "20.5"],
            &["-1e308", "-1e308", "1e308", "1e308"],
            &["NULL", "1.5", "2.5", "3.5"],
            &["10.5", "20.5", "13.5", "23.5"],
        ],
        true,
    ),
    ("SELECT * FROM grid WHERE id = $1", &[&["15"], &["14"], &["15.0"], &["15.5"], &["'15'"], &["-3"]], true),
    (
        "SELECT id, ST_Distance(geometry, ST_Point($1, $2)) FROM grid WHERE class = $3 AND value > $4
         ORDER BY geometry <-> ST_Point($1, $2), id LIMIT 10",
        &[
            &["70.25", "80.5", "'a'", "3.5"],
            &["-70.25", "1000.5", "'b'", "100.0"],
            &["70.25", "80.5", "'nothing'", "3.5"],
            &["1e300", "1e300", "'c'", "0.0"],
        ],
        true,
    ),
    (
        "SELECT count(*), max(value), $1 + 1 FROM grid WHERE value < $1",
        &[&["17.5"], &["0.0"], &["-0.0"], &["17"]],
        true,
    ),
    (
        "SELECT class, count(*) FROM grid WHERE x BETWEEN $1 AND $2 OR id IN ($3, 5) GROUP BY class ORDER BY class",
        &[&["1.5", "2.5", "1000"], &["2.5", "1.5", "3"], &["1e400", "2.5", "3"]],
        true,
    ),
    ("SELECT id FROM numbers WHERE r = $1", &[&["0.1"], &["2.5"], &["0.0"], &["-0.0"], &["1e300"], &["2"]], true),
    ("SELECT id FROM numbers WHERE r < $1", &[&["0.1"], &["1e300"], &["3"], &["-1e300"]], true),
    ("SELECT id FROM numbers WHERE i < $1", &[&["9007199254740992.0"], &["9007199254740993"], &["0.5"]], true),
    ("SELECT id FROM numbers WHERE f >= $1", &[&["9007199254740992"], &["9007199254740993"], &["-0.0"]], true),
    ("SELECT id FROM numbers WHERE r > i + $1", &[&["1"], &["0.5"]], true),
    (
        "SELECT NAME, seen FROM PLACES WHERE founded > $1 AND name < $2",
        &[&["'1978-01-01'", "'Q'"], &["'x'", "'Q'"]],
        true,
    ),
    (
        "SELECT zone FROM zones WHERE ST_Contains(geometry, $1::geometry) ORDER BY zone",
        &[&["'POINT(13.1 52.1)'"], &["'POINT EMPTY'"], &["'LINESTRING(1 50, 2 51)'"], &["'no shape'"]],
        true,
    ),
    (
        "SELECT id FROM places WHERE ST_DWithin(geometry::geography, ST_Point($1, $2)::geography, $3)",
        &[
            &["13.4", "52.5", "40000.0"],
            &["179.9", "-16.5", "100000.0"],
            &["13.4", "92.5", "40000.0"],
            &["13.4", "52.5", "-1.0"],
        ],
        true,
    ),
    (
        "SELECT id, ST_Distance(geometry, ST_Transform(ST_SetSRID(ST_Point($1, $2), 3857), 4326)) FROM places
         WHERE ST_DWithin(geometry, ST_Transform(ST_SetSRID(ST_Point($1, $2), 3857), 4326), 10)
         ORDER BY geometry <-> ST_Transform(ST_SetSRID(ST_Point($1, $2), 3857), 4326), id LIMIT 3",
        &[&["1490000.5", "6890000.5"], &["-13600000.0", "4500000.0"]],
        true,
    ),
    ("SELECT id FROM grid ORDER BY id LIMIT $1", &[&["3"], &["0"]], false),
    ("SELECT id FROM grid WHERE id IN (SELECT id FROM places WHERE id > $1)", &[&["2"], &["5"]], false),
    ("SELECT id, now() > '2020-01-01' FROM places WHERE id = $1", &[&["2"]], false),
];

#[test]
fn a_kept_plan_has_the_rows_of_a_new_one() {
    for mode in [Mode::Indexed, Mode::NoPushdown] {
        let database = Database::create(mode);
        let connection = database.connect();
        for (query, executions, is_kept) in CASES {
            connection.rows(&format!("PREPARE q AS {query}")).unwrap();
            for (number, values) in executions.iter().enumerate() {
                let mut written = (*query).to_owned();
                for (position, value) in values.iter().enumerate() {
                    written = written.replace(&format!("${}", position + 1), &format!("({value})"));
                }
                let before = connection.session.kept_runs();
                for round in 0..2 {
                    let executed = connection.rows(&format!("EXECUTE q({})", values.join(", ")));
                    let case = format!("{mode:?}, {round}: {query} with {values:?}");
                    match (connection.rows(&written), executed) {
                        (Ok((types, mut wanted)), Ok((executed_types, mut found))) => {
                            if !query.contains("ORDER BY") {
                                wanted.sort();
                                found.sort();
                            }
                            assert_eq!((executed_types, found), (types, wanted), "{case}");
                        }
                        (Err(_), Err(_)) => {}
                        (written, executed) => panic!("{case}: {written:?} and {executed:?}"),
                    }
                }
                let kept = connection.session.kept_runs() - before;
                if number == 0 && mode == Mode::Indexed {
                    assert_eq!(kept, if *is_kept { 2 } else { 0 }, "{query}");
                }
            }
            connection.rows("DEALLOCATE q").unwrap();
        }
    }
}

#[test]
fn a_query_with_values_keeps_its_plan_without_being_prepared() {
    let database = Database::create(Mode::Indexed);
    let session = database.connect().session;
    for (id, wanted) in [("15", 1), ("14", 0), ("1e300", 0), ("16", 1)] {
        let mut script = session.parse("SELECT id FROM grid WHERE id = $1").unwrap();
        let params = [terrane_sql::Param::parse(id)];
        let answer = session.run_next(&mut script, &database.store, &params).unwrap().unwrap();
        assert_eq!(answer.map(|batch| batch.unwrap().num_rows()).sum::<usize>(), wanted, "{id}");
    }
    assert_eq!(session.kept_runs(), 3, "all but the number that no float32 holds");
}

/// A kept plan reads the newest state, and not with settings or tables of before.
#[test]
fn a_kept_plan_follows_changes() {
    let database = Database::create(Mode::Indexed);
    let connection = database.connect();
    let count = |wanted: &str| assert_eq!(connection.rows("EXECUTE q(3)").unwrap().1, [[wanted]]);
    connection.rows("PREPARE q AS SELECT count(*) FROM numbers WHERE id <= $1").unwrap();
    count("3");
    connection.rows("DELETE FROM numbers WHERE id = 2").unwrap();
    count("2");
    connection.rows("DROP INDEX by_i; CREATE INDEX again ON numbers (i); SET terrane.pushdown = false").unwrap();
    count("2");
    connection.rows("SET terrane.pushdown = true; ALTER TABLE numbers ADD COLUMN more text").unwrap();
    count("2");
    connection.rows("DROP TABLE numbers; CREATE TABLE numbers (id bigint PRIMARY KEY, geom geometry(Point))").unwrap();
    count("0");
    connection.rows("INSERT INTO numbers VALUES (1, ST_Point(1, 2)), (9, NULL)").unwrap();
    count("1");
    assert_eq!(connection.session.kept_runs(), 6);
    connection.rows("DROP TABLE numbers").unwrap();
    assert!(connection.rows("EXECUTE q(3)").is_err());
    connection.rows("BEGIN").unwrap();
    connection.rows("DELETE FROM grid WHERE id = 1").unwrap();
    connection.rows("PREPARE g AS SELECT count(*) FROM grid WHERE id = $1").unwrap();
    assert!(connection.rows("EXECUTE g(1)").is_err(), "a table that the transaction has changed");
    connection.rows("ROLLBACK").unwrap();
    assert_eq!(connection.rows("EXECUTE g(1)").unwrap().1, [["1"]]);
}
