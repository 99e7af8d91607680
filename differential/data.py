"""Real data, prepared once for all systems.

Every table gets a key `rid`, the number of its row, and either `lon` and `lat` or `geometry`. Rows without a geometry,
and those whose geometry is not valid, are left out: predicates are not defined for them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import geopandas
import pandas
import pyarrow.parquet
import shapely


@dataclass
class File:
    """A file, and what is taken from it."""

    name: str
    path: str
    lon: str | None
    lat: str | None
    attribute: str
    rows_max: int | None = None

    @property
    def is_points(self) -> bool:
        return self.lon is not None


# The files of the folder that TERRANE_DATA names.
FILES = [
    File("cities", "geonames_cities1000.parquet", "lon", "lat", "cc"),
    File("quakes", "usgs_earthquakes_1965_2016.parquet", "lon", "lat", "magnitude"),
    File("hospitals", "us_hospital_drg_2016.parquet", "lon", "lat", "state"),
    File("fires", "us_wildfires_fpafod_500acres.parquet", "lon", "lat", "cause"),
    File("burns", "firms_modis_fires_2020.parquet", "lon", "lat", "country", rows_max=200_000),
    File("texts", "geotagged_text.parquet", "lon", "lat", "source"),
    File("zip_areas", "us_zcta_nyc_sfbay_fullres.parquet", None, None, "state"),
    File("zip_areas_simple", "us_zcta_2010s_simplified.parquet", None, None, "state"),
    File("counties", "us_counties_2010.parquet", None, None, "state_fips"),
    File("countries", "ne_50m_countries.parquet", None, None, "continent"),
    File("lakes", "ne_10m_lakes.parquet", None, None, "admin"),
    File("rivers", "ne_10m_rivers.parquet", None, None, "featurecla"),
]

# The samples of the repository.
SAMPLES = [
    File("rides", "sf_cab_rides.parquet", "pickup_lon", "pickup_lat", "cab_id"),
    File("cities", "cities200.csv", "lon", "lat", "adm0name"),
    File("zip_areas", "zcta42.geojson", None, None, "state"),
]


@dataclass
class Table:
    """A table as GeoPandas has it, and the file from which the other systems read it."""

    file: File
    frame: geopandas.GeoDataFrame
    path: Path

    @property
    def name(self) -> str:
        return self.file.name


def read(repository: Path, work: Path) -> list[Table]:
    """Reads all tables and writes their prepared files."""
    folder = os.environ.get("TERRANE_DATA")
    if folder is None:
        print("TERRANE_DATA is not set: the samples of the repository are compared instead of all data")
    source = Path(folder) if folder else repository / "data"
    work.mkdir(parents=True, exist_ok=True)
    return [_table(file, source / file.path, work) for file in (FILES if folder else SAMPLES)]


def _table(file: File, source: Path, work: Path) -> Table:
    if file.is_points:
        columns = [file.lon, file.lat, file.attribute]
        if source.suffix == ".csv":
            plain = pandas.read_csv(source, usecols=columns)
        else:
            plain = pyarrow.parquet.read_table(source, columns=columns).to_pandas()
        plain = plain.head(file.rows_max) if file.rows_max else plain
        plain = plain.rename(columns={file.lon: "lon", file.lat: "lat", file.attribute: "attribute"})
        plain = plain.dropna(subset=["lon", "lat"])
        frame = geopandas.GeoDataFrame(plain, geometry=shapely.points(plain["lon"], plain["lat"]), crs="OGC:CRS84")
    else:
        whole = geopandas.read_file(source) if source.suffix == ".geojson" else geopandas.read_parquet(source)
        whole = whole.rename(columns={file.attribute: "attribute"})
        frame = whole[["attribute", "geometry"]]
        frame = frame[~frame.geometry.isna()]
        frame = frame[frame.geometry.is_valid & ~frame.geometry.is_empty]
    frame = frame.reset_index(drop=True)
    frame.insert(0, "rid", range(len(frame)))
    path = work / f"{file.name}.parquet"
    if file.is_points:
        pandas.DataFrame(frame.drop(columns="geometry")).to_parquet(path, index=False)
    else:
        frame.to_parquet(path, index=False)
    return Table(file, frame, path)
