"""Errors have their attributes, and say what to do in terms of Python."""

import pickle
import warnings

import geopandas
import pyarrow as pa
import pytest
import shapely

import terrane


def test_a_missing_dataset_is_a_key_that_is_not_found(db, places):
    for missing in (lambda: db["plazes"], lambda: db.drop("plazes")):
        with pytest.raises(KeyError) as error:
            missing()
        assert isinstance(error.value, terrane.NotFoundError) and isinstance(error.value, terrane.UsageError)
        assert str(error.value).startswith('there is no dataset "plazes"')
    assert isinstance(pickle.loads(pickle.dumps(error.value)), terrane.NotFoundError)


@pytest.mark.parametrize(
    "call",
    [
        lambda places: places.query(columns=["nme"]),
        lambda places: places.query(where="nme = 'x'"),
        lambda places: places.query(order_by="nme"),
        lambda places: places.create_index("i", "btree", "nme"),
        lambda places: places.drop_index("i"),
    ],
)
def test_names_that_are_not_there_are_not_found(places, call):
    with pytest.raises(terrane.NotFoundError, match="nme|no index"):
        call(places)


@pytest.mark.parametrize(
    "call",
    [
        lambda places: places.query(limit=-1),
        lambda places: places.query(limit="3"),
        lambda places: places.query(limit=1.5),
        lambda places: places.nearest((0, 0), k=-1),
        lambda places: places.nearest((0, 0), k=True),
        lambda places: places.nearest((0, 0, 0)),
        lambda places: places.nearest("ab"),
        lambda places: places.query(bbox=(1, 2, 3)),
        lambda places: places.query(bbox="abcd"),
        lambda places: places.query(circle=(1, 2)),
        lambda places: places.query(columns="name"),
        lambda places: places.query(columns=[1]),
        lambda places: places.query(where=5),
        lambda places: places.query(match=5),
        lambda places: places.query(order_by=5),
        lambda places: places.count(bbox=5),
        lambda places: places.delete(5.5),
        lambda places: places.delete(object()),
        lambda places: places.create_index("i", "btree", 5),
        lambda places: places.get(2**70),
        lambda places: places.get(None),
    ],
)
def test_wrong_arguments_are_usage_errors(places, call):
    with pytest.raises(terrane.UsageError):
        call(places)
    assert len(places) == 3


def test_refused_rows_have_their_attributes(db, places):
    place = {"id": 9, "lon": 0.0, "lat": 0.0}
    for row, column, data in [
        (1, None, [place, 5]),
        (0, None, [{5: 1}]),
        (1, "name", [place | {"name": "x"}, place | {"name": object()}]),
        (0, "lon", [place | {"lon": float("nan")}]),
        (0, "lon", [place | {"lon": 500.0}]),
        (0, "id", [place | {"id": None}]),
        (None, "name", [place | {"name": 5}]),
    ]:
        with pytest.raises(terrane.RefusedError) as error:
            places.insert(data)
        assert (error.value.row, error.value.column) == (row, column), error.value
    for class_, names in [(terrane.RefusedError, "row column"), (terrane.DuplicateKeyError, "row column key"),
                          (terrane.LockedError, "pid")]:
        assert all(getattr(class_("a message"), name) is None for name in names.split())


def test_errors_of_keys_say_what_became_of_other_rows(places):
    rows = [{"id": id, "lon": 0.0, "lat": 0.0} for id in (7, 1, 8, 2)]
    with pytest.raises(terrane.DuplicateKeyError, match=r"row 1: .*\(of all rows: 2 refused, 2 stored\)") as error:
        places.insert(rows)
    assert (error.value.row, error.value.key) == (1, "1") and len(places) == 5


def test_a_reader_that_fails_says_how_many_rows_were_stored(places):
    def batches():
        yield pa.record_batch({"id": [7, 8], "lon": [0.0, 1.0], "lat": [0.0, 1.0]})
        raise RuntimeError("the sensor is gone")

    schema = pa.schema([("id", pa.int64()), ("lon", pa.float64()), ("lat", pa.float64())])
    with pytest.raises(terrane.RefusedError, match="the sensor is gone(.|\n)*2 stored"):
        places.insert(pa.RecordBatchReader.from_batches(schema, batches()))
    assert len(places) == 5


def test_advice_names_no_flags_of_the_command_line(db):
    for record in ({"id": 1, "lon": 200.0, "lat": 0.0}, {"id": 1, "lon": "NULL", "lat": 0.0}):
        with pytest.raises(terrane.Error) as error:
            db.create("t", [record], key="id", lon="lon", lat="lat")
        assert "--" not in str(error.value), error.value


def test_changes_of_values_give_warnings_once(db, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("id,lon,lat,v\n1,180.0000000001,0,1\n2,0,0,18446744073709551615\n")
    with pytest.warns(UserWarning) as given:
        db.import_files("files", path, key="id")
    messages = [str(warning.message) for warning in given]
    assert len(messages) == len(set(messages)) >= 2, messages
    assert all(message.startswith(str(path)) for message in messages) and given[0].filename == __file__
    assert any("moved onto its bound" in message for message in messages) and any('"v"' in message for message in messages)
    with pytest.warns(UserWarning, match="1 row was refused and left out"):
        db.create("t", [{"id": 1, "lon": 0.0, "lat": 0.0}, {"id": 2, "lon": 500.0, "lat": 0.0}], on_invalid="skip")


def test_an_import_whose_warnings_are_errors_stores_nothing(db):
    fine = pa.table({"id": [1], "lon": [0.0], "lat": [0.0], "t": pa.array([1], pa.timestamp("ns"))})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="nanoseconds"):
            db.create("t", fine, key="id")
    assert db.datasets() == []


def test_planes_need_no_reference_system(db, recwarn):
    frame = geopandas.GeoDataFrame({"id": [1]}, geometry=[shapely.Point(500, 600)])
    assert db.create("plane", frame, key="id", planar=True).upsert(frame) == 1 and not recwarn.list
    with pytest.warns(UserWarning, match="declares no coordinate reference system"):
        db.create("globe", frame.assign(geometry=[shapely.Point(5, 6)]), key="id")
