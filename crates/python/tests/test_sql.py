"""SQL over the datasets of a store."""

import _thread
import datetime
import decimal
import enum
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor

import numpy
import pandas
import pyarrow
import pytest
import shapely

import terrane
from conftest import PLACES


def test_statements_have_answers(db, places):
    answer = db.sql("SELECT id, name FROM places WHERE ST_DWithin(geometry, ST_Point(-122.4, 37.8), 0.2) ORDER BY id")
    assert answer.columns == ["id", "name"]
    assert answer.fetchall() == [(1, "San Francisco"), (2, "Oakland")] == answer.fetchall()
    assert len(answer) == 2 and answer.df()["name"].tolist() == ["San Francisco", "Oakland"]
    assert db.sql("SELECT count(*) FROM places").fetchall() == [(3,)]


def test_each_use_sees_the_state_that_was_asked(db, places):
    count, numbers = db.sql("SELECT count(*) FROM places"), db.sql("SELECT id AS n FROM places ORDER BY id")
    db.sql("PREPARE near AS SELECT id FROM places WHERE id < $1")
    kept = db.sql("EXECUTE near(3)")
    places.delete(1)
    assert count.fetchall() == [(3,)] == count.fetchall()
    db.drop("places")
    db.create("places", [{"id": "x", "lon": 0, "lat": 0}], key="id")
    for _ in range(2):
        assert numbers.df()["n"].tolist() == [1, 2, 3] and len(count) == 1
        assert kept.fetchall() == [(1,), (2,)]
    assert db.sql("SELECT n FROM numbers").fetchall() == [(1,), (2,), (3,)]


def test_parameters_keep_their_type(db):
    db.create("t", [{"code": "007", "lon": 0.0, "lat": 0.0, "n": 7}, {"code": "7", "lon": 1.0, "lat": 0.0, "n": 8}])
    assert db.sql("SELECT n FROM t WHERE code = $1", ["007"]).fetchall() == [(7,)]
    assert db.sql("SELECT code FROM t WHERE n = $1", [8]).fetchall() == [("7",)]
    inside = db.sql("SELECT code FROM t WHERE ST_Within(geometry, $1)", [shapely.box(-1, -1, 0.5, 1)])
    assert inside.fetchall() == [("007",)]
    assert db.sql("SELECT $1 IS NULL", [None]).fetchall() == [(True,)]


def test_parameters_of_every_kind_stand_for_their_values(db):
    class Colour(str, enum.Enum):
        RED = "red"

    kinds = [
        (numpy.int32(-7), -7),
        (numpy.float32(0.5), 0.5),
        (numpy.bool_(True), True),
        (Colour.RED, "red"),
        (b"\xff\x00", b"\xff\x00"),
        (pandas.NA, None),
        (pandas.NaT, None),
    ]
    for given, wanted in kinds:
        assert db.sql("SELECT $1", [given]).fetchall() == [(wanted,)], given
    day, number = datetime.date(2020, 2, 29), uuid.uuid4()
    assert db.sql("SELECT CAST($1 AS DATE)", [day]).fetchall() == [(day,)]
    exact = db.sql("SELECT $1 = 12345678901234567890.123", [decimal.Decimal("12345678901234567890.123")])
    assert exact.fetchall() == [(True,)]
    db.create("t", [{"id": number, "lon": 0.0, "lat": 0.0, "b": b"\xff\x02"}], key="id")
    assert db.sql("SELECT b FROM t WHERE b = $1", [b"\xff\x02"]).fetchall() == [(b"\xff\x02",)]
    db.sql("UPDATE t SET b = $1", [b"\x00'"])
    assert db.sql("SELECT b FROM t").fetchall() == [(b"\x00'",)]
    assert db.sql("SELECT CAST($1 AS DOUBLE) > 1", [decimal.Decimal("Infinity")]).fetchall() == [(True,)]
    for wrong in ([1], {"a": 1}, object(), numpy.longdouble(1)):
        with pytest.raises(terrane.UsageError, match="a parameter is None"):
            db.sql("SELECT $1", [wrong])


def test_geometries_become_a_geodataframe(db, places):
    frame = db.sql("SELECT name, geometry FROM places ORDER BY id").gdf()
    assert frame.crs == "EPSG:4326" and frame.geometry.x.tolist() == [place["lon"] for place in PLACES]


def test_settings_stay_and_errors_have_a_place(db, places):
    db.sql("SET terrane.pushdown = false")
    plan = "\n".join(str(row) for row in db.sql("EXPLAIN SELECT * FROM places WHERE id = 1").fetchall())
    assert "push-down is off" in plan
    for wrong in ("SELEC 1", "SELECT nme FROM places", "SELECT * FROM plazes", "", "VACUUM"):
        with pytest.raises(terrane.UsageError):
            db.sql(wrong)


def endless(is_interrupted=lambda: True):
    """A reader of batches that never end, which interrupts the main thread once it may."""

    def batches():
        while not is_interrupted():
            yield pyarrow.record_batch({"n": [1]})
        _thread.interrupt_main()
        while True:
            yield pyarrow.record_batch({"n": [1] * 1000})

    return pyarrow.RecordBatchReader.from_batches(pyarrow.schema([("n", pyarrow.int64())]), batches())


@pytest.mark.parametrize("statement", ["SELECT sum(n) FROM reader", "CREATE TABLE t AS SELECT n FROM reader"])
def test_ctrl_c_stops_a_statement(db, places, statement):
    reader = endless()
    with pytest.raises(KeyboardInterrupt):
        db.sql(statement).fetchall()
    del reader
    assert db.sql("SELECT 1").fetchall() == [(1,)]


def test_ctrl_c_stops_the_reader_of_a_stream(db):
    begun = []
    reader = endless(lambda: begun)
    stream = pyarrow.RecordBatchReader.from_stream(db.sql("SELECT sum(n) FROM reader"))
    with pytest.raises(KeyboardInterrupt):
        try:
            begun.append(True)
            stream.read_all()
        except pyarrow.ArrowInvalid:
            while True:
                pass
    del reader


def test_streams_raise_what_other_uses_raise(db, places):
    answer = db.sql("SELECT 1 / (id - 2) FROM places")
    errors = []
    for use in (answer.fetchall, answer.arrow, answer.df, answer.pl, answer.__len__):
        with pytest.raises(terrane.Error) as error:
            use()
        errors.append(str(error.value))
    assert len(set(errors)) == 1, errors


FORGOTTEN = """
import pyarrow, terrane, tempfile
def batches():
    while True:
        yield pyarrow.record_batch({"n": [1]})
def first(db):
    reader = pyarrow.RecordBatchReader.from_batches(pyarrow.schema([("n", pyarrow.int64())]), batches())
    return iter(db.sql("SELECT * FROM reader"))
def use():
    db = terrane.open(tempfile.mkdtemp() + "/s")
    next(first(db))
    if CLOSES:
        db.close()
use()
left = first(terrane.open(tempfile.mkdtemp() + "/s"))
next(left)
print("ended")
"""


@pytest.mark.parametrize("closes", [True, False])
def test_forgotten_statements_end_with_their_database_and_with_python(closes):
    for _ in range(3):
        program = f"CLOSES = {closes}\n{FORGOTTEN}"
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert (ended.stdout, ended.returncode) == ("ended\n", 0), ended


FORKED = """
import os, sys, tempfile, terrane
db = terrane.open(tempfile.mkdtemp() + "/s")
answer = db.sql("SELECT 1")
begun = iter(db.sql("SELECT 1"))
pid = os.fork()
if pid == 0:
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
assert answer.fetchall() == [(1,)]
"""


def test_a_fork_ends_without_the_threads_of_its_parent():
    ended = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True)
    assert ended.returncode == 0, ended


def test_answers_that_are_not_read_hold_no_memory(path):
    with terrane.open(path, memory_limit="32MiB") as db:
        points = pyarrow.table({"id": range(20_000), "lon": [0.0] * 20_000, "lat": [0.0] * 20_000})
        db.create("points", points, key="id")
        unread = [db.sql("SELECT a.id FROM points a ORDER BY a.id DESC") for _ in range(100)]
        assert db.sql("SELECT id FROM points ORDER BY id DESC").fetchall()[0] == (19_999,)
        assert all(answer.fetchall()[0] == (19_999,) for answer in unread[::30])


def test_each_thread_has_its_own_transaction(db, places):
    db.sql("BEGIN; DELETE FROM places WHERE id = 1")
    with ThreadPoolExecutor(1) as other:
        insert = "INSERT INTO places (id, name, geometry) VALUES (7, 'x', 'POINT(1 1)')"
        assert other.submit(lambda: db.sql(insert).rows_changed).result() == 1
        with pytest.raises(terrane.Error, match="no transaction is in progress"):
            other.submit(lambda: db.sql("COMMIT")).result()
    db.sql("ROLLBACK")
    assert places.get(1) and places.get(7)


def test_a_script_that_fails_leaves_no_transaction_open(db, places):
    with pytest.raises(terrane.Error):
        db.sql("BEGIN; DELETE FROM places WHERE id = 1; SELECT nonsense FROM places")
    assert places.get(1) and db.sql("DELETE FROM places WHERE id = 2").rows_changed == 1
    assert places.get(2) is None


def test_a_store_with_a_session_can_be_closed(path):
    db = terrane.open(path)
    db.create("places", PLACES, key="id")
    answer = db.sql("SELECT * FROM places")
    answer.fetchall()
    reader = iter(db.sql("SELECT * FROM places"))
    stream = pyarrow.RecordBatchReader.from_stream(db.sql("SELECT * FROM places"))
    dataset, rows = db["places"], iter(db["places"].query())
    db.sql("BEGIN; DELETE FROM places WHERE id = 1")
    db.close()
    for closed in (answer.fetchall, lambda: next(reader), lambda: next(rows), lambda: dataset.get(1)):
        with pytest.raises(terrane.ClosedError):
            closed()
    with pytest.raises(pyarrow.ArrowInvalid, match="is closed"):
        stream.read_all()
    with terrane.open(path) as again:
        assert again["places"].get(1)


def test_statements_change_the_store_once(db, places):
    inserted = db.sql("INSERT INTO places (id, name, geometry) VALUES (9, $1, 'POINT(3 4)') RETURNING id, lon", ["x"])
    assert inserted.rows_changed == 1
    assert inserted.fetchall() == [(9, 3.0)] == inserted.fetchall()
    assert places.count() == 4
    assert db.sql("UPDATE places SET name = upper(name) WHERE id >= 3").rows_changed == 2
    assert places.get(9)["name"] == "X"
    assert db.sql("DELETE FROM places WHERE id = 9").rows_changed == 1
    assert db.sql("SELECT 1").rows_changed is None
    with pytest.raises(terrane.RefusedError, match="id"):
        db.sql("INSERT INTO places (id, name) VALUES ('no', 'x')")
