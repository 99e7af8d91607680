"""An embeddable, crash-consistent spatial database.

>>> import tempfile, terrane
>>> db = terrane.open(tempfile.mkdtemp() + "/places.terrane")
>>> places = db.create("places", [
...     {"id": 1, "lon": -122.4194, "lat": 37.7749, "name": "San Francisco"},
...     {"id": 2, "lon": -122.2712, "lat": 37.8044, "name": "Oakland"},
... ], key="id")
>>> [name for name, metres in places.nearest((-122.3937, 37.7955), k=1, columns=["name"]).fetchall()]
['San Francisco']
>>> places.count(circle=(-122.3937, 37.7955, 20_000))
2
>>> db.sql("SELECT name FROM places WHERE id = $1", [2]).fetchall()
[('Oakland',)]
>>> answer = places.query(where="id < 2")
>>> answer.columns, len(answer), [row[0] for batch in answer for row in batch.fetchall()]
(['id', 'lon', 'lat', 'name'], 1, [1])
>>> db.datasets(), "places" in db
(['places'], True)
>>> db.close()
"""

from ._terrane import (
    Batch,
    Batches,
    ClosedError,
    CorruptionError,
    Database,
    Dataset,
    DuplicateKeyError,
    Error,
    Index,
    LockedError,
    MemoryLimitError,
    NotFoundError,
    RefusedError,
    Result,
    StorageError,
    UsageError,
    __version__,
    open,
)

__all__ = [
    "Batch",
    "Batches",
    "ClosedError",
    "CorruptionError",
    "Database",
    "Dataset",
    "DuplicateKeyError",
    "Error",
    "Index",
    "LockedError",
    "MemoryLimitError",
    "NotFoundError",
    "RefusedError",
    "Result",
    "StorageError",
    "UsageError",
    "__version__",
    "open",
]
