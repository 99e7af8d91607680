"""The systems that are asked: Terrane's command line, DuckDB with its spatial extension, GeoPandas with numpy.

Each answers a question with the keys of the rows, or the pairs of keys of a join.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import duckdb
import duckdb_extension_spatial
import geopandas
import numpy
import pandas
import shapely

from data import Table

# Of Terrane's sphere, in metres.
RADIUS = 6_371_008.8
# Of DuckDB's.
DUCKDB_RADIUS = 6_371_000.0

MEMORY_LIMITS = ["16MiB", "64MiB", None, "4GiB"]


class Refused(Exception):
    """A command of Terrane that failed."""


class Terrane:
    """A store, asked by the command line."""

    def __init__(self, program: Path, store: Path) -> None:
        self.program, self.store = program, store

    def load(self, table: Table) -> None:
        place = ["--lon", "lon", "--lat", "lat"] if table.file.is_points else ["--geometry", "geometry"]
        arguments = ["import", str(self.store), table.name, str(table.path), "--key", "rid", *place]
        subprocess.run([self.program, *arguments], check=True, capture_output=True)

    def lines(self, arguments: list[str], memory_limit: str | None):
        """The lines that a command prints."""
        limit = ["--memory-limit", memory_limit] if memory_limit else []
        command = [str(self.program), arguments[0], str(self.store), *arguments[1:], *limit]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        yield from process.stdout
        messages = process.stderr.read().decode()
        if process.wait() != 0:
            raise Refused(messages.strip())

    def count(self, arguments: list[str], memory_limit: str | None) -> int:
        return int(b"".join(self.lines([*arguments, "--count"], memory_limit)))

    def keys(self, arguments: list[str], memory_limit: str | None) -> list[int]:
        return [key for (key,) in self._numbers(arguments, memory_limit, rb'"rid":(\d+)')]

    def pairs(self, arguments: list[str], memory_limit: str | None) -> list[tuple[int, int]]:
        return list(self._numbers(arguments, memory_limit, rb'"outer_rid":(\d+).*"inner_rid":(\d+)'))

    def sql(self, sql: str, memory_limit: str | None, columns: int) -> list:
        """The rows of a query for one number or two: keys, or pairs of keys."""
        rows = self._numbers(["sql", sql], memory_limit, rb"{" + rb",".join([rb'"[a-z]+":(\d+)'] * columns) + rb"}")
        return [row[0] if columns == 1 else row for row in rows]

    def _numbers(self, arguments: list[str], memory_limit: str | None, pattern: bytes):
        # Of long lines only the keys are read.
        compiled = re.compile(pattern)
        for line in self.lines([*arguments, "--format", "ndjson"], memory_limit):
            found = compiled.search(line)
            assert found, line[:200]
            yield tuple(int(number) for number in found.groups())


class DuckDb:
    """The same tables in DuckDB."""

    def __init__(self) -> None:
        self.connection = duckdb.connect()
        folder = Path(duckdb_extension_spatial.__file__).parent
        extension = next(folder.rglob("spatial.duckdb_extension"))
        self.connection.execute(f"LOAD '{extension}'")

    def load(self, table: Table) -> None:
        geometry = "ST_Point(lon, lat)" if table.file.is_points else "ST_GeomFromWKB(wkb)"
        if table.file.is_points:
            source = f"read_parquet('{table.path}')"
        else:
            plain = {"rid": table.frame["rid"], "attribute": table.frame["attribute"], "wkb": table.frame.geometry.to_wkb()}
            self.connection.register("plain", pandas.DataFrame(plain))
            source = "plain"
        position = "lon, lat, " if table.file.is_points else ""
        self.connection.execute(
            f"CREATE TABLE {table.name} AS SELECT rid, attribute, {position} {geometry} AS geometry FROM {source}"
        )

    def keys(self, sql: str) -> list[int]:
        return [row[0] for row in self.connection.execute(sql).fetchall()]

    def pairs(self, sql: str) -> list[tuple[int, int]]:
        return self.connection.execute(sql).fetchall()


def sql_of_join(outer: Table, inner: Table, predicate: str) -> str:
    """The pairs of a join, in SQL."""
    condition = {
        "intersects": "ST_Intersects(o.geometry, i.geometry)",
        "within": "ST_Within(i.geometry, o.geometry)",
        "contains": "ST_Within(o.geometry, i.geometry)",
    }[predicate]
    return f"SELECT o.rid AS a, i.rid AS b FROM {outer.name} o JOIN {inner.name} i ON {condition}"


def geopandas_pairs(outer: Table, inner: Table, predicate: str) -> list[tuple[int, int]]:
    """The pairs that GeoPandas joins: numbers of rows are keys."""
    # The predicate is on the left side, which is the inner one.
    left = geopandas.GeoDataFrame(geometry=inner.frame.geometry.to_numpy())
    right = geopandas.GeoDataFrame(geometry=outer.frame.geometry.to_numpy())
    joined = left.sjoin(right, predicate=predicate)
    return list(zip(joined["index_right"].tolist(), joined.index.tolist()))


def distances(table: Table, lon: float, lat: float) -> numpy.ndarray:
    """Metres from a place to all points of a table, by the haversine formula."""
    x, y = numpy.radians(table.frame["lon"].to_numpy()), numpy.radians(table.frame["lat"].to_numpy())
    x0, y0 = numpy.radians(lon), numpy.radians(lat)
    chord = numpy.sin((y - y0) / 2) ** 2 + numpy.cos(y0) * numpy.cos(y) * numpy.sin((x - x0) / 2) ** 2
    return 2 * RADIUS * numpy.arcsin(numpy.sqrt(numpy.clip(chord, 0, 1)))


def is_ambiguous(predicate: str, row, area, tolerance: float = 1e-9) -> bool:
    """Whether a boundary is so near that a row is inside or not by rounding alone. The row is within, or intersects."""
    smaller, larger = shapely.buffer(area, -tolerance), shapely.buffer(area, tolerance)
    holds = {"intersects": shapely.intersects, "within": shapely.within}[predicate]
    return bool(holds(row, smaller)) != bool(holds(row, larger))
