import os
import signal
from pathlib import Path

import pytest

import terrane

# A shell starts background jobs with SIGINT ignored. The tests of Ctrl-C would then never end.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "s.terrane"


@pytest.fixture
def db(path):
    with terrane.open(path) as database:
        yield database


@pytest.fixture
def data():
    """The folder of larger samples."""
    folder = os.environ.get("TERRANE_DATA")
    if not folder:
        pytest.skip("TERRANE_DATA names no folder")
    return Path(folder)


PLACES = [
    {"id": 1, "lon": -122.4194, "lat": 37.7749, "name": "San Francisco"},
    {"id": 2, "lon": -122.2712, "lat": 37.8044, "name": "Oakland"},
    {"id": 3, "lon": -121.8863, "lat": 37.3382, "name": "San José"},
]


@pytest.fixture
def places(db):
    return db.create("places", PLACES, key="id")
