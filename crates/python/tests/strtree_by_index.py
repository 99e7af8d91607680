"""A plugin of pytest: shapely's STRtree searches a terrane.Index instead of the tree of GEOS.

The index finds the candidates by their boxes, and shapely refines them. So the tests of shapely and of
GeoPandas judge the index:

    pytest -p strtree_by_index --pyargs shapely.tests.test_strtree geopandas.tests.test_sindex

None of their tests is left out here. They skip themselves what needs an older GEOS, a data set that
GeoPandas no longer has, or scipy, of whose matrices the index knows nothing.
"""

import itertools
import tempfile
from pathlib import Path

import numpy as np
import pytest
import shapely
import shapely.strtree

import terrane

_DIRECTORY = tempfile.TemporaryDirectory()
_NUMBERS = itertools.count()


def _has_place(geometries):
    return ~(shapely.is_missing(geometries) | shapely.is_empty(geometries))


class IndexTree:
    """What shapely's STRtree asks of the tree of GEOS."""

    def __init__(self, geometries, node_capacity):
        if not np.all(shapely.is_geometry(geometries) | shapely.is_missing(geometries)):
            raise TypeError("Array should be of object dtype, and have geometries")
        if node_capacity < 2:
            raise ValueError("Node capacity must be greater than 1")
        # The tree outlives changes of the array that it is made of.
        self.geometries = geometries.copy()
        places = np.flatnonzero(_has_place(self.geometries))
        self.count = len(places)
        self.index = terrane.Index(Path(_DIRECTORY.name) / str(next(_NUMBERS)))
        self.index.insert_bulk(places.astype(np.uint64), shapely.bounds(self.geometries[places]))

    def query(self, geometries, predicate):
        asked, found = self._candidates(geometries)
        if predicate:
            name = shapely.strtree.BinaryPredicate(predicate).name
            # As GEOS: each geometry that is asked for is prepared once.
            shapely.prepare(geometries)
            holds = getattr(shapely, name)(geometries[asked], self.geometries[found])
            asked, found = asked[holds], found[holds]
        return np.vstack([asked, found])

    def dwithin(self, geometries, distances):
        asked, found = self._candidates(geometries, distances)
        is_near = shapely.dwithin(geometries[asked], self.geometries[found], np.asarray(distances)[asked])
        return np.vstack([asked[is_near], found[is_near]])

    def nearest(self, geometries):
        (asked, found), _ = self.query_nearest(geometries, 0, False, False)
        return np.vstack([asked, found])

    def query_nearest(self, geometries, max_distance, exclusive, all_matches):
        pairs, distances = [], []
        for asked in np.flatnonzero(_checked(geometries)) if self.count else []:
            geometry = geometries[asked]
            reach = self._upper_bound(geometry, exclusive)
            if max_distance:
                reach = min(reach, max_distance)
            box = np.array([geometry.bounds])
            found = self._sorted(self.index.query_bulk(_grown(box, [reach])))[1]
            if exclusive:
                found = found[~shapely.equals(geometry, self.geometries[found])]
            away = shapely.distance(geometry, self.geometries[found])
            if away.size and away.min() <= reach:
                nearest = found[away == away.min()]
                nearest = nearest if all_matches else nearest[:1]
                pairs += [(asked, number) for number in nearest]
                distances += [away.min()] * len(nearest)
        return np.array(pairs, dtype=np.int64).reshape(-1, 2).T, np.array(distances, dtype=float)

    def _upper_bound(self, geometry, exclusive):
        """A distance within which there is a geometry, infinite if there is none."""
        place = geometry.representative_point().coords[0][:2]
        wanted = 1
        while True:
            found = np.array(self.index.nearest(place, wanted), dtype=np.int64)
            others = self.geometries[found]
            if exclusive:
                others = others[~shapely.equals(geometry, others)]
            if len(others):
                return shapely.distance(geometry, others).min()
            if wanted >= self.count:
                return np.inf
            wanted *= 2

    def _candidates(self, geometries, distances=None):
        """Positions of geometries, and numbers of those in the tree whose boxes meet theirs."""
        asked = np.flatnonzero(_checked(geometries))
        boxes = shapely.bounds(geometries[asked])
        if distances is not None:
            distances = np.asarray(distances)[asked]
            boxes = _grown(boxes, distances)
        has_box = ~np.isnan(boxes).any(axis=1) & (boxes[:, 0] <= boxes[:, 2]) & (boxes[:, 1] <= boxes[:, 3])
        positions, found = self._sorted(self.index.query_bulk(boxes[has_box]))
        return asked[has_box][positions], found

    @staticmethod
    def _sorted(found):
        positions, numbers = (array.astype(np.int64) for array in found)
        order = np.lexsort([numbers, positions])
        return positions[order], numbers[order]


def _checked(geometries):
    if geometries.ndim != 1:
        raise TypeError("Array should be one dimensional")
    if not np.all(shapely.is_geometry(geometries) | shapely.is_missing(geometries)):
        raise TypeError("Array should have geometries")
    return _has_place(geometries)


def _grown(boxes, distances):
    """Boxes with a margin. A last digit more keeps what is exactly as far."""
    margin = np.nextafter(np.asarray(distances, dtype=float), np.inf)[:, None]
    margin = np.minimum(margin, np.finfo(float).max / 4)
    return boxes + np.hstack([-margin, -margin, margin, margin])


class _Lib:
    """shapely's compiled part, with another tree."""

    STRtree = IndexTree

    def __getattr__(self, name):
        return getattr(shapely.lib, name)


shapely.strtree.lib = _Lib()


def pytest_sessionfinish(session):
    """Without a tree, the tests would have judged another one."""
    if next(_NUMBERS) == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
