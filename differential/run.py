"""Compares answers of Terrane's command line with those of DuckDB and GeoPandas on the same data.

`make differential` builds the program and runs this. It asks for what the systems define alike:
planar predicates on valid geometries, and distances between points. Rows within 1e-9 degrees of a
boundary, or 1e-9 of a radius, are left out where the answers differ in them. The exit code is 0
only if all answers agree.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections import Counter
from pathlib import Path

import numpy
import shapely

import data
from systems import (
    DUCKDB_RADIUS,
    MEMORY_LIMITS,
    RADIUS,
    DuckDb,
    Refused,
    Terrane,
    distances,
    geopandas_pairs,
    is_ambiguous,
    sql_of_join,
)

TOLERANCE = 1e-9
ROW = "{:<74} {:>8} {:>9}  {}"


class Comparison:
    """All questions, with a line of the table for each."""

    def __init__(self, terrane: Terrane, duck: DuckDb, tables: list[data.Table], seed: int, questions: int) -> None:
        self.terrane, self.duck, self.questions = terrane, duck, questions
        self.tables = {table.name: table for table in tables}
        self.random = numpy.random.default_rng(seed)
        self.asked = self.failed = 0

    def verdict(self, question: str, rows: int, problems: list[str], left_out: int = 0) -> None:
        self.asked += 1
        self.failed += bool(problems)
        text = "; ".join(problems) or "agree"
        if left_out:
            text += f" ({left_out} rows at a boundary left out)"
        print(ROW.format(question, rows, "WRONG" if problems else "ok", text), flush=True)

    def compare(
        self, question: str, arguments: list[str], sql: str, others: dict[str, list], ambiguous, is_join: bool
    ) -> None:
        """Lists and counts at every memory limit, and asks in SQL, beside the answers of the others."""
        names, answers = list(others), [Counter(answer) for answer in others.values()]
        problems: list[str] = []
        left_out = set()
        wanted = answers[0]
        for name, answer in zip(names[1:], answers[1:]):
            differing = {row for row in (wanted - answer) + (answer - wanted)}
            unexplained = {row for row in differing if not ambiguous(row)}
            left_out |= differing - unexplained
            if unexplained:
                problems.append(f"{names[0]} and {name} differ in {len(unexplained)} rows, {sorted(unexplained)[:3]}")
        for limit, by_sql in [(limit, False) for limit in MEMORY_LIMITS] + [("64MiB", True), (None, True)]:
            at = f"{'in SQL ' if by_sql else ''}at {limit or 'the default limit'}"
            try:
                if by_sql:
                    listed = Counter(self.terrane.sql(sql, limit, columns=2 if is_join else 1))
                    counted = listed.total()
                else:
                    listed = Counter((self.terrane.pairs if is_join else self.terrane.keys)(arguments, limit))
                    counted = self.terrane.count(arguments, limit)
            except Refused as refused:
                # An error that names the limit is an answer, fewer rows are none.
                if limit != "16MiB" or "--memory-limit" not in str(refused):
                    problems.append(f"{at}: {refused}")
                continue
            if counted != listed.total():
                problems.append(f"{at} {counted} are counted, {listed.total()} listed")
            missing, extra = wanted - listed, listed - wanted
            explained = {row for row in missing + extra if row in left_out or ambiguous(row)}
            left_out |= explained
            missing = [row for row in missing.elements() if row not in explained]
            extra = [row for row in extra.elements() if row not in explained]
            if missing or extra:
                problems.append(f"{at} {len(missing)} missing {missing[:3]}, {len(extra)} too many {extra[:3]}")
        self.verdict(question, wanted.total(), problems, len(left_out))

    def place(self, table: data.Table):
        """A random row of a table, and a position of it."""
        row = int(self.random.integers(len(table.frame)))
        x0, y0, _, _ = table.frame.geometry.iloc[row].bounds
        return row, x0, y0

    def windows(self, table: data.Table) -> None:
        for number in range(self.questions):
            _, x, y = self.place(table)
            half = 10 ** self.random.uniform(-2, 1.2)
            # The first window touches the data.
            west, south = (x, y) if number == 0 else (max(x - half, -180), max(y - half, -90))
            east, north = min(x + half, 180), min(y + half, 90)
            window = shapely.box(west, south, east, north)
            sides = ", ".join(repr(float(side)) for side in (west, south, east, north))
            by_sql = f"SELECT rid FROM {table.name} WHERE ST_Intersects(geometry, ST_MakeEnvelope({sides}))"
            by_duck = self.duck.keys(by_sql)
            by_shapely = table.frame["rid"][shapely.intersects(table.frame.geometry.values, window)].tolist()
            shapes = table.frame.geometry
            self.compare(
                f"query {table.name} --bbox {west:.4f},{south:.4f},{east:.4f},{north:.4f}",
                ["query", table.name, "--bbox", ",".join(map(repr, map(float, (west, south, east, north))))],
                by_sql,
                {"GeoPandas": by_shapely, "DuckDB": by_duck},
                # The closed window is exact for points.
                lambda row: not table.file.is_points and is_ambiguous("intersects", shapes.iloc[row], window),
                is_join=False,
            )

    def area_near(self, table: data.Table, areas: list[data.Table]) -> tuple[data.Table, int]:
        """A random area that has the corner of some row in its box, if one of several draws finds any."""
        for _ in range(20):
            candidates = areas[int(self.random.integers(len(areas)))]
            _, x, y = self.place(table)
            bounds = candidates.frame.geometry.bounds.to_numpy()
            has_corner = (bounds[:, 0] <= x) & (bounds[:, 1] <= y) & (bounds[:, 2] >= x) & (bounds[:, 3] >= y)
            if has_corner.any():
                return candidates, int(self.random.choice(numpy.flatnonzero(has_corner)))
        return candidates, int(self.random.integers(len(candidates.frame)))

    def areas(self, table: data.Table, all_areas: list[data.Table], predicate: str, work: Path) -> None:
        shapes = table.frame.geometry
        for _ in range(self.questions):
            areas, chosen = self.area_near(table, all_areas)
            area = areas.frame.geometry.iloc[chosen]
            file = work / "area.wkt"
            # All digits, so that it is the same area.
            file.write_text(shapely.to_wkt(area, rounding_precision=-1))
            function = {"intersects": "ST_Intersects", "within": "ST_Within"}[predicate]
            by_sql = (
                f"SELECT t.rid FROM {table.name} t, {areas.name} a "
                f"WHERE a.rid = {chosen} AND {function}(t.geometry, a.geometry)"
            )
            by_duck = self.duck.keys(by_sql)
            holds = {"intersects": shapely.intersects, "within": shapely.within}[predicate]
            by_shapely = table.frame["rid"][holds(shapes.values, area)].tolist()
            self.compare(
                f"query {table.name} --{predicate} '{areas.name} {chosen}'",
                ["query", table.name, f"--{predicate}", f"@{file}"],
                by_sql,
                {"GeoPandas": by_shapely, "DuckDB": by_duck},
                lambda row: is_ambiguous(predicate, shapes.iloc[row], area),
                is_join=False,
            )

    def circles(self, table: data.Table) -> None:
        for number in range(self.questions):
            row, x, y = self.place(table)
            radius = float(round(10 ** self.random.uniform(3, 6.5), 3))
            # The first one goes over a pole.
            y, radius = (float(numpy.sign(y) * 88.5), 2_500_000.0) if number == 0 else (y, radius)
            metres = distances(table, x, y)
            by_duck = self.duck.keys(
                f"SELECT rid FROM {table.name} WHERE ST_Distance_Sphere(ST_Point(lat, lon), ST_Point({y!r}, {x!r})) "
                f"* {RADIUS!r} / {DUCKDB_RADIUS!r} <= {radius!r}"
            )
            self.compare(
                f"query {table.name} --circle {x:.4f},{y:.4f},{radius:.0f}",
                ["query", table.name, "--circle", f"{x!r},{y!r},{radius!r}"],
                f"SELECT rid FROM {table.name} WHERE ST_DWithinSphere(geometry, ST_Point({x!r}, {y!r}), {radius!r})",
                {"numpy": numpy.flatnonzero(metres <= radius).tolist(), "DuckDB": by_duck},
                lambda row: abs(metres[row] - radius) <= TOLERANCE * radius + 1e-6,
                is_join=False,
            )

    def nearest(self, table: data.Table) -> None:
        """Rows in the order of distance and, at one place, of keys. Others may change places where
        their distances differ by rounding alone."""
        for number in range(self.questions):
            _, x, y = self.place(table)
            k = (1, 10, 200)[number % 3]
            keys = numpy.arange(len(table.frame))
            question = f"query {table.name} --nearest {x:.4f},{y:.4f} --k {k}"
            arguments = ["query", table.name, "--nearest", f"{x!r},{y!r}", "--k", str(k)]
            condition = ""
            if number % 2 == 1:
                value = table.frame["attribute"].dropna().iloc[0]
                keys = keys[(table.frame["attribute"] == value).to_numpy()]
                text = "'{}'".format(str(value).replace("'", "''")) if isinstance(value, str) else repr(value.item())
                arguments += ["--where", f"attribute = {text}"]
                question += f" --where 'attribute = {text}'"
                condition = f"WHERE attribute = {text}"
            metres = distances(table, x, y)
            wanted = keys[numpy.lexsort((keys, metres[keys]))][:k].tolist()
            by_duck = self.duck.keys(
                f"SELECT rid FROM {table.name} {condition} "
                f"ORDER BY ST_Distance_Sphere(ST_Point(lat, lon), ST_Point({y!r}, {x!r})), rid LIMIT {k}"
            )
            problems = []
            answers = [("DuckDB", by_duck)]
            answers += [(f"at {limit or 'the default limit'}", self.terrane.keys(arguments, limit)) for limit in MEMORY_LIMITS]
            by_sql = (
                f"SELECT rid FROM {table.name} {condition} "
                f"ORDER BY ST_DistanceSphere(geometry, ST_Point({x!r}, {y!r})), rid LIMIT {k}"
            )
            answers += [("in SQL", self.terrane.sql(by_sql, None, columns=1))]
            for name, found in answers:
                near = len(found) == len(wanted) == len(set(found)) and set(found) <= set(keys.tolist())
                near = near and numpy.allclose(metres[found], metres[wanted], rtol=TOLERANCE, atol=1e-6)
                # Points at one place have one distance, so that their keys decide.
                if near and name != "DuckDB":
                    at = lambda row: (table.frame["lon"].iloc[row], table.frame["lat"].iloc[row])
                    near = all(first < second for first, second in zip(found, found[1:]) if at(first) == at(second))
                if not near:
                    problems.append(f"{name}: {found[:3]}… instead of {wanted[:3]}…")
            self.verdict(question, len(wanted), problems)

    def joins(self, areas: data.Table, points: data.Table) -> None:
        """Which points lie in which areas, with either side as the outer one."""
        shapes, places = areas.frame.geometry, points.frame.geometry
        cases = [
            (areas, points, "within", "within", lambda pair: (places.iloc[pair[1]], shapes.iloc[pair[0]])),
            (points, areas, "contains", "within", lambda pair: (places.iloc[pair[0]], shapes.iloc[pair[1]])),
            (areas, points, "intersects", "intersects", lambda pair: (places.iloc[pair[1]], shapes.iloc[pair[0]])),
            (points, areas, "intersects", "intersects", lambda pair: (places.iloc[pair[0]], shapes.iloc[pair[1]])),
        ]
        for outer, inner, predicate, of_row, row_and_area in cases:
            self.compare(
                f"join {outer.name} {inner.name} --{predicate}",
                ["join", outer.name, inner.name, f"--{predicate}"],
                sql_of_join(outer, inner, predicate),
                {
                    "GeoPandas": geopandas_pairs(outer, inner, predicate),
                    "DuckDB": self.duck.pairs(sql_of_join(outer, inner, predicate)),
                },
                lambda pair: is_ambiguous(of_row, *row_and_area(pair)),
                is_join=True,
            )

    def joins_of_shapes(self, outer: data.Table, inner: data.Table) -> None:
        """Which lines or areas meet."""
        ours, theirs = outer.frame.geometry, inner.frame.geometry
        for first, second in [(outer, inner), (inner, outer)]:
            is_swapped = first is inner

            def ambiguous(pair):
                one, other = (pair[1], pair[0]) if is_swapped else pair
                return is_ambiguous("intersects", ours.iloc[one], theirs.iloc[other])

            self.compare(
                f"join {first.name} {second.name} --intersects",
                ["join", first.name, second.name, "--intersects"],
                sql_of_join(first, second, "intersects"),
                {
                    "GeoPandas": geopandas_pairs(first, second, "intersects"),
                    "DuckDB": self.duck.pairs(sql_of_join(first, second, "intersects")),
                },
                ambiguous,
                is_join=True,
            )

    def run(self, work: Path) -> None:
        points = [table for table in self.tables.values() if table.file.is_points]
        areas = [table for table in self.tables.values() if "area" in table.name or table.name in ("counties", "countries")]
        for table in self.tables.values():
            self.windows(table)
            for predicate in ("intersects", "within"):
                self.areas(table, areas, predicate, work)
            if table.file.is_points:
                self.circles(table)
                self.nearest(table)
        for area in (self.tables.get(name) for name in ("zip_areas", "zip_areas_simple", "countries")):
            # Each pair is printed with both geometries, which of countries are large.
            wanted = ("cities", "hospitals", "fires", "rides") if area and "zip" in area.name else ("quakes",)
            for table in points if area else []:
                if table.name in wanted:
                    self.joins(area, table)
        for outer, inner in [("rivers", "lakes"), ("rivers", "countries"), ("zip_areas", "counties")]:
            if outer in self.tables and inner in self.tables:
                self.joins_of_shapes(self.tables[outer], self.tables[inner])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, required=True, help="Terrane's command line")
    parser.add_argument("--work", type=Path, required=True, help="directory for the store; what it held is removed")
    parser.add_argument("--seed", type=int, default=1, help="of the questions")
    parser.add_argument("--questions", type=int, default=3, help="of each kind to each table")
    options = parser.parse_args()
    repository = Path(__file__).resolve().parent.parent
    shutil.rmtree(options.work, ignore_errors=True)
    tables = data.read(repository, options.work / "data")
    terrane, duck = Terrane(options.program.resolve(), options.work / "store.terrane"), DuckDb()
    for table in tables:
        terrane.load(table)
        duck.load(table)
        print(f"{table.name}: {len(table.frame)} rows of {table.file.path}")
    print(f"\nseed {options.seed}; every answer is listed and counted at 16 MiB, 64 MiB, the default and 4 GiB\n")
    print(ROW.format("question", "rows", "verdict", "why"))
    comparison = Comparison(terrane, duck, tables, options.seed, options.questions)
    comparison.run(options.work)
    print(f"\n{comparison.asked} questions, {comparison.failed} with wrong answers")
    return 1 if comparison.failed else 0


if __name__ == "__main__":
    sys.exit(main())
