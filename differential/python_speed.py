"""Measures the Python package beside shapely's STRtree and rtree, in one process on one core.

`make bench-python` builds the package and runs this. Each figure is the CPU time of the process, the
median of rounds in which the systems take turns. Answers are compared first. The data are the rides
that TERRANE_DATA names.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy
import pyarrow
import pyarrow.parquet
import rtree
import shapely

import terrane

ROW = "| {:<52} | {:>12} | {:>12} | {:>6} |"
MIBYTE = 1 << 20


def cpu(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def row(work: str, own: float, other: float | None, unit: str, scale: float) -> None:
    """Prints the times of Terrane and of another system, and their ratio."""
    shown = "" if other is None else f"{other * scale:.3g} {unit}"
    ratio = "" if other is None else f"{own / other:.2f}"
    print(ROW.format(work, f"{own * scale:.3g} {unit}", shown, ratio), flush=True)


def medians(rounds: int, *works: Callable[[], object]) -> list[float]:
    times = [[cpu(work) for work in works] for _ in range(rounds)]
    return [statistics.median(each) for each in zip(*times)]


def queries(db: terrane.Database, places: numpy.ndarray, rounds: int) -> None:
    """Windows of about ten rides, as tables of Arrow and as tuples."""
    half = 0.00003
    rides = db["rides"]
    boxes = [(x - half, y - half, x + half, y + half) for x, y in places[:2000].tolist()]
    hits = [rides.query(bbox=box).arrow().num_rows for box in boxes]
    mean = sum(hits) / len(hits)
    (arrow,) = medians(rounds, lambda: [rides.query(bbox=box).arrow() for box in boxes])
    row(f"ds.query(bbox=…).arrow() of {mean:.1f} rides", arrow / len(boxes), None, "µs", 1e6)
    columns = ["ride_id"]
    (few,) = medians(rounds, lambda: [rides.query(bbox=box, columns=columns).arrow() for box in boxes])
    row("the same, one column", few / len(boxes), None, "µs", 1e6)
    (tuples,) = medians(rounds, lambda: [rides.query(bbox=box, columns=columns).fetchall() for box in boxes])
    row("the same, fetchall()", tuples / len(boxes), None, "µs", 1e6)


def indexes(folder: Path, places: numpy.ndarray, rounds: int) -> None:
    """Insertions beside rtree, and many windows at once beside shapely."""
    count = 200_000
    rng = numpy.random.default_rng(7)
    corners = places[rng.integers(0, len(places), count)]
    boxes = numpy.hstack([corners, corners + rng.uniform(0, 0.0002, (count, 2))])
    rows = list(map(tuple, boxes.tolist()))
    index = terrane.Index(folder / "one by one.index")
    some = 20_000

    def insert_own() -> None:
        for number in range(some):
            index.insert(number, rows[number])

    other = rtree.index.Index()

    def insert_other() -> None:
        for number in range(some):
            other.insert(number, rows[number])

    own, theirs = cpu(insert_own), cpu(insert_other)
    row(f"Index.insert, one of {some:,}; rtree", own / some, theirs / some, "µs", 1e6)
    bulk = terrane.Index(folder / "bulk.index")
    filled = cpu(lambda: bulk.insert_bulk(numpy.arange(count, dtype=numpy.uint64), boxes))
    row(f"Index.insert_bulk, one of {count:,}; rtree's insert", filled / count, theirs / some, "µs", 1e6)
    geometries = shapely.box(*boxes.T)
    tree = shapely.STRtree(geometries)
    asked = boxes[rng.integers(0, count, 20_000)]
    windows = shapely.box(*asked.T)
    pairs = [set(zip(*(side.tolist() for side in found))) for found in (bulk.query_bulk(asked), tree.query(windows))]
    if pairs[0] != pairs[1]:
        sys.exit(f"query_bulk: Terrane has {len(pairs[0])} pairs, shapely {len(pairs[1])}")
    own, theirs = medians(rounds, lambda: bulk.query_bulk(asked), lambda: tree.query(windows))
    name = f"Index.query_bulk, one of {len(asked):,} windows with {len(pairs[0]) / len(asked):.1f} hits; STRtree"
    row(name, own / len(asked), theirs / len(asked), "µs", 1e6)
    bulk.close()
    index.close()


def upserts(folder: Path, table: pyarrow.Table) -> None:
    """A table of a million rows: imported from Parquet, and upserted over itself."""
    million = pyarrow.concat_tables([table] * (1_000_000 // table.num_rows + 1)).slice(0, 1_000_000)
    million = million.set_column(0, "ride_id", pyarrow.array(range(million.num_rows), pyarrow.int64()))
    pyarrow.parquet.write_table(million, folder / "million.parquet")
    with terrane.open(folder / "million.terrane") as db:
        shape = {"key": "ride_id", "lon": "pickup_lon", "lat": "pickup_lat"}
        imported = cpu(lambda: db.import_files("rides", folder / "million.parquet", **shape))
        upserted = cpu(lambda: db["rides"].upsert(million))
        if len(db["rides"]) != million.num_rows:
            sys.exit("upsert: other rows than before")
    row("upsert of 1,000,000 rows; import_files of them", upserted, imported, "s", 1)


def start(rounds: int) -> None:
    """Time to import the package, beside that of an interpreter without it."""

    def wall(code: str) -> float:
        times = []
        for _ in range(4 * rounds):
            begun = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            times.append(time.perf_counter() - begun)
        return statistics.median(times)

    row("import terrane, wall time", wall("import terrane") - wall(""), None, "ms", 1e3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("TERRANE_DATA"), help="folder of the samples")
    parser.add_argument("--wheels", type=Path, help="a folder with the wheel, for its size")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.data is None:
        sys.exit("set TERRANE_DATA to the folder of the samples")
    os.sched_setaffinity(0, {0})
    table = pyarrow.parquet.read_table(arguments.data / "sf_cab_rides_2008.parquet")
    print(ROW.format("work", "Terrane", "other", "ratio"))
    print(ROW.format("---", "---", "---", "---"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with terrane.open(folder / "rides.terrane") as db:
            file = arguments.data / "sf_cab_rides_2008.parquet"
            db.import_files("rides", file, key="ride_id", lon="pickup_lon", lat="pickup_lat")
            places = numpy.column_stack([table[column].to_numpy() for column in ("pickup_lon", "pickup_lat")])
            numpy.random.default_rng(1).shuffle(places)
            queries(db, places, arguments.rounds)
        indexes(folder, places, arguments.rounds)
        upserts(folder, table)
    start(arguments.rounds)
    for wheel in sorted(arguments.wheels.glob("*.whl")) if arguments.wheels else []:
        print(ROW.format("size of the wheel", f"{wheel.stat().st_size / MIBYTE:.1f} MiB", "", ""))


if __name__ == "__main__":
    main()
