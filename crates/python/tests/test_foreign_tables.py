"""Tables of other programs are checked where they come in."""

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import terrane

LATIN = "Zürich".encode("latin-1")


def text(values):
    """A column of text whose bytes nothing has checked."""
    data = pa.array(values, pa.binary())
    return pa.StringArray.from_buffers(len(values), data.buffers()[1], data.buffers()[2])


def view(values):
    return pa.Array.from_buffers(pa.string_view(), len(values), pa.array(values, pa.binary_view()).buffers())


def large(values):
    data = pa.array(values, pa.large_binary())
    return pa.LargeStringArray.from_buffers(len(values), data.buffers()[1], data.buffers()[2])


def dictionary(values):
    return pa.DictionaryArray.from_arrays(pa.array(range(len(values)), pa.int32()), text(values))


def lists(values):
    return pa.ListArray.from_arrays(pa.array(range(len(values) + 1), pa.int32()), text(values))


def structs(values):
    return pa.StructArray.from_arrays([text(values)], ["inner"])


def maps(values):
    offsets = pa.array(range(len(values) + 1), pa.int32())
    return pa.MapArray.from_arrays(offsets, pa.array(["k"] * len(values)), text(values))


def table_of(column):
    ids = range(10, 10 + len(column))
    return pa.table({"id": ids, "lon": [0.0] * len(column), "lat": [0.0] * len(column), "v": column})


@pytest.mark.parametrize("make", [text, view, large, dictionary, lists, structs, maps])
def test_text_that_is_not_utf8_is_refused(db, make):
    good = db.create("good", [{"id": 1, "lon": 0.0, "lat": 0.0, "v": "ok"}], key="id")
    table = table_of(make([b"Bern", b"Basel", LATIN, b"Genf"]))
    for call in (
        lambda: good.insert(table),
        lambda: db.create("new", table, key="id"),
        lambda: (lambda foreign: db.sql("SELECT v FROM foreign"))(table),
    ):
        with pytest.raises(terrane.RefusedError, match="UTF-8") as error:
            call()
        assert (error.value.row, error.value.column) == (2, "v")
    assert db.datasets() == ["good"] and good.query().fetchall() == [(1, 0.0, 0.0, "ok")] and db.check() == []
    assert good.insert(table_of(make([b"Bern", "Zürich".encode()]))) == 2


def test_rows_are_counted_over_batches(db):
    good = table_of(text([b"a"] * 5))
    reader = pa.Table.from_batches(good.to_batches() + table_of(text([b"b", LATIN])).to_batches()).to_reader()
    with pytest.raises(terrane.RefusedError, match="row 6: .*UTF-8") as error:
        db.create("new", reader, key="id")
    assert (error.value.row, error.value.column) == (6, "v")


def test_text_beside_a_slice_does_no_harm(db):
    table = table_of(text([LATIN, b"Bern", LATIN])).slice(1, 1)
    assert db.create("new", table, key="id").query(columns=["v"]).fetchall() == [("Bern",)]


def test_offsets_and_keys_that_lie_are_refused(db):
    offsets = pa.py_buffer(np.array([0, -5, 4], "i4").tobytes())
    negative = pa.StringArray.from_buffers(2, offsets, pa.py_buffer(b"abcd"))
    beyond = pa.DictionaryArray.from_arrays(pa.array([0, 99], pa.int32()), pa.array(["a"]), safe=False)
    for column in (negative, beyond):
        lying = table_of(column)
        with pytest.raises(terrane.RefusedError, match="contradicts itself"):
            db.create("new", lying, key="id")
        with pytest.raises(terrane.RefusedError, match="contradicts itself"):
            db.sql("SELECT v FROM lying")


def test_unsigned_numbers_are_stored_where_int64_holds_them(db):
    numbers = db.create("n", table_of(pa.array([5, 2**63 - 1], pa.uint64())), key="id")
    assert numbers.schema["v"] == "int64"
    assert sorted(numbers.query(columns=["v"]).fetchall()) == [(5,), (2**63 - 1,)]
    with pytest.raises(terrane.RefusedError, match="beyond the range of int64") as error:
        db.create("other", table_of(pa.array([5, 2**63], pa.uint64())), key="id")
    assert (error.value.row, error.value.column) == (1, "v")


def test_columns_and_plans_are_no_tables(db):
    frame = pl.DataFrame({"id": [1], "lon": [0.0], "lat": [0.0]})
    with pytest.raises(terrane.UsageError, match="collect"):
        db.create("new", frame.lazy())
    for column in (frame["id"], frame.to_pandas()["id"]):
        with pytest.raises(terrane.UsageError, match="to_frame"):
            db.create("new", column)
    with pytest.raises(terrane.UsageError, match="objects of Python"):
        db.create("new", frame.with_columns(v=pl.Series([object()], dtype=pl.Object)))
