"""Data frames on their way into datasets."""

import importlib

from . import RefusedError, UsageError

# Degrees or units by which a transformed coordinate may differ from that of a column.
_TOLERANCE = 1e-6


def flat(frame):
    """The frame, with a named index of row numbers as a column. Arrow keeps other named ones."""
    index = frame.index
    is_lost = type(index).__name__ == "RangeIndex" and index.name is not None and index.name not in frame.columns
    return _in_microseconds(frame.reset_index() if is_lost else frame)


def _in_microseconds(frame):
    """The frame, with microseconds where its times need no nanoseconds, which pandas has by default."""
    exact = {}
    for place, dtype in enumerate(frame.dtypes):
        if str(dtype).startswith("datetime64[ns"):
            times = frame.iloc[:, place]
            if not times.dt.nanosecond.any():
                exact[place] = times.dt.as_unit("us")
    if exact:
        frame = frame.copy(deep=False)
        for place, times in exact.items():
            frame.isetitem(place, times)
    return frame


def refuse_objects(frame):
    """Refuses a data frame of Polars with objects, which it cannot hand over."""
    names = [name for name, dtype in zip(frame.columns, frame.dtypes) if str(dtype) == "Object"]
    if names:
        raise UsageError(f"column {names[0]!r} holds objects of Python; convert them to a type of Polars first")


def points(frame, x, y, srid):
    """A frame whose active geometry is replaced by columns of its coordinates."""
    geometry = frame.geometry
    is_transformed = bool(srid) and geometry.crs is not None and geometry.crs.to_epsg() != srid
    if is_transformed:
        geometry = geometry.to_crs(srid)
    kinds = geometry.geom_type
    others = (kinds.notna() & (kinds != "Point")).to_numpy()
    if others.any():
        row = int(others.argmax())
        raise _refused(row, geometry.name, f"the dataset holds points, and this is a {kinds.iloc[row]}")
    if geometry.has_z.any():
        row = int(geometry.has_z.to_numpy().argmax())
        reason = "the point has a height, which a dataset of points cannot hold; leave it out with shapely.force_2d"
        raise _refused(row, geometry.name, reason)
    rest = frame.drop(columns=[frame.active_geometry_name])
    others = {name: rest[name].to_wkb() for name in rest.columns if str(rest[name].dtype) == "geometry"}
    pandas = importlib.import_module("pandas")
    rest = pandas.DataFrame(rest).assign(**others)
    for name, found in ((x, geometry.x), (y, geometry.y)):
        if name in rest.columns:
            _check(name, rest[name], found, _TOLERANCE if is_transformed else 0.0)
        rest[name] = found
    return rest


def _check(name, column, found, tolerance):
    """Refuses a coordinate that differs from that of the geometry."""
    pandas = importlib.import_module("pandas")
    column = pandas.to_numeric(column, errors="coerce")
    is_same = ((column - found).abs() <= tolerance) | (column.isna() & found.isna())
    differs = (~is_same).to_numpy()
    if differs.any():
        row = int(differs.argmax())
        reason = (
            f"it is {column.iloc[row]}, and the geometry has {found.iloc[row]}; leave out the columns of the "
            "coordinates, or the geometry"
        )
        raise _refused(row, name, reason)


def _refused(row, column, reason):
    error = RefusedError(f"row {row}: column {column!r}: {reason}")
    error.row, error.column = row, str(column)
    return error
