"""Answers as objects of other packages, which are imported when they are asked for."""

import sys
from html import escape


def _need(module, purpose):
    if module in sys.modules:
        return sys.modules[module]
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{purpose} needs the package {module}: pip install {module}") from error


def arrow(result):
    """All rows as a pyarrow.Table."""
    return _need("pyarrow", "arrow()").RecordBatchReader.from_stream(result).read_all()


def df(result):
    """All rows as a pandas.DataFrame. Geometries are WKB."""
    _need("pandas", "df()")
    return arrow(result).to_pandas()


def pl(result):
    """All rows as a polars.DataFrame. Geometries are WKB."""
    return _need("polars", "pl()").DataFrame(result)


def gdf(result):
    """All rows as a geopandas.GeoDataFrame, with the reference system of the dataset."""
    geopandas = _need("geopandas", "gdf()")
    columns = result.geometry_columns
    table = arrow(result)
    if columns:
        shapely = _need("shapely", "gdf()")
        frame = table.to_pandas()
        for column in columns:
            frame[column] = shapely.from_wkb(frame[column].to_numpy())
        return geopandas.GeoDataFrame(frame, geometry=columns[0], crs=result.crs)
    frame = table.to_pandas()
    x, y = result.point_columns
    missing = [column for column in (x, y) if column not in frame.columns]
    if missing:
        raise ValueError(f"gdf() needs the columns {x} and {y}, and the answer lacks {', '.join(missing)}")
    points = geopandas.points_from_xy(frame[x], frame[y])
    empty = frame[x].isna() | frame[y].isna()
    geometry = geopandas.GeoSeries(points, crs=result.crs, index=frame.index)
    geometry[empty] = None
    name = "geometry" if "geometry" not in frame.columns else "geometry_1"
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
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{_rest(result, rows)}</p>"
