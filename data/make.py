"""Makes the derived files of this folder from the curated sources named in README.md.

usage: python3 make.py SOURCE_FOLDER        (needs pyarrow and shapely)
"""
import shutil
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import shapely

RIDES = 100_000
POLYGON_ZCTA = "94110"

source = Path(sys.argv[1])
target = Path(__file__).parent

rides = pq.read_table(source / "sf_cab_rides_2008.parquet").sort_by(
    [("pickup_ts", "ascending"), ("ride_id", "ascending")]
).slice(0, RIDES)
rides = rides.replace_schema_metadata(None)
pq.write_table(
    rides,
    target / "sf_cab_rides.parquet",
    compression="zstd",
    compression_level=19,
    use_dictionary=["cab_id", "n_fixes", "pickup_lon", "pickup_lat", "dropoff_lon", "dropoff_lat"],
    column_encoding={c: "DELTA_BINARY_PACKED" for c in ("ride_id", "pickup_ts", "dropoff_ts")},
)

zctas = pq.read_table(source / "us_zcta_nyc_sfbay_fullres.parquet").to_pylist()
polygon = next(shapely.from_wkb(z["geometry"]) for z in zctas if z["zcta"] == POLYGON_ZCTA)
assert polygon.is_valid and polygon.geom_type == "Polygon"
(target / "sf_mission_district.wkt").write_text(shapely.to_wkt(polygon, rounding_precision=6) + "\n")

for name in ("cities200.csv", "zcta42.geojson"):
    shutil.copyfile(source / "formats" / name, target / name)
