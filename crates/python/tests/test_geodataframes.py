"""GeoDataFrames go into datasets of every kind, and come back after an edit."""

import geopandas
import pandas as pd
import pytest
import shapely

import terrane
from conftest import PLACES


@pytest.fixture
def points():
    return geopandas.GeoDataFrame(
        {"id": [1, 8], "name": ["moved", "new"]}, geometry=[shapely.Point(3, 4), shapely.Point(5, 6)], crs="EPSG:4326"
    )


def test_the_active_geometry_is_that_of_the_dataset(db):
    frame = geopandas.GeoDataFrame({"id": [1]}, geometry=[shapely.Point(1, 1)], crs="EPSG:4326")
    frame["site"] = geopandas.GeoSeries([shapely.Point(9, 9)], crs="EPSG:4326").to_crs(3857)
    frame = frame.set_geometry("site")
    sites = db.create("sites", frame, key="id")
    assert sites.schema == {"id": "int64", "site": "geometry", "geometry": "binary"}
    assert shapely.from_wkt(sites.get(1)["site"]).equals_exact(shapely.Point(9, 9), 1e-7)
    assert db.sql("SELECT ST_X(site) > 8 FROM frame").fetchall() == [(True,)]
    chosen = db.create("chosen", frame, key="id", geometry="geometry")
    assert chosen.schema["geometry"] == "geometry" and chosen.get(1)["geometry"] == "POINT (1 1)"
    assert chosen.upsert(frame) == 1 and chosen.get(1)["geometry"] == "POINT (1 1)"


def test_subclasses_are_geodataframes(db, points):
    class Frame(geopandas.GeoDataFrame):
        pass

    assert db.create("points", Frame(points), key="id").schema["geometry"] == "geometry"


def test_points_go_into_the_coordinates_of_a_point_dataset(places, points):
    schema = places.schema
    assert places.upsert(points) == 2 and places.schema == schema
    assert places.get(1) == {"id": 1, "lon": 3.0, "lat": 4.0, "name": "moved"}
    assert places.upsert(points.to_crs(3857)) == 2
    assert places.get(8)["lon"] == pytest.approx(5) and places.get(8)["lat"] == pytest.approx(6)
    nowhere = points.assign(geometry=[None, shapely.Point()]).set_crs("EPSG:4326")
    assert places.upsert(nowhere) == 2 and places.get(1)["lon"] is None is places.get(8)["lat"]


def test_an_edited_answer_goes_back(places):
    schema = places.schema
    frame = places.query(order_by="id").gdf()
    assert places.upsert(frame) == 3 and places.schema == schema
    frame.geometry = frame.translate(5, 0)
    with pytest.raises(terrane.RefusedError, match="leave out the columns of the coordinates") as error:
        places.upsert(frame)
    assert (error.value.row, error.value.column) == (0, "lon")
    assert [places.get(place["id"]) for place in PLACES] == PLACES
    assert places.upsert(frame.drop(columns=["lon", "lat"])) == 3
    assert places.schema == schema and places.get(1)["lon"] == PLACES[0]["lon"] + 5


def test_only_points_go_into_a_point_dataset(places, points):
    points.loc[1, "geometry"] = shapely.box(0, 0, 1, 1)
    with pytest.raises(terrane.RefusedError, match="holds points, and this is a Polygon") as error:
        places.insert(points)
    assert (error.value.row, error.value.column) == (1, "geometry") and len(places) == 3
    points.loc[1, "geometry"] = shapely.Point(1, 2, 3)
    with pytest.raises(terrane.RefusedError, match="height"):
        places.insert(points)


def test_a_point_dataset_is_created_from_points(db, points):
    assert db.create("shapes", points, key="id").schema == {"id": "int64", "geometry": "geometry", "name": "utf8"}
    dataset = db.create("points", points, key="id", lon="lon", lat="lat")
    assert dataset.schema == {"id": "int64", "lon": "float64", "lat": "float64", "name": "utf8"}
    assert dataset.get(8) == {"id": 8, "lon": 5.0, "lat": 6.0, "name": "new"}
    more = points.assign(id=[20, 21])
    assert len(db.create("points", more, mode="append")) == 4 and dataset.get(21)["lat"] == 6.0


def test_new_columns_of_a_table_are_announced(places):
    near = places.nearest((-122.4, 37.7), k=1).df()
    with pytest.warns(UserWarning, match='adds the column "distance" to the dataset places'):
        places.upsert(near)


def test_an_index_of_pandas_is_stored_if_it_has_a_name(db):
    frame = pd.DataFrame({"id": [1, 2, 3], "lon": 0.0, "lat": 0.0, "v": [1, 2, 3]})
    columns = {"id": "int64", "lon": "float64", "lat": "float64", "v": "int64"}
    part = frame[frame.v > 1]
    assert db.create("filtered", part, key="id").schema == columns
    assert db.sql("SELECT * FROM part").columns == list(columns)
    assert db["filtered"].upsert(frame.iloc[::2]) == 2 and db["filtered"].schema == columns
    assert set(db.create("named", frame.set_index("id")).schema) == set(columns)
    numbered = frame.drop(columns="id")
    numbered.index.name = "id"
    assert set(db.create("numbered", numbered, key="id").schema) == set(columns)
    shapes = geopandas.GeoDataFrame(frame[["id"]], geometry=geopandas.points_from_xy(frame.lon, frame.lat), crs=4326)
    assert set(db.create("shapes", shapes[frame.v > 1].set_index("id")).schema) == {"id", "geometry"}
