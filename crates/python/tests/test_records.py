"""Records go in as dicts and dataclasses, and come out as they went in."""

import datetime as dt
import uuid
from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import pytest
import shapely

import terrane
from conftest import PLACES


def test_values_of_every_type_come_back(db):
    zone = dt.timezone(dt.timedelta(hours=2))
    record = {
        "id": 7,
        "lon": 1.5,
        "lat": -2.25,
        "flag": True,
        "count": 2**63 - 1,
        "speed": 0.1,
        "text": "ü",
        "raw": b"\x00\xff",
        "day": dt.date(1969, 12, 31),
        "local": dt.datetime(2008, 5, 17, 10, 0, 4, 5),
        "instant": dt.datetime(1965, 5, 17, 10, 0, 4, 999999, tzinfo=zone),
        "ident": uuid.UUID(int=5),
        "nothing": None,
    }
    records = db.create("records", [record, {"id": 8, "lon": 0, "lat": 0, "nothing": 1}], key="id")
    found = records.get(7)
    assert found == record | {"instant": record["instant"].astimezone(dt.timezone.utc)}
    assert found["instant"].utcoffset() == dt.timedelta(0)
    assert records.query(where="id = 7", columns=["flag", "day", "ident"]).fetchall() == [
        (True, dt.date(1969, 12, 31), uuid.UUID(int=5))
    ]
    assert records.get(9) is None


@dataclass
class Place:
    id: int
    lon: float
    lat: float
    name: str


Row = namedtuple("Row", "id lon lat name")


@pytest.mark.parametrize("make", [dict, lambda **values: Place(**values), lambda **values: Row(**values)])
def test_records_of_every_class_are_taken(db, make):
    places = db.create("places", [make(**place) for place in PLACES], key="id")
    assert [places.get(place["id"]) for place in PLACES] == PLACES
    assert places.insert(make(id=4, lon=1.0, lat=2.0, name="x")) == 4


def test_numbers_of_numpy_are_numbers(db):
    records = [{"id": np.int64(1), "lon": np.float32(0.5), "lat": np.float64(1), "n": np.uint8(3)}]
    assert db.create("n", records, key="id").get(1) == {"id": 1, "lon": 0.5, "lat": 1.0, "n": 3}


@pytest.mark.parametrize("text", ["POINT Z (1 2 3)", "POLYGON ((0 0, 4 0, 4 4, 0 4, 0 0), (1 1, 2 1, 2 2, 1 1))"])
def test_geometries_are_shapely_or_wkt(db, text):
    geometry = shapely.from_wkt(text)
    shapes = db.create("shapes", [{"id": 1, "shape": geometry}, {"id": 2, "shape": None}], key="id", geometry="shape")
    assert shapely.from_wkt(shapes.get(1)["shape"]).equals(geometry) and shapes.get(2)["shape"] is None
    shapes.insert({"id": 3, "shape": text})
    assert shapes.get(3)["shape"] == shapes.get(1)["shape"]
    assert shapes.count(intersects=geometry) == 2


def test_later_records_may_lack_columns_and_bring_new_ones(places):
    places.insert([{"id": 4, "lon": 0.0, "lat": 0.0}, {"id": 5, "lon": 0.0, "lat": 0.0, "height": 2.5}])
    assert places.get(4)["name"] is None and places.get(5)["height"] == 2.5 and places.get(1)["height"] is None


def test_integers_become_floats_when_fractions_arrive(db):
    counts = db.create("counts", [{"id": 1, "lon": 0.0, "lat": 0.0, "n": 1}], key="id")
    counts.insert({"id": 2, "lon": 0.0, "lat": 0.0, "n": 0.5})
    assert (counts.get(1)["n"], counts.get(2)["n"]) == (1.0, 0.5)


def test_refused_rows_are_named(places):
    with pytest.raises(terrane.DuplicateKeyError) as error:
        places.insert([{"id": 9, "lon": 0.0, "lat": 0.0}, {"id": 1, "lon": 0.0, "lat": 0.0}])
    assert error.value.row == 1 and error.value.key == "1"
    assert places.get(9), "the other row is stored"
    with pytest.raises(terrane.RefusedError, match="swap") as error:
        places.insert({"id": 10, "lon": 37.0, "lat": -122.0})
    assert error.value.row == 0
    with pytest.raises(terrane.RefusedError, match='row 1: column "name"'):
        places.insert([{"id": 11, "lon": 0, "lat": 0, "name": "x"}, {"id": 12, "lon": 0, "lat": 0, "name": 3}])
    assert places.upsert({"id": 1, "lon": 0.0, "lat": 1.0, "name": "new"}) == 1
    assert places.get(1)["name"] == "new"


def test_an_import_is_all_or_nothing(db):
    rows = PLACES + [{"id": 4, "lon": 500.0, "lat": 0.0, "name": "nowhere"}]
    with pytest.raises(terrane.RefusedError, match="row 3"):
        db.create("places", rows, key="id")
    assert db.datasets() == []
    assert len(db.create("places", rows, key="id", on_invalid="skip")) == 3


def test_deletes_are_by_key_or_condition(places):
    assert places.delete(1) == 1 and places.delete([1, 2]) == 1
    assert places.delete(where="name = 'San José'") == 1 and len(places) == 0
    with pytest.raises(terrane.UsageError):
        places.delete()


def test_keys_of_every_type(db):
    for name, keys in {"t": ["a", "ü"], "u": [uuid.UUID(int=1), uuid.UUID(int=2)], "b": [2**64 - 1, 2**63]}.items():
        dataset = db.create(name, [{"k": key, "lon": 0.0, "lat": 0.0} for key in keys], key="k")
        assert [dataset.get(key)["k"] for key in keys] == keys
        with pytest.raises(terrane.UsageError):
            dataset.get(1.5)


def test_rows_are_numbered_without_a_key(db):
    notes = db.create("notes", [{"lon": 0.0, "lat": 0.0, "n": 1}], key="")
    first = notes.insert({"lon": 1.0, "lat": 1.0, "n": 2})
    assert notes.get(first)["n"] == 2


def test_a_dataset_may_begin_empty(db):
    schema = {
        "id": "uint64", "lon": "float64", "lat": "float64", "name": "utf8", "at": "timestamp (UTC)", "ident": "uuid"
    }
    empty = db.create("empty", schema=schema, key="id")
    assert empty.schema == schema and len(empty) == 0
    assert db.create("same", schema=empty.query().arrow().schema, key="id").schema == schema
    assert db.create("shapes", schema={"id": "int64", "shape": "geometry"}, key="id").schema["shape"] == "geometry"
    for wrong in ({"id": "int65", "lon": "float64", "lat": "float64"}, {"id": "int64"}, {}, None):
        with pytest.raises(terrane.UsageError):
            db.create("wrong", schema=wrong)
