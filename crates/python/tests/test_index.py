"""The persistent R-tree, beside shapely's in memory."""

import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import shapely

import terrane


@pytest.fixture
def corners():
    random = np.random.default_rng(42)
    low = random.uniform(0, 100, (5000, 2))
    return np.hstack([low, low + random.uniform(0, 3, (5000, 2))])


def test_windows_and_neighbours_are_those_of_shapely(tmp_path, corners):
    tree = shapely.STRtree(shapely.box(*corners.T))
    windows = corners[:200] + [-1, -1, 1, 1]
    with terrane.Index(tmp_path / "i") as index:
        index.insert_bulk(np.arange(len(corners), dtype=np.uint64), corners)
        assert len(index) == len(corners)
        positions, numbers = index.query_bulk(windows)
        assert (np.diff(positions) >= 0).all()
        found = sorted(zip(positions.tolist(), numbers.tolist()))
        assert found == sorted(zip(*(array.tolist() for array in tree.query(shapely.box(*windows.T)))))
        assert sorted(index.query(windows[0])) == sorted(tree.query(shapely.box(*windows[0])))
        for x, y in windows[:50, :2]:
            expected = tree.query_nearest(shapely.Point(x, y), all_matches=True)
            assert sorted(index.nearest((x, y))) == sorted(expected.tolist())


def test_windows_of_any_extent_are_searched(tmp_path):
    everything = [-1.7e308, -1.7e308, 1.7e308, 1.7e308]
    with terrane.Index(tmp_path / "i") as index:
        index.insert(7, (0, 0, 1, 1))
        for windows, wanted in [
            (np.array([everything, [5.0, 5.0, 6.0, 6.0], [1.7e308] * 4, everything]), [(0, 7), (3, 7)]),
            (np.array([[0.5] * 4] * 3), [(0, 7), (1, 7), (2, 7)]),
            (np.empty((0, 4)), []),
        ]:
            assert list(zip(*(array.tolist() for array in index.query_bulk(windows)))) == wanted


def test_all_ties_of_the_last_neighbour_are_found(tmp_path):
    with terrane.Index(tmp_path / "i") as index:
        for number, x in enumerate([1, 2, 2, 2, 3, 3]):
            index.insert(number, (x, 0, x, 0))
        assert index.nearest((0, 0), 1) == [0]
        assert sorted(index.nearest((0, 0), 2)) == [0, 1, 2, 3]
        assert sorted(index.nearest((0, 0), 9)) == [0, 1, 2, 3, 4, 5] and index.nearest((0, 0), 0) == []


def test_removed_boxes_are_gone(tmp_path):
    with terrane.Index(tmp_path / "i") as index:
        index.insert(7, (0, 0, 1, 1))
        assert not index.remove(7, (0, 0, 1, 2)) and index.remove(7, (0, 0, 1, 1))
        assert index.query((0, 0, 9, 9)) == []


def test_insertions_survive_a_kill(tmp_path):
    code = """
import sys, terrane
index = terrane.Index(sys.argv[1])
for i in range(1_000_000):
    index.insert(i, (i, i, i + 1, i + 1))
    print(i, flush=True)
"""
    writer = subprocess.Popen([sys.executable, "-c", code, tmp_path / "i"], stdout=subprocess.PIPE, text=True)
    numbers = [int(writer.stdout.readline()) for _ in range(500)]
    writer.send_signal(signal.SIGKILL)
    numbers += [int(line) for line in writer.stdout if line.endswith("\n")]
    writer.wait()
    with terrane.Index(tmp_path / "i") as index:
        assert set(numbers) <= set(index.query((0, 0, 1e9, 1e9)))


def test_wrong_boxes_are_usage_errors(tmp_path):
    index = terrane.Index(tmp_path / "i")
    for box in [(1, 0, 0, 1), (0, 0, float("nan"), 1)]:
        with pytest.raises(terrane.UsageError):
            index.insert(1, box)
    with pytest.raises(terrane.UsageError, match="3 numbers"):
        index.query_bulk(np.zeros((2, 3)))
    index.close()
    with pytest.raises(terrane.ClosedError):
        index.query((0, 0, 1, 1))


def test_numbers_and_boxes_may_be_any_array(tmp_path, corners):
    few = corners[:5].round(1)
    numbers = [
        np.arange(5),
        np.arange(5, dtype="int8"),
        np.arange(5, dtype=">u8"),
        np.arange(10, dtype="uint64")[::2] // 2,
        list(range(5)),
        pd.Series(range(5)),
        pd.Series(range(5), dtype="Int64"),
    ]
    boxes = [few, np.asfortranarray(few), few.tolist(), [tuple(box) for box in few], pd.DataFrame(few)]
    with terrane.Index(tmp_path / "i") as index:
        for ids in numbers:
            index.insert_bulk(ids, few)
        for given in boxes:
            index.insert_bulk(np.arange(5), given)
            _, found = index.query_bulk(given)
            assert set(found.tolist()) >= set(range(5))
        assert sorted(index.query((-1, -1, 200, 200))) == sorted(list(range(5)) * (len(numbers) + len(boxes)))
        index.insert_bulk([1, 2**64 - 1], [[300, 300, 301, 301]] * 2)
        assert sorted(index.query(np.array([300, 300, 301, 301]))) == [1, 2**64 - 1]
        rounded = few.astype("float32")
        index.insert_bulk([77], rounded[:1] + 1000)
        assert index.query(rounded[0] + 1000) == [77]
        assert [len(found) for found in index.query_bulk([])] == [0, 0]


def test_boxes_of_empty_geometries_are_left_out(tmp_path):
    bounds = shapely.bounds([shapely.Point(1, 1), shapely.Point(), None, shapely.Point(2, 2)])
    with terrane.Index(tmp_path / "i") as index:
        index.insert_bulk(np.arange(4), bounds)
        assert sorted(index.query((0, 0, 9, 9))) == [0, 3]
        assert [found.tolist() for found in index.query_bulk(bounds)] == [[0, 3], [0, 3]]


@pytest.mark.parametrize(
    "call",
    [
        lambda index: index.insert(-1, (0, 0, 1, 1)),
        lambda index: index.insert(2**64, (0, 0, 1, 1)),
        lambda index: index.insert(1.5, (0, 0, 1, 1)),
        lambda index: index.insert(1, (0, 0, 1)),
        lambda index: index.query("abcd"),
        lambda index: index.nearest((0, 0), -1),
        lambda index: index.nearest((0, 0, 0)),
        lambda index: index.insert_bulk([-1], [[0, 0, 1, 1]]),
        lambda index: index.insert_bulk([0.5], [[0, 0, 1, 1]]),
        lambda index: index.insert_bulk([True], [[0, 0, 1, 1]]),
        lambda index: index.insert_bulk([1, 2], [[0, 0, 1, 1]]),
        lambda index: index.insert_bulk([1], [0, 0, 1, 1]),
        lambda index: index.insert_bulk([1], [[0, 0, float("nan"), 1]]),
        lambda index: index.insert_bulk([1], [["a", "b", "c", "d"]]),
        lambda index: index.query_bulk([[0, 0, 1]]),
    ],
)
def test_wrong_arguments_of_an_index_are_usage_errors(tmp_path, call):
    with terrane.Index(tmp_path / "i") as index:
        with pytest.raises(terrane.UsageError):
            call(index)
        assert len(index) == 0


def test_a_second_handle_is_refused(tmp_path):
    with terrane.Index(tmp_path / "i"):
        with pytest.raises(terrane.LockedError) as error:
            terrane.Index(tmp_path / "i")
        assert error.value.pid is None
