"""Measures the statements of SQL that write, beside the engine's own calls for the same work.

`make bench-sql` builds the package and runs this. Figures are wall time, because a commit waits for
the disk: medians of rounds in which both sides take turns.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Callable

import terrane

ROW = "| {:<52} | {:>14} | {:>10} |"
INSERTED = 1000


def wall(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def in_turns(works: list[Callable[[int], object]], rounds: int) -> list[float]:
    """The median time of each work, which gets the number of the round."""
    times: list[list[float]] = [[] for _ in works]
    for round in range(rounds):
        for own, work in zip(times, works):
            own.append(wall(lambda: work(round)))
    return [statistics.median(own) for own in times]


def inserts(db: terrane.Store, rounds: int) -> None:
    """Many rows in one statement, and single ones that are prepared."""
    db.sql("CREATE TABLE many (id BIGINT PRIMARY KEY, name TEXT, n BIGINT, place GEOMETRY(Point, 4326))")

    def statement(round: int) -> str:
        rows = (f"({round * INSERTED + row}, 'name {row}', {row}, 'POINT({row / 10} 50)')" for row in range(INSERTED))
        return "INSERT INTO many VALUES " + ", ".join(rows)

    texts = [statement(round) for round in range(rounds)]
    many = in_turns([lambda round: db.sql(texts[round])], rounds)[0]
    print(ROW.format("INSERT of 1,000 rows in one statement", f"{INSERTED / many:,.0f} rows/s", ""), flush=True)
    atomic = []
    db.sql("SET terrane.atomic = true; TRUNCATE many")
    for text in texts:
        atomic.append(wall(lambda: db.sql(text)))
    db.sql("SET terrane.atomic = false")
    print(ROW.format("the same, atomic", f"{INSERTED / statistics.median(atomic):,.0f} rows/s", ""), flush=True)
    for name in ("own", "sql"):
        db.sql(f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, name TEXT, n BIGINT, place GEOMETRY(Point, 4326))")
    own = db["own"]
    db.sql("PREPARE single AS INSERT INTO sql VALUES ($1, $2, $3, $4)")
    count = 200

    def by_engine(round: int) -> None:
        for row in range(round * count, (round + 1) * count):
            own.insert({"id": row, "name": f"name {row}", "n": row, "place": "POINT(1 50)"})

    def by_sql(round: int) -> None:
        for row in range(round * count, (round + 1) * count):
            db.sql(f"EXECUTE single({row}, 'name {row}', {row}, 'POINT(1 50)')")

    engine, sql = in_turns([by_engine, by_sql], rounds)
    print(ROW.format("one row, by the engine, durable", f"{engine / count * 1e6:,.0f} us", ""))
    print(ROW.format("one row, by a prepared INSERT", f"{sql / count * 1e6:,.0f} us", f"{sql / engine:.2f}"), flush=True)


def updates(db: terrane.Store, file: Path, rounds: int) -> None:
    """A tenth of a million rows, by a window."""
    db.sql(f"CREATE TABLE fires (PRIMARY KEY (id)) AS SELECT id, lon, lat, frp_mw, confidence FROM '{file}'")
    lons = "SELECT approx_percentile_cont(0.45) WITHIN GROUP (ORDER BY lon), " \
        "approx_percentile_cont(0.55) WITHIN GROUP (ORDER BY lon) FROM fires"
    west, east = db.sql(lons).fetchall()[0]
    window = f"ST_Intersects(geometry, ST_MakeEnvelope({west}, -90, {east}, 90))"
    changed = db.sql(f"SELECT count(*) FROM fires WHERE {window}").fetchall()[0][0]
    change = f"UPDATE fires SET confidence = confidence + 1 WHERE {window}"
    time_ = in_turns([lambda _: db.sql(change)], rounds)[0]
    print(ROW.format(f"UPDATE of {changed:,} rows by a window", f"{changed / time_:,.0f} rows/s", ""), flush=True)
    few = db.sql(f"SELECT count(*) FROM fires WHERE id < 2000").fetchall()[0][0]
    keys = [f"UPDATE fires SET id = id + 10000000 WHERE id < 2000", "UPDATE fires SET id = id - 10000000 WHERE id >= 10000000"]
    moved = in_turns([lambda round: db.sql(keys[round % 2])], 2 * (rounds // 2) or 2)[0]
    print(ROW.format(f"UPDATE of the keys of {few:,} rows", f"{few / moved:,.0f} rows/s", ""), flush=True)


def copies(db: terrane.Store, file: Path, folder: Path, rounds: int) -> None:
    """A file of Parquet, by COPY and by an import."""
    own = folder / "fires.parquet"
    db.sql(f"COPY (SELECT id, lon, lat, frp_mw, confidence FROM fires) TO '{own}'")

    def copied(round: int) -> None:
        db.sql(f"CREATE TABLE copy{round} (id BIGINT PRIMARY KEY, lon DOUBLE, lat DOUBLE, frp_mw DOUBLE, confidence BIGINT)")
        db.sql(f"COPY copy{round} FROM '{own}'")

    def imported(round: int) -> None:
        db.import_files(f"import{round}", str(own), key="id", lon="lon", lat="lat")

    copy, load = in_turns([copied, imported], rounds)
    print(ROW.format("import of 977,246 rows of Parquet", f"{load:,.2f} s", ""))
    print(ROW.format("COPY FROM the same file", f"{copy:,.2f} s", f"{copy / load:.2f}"), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("TERRANE_DATA"), help="folder of the samples")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.data is None:
        sys.exit("set TERRANE_DATA to the folder of the samples")
    file = arguments.data / "firms_modis_fires_2020.parquet"
    with tempfile.TemporaryDirectory() as folder:
        db = terrane.open(str(Path(folder) / "store.terrane"))
        print(ROW.format("work", "figure", "ratio"))
        print(ROW.format("---", "---", "---"))
        inserts(db, arguments.rounds)
        updates(db, file, arguments.rounds)
        copies(db, file, Path(folder), arguments.rounds)
        db.close()


if __name__ == "__main__":
    main()
