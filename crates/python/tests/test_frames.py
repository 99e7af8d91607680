"""Tables and data frames go in and come out."""

import json

import geopandas
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

import terrane


@pytest.fixture
def frame():
    return pd.DataFrame(
        {
            "id": range(1000),
            "lon": [i % 360 - 180 + 0.25 for i in range(1000)],
            "lat": [i % 180 - 90 + 0.5 for i in range(1000)],
            "at": pd.date_range("2020-01-01", periods=1000, freq="min", tz="UTC"),
            "name": [None if i % 7 == 0 else f"n{i}" for i in range(1000)],
        }
    )


def sorted_by_id(frame):
    return frame.sort_values("id").reset_index(drop=True)


def test_frames_of_pandas_polars_and_arrow_are_the_same(db, frame):
    table = pa.Table.from_pandas(frame)
    inputs = {
        "pandas": frame,
        "polars": pl.from_pandas(frame),
        "table": table,
        "reader": table.to_reader(max_chunksize=100),
        "batch": table.to_batches()[0],
    }
    for name, data in inputs.items():
        dataset = db.create(name, data, key="id")
        found = sorted_by_id(dataset.query().df())[frame.columns]
        expected = frame.assign(at=frame["at"].astype(found["at"].dtype))
        pd.testing.assert_frame_equal(found, expected)
        assert dataset.query().pl().height == 1000
        assert db.create(name + " again", dataset.query(), key="id").count() == 1000


def test_geodataframes_keep_their_geometries(db):
    shapes = geopandas.GeoDataFrame(
        {"id": [1, 2, 3], "n": ["a", "b", None]},
        geometry=[shapely.Point(1, 2), shapely.box(0, 0, 3, 3), None],
        crs="EPSG:4326",
    )
    dataset = db.create("shapes", shapes, key="id")
    found = sorted_by_id(dataset.query().gdf())
    assert found.crs == shapes.crs and found["n"].tolist() == shapes["n"].tolist()
    assert found.geometry.geom_equals(shapes.geometry).tolist() == [True, True, False]
    assert found.geometry[2] is None
    mercator = shapes.iloc[:2].to_crs(3857)
    degrees = sorted_by_id(db.create("mercator", mercator, key="id").query().gdf())
    assert degrees.geometry.geom_equals_exact(shapes.geometry[:2], 1e-7).all(), "coordinates are reprojected"


def test_points_become_geometries(db, frame):
    frame.loc[5, ["lon", "lat"]] = None
    found = sorted_by_id(db.create("points", frame, key="id").query().gdf())
    assert found.crs == "EPSG:4326" and found.geometry[5] is None
    assert found.geometry.x.drop(5).tolist() == frame["lon"].drop(5).tolist()


def test_batches_are_bounded_and_whole(db, frame):
    dataset = db.create("points", pd.concat([frame.assign(id=frame.id + 1000 * i) for i in range(100)]), key="id")
    batches = [pa.record_batch(batch) for batch in dataset.query()]
    assert len(batches) > 1 and sum(map(len, batches)) == len(dataset) == 100_000
    ids = set().union(*(batch.column("id").to_pylist() for batch in batches))
    assert len(ids) == 100_000


def test_columns_keep_their_order_and_type(db, frame):
    dataset = db.create("points", frame, key="id")
    result = dataset.query(columns=["name", "id"], where="id < 0")
    assert result.columns == ["name", "id"] and result.arrow().schema.field("name").type == pa.string()


def test_real_rides_are_as_in_pandas(db, data):
    rides = pd.read_parquet(data / "sf_cab_rides_2008.parquet")
    x, y = next(names for names in [("pickup_lon", "pickup_lat"), ("lon", "lat")] if names[0] in rides)
    dataset = db.create("rides", data_frame := rides.reset_index(drop=True), lon=x, lat=y)
    box = (-122.42, 37.77, -122.40, 37.79)
    inside = data_frame[data_frame[x].between(box[0], box[2]) & data_frame[y].between(box[1], box[3])]
    assert dataset.count(bbox=box) == len(inside) > 0
    assert sorted(dataset.query(bbox=box, columns=[x]).arrow()[x].to_pylist()) == sorted(inside[x])
    db.import_files("files", data / "sf_cab_rides_2008.parquet", lon=x, lat=y)
    assert len(db["files"]) == len(dataset) == pq.read_metadata(data / "sf_cab_rides_2008.parquet").num_rows


def test_maps_hold_their_rows(db, tmp_path):
    places = db.create("places", [{"id": 1, "lon": 1.0, "lat": 2.0, "name": "</script><b>"}], key="id")
    places.query().explore().save(tmp_path / "map.html")
    page = (tmp_path / "map.html").read_text()
    rows = page.split('<script id="rows" type="application/json">')[1].split("</script>")[0]
    (feature,) = json.loads(rows)["features"]
    assert feature["geometry"] == {"type": "Point", "coordinates": [1.0, 2.0]}
    assert feature["properties"]["name"] == "</script><b>"
    assert "http" not in page.split("<script>")[-1], "the page's own script loads nothing"
