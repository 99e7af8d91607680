"""SQL over the datasets of a store."""

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


def test_each_use_sees_the_newest_state(db, places):
    answer = db.sql("SELECT count(*) FROM places")
    assert answer.fetchall() == [(3,)]
    places.delete(1)
    assert answer.fetchall() == [(2,)]


def test_parameters_keep_their_type(db):
    db.create("t", [{"code": "007", "lon": 0.0, "lat": 0.0, "n": 7}, {"code": "7", "lon": 1.0, "lat": 0.0, "n": 8}])
    assert db.sql("SELECT n FROM t WHERE code = $1", ["007"]).fetchall() == [(7,)]
    assert db.sql("SELECT code FROM t WHERE n = $1", [8]).fetchall() == [("7",)]
    inside = db.sql("SELECT code FROM t WHERE ST_Within(geometry, $1)", [shapely.box(-1, -1, 0.5, 1)])
    assert inside.fetchall() == [("007",)]
    assert db.sql("SELECT $1 IS NULL", [None]).fetchall() == [(True,)]


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


def test_a_store_with_a_session_can_be_closed(path):
    db = terrane.open(path)
    db.create("places", PLACES, key="id")
    answer = db.sql("SELECT * FROM places")
    answer.fetchall()
    db.close()
    with pytest.raises(terrane.ClosedError):
        answer.fetchall()
    terrane.open(path).close()


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
