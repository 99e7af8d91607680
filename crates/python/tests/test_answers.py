"""Values of SQL as objects of Python, and answers as data frames."""

import datetime as dt
import uuid
from decimal import Decimal

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import shapely

import terrane

UTC = dt.timezone.utc
DAY = dt.datetime(2020, 1, 2)


@pytest.mark.parametrize(
    "expression, value",
    [
        ("arrow_cast('2020-01-02', 'Timestamp(Second, None)')", DAY),
        ("arrow_cast('2020-01-02', 'Timestamp(Millisecond, None)')", DAY),
        ("arrow_cast('2020-01-02', 'Timestamp(Microsecond, None)')", DAY),
        ("arrow_cast('2020-01-02T00:00:00.123456789', 'Timestamp(Nanosecond, None)')", DAY.replace(microsecond=123456)),
        ("arrow_cast('1969-12-31T23:59:59.9999999', 'Timestamp(Nanosecond, None)')", dt.datetime(1969, 12, 31, 23, 59, 59, 999999)),
        ("arrow_cast('2020-01-02', 'Timestamp(Second, Some(\"+02:00\"))')", dt.datetime(2020, 1, 1, 22, tzinfo=UTC)),
        ("arrow_cast('2020-01-02', 'Date64')", dt.date(2020, 1, 2)),
        ("arrow_cast('01:02:03', 'Time32(Second)')", dt.time(1, 2, 3)),
        ("arrow_cast('01:02:03.5', 'Time64(Nanosecond)')", dt.time(1, 2, 3, 500_000)),
        ("arrow_cast(90, 'Duration(Second)')", dt.timedelta(seconds=90)),
        ("arrow_cast(-1500, 'Duration(Millisecond)')", dt.timedelta(seconds=-1.5)),
        ("interval '1 day 2 hours'", dt.timedelta(days=1, hours=2)),
        ("interval '1 month'", "1 mons"),
        ("[1, 2, NULL]", [1, 2, None]),
        ("[['a'], []]", [["a"], []]),
        ("arrow_cast([1, 2], 'LargeList(Int64)')", [1, 2]),
        ("arrow_cast([1, 2], 'FixedSizeList(2, Int64)')", [1, 2]),
        ("named_struct('a', 1, 'b', 'x')", {"a": 1, "b": "x"}),
        ("map(['a', 'b'], [1, NULL])", {"a": 1, "b": None}),
        ("cast(1.10 AS decimal(10, 2))", Decimal("1.10")),
        ("arrow_cast('12345678901234567890123.45', 'Decimal256(50, 2)')", Decimal("12345678901234567890123.45")),
        ("arrow_cast(-1, 'Int8')", -1),
        ("arrow_cast(65535, 'UInt16')", 65535),
        ("arrow_cast(18446744073709551615, 'UInt64')", 2**64 - 1),
        ("arrow_cast(1.5, 'Float16')", 1.5),
        ("arrow_cast('a', 'Utf8View')", "a"),
        ("arrow_cast('a', 'LargeUtf8')", "a"),
        ("arrow_cast('a', 'BinaryView')", b"a"),
        ("arrow_cast('abc', 'LargeBinary')", b"abc"),
        ("arrow_cast('a', 'Dictionary(Int32, Utf8)')", "a"),
        ("NULL", None),
    ],
)
def test_every_type_of_sql_has_a_form(db, expression, value):
    answer = db.sql(f"SELECT {expression} AS v")
    ((found,),) = answer.fetchall()
    assert found == value and type(found) is type(value)
    assert (str(value) in repr(answer) or value is None) and "<table>" in answer._repr_html_()
    answer.df()
    assert answer.pl().height == 1


def test_times_after_the_last_of_python_are_text(db):
    answer = db.sql("SELECT arrow_cast(400000000000, 'Timestamp(Second, None)'), arrow_cast(3000000, 'Date32')")
    assert answer.fetchall() == [("+14645-06-30T15:06:40", "+10183-09-21")] and "+10183" in repr(answer)


def test_the_present_is_a_datetime(db):
    ((now, time),) = db.sql("SELECT now(), current_time").fetchall()
    assert abs(now - dt.datetime.now(now.tzinfo and UTC)) < dt.timedelta(hours=24) and isinstance(time, dt.time)


def test_encoded_columns_have_the_values_that_they_stand_for(db):
    runs = pa.table({"v": pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["z", None]))})
    assert db.sql("SELECT v FROM runs").fetchall() == [("z",), ("z",), (None,)]


def test_polars_gets_geometries_as_wkb(db):
    shapes = db.create("shapes", [{"id": 1, "geometry": shapely.box(0, 0, 1, 1)}], key="id")
    frame = shapes.query().pl()
    assert frame.schema == {"id": pl.Int64, "geometry": pl.Binary}
    assert shapely.from_wkb(frame["geometry"][0]).equals(shapely.box(0, 0, 1, 1))
    nested = db.sql("SELECT array_agg(geometry) AS shapes FROM shapes").pl()
    assert shapely.from_wkb(nested["shapes"][0][0]).area == 1
    named = db.create("named", [{"id": uuid.UUID(int=5), "lon": 0.0, "lat": 0.0}], key="id")
    assert named.query().pl()["id"].to_list() == [uuid.UUID(int=5).bytes]


def test_errors_of_statements_are_those_of_the_package(db):
    failing = pd.DataFrame({"a": [0]})
    answer = db.sql("SELECT 1 / a FROM failing")
    for use in (answer.fetchall, answer.arrow, answer.df, answer.pl):
        with pytest.raises(terrane.Error, match="Divide by zero"):
            use()
    assert len(failing) == 1


def test_an_answer_without_geometry_is_no_geodataframe(db, places):
    for answer in (db.sql("SELECT count(*) AS n FROM places"), places.query(columns=["id", "lon"])):
        for use in (answer.gdf, answer.plot):
            with pytest.raises(terrane.UsageError, match="geometry"):
                use()


def test_geodataframes_keep_columns_that_are_called_geometry(db):
    record = {"id": 1, "lon": 1.0, "lat": 2.0, "geometry": 5, "geometry_1": "keep me"}
    frame = db.create("named", [record], key="id", lon="lon", lat="lat").query().gdf()
    assert frame["geometry"][0] == 5 and frame["geometry_1"][0] == "keep me"
    assert frame.geometry[0] == shapely.Point(1, 2)


def test_large_integers_beside_missing_ones_are_exact(db):
    records = [{"id": i, "lon": 0.0, "lat": 0.0, "large": large, "small": small} for i, large, small in
               [(1, 2**53 + 1, 3), (2, None, None)]]
    dataset = db.create("numbers", records, key="id")
    for frame in (dataset.query(order_by="id").df(), dataset.query(order_by="id").gdf()):
        assert frame["large"].dtype == pd.Int64Dtype() and frame["large"][0] == 2**53 + 1
        assert frame["small"].dtype == float and frame["large"].isna().tolist() == [False, True]
