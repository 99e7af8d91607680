"""Stores: opening, closing, forks, threads, kills."""

import os
import signal
import subprocess
import sys
import threading

import pytest

import terrane
from conftest import PLACES


def test_a_closed_store_says_so(path):
    db = terrane.open(path)
    places = db.create("places", PLACES, key="id")
    result = places.query()
    db.close()
    db.close()
    for use in (db.datasets, lambda: places.get(1), result.fetchall, lambda: len(places)):
        with pytest.raises(terrane.ClosedError, match="is closed"):
            use()
    assert "closed" in repr(db)


def test_data_is_there_after_reopening(path):
    with terrane.open(path) as db:
        db.create("places", PLACES, key="id")
    with terrane.open(path, read_only=True) as db:
        assert db["places"].get(3) == PLACES[2] and "places" in db and db.datasets() == ["places"]
        with pytest.raises(terrane.UsageError, match="reading only"):
            db["places"].insert({"id": 4, "lon": 0.0, "lat": 0.0})
    with pytest.raises(KeyError, match="there is no dataset"):
        terrane.open(path)["plazes"]


def test_a_second_writer_is_refused(path):
    db = terrane.open(path)
    code = "import sys, terrane\ntry: terrane.open(sys.argv[1])\nexcept terrane.LockedError as error: print(error.pid)"
    assert subprocess.check_output([sys.executable, "-c", code, path], text=True) == f"{os.getpid()}\n"
    db.close()


def test_a_fork_is_refused_and_harms_nothing(db, places):
    pid = os.fork()
    if pid == 0:
        try:
            places.get(1)
        except terrane.ClosedError as error:
            os._exit(0 if "fork" in str(error) else 2)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    assert places.insert({"id": 4, "lon": 0.0, "lat": 0.0}) == 4


def test_a_fork_that_lives_keeps_no_lock(path, tmp_path):
    db, index = terrane.open(path), terrane.Index(tmp_path / "index")
    db.create("places", PLACES, key="id")
    index.insert(1, (0, 0, 1, 1))
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(writing)
        # Until the parent has tried.
        os.read(reading, 1)
        try:
            index.query((0, 0, 1, 1))
        except terrane.ClosedError:
            os._exit(0)
        os._exit(1)
    db.close()
    index.close()
    terrane.open(path).close()
    with terrane.Index(tmp_path / "index") as again:
        assert again.query((0, 0, 1, 1)) == [1]
    os.close(writing)
    os.close(reading)
    assert os.waitpid(pid, 0)[1] == 0


def test_threads_write_and_read_at_once(db, places):
    def write(thread):
        for i in range(50):
            places.insert({"id": 1000 * thread + i, "lon": 0.0, "lat": 0.0, "name": str(thread)})
            places.query(where=f"name = '{thread}'").fetchall()

    threads = [threading.Thread(target=write, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(places) == 203 and db.check() == []


def test_acknowledged_inserts_survive_a_kill(path):
    code = """
import sys, terrane
places = terrane.open(sys.argv[1]).create("places", [{"id": 0, "lon": 0.0, "lat": 0.0}], key="id")
for i in range(1, 1_000_000):
    print(places.insert({"id": i, "lon": 0.0, "lat": 0.0}), flush=True)
"""
    writer = subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE, text=True)
    keys = [int(writer.stdout.readline()) for _ in range(200)]
    writer.send_signal(signal.SIGKILL)
    keys += [int(line) for line in writer.stdout if line.endswith("\n")]
    writer.wait()
    with terrane.open(path) as db:
        assert all(db["places"].get(key) for key in keys)


def test_results_are_of_one_snapshot(places):
    result = places.query()
    places.delete(where="id > 0")
    assert len(result) == len(result.fetchall()) == 3 and len(places) == 0


def test_what_is_shown(db, places):
    assert repr(places) == (
        "<terrane.Dataset places: 3 records, key id int64, points lon, lat, name utf8>"
    )
    assert "places" in repr(db)
    result = places.query(where="id = 3")
    assert "San José" in repr(result) and repr(result).endswith("1 row")
    assert "<td>San José</td>" in result._repr_html_()
    assert result._repr_html_().count("h0") == 1, "the picture has its place"
    assert "<svg" not in places.query(where="id < 0")._repr_html_(), "nothing, so no picture"
    shapes = db.sql("SELECT 'POLYGON((0 0,4 0,4 4,0 0),(1 0.5,2 0.5,2 1,1 0.5))'::geometry AS a, ST_Point(1, 2) AS b")
    picture = shapes._repr_html_()
    assert picture.count('Z"') == 2 and picture.count("h0") == 1, "two rings and a point"


def test_planes_with_a_number_keep_it(db):
    db.sql("CREATE TABLE plots (id BIGINT PRIMARY KEY, shape GEOMETRY(Point, 25833))")
    db.sql("INSERT INTO plots VALUES (1, 'POINT(391390 5817855)')")
    assert db["plots"].query().crs == db.sql("SELECT shape FROM plots").crs == "EPSG:25833"
    assert db["plots"].query().gdf().crs.to_epsg() == 25833
    assert db.sql("SELECT 1 AS one").crs is None
    both = db.sql("SELECT 'POINT(1 2)'::geometry AS bare, shape, 'POINT(13 52)'::geography AS place FROM plots").gdf()
    assert both.crs is None and both["shape"].crs == "EPSG:25833" and both["place"].crs == "EPSG:4326"


@pytest.mark.parametrize(
    "call",
    [
        lambda places: places.query(where="nme = 'x'"),
        lambda places: places.query(where="name ="),
        lambda places: places.query(columns=["nme"]),
        lambda places: places.query(intersects="POINT (1"),
        lambda places: places.query(intersects=3.5),
        lambda places: places.query(bbox=(0, 1, float("nan"), 2)),
        lambda places: places.create_index("i", "bt", "name"),
    ],
)
def test_wrong_calls_are_usage_errors_at_once(places, call):
    with pytest.raises(terrane.UsageError):
        call(places)


def test_memory_limits_are_sizes(path):
    for limit in ("64MiB", 64 << 20):
        terrane.open(path, memory_limit=limit).close()
    for limit in ("64 parsecs", -1, 1.5):
        with pytest.raises(terrane.UsageError, match="size|bytes"):
            terrane.open(path, memory_limit=limit)
