"""SQL reads data frames in the caller's variables by name."""

import geopandas
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import shapely

import terrane

VISITS = pd.DataFrame({"place": [1, 3, 9], "n": [10, 30, 90]})


def test_frames_of_every_kind_are_tables(db, places):
    as_pandas = pd.DataFrame({"id": [1, 2], "weight": [0.5, None]})
    as_polars = pl.from_pandas(as_pandas)
    as_arrow = pa.Table.from_pandas(as_pandas)
    as_batch = as_arrow.to_batches()[0]
    as_answer = places.query(where="id <= 2", columns=["id"])
    for name in ("as_pandas", "as_polars", "as_arrow", "as_batch"):
        found = db.sql(f"SELECT id, weight FROM {name} ORDER BY id")
        assert found.fetchall() == [(1, 0.5), (2, None)] == found.fetchall(), name
    assert db.sql("SELECT id FROM as_answer ORDER BY id").fetchall() == [(1,), (2,)]
    assert db.sql("SELECT id FROM As_Pandas ORDER BY id").df()["id"].tolist() == [1, 2]


def test_a_frame_that_changes_afterwards_is_read_as_it_was(db):
    frame = pd.DataFrame({"n": [1.5, 2.5]})
    answer = db.sql("SELECT sum(n) FROM frame")
    frame.loc[0, "n"] = 100.0
    assert answer.fetchall() == [(4.0,)] == answer.fetchall()


def test_a_reader_is_read_once(db):
    reader = pa.table({"n": range(100_000)}).to_reader(max_chunksize=1000)
    answer = db.sql("SELECT sum(n) FROM reader")
    assert answer.fetchall() == [(4_999_950_000,)]
    with pytest.raises(terrane.Error, match="a reader can be read once"):
        answer.fetchall()
    other = pa.table({"n": [1]}).to_reader()
    with pytest.raises(terrane.Error, match="a reader can be read once"):
        db.sql("SELECT * FROM other a JOIN other b ON a.n = b.n").fetchall()


def test_frames_join_with_datasets(db, places):
    weights = pl.DataFrame({"name": ["Oakland", "Paris"], "weight": [2, 3]})
    joined = db.sql("SELECT p.id, w.weight FROM places p JOIN weights w ON w.name = p.name")
    assert joined.fetchall() == [(2, 2)]
    found = db.sql("SELECT name, n FROM places JOIN VISITS ON id = place ORDER BY n")
    assert found.fetchall() == [("San Francisco", 10), ("San José", 30)]


def test_local_variables_come_before_global_ones(db):
    assert db.sql("SELECT sum(n) FROM VISITS").fetchall() == [(130,)]

    def inner():
        VISITS = pd.DataFrame({"n": [1]})
        return db.sql("SELECT sum(n) FROM VISITS").fetchall(), len(VISITS)

    assert inner() == ([(1,)], 1)


def test_a_dataset_with_the_name_is_read_instead(db, places):
    here = pd.DataFrame({"id": [99]})
    assert db.sql("SELECT id FROM here").fetchall() == [(99,)] and len(here) == 1
    db.create("here", [{"id": 5, "lon": 0.0, "lat": 0.0}], key="id")
    assert db.sql("SELECT id FROM here").fetchall() == [(5,)]
    assert db.sql("SELECT id FROM HERE").fetchall() == [(5,)]


def test_frames_go_into_datasets(db, places):
    more = pd.DataFrame({"id": [7, 8], "lon": [1.0, 2.0], "lat": [3.0, 4.0], "name": ["x", "y"]})
    assert db.sql("INSERT INTO places (id, lon, lat, name) SELECT * FROM more").rows_changed == 2
    assert places.get(8) == {"id": 8, "lon": 2.0, "lat": 4.0, "name": "y"}
    db.sql("CREATE TABLE copied AS SELECT id, name, ST_Point(lon, lat) AS geometry FROM more")
    assert db["copied"].count(bbox=(0, 0, 1.5, 5)) == 1 and len(more) == 2
    changed = db.sql("UPDATE places SET name = more.name || '!' FROM more WHERE more.id = places.id")
    assert changed.rows_changed == 2 and places.get(7)["name"] == "x!"


def test_geometries_of_frames_are_geometries(db, places):
    boxes = geopandas.GeoDataFrame(
        {"zone": ["bay", "none"], "lon": [1, 2]},
        geometry=[shapely.box(-123, 37, -122, 38), None],
        crs="EPSG:4326",
    )
    within = "SELECT p.id, z.zone FROM places p JOIN boxes z ON ST_Within(p.geometry, z.geometry) ORDER BY p.id"
    assert db.sql(within).fetchall() == [(1, "bay"), (2, "bay")]
    found = db.sql("SELECT * FROM boxes ORDER BY zone").gdf()
    assert found.crs == boxes.crs and found.columns.tolist() == boxes.columns.tolist()
    assert found.geometry[0].equals(boxes.geometry[0]) and found.geometry[1] is None
    boxes = boxes.to_crs(3857)
    assert db.sql(within).fetchall() == [(1, "bay"), (2, "bay")], "coordinates are reprojected"
    boxes = boxes.set_crs("EPSG:2193", allow_override=True)[:1].set_crs("ESRI:54009", allow_override=True)
    with pytest.raises(terrane.UsageError, match="coordinate reference system"):
        db.sql(within)


def test_numbers_are_no_coordinates_by_themselves(db):
    pixels = pd.DataFrame({"x": [5000.0, float("nan")], "y": [1.0, 2.0]})
    assert db.sql("SELECT * FROM pixels").columns == ["x", "y"]
    assert db.sql("SELECT count(*) FROM pixels WHERE x > 100").fetchall()[0][0] >= 1


def test_prepared_statements_read_the_frame_of_their_execution(db):
    t = pd.DataFrame({"n": [1, 2, 3]})
    db.sql("PREPARE over AS SELECT n FROM t WHERE n > $1")
    assert db.sql("EXECUTE over(2)").fetchall() == [(3,)]
    t = pd.DataFrame({"n": [4, 5]})
    assert db.sql("EXECUTE over(4)").fetchall() == [(5,)]
    assert db.sql("SELECT n FROM t WHERE n > $1", [4]).fetchall() == [(5,)] and len(t) == 2


def test_variables_that_are_no_tables_are_named(db):
    numbers = [1, 2, 3]
    with pytest.raises(terrane.UsageError, match="the variable numbers is of type list, which is no table"):
        db.sql("SELECT * FROM numbers")
    assert len(numbers) == 3
    with pytest.raises(terrane.UsageError, match="unheard"):
        db.sql("SELECT * FROM unheard")


def test_consumers_that_hold_the_interpreter_get_frames(db):
    frame = pd.DataFrame({"n": range(50_000)})
    assert db.sql("SELECT n FROM frame WHERE n % 2 = 0").pl().height == 25_000
    batches = list(db.sql("SELECT n FROM frame"))
    assert sum(map(len, batches)) == len(frame)
