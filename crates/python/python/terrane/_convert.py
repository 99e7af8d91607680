"""Answers as objects of other packages, which are imported when they are asked for."""

import importlib
import math
import re
import sys
from html import escape

from . import UsageError


def _need(module, purpose):
    if module in sys.modules:
        return sys.modules[module]
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{purpose} needs the package {module}: pip install {module}") from error


def arrow(result):
    """All rows as a pyarrow.Table."""
    pyarrow = _need("pyarrow", "arrow()")
    # Batch by batch, an error of a statement is one of this package.
    batches = [pyarrow.record_batch(batch) for batch in result]
    return pyarrow.Table.from_batches(batches, schema=pyarrow.schema(result))


def df(result):
    """All rows as a pandas.DataFrame. Geometries are WKB."""
    return _frame(_need("pandas", "df()"), arrow(result))


# Integers beyond it have no exact float.
_EXACT = 2**53


def _frame(pandas, table):
    """A table as a data frame.

    pandas has floats where integers are missing. Integers beyond those that floats hold are kept.
    """
    pyarrow = _need("pyarrow", "df()")
    for place, field in enumerate(table.schema):
        if field.type == pyarrow.time64("ns"):
            # The times of Python have microseconds.
            times = table.column(place).cast(pyarrow.time64("us"), safe=False)
            table = table.set_column(place, field.name, times)
    frame = table.to_pandas()
    for place, column in enumerate(table.columns):
        kind = str(column.type)
        if kind in ("int64", "uint64") and column.null_count:
            bounds = _need("pyarrow.compute", "df()").min_max(column).as_py()
            if any(bound is not None and abs(bound) > _EXACT for bound in bounds.values()):
                kept = {column.type: pandas.Int64Dtype() if kind == "int64" else pandas.UInt64Dtype()}
                frame.isetitem(place, column.to_pandas(types_mapper=kept.get))
    return frame


def pl(result):
    """All rows as a polars.DataFrame. Geometries are WKB."""
    polars = _need("polars", "pl()")
    own = importlib.import_module("terrane._terrane")
    return polars.DataFrame(own._for_polars(result, list(result)))


def gdf(result):
    """All rows as a geopandas.GeoDataFrame. Each column of geometries has its reference system."""
    geopandas = _need("geopandas", "gdf()")
    columns = result.geometry_columns
    places = result.point_columns
    if not columns and places is None:
        raise UsageError(
            f"the answer has no geometry: its columns are {', '.join(result.columns)}; select the column geometry"
        )
    missing = [] if columns else [column for column in places if column not in result.columns]
    if missing:
        raise UsageError(f"a geometry is made of {' and '.join(places)}, and the answer lacks {', '.join(missing)}")
    frame = _frame(_need("pandas", "gdf()"), arrow(result))
    if columns:
        shapely = _need("shapely", "gdf()")
        for column, crs in result._geometry_crs:
            shapes = shapely.from_wkb(frame[column].to_numpy())
            frame[column] = geopandas.GeoSeries(shapes, crs=crs, index=frame.index)
        return geopandas.GeoDataFrame(frame, geometry=columns[0])
    x, y = places
    points = geopandas.points_from_xy(frame[x], frame[y])
    empty = frame[x].isna() | frame[y].isna()
    geometry = geopandas.GeoSeries(points, crs=result.crs, index=frame.index)
    geometry[empty] = None
    names = ["geometry"] + [f"geometry_{number}" for number in range(1, len(frame.columns) + 1)]
    name = next(name for name in names if name not in frame.columns)
    return geopandas.GeoDataFrame(frame.assign(**{name: geometry}), geometry=name, crs=result.crs)


def plot(result, **kwargs):
    """A picture by matplotlib."""
    _need("matplotlib", "plot()")
    return gdf(result).plot(**kwargs)


class Map:
    """An interactive map of an answer: one HTML page that needs no network."""

    def __init__(self, page):
        self.page = page

    def save(self, path):
        """Writes the page to a file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.page)

    def _repr_html_(self):
        return f'<iframe srcdoc="{escape(self.page)}" style="width: 100%; height: 480px; border: 0"></iframe>'


def explore(result):
    """An interactive map."""
    return Map(result._page())


_SHOWN = 10


def _cell(value):
    text = "" if value is None else str(value)
    return text if len(text) <= 40 else text[:39] + "…"


def text(result):
    """The first rows as text."""
    names = [f"{name}\n{kind}" for name, kind in result.types]
    rows = result.fetchall(_SHOWN + 1)
    cells = [[_cell(value) for value in row] for row in rows[:_SHOWN]]
    heads = [name.split("\n") for name in names]
    widths = [max(map(len, head + [row[i] for row in cells])) for i, head in enumerate(heads)]
    lines = ["  ".join(head[part].ljust(width) for head, width in zip(heads, widths)).rstrip() for part in (0, 1)]
    lines += ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in cells]
    return "\n".join(lines + [_rest(result, rows)])


def _rest(result, rows):
    if len(rows) <= _SHOWN:
        return f"{len(rows)} row{'' if len(rows) == 1 else 's'}"
    return f"{len(result)} rows, {_SHOWN} of them shown"


def html(result):
    """The first rows as a table for notebooks."""
    rows = result.fetchall(_SHOWN + 1)
    head = "".join(f"<th>{escape(name)}<br><small>{escape(kind)}</small></th>" for name, kind in result.types)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_cell(value))}</td>" for value in row) + "</tr>" for row in rows[:_SHOWN]
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{_rest(result, rows)}</p>"
    return _thumbnail(result) + table


# How many rows a thumbnail shows, and how many positions of each line.
_DRAWN = 300
_POSITIONS = 200
_WIDTH, _HEIGHT, _MARGIN = 200, 150, 6


def _thumbnail(result):
    """A picture of the first geometries as SVG; nothing if there are none."""
    names = [name for name, _ in result.types]
    geometries = [names.index(name) for name in result.geometry_columns]
    places = [names.index(name) for name in result.point_columns or () if name in names]
    points, lines = [], []
    if not geometries and len(places) != 2:
        return ""
    for row in result.fetchall(_DRAWN):
        for text in (row[column] for column in geometries):
            for part in re.findall(r"([A-Z]*)[ ZM]*\(+([^()]+)\)", text or ""):
                positions = [tuple(map(float, position.split()[:2])) for position in part[1].split(",")]
                if "POINT" in text[:10]:
                    points.extend(positions)
                else:
                    lines.append((positions[:: len(positions) // _POSITIONS + 1], "POLYGON" in text))
        if not geometries and None not in (row[places[0]], row[places[1]]):
            points.append((row[places[0]], row[places[1]]))
    all_positions = points + [position for line, _ in lines for position in line]
    if not all_positions:
        return ""
    xs, ys = zip(*all_positions)
    # Degrees of longitude are shorter away from the equator.
    flat = math.cos(math.radians((min(ys) + max(ys)) / 2)) if result.crs == "EPSG:4326" else 1.0
    span_x, span_y = (max(xs) - min(xs)) * flat or 1e-9, max(ys) - min(ys) or 1e-9
    scale = min((_WIDTH - 2 * _MARGIN) / span_x, (_HEIGHT - 2 * _MARGIN) / span_y)
    left = (_WIDTH - span_x * scale) / 2
    top = (_HEIGHT - span_y * scale) / 2

    def at(position):
        return f"{left + (position[0] - min_x) * flat * scale:.1f} {top + (max_y - position[1]) * scale:.1f}"

    min_x, max_y = min(xs), max(ys)
    drawn = []
    for line, is_closed in lines:
        path = "M" + "L".join(map(at, line)) + ("Z" if is_closed else "")
        drawn.append(f'<path d="{path}" fill="{"#4a90d9" if is_closed else "none"}" fill-opacity="0.25"/>')
    if points:
        drawn.append(f'<path d="{"".join(f"M{at(point)}h0" for point in points)}" stroke-width="4" stroke-linecap="round"/>')
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" stroke="#2b6cb0" stroke-width="0.7" '
        f'style="float: right; border: 1px solid #ddd">{"".join(drawn)}</svg>'
    )
