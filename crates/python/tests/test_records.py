"""Records go in as dicts and dataclasses, and come out as they went in."""

import datetime as dt
import uuid
from collections import namedtuple
from dataclasses import InitVar, dataclass
from decimal import Decimal
from typing import ClassVar

import numpy as np
import pandas as pd
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


@dataclass
class Station:
    kind: ClassVar[str] = "station"
    id: int
    lon: float
    lat: float
    scale: InitVar[int] = 1


def test_fields_of_dataclasses_are_columns_and_variables_are_none(db):
    assert db.create("s", [Station(1, 2.0, 3.0)], key="id").schema == {"id": "int64", "lon": "float64", "lat": "float64"}
    with pytest.raises(terrane.UsageError, match="instances"):
        db.create("t", Station)


def place(**values):
    return {"id": 1, "lon": 0.0, "lat": 0.0} | values


def test_integers_among_floats_are_exact_or_refused(db):
    mixed = db.create("n", [place(v=2**53), place(id=2, v=0.5)], key="id")
    assert (mixed.get(1)["v"], mixed.get(2)["v"]) == (2.0**53, 0.5)
    for number in (2**53 + 1, np.int64(2**53 + 1), 10**400):
        with pytest.raises(terrane.RefusedError, match="no float is exactly that") as error:
            db.create("t", [place(v=0.5), place(id=2, v=number)], key="id")
        assert (error.value.row, error.value.column) == (1, "v")


def test_decimals_become_integers_or_the_nearest_floats(db):
    whole = db.create("whole", [place(v=Decimal("9007199254740993")), place(id=2, v=7)], key="id")
    assert whole.schema["v"] == "int64" and whole.get(1)["v"] == 2**53 + 1 and whole.get(2)["v"] == 7
    with pytest.warns(UserWarning, match='column "v": decimal numbers become float64'):
        fractions = db.create("f", [place(v=Decimal("1.10")), place(id=2, v=Decimal("-12E+2")), place(id=3, v=Decimal("NaN"))], key="id")
    assert [fractions.get(id)["v"] for id in (1, 2, 3)] == [1.1, -1200.0, None]
    for wrong in (Decimal("1e40"), Decimal("0." + "1" * 39), Decimal("Infinity")):
        with pytest.raises(terrane.RefusedError, match="finite|digits"):
            db.create("t", [place(v=wrong)], key="id")
    with pytest.raises(terrane.RefusedError, match="a Decimal among values that are float"):
        db.create("t", [place(v=0.5), place(id=2, v=Decimal("0.1"))], key="id")


def test_scalars_of_numpy_keep_their_type(db):
    record = place(b=np.bool_(True), s=np.str_("x"), t=np.datetime64("2020-01-02T03:04:05.6"), d=np.datetime64("2020-01-02"))
    record |= {"nothing": np.datetime64("NaT")}
    scalars = db.create("n", [record], key="id")
    assert scalars.schema | {"b": "bool", "s": "utf8", "t": "timestamp", "d": "date"} == scalars.schema
    assert scalars.get(1) == record | {
        "t": dt.datetime(2020, 1, 2, 3, 4, 5, 600_000), "d": dt.date(2020, 1, 2), "nothing": None
    }
    with pytest.raises(terrane.RefusedError, match="no column can hold ndarray"):
        db.create("t", [place(v=np.array(5.5))], key="id")
    assert scalars.delete(np.int64(1)) == 1


@pytest.mark.parametrize("make", [pd.Timestamp, np.datetime64])
def test_nanoseconds_are_cut_with_a_warning(db, recwarn, make):
    times = db.create("exact", [place(t=make("2020-01-02T03:04:05.123456"))], key="id")
    assert not recwarn.list and times.get(1)["t"] == dt.datetime(2020, 1, 2, 3, 4, 5, 123456)
    with pytest.warns(UserWarning, match='column "t": nanoseconds are cut'):
        assert times.upsert(place(t=make("2020-01-02T03:04:06.123456789"))) == 1
    assert times.get(1)["t"] == dt.datetime(2020, 1, 2, 3, 4, 6, 123456)


def test_times_of_pandas_without_nanoseconds_give_no_warning(db, recwarn):
    times = pd.to_datetime(["2020-01-02T03:04:05.123456", None])
    frame = pd.DataFrame({"id": [1, 2], "lon": 0.0, "lat": 0.0, "t": times, "u": times.tz_localize("UTC")})
    dataset = db.create("exact", frame, key="id")
    assert not recwarn.list and dataset.get(1)["t"] == dt.datetime(2020, 1, 2, 3, 4, 5, 123456)
    assert dataset.get(2)["u"] is None
    frame.loc[0, "t"] += pd.Timedelta(1, "ns")
    with pytest.warns(UserWarning, match='column "t": nanoseconds are cut'):
        dataset.upsert(frame)


def test_rows_of_pandas_are_records(db):
    rows = [row for _, row in pd.DataFrame(PLACES).iterrows()]
    assert db.create("places", rows, key="id").get(2) == PLACES[1]


def test_nothing_is_inserted(places):
    schema = places.schema
    assert places.insert([]) == 0 == places.upsert(iter(())) and places.schema == schema
    with pytest.raises(terrane.RefusedError):
        places.insert({})
