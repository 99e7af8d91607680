"""Measures SQL of Terrane beside DuckDB and SedonaDB on the same data, in one process on one core.

`make bench-sql` builds the package and runs this. Each figure is the CPU time of the process, the
median of rounds in which the systems take turns; the last column is the ratio to Terrane. Answers
are compared first. SedonaDB and DuckDB read tables that they hold in memory, Terrane a store on
disk that survives being killed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Callable

import duckdb
import duckdb_extension_spatial
import numpy

import terrane

try:
    import sedonadb
except ImportError:
    sedonadb = None

ROW = "| {:<58} | {:<9} | {:>12} | {:>8} |"


class Systems:
    """The three systems with the tables `rides`, `zones` and `fires`."""

    def __init__(self, data: Path, folder: Path) -> None:
        rides, zones = data / "sf_cab_rides_2008.parquet", data / "us_zcta_nyc_sfbay_fullres.parquet"
        fires, cities = data / "firms_modis_fires_2020.parquet", data / "geonames_cities1000.parquet"
        self.terrane = terrane.open(str(folder / "store.terrane"))
        self.duck = duckdb.connect()
        extension = Path(duckdb_extension_spatial.__file__).parent / "extensions"
        self.duck.execute(f"LOAD '{next(extension.rglob('spatial.duckdb_extension'))}'")
        self.duck.execute("SET threads = 1")
        tables = {
            "rides": ("ride_id AS id, n_fixes", "pickup_lon", "pickup_lat", rides),
            "fires": ("id, country, frp_mw, confidence", "lon", "lat", fires),
            "cities": ("place_id AS id, cc", "lon", "lat", cities),
        }
        self.sedona = sedonadb.connect() if sedonadb else None
        for name, (columns, x, y, file) in tables.items():
            here = f"{columns}, ST_Point({x}, {y}) AS geometry"
            place = f"{columns}, {x} AS lon, {y} AS lat"
            self.terrane.sql(f"CREATE TABLE {name} (PRIMARY KEY (id)) AS SELECT {place} FROM '{file}'")
            self.duck.execute(f"CREATE TABLE {name} AS SELECT {here} FROM '{file}'")
            self.duck.execute(f"CREATE INDEX {name}_place ON {name} USING RTREE (geometry)")
            if self.sedona:
                self.sedona.read_parquet(str(file)).to_view("source", overwrite=True)
                self.sedona.sql(f"SELECT {here} FROM source").to_memtable().to_view(name)
        self.terrane.sql(f"CREATE TABLE zones (PRIMARY KEY (wof_id)) AS SELECT wof_id, zcta, geometry AS shape FROM '{zones}'")
        self.duck.execute(f"CREATE TABLE zones AS SELECT wof_id, zcta, geometry AS shape FROM '{zones}'")
        if self.sedona:
            self.sedona.read_parquet(str(zones)).to_view("source", overwrite=True)
            self.sedona.sql("SELECT wof_id, zcta, ST_SetSRID(geometry, 0) AS shape FROM source").to_memtable().to_view("zones")
        self.terrane.sql("CALL checkpoint()")

    def run(self, system: str, statement: str) -> list[tuple]:
        """The rows of a statement."""
        if system == "terrane":
            return self.terrane.sql(statement).fetchall()
        if system == "duckdb":
            return self.duck.execute(statement).fetchall()
        table = self.sedona.sql(statement).to_arrow_table()
        return list(zip(*(column.to_pylist() for column in table.columns)))


def cpu(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def measure(name: str, unit: str, scale: float, works: dict[str, Callable[[], object]], rounds: int) -> None:
    """Prints the median CPU time of each system's work, in turns."""
    times: dict[str, list[float]] = {system: [] for system in works}
    for _ in range(rounds):
        for system, work in works.items():
            times[system].append(cpu(work))
    own = statistics.median(times["terrane"])
    for system, values in times.items():
        median = statistics.median(values)
        print(ROW.format(name, system, f"{median * scale:.3g} {unit}", f"{median / own:.2f}"), flush=True)


def equal(name: str, answers: dict[str, list[tuple]]) -> None:
    """Refuses answers that differ."""
    plain = {system: sorted(rows, key=repr) for system, rows in answers.items()}
    wanted = plain["terrane"]
    for system, rows in plain.items():
        if rows != wanted:
            sys.exit(f"{name}: {system} has {len(rows)} rows, Terrane {len(wanted)}; the first: {rows[:2]}, {wanted[:2]}")


def windows(systems: Systems, count: int, rounds: int) -> None:
    """Windows of about ten rides, and the nearest ones with a condition."""
    random = numpy.random.default_rng(1)
    places = systems.duck.execute("SELECT ST_X(geometry), ST_Y(geometry) FROM rides ORDER BY id").fetchall()
    half = 0.00003
    chosen = [places[index] for index in random.integers(0, len(places), count)]
    boxes = [(x - half, y - half, x + half, y + half) for x, y in chosen]
    query = "SELECT id FROM rides WHERE ST_Intersects(geometry, ST_MakeEnvelope({}, {}, {}, {}))"
    nearest = (
        "SELECT id FROM rides WHERE n_fixes < 7 ORDER BY ST_Distance(geometry, ST_Point({}, {})), id LIMIT 10"
    )
    numbered = ["$1", "$2", "$3", "$4"]
    for run in (lambda sql: systems.terrane.sql(sql), systems.duck.execute):
        run("PREPARE windows AS " + query.format(*numbered))
    systems.terrane.sql("PREPARE nearest AS " + nearest.format("$1", "$2"))
    executed = ["EXECUTE windows(" + ", ".join(map(repr, box)) + ")" for box in boxes]
    written = [query.format(*box) for box in boxes]
    near = [f"EXECUTE nearest({x!r}, {y!r})" for x, y in chosen]
    systems_here = ["terrane", "duckdb"]
    for index in range(20):
        equal("windows", {system: systems.run(system, executed[index]) for system in systems_here})
    hits = sum(len(systems.run("terrane", statement)) for statement in executed[:200]) / 200
    print(ROW.format(f"(windows have {hits:.1f} hits on average)", "", "", ""))

    def all_of(system: str, statements: list[str]) -> Callable[[], object]:
        return lambda: [systems.run(system, statement) for statement in statements]

    few = max(count // 20, 1)
    # DuckDB takes its R-tree for constants, and not for parameters.
    measure("window, prepared", "us", 1e6 / few, {s: all_of(s, executed[:few]) for s in systems_here}, rounds)
    measure("window, not prepared", "us", 1e6 / few, {s: all_of(s, written[:few]) for s in systems_here}, rounds)
    measure("window, prepared, all", "us", 1e6 / count, {"terrane": all_of("terrane", executed)}, rounds)
    measure("nearest 10 with a condition, prepared", "us", 1e6 / count, {"terrane": all_of("terrane", near)}, rounds)


def joins(systems: Systems, rounds: int) -> None:
    """Rides in zones, and the cities nearest to fires."""
    present = [system for system in ("terrane", "duckdb", "sedonadb") if system != "sedonadb" or systems.sedona]
    for outer in ("rides JOIN zones", "zones JOIN rides"):
        query = f"SELECT zcta, count(*) AS n FROM {outer} ON ST_Intersects(shape, geometry) GROUP BY zcta"
        equal(outer, {system: systems.run(system, query) for system in present})
        works = {system: (lambda system=system: systems.run(system, query)) for system in present}
        measure(f"join of {outer.replace(' JOIN ', ' and ')}", "ms", 1e3, works, rounds)
    if systems.sedona:
        query = (
            "SELECT fires.id, cities.id AS city FROM (SELECT * FROM fires WHERE id < 10000) AS fires "
            "JOIN cities ON ST_KNN(fires.geometry, cities.geometry, 5, false)"
        )
        pair = [system for system in present if system != "duckdb"]
        counts = {system: len(systems.run(system, query)) for system in pair}
        print(ROW.format(f"(pairs of the k-nearest join: {counts})", "", "", ""))
        works = {system: (lambda system=system: systems.run(system, query)) for system in pair}
        measure("5 nearest cities of 10,000 fires", "ms", 1e3, works, rounds)


def groups(systems: Systems, rounds: int) -> None:
    query = "SELECT country, count(*), max(frp_mw) FROM fires GROUP BY 1"
    equal("groups", {system: systems.run(system, query) for system in ("terrane", "duckdb")})
    works = {system: (lambda system=system: systems.run(system, query)) for system in ("terrane", "duckdb")}
    measure("fires by country", "ms", 1e3, works, rounds)


def start(program: Path, store: Path, rounds: int) -> None:
    """A small statement of the command line, from start to end, in wall time."""
    times = []
    for _ in range(4 * rounds):
        begun = time.perf_counter()
        subprocess.run([program, "sql", str(store), "SELECT id FROM rides WHERE id = 5"], check=True, capture_output=True)
        times.append(time.perf_counter() - begun)
    print(ROW.format("terrane sql with a small statement, wall time", "terrane", f"{statistics.median(times) * 1e3:.3g} ms", ""))
    print(ROW.format("size of the program, stripped", "terrane", f"{program.stat().st_size / 1e6:.1f} MB", ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("TERRANE_DATA"), help="folder of the samples")
    parser.add_argument("--program", type=Path, help="the command line, for its start")
    parser.add_argument("--count", type=int, default=2000, help="number of windows")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.data is None:
        sys.exit("set TERRANE_DATA to the folder of the samples")
    os.sched_setaffinity(0, {0})
    with tempfile.TemporaryDirectory() as folder:
        systems = Systems(arguments.data, Path(folder))
        print(ROW.format("work", "system", "CPU time", "ratio"))
        print(ROW.format("---", "---", "---", "---"))
        windows(systems, arguments.count, arguments.rounds)
        joins(systems, arguments.rounds)
        groups(systems, arguments.rounds)
        systems.terrane.close()
        if arguments.program:
            start(arguments.program, Path(folder) / "store.terrane", arguments.rounds)


if __name__ == "__main__":
    main()
