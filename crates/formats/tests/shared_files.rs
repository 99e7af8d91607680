//! The project's curated files, good and broken, and the expected result of each. They are not in
//! the repository: `TERRANE_DATA` names their folder. Without it these tests say that they are
//! skipped.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::support::{Whole, columns, floats, read, texts, wkt};
use terrane_formats::{Format, FormatError, GeometryColumns, ReadOptions, detect};

fn data() -> Option<PathBuf> {
    let folder = std::env::var_os("TERRANE_DATA").map(PathBuf::from);
    if folder.is_none() {
        println!("SKIPPED: TERRANE_DATA is not set");
    }
    folder
}

fn read_default(path: &std::path::Path) -> Result<Whole, FormatError> {
    read(path, &ReadOptions::default())
}

/// The expected result of a file, from the words of `EXPECT.csv`.
#[derive(Debug, PartialEq)]
enum Demand {
    /// Every row is read.
    Reads,
    /// An error, or refused rows.
    Complains,
    /// Exactly these rows are refused.
    RefusesRows(Vec<u64>),
    /// The format is not supported.
    Unsupported,
    /// Any answer but a panic.
    Answers,
}

fn demand(file: &str, valid: &str) -> Demand {
    let is_ours = ["csv/", "geojson/", "parquet/"].iter().any(|folder| file.starts_with(folder));
    if !is_ours {
        return Demand::Unsupported;
    }
    if let Some(rows) = valid.strip_suffix(" bad") {
        let rows = rows.trim_start_matches(|character: char| !character.is_ascii_digit());
        return Demand::RefusesRows(rows.split(',').filter_map(|row| row.parse().ok()).collect());
    }
    match valid {
        "no" | "no*" | "row 5 NaN" => Demand::Complains,
        // The list asks to accept these or to give a reason.
        "yes*" if file == "geojson/mixed_dimensions.geojson" => Demand::Complains,
        // The third is checked by the caller, for validity and range.
        "yes" | "yes*" | "warn" | "lie" | "plain table" | "invalid geometry" | "out of range" | "yes (wrong place)" => {
            Demand::Reads
        }
        _ => Demand::Answers,
    }
}

fn expectations(data: &std::path::Path) -> BTreeMap<String, String> {
    let whole = read_default(&data.join("formats/malformed/EXPECT.csv")).expect("a valid CSV file");
    texts(&whole, "file").into_iter().zip(texts(&whole, "valid")).filter_map(|(file, valid)| file.zip(valid)).collect()
}

fn judge(file: &str, demand: &Demand, outcome: &Result<Whole, FormatError>) -> Result<(), String> {
    let refused = |whole: &Whole| whole.rejected.iter().map(|bad| bad.row).collect::<Vec<_>>();
    match (demand, outcome) {
        (Demand::Reads, Ok(whole)) if whole.rejected.is_empty() => Ok(()),
        (Demand::Complains, Err(_)) => Ok(()),
        (Demand::Complains, Ok(whole)) if !whole.rejected.is_empty() => Ok(()),
        (Demand::RefusesRows(rows), Ok(whole)) if refused(whole) == *rows => Ok(()),
        (Demand::Unsupported, Err(FormatError::Unsupported { .. })) => Ok(()),
        (Demand::Answers, _) => Ok(()),
        (_, Ok(whole)) => Err(format!(
            "{file}: {demand:?}, but {} rows were read and refused: {:?}",
            whole.rows.len(),
            whole.rejected
        )),
        (_, Err(error)) => Err(format!("{file}: {demand:?}, but: {error}")),
    }
}

#[test]
fn malformed_files_are_answered_as_expected() {
    let Some(data) = data() else { return };
    let expected = expectations(&data);
    assert!(expected.len() > 100, "the list is whole");
    let mut wrong = Vec::new();
    for (file, valid) in &expected {
        let outcome = read_default(&data.join("formats/malformed").join(file));
        let demand = demand(file, valid);
        if let Err(message) = judge(file, &demand, &outcome) {
            wrong.push(message);
        }
        match outcome {
            Ok(whole) => println!(
                "{file} [{valid}]: {} rows, {:?}",
                whole.rows.len(),
                whole.rejected.first().map(|bad| &bad.reason)
            ),
            Err(error) => println!("{file} [{valid}]: {error}"),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_format_gives_the_same_cities() {
    let Some(data) = data() else { return };
    let mut names = None;
    for (file, format) in [
        ("cities200.csv", Format::Csv),
        ("cities200.csv.zst", Format::Csv),
        ("cities200_semicolon_decimalcomma.csv", Format::Csv),
        ("cities200.geojson", Format::GeoJson),
        ("cities200.parquet", Format::GeoParquet),
    ] {
        let whole = read_default(&data.join("formats").join(file)).expect(file);
        assert_eq!(whole.source.format, format, "{file}");
        assert!(whole.rejected.is_empty(), "{file}: {:?}", whole.rejected);
        assert_eq!(whole.source.row_count_hint, Some(200), "{file}");
        let found = (texts(&whole, "name"), texts(&whole, "name_zh"));
        assert_eq!(*names.get_or_insert(found.clone()), found, "{file}");
        assert!(columns(&whole).contains(&"capital: Boolean".to_string()), "{file}");
        match &whole.source.geometry {
            GeometryColumns::Column { .. } => assert!(wkt(&whole).iter().all(Option::is_some)),
            GeometryColumns::Coordinates { x, .. } => {
                assert_eq!(floats(&whole, x)[0], Some(139.749_461_570_544_67), "{file}");
            }
            GeometryColumns::None => panic!("{file} has a geometry"),
        }
    }
}

#[test]
fn every_format_gives_the_same_postal_areas() {
    let Some(data) = data() else { return };
    let mut reference: Option<Vec<Option<String>>> = None;
    for (file, rows) in [
        ("zcta42_wkb.parquet", 42),
        ("zcta42_wkt.csv", 42),
        ("zcta42.geojson", 42),
        ("zcta42.geojsonl", 42),
        ("zcta42_epsg3857.parquet", 42),
        ("zcta42_polygons_geoarrow.parquet", 33),
    ] {
        let whole = read_default(&data.join("formats").join(file)).expect(file);
        assert!(whole.rejected.is_empty(), "{file}: {:?}", whole.rejected);
        assert_eq!(whole.rows.len(), rows, "{file}");
        let codes = texts(&whole, "zcta");
        if rows == 42 {
            assert_eq!(*reference.get_or_insert(codes.clone()), codes, "{file}");
        }
        assert!(codes.iter().flatten().all(|code| code.len() == 5), "{file}: leading zeros");
        let shapes = wkt(&whole);
        for shape in shapes.iter().flatten() {
            let numbers: Vec<f64> = shape
                .split(|character: char| !(character.is_ascii_digit() || ".-e".contains(character)))
                .filter_map(|number| number.parse().ok())
                .collect();
            for position in numbers.chunks_exact(2) {
                let [x, y] = position else { continue };
                assert!((-125.0..-70.0).contains(x) && (36.0..43.0).contains(y), "{file}: {x} {y}");
            }
        }
    }
}

#[test]
fn unsupported_formats_are_named_with_the_supported_ones() {
    let Some(data) = data() else { return };
    for file in [
        "cities200.fgb",
        "cities200.gpkg",
        "cities200.kml",
        "zcta42.gml",
        "zcta42_shp.zip",
        "zcta42_shp/zcta42.shp",
        "zcta42_shp/zcta42.dbf",
    ] {
        let error = detect(&data.join("formats").join(file)).expect_err(file);
        assert!(matches!(error, FormatError::Unsupported { .. }), "{file}: {error}");
        assert!(error.to_string().contains("supported formats are CSV"), "{error}");
    }
}

#[test]
fn the_curated_sets_are_read_whole() {
    let Some(data) = data() else { return };
    for (file, rows, geometry) in [
        ("geonames_cities1000.parquet", 144_563, "geometry"),
        ("usgs_earthquakes_1965_2016.parquet", 23_412, "lon"),
        ("opensky_flights_2020a.parquet", 235_523, "start_lon"),
        ("us_counties_2010.parquet", 3_221, "geometry"),
        ("ne_10m_rivers.parquet", 1_454, "geometry"),
        ("uber_nyc_apr14_first200k_original.csv.zst", 200_000, "Lon"),
    ] {
        let whole = read_default(&data.join(file)).expect(file);
        assert!(whole.rejected.is_empty(), "{file}: {:?}", whole.rejected.first());
        assert_eq!(whole.batch.num_rows(), rows, "{file}");
        match &whole.source.geometry {
            GeometryColumns::Column { name } => assert_eq!(name, geometry, "{file}"),
            GeometryColumns::Coordinates { x, .. } => assert_eq!(x, geometry, "{file}"),
            GeometryColumns::None => panic!("{file} has a geometry"),
        }
    }
}

#[test]
fn an_unknown_geoparquet_version_is_warned_of() {
    let Some(data) = data() else { return };
    let path = data.join("formats/malformed/parquet/geo_version_99.parquet");
    let whole = read_default(&path).expect("read all the same");
    let warnings = whole.source.warnings.join("\n");
    assert!(warnings.contains("GeoParquet version 99.0.0"), "{warnings}");
}

fn numbers(text: &str) -> Vec<f64> {
    text.split(|character: char| !(character.is_ascii_digit() || ".-e".contains(character)))
        .filter_map(|number| number.parse().ok())
        .collect()
}

#[test]
fn reprojected_shapes_lie_where_the_unprojected_ones_do() {
    let Some(data) = data() else { return };
    let shapes = |file: &str| {
        let whole = read_default(&data.join("formats").join(file)).expect("valid");
        let shapes = wkt(&whole).into_iter().flatten();
        // Writers start and wind rings differently, and a ring has its first position twice. The
        // test therefore compares the sorted set of numbers.
        let sorted = |shape: String| {
            let mut numbers = numbers(&shape);
            numbers.sort_by(f64::total_cmp);
            numbers.dedup_by(|a, b| (*a - *b).abs() < 1e-8);
            numbers
        };
        shapes.map(sorted).collect::<Vec<_>>()
    };
    let reference = shapes("zcta42_wkb.parquet");
    for (file, tolerance) in [
        ("zcta42_epsg3857.parquet", 1e-9),
        // Written with seven decimals.
        ("zcta42_wkt.csv", 0.5e-7 + 1e-12),
    ] {
        let found = shapes(file);
        assert_eq!(found.len(), reference.len(), "{file}");
        for (found, expected) in found.iter().zip(&reference) {
            assert_eq!(found.len(), expected.len(), "{file}");
            let differences = found.iter().zip(expected).map(|(a, b)| (a - b).abs());
            let difference = differences.fold(0.0, f64::max);
            assert!(difference <= tolerance, "{file}: {difference} degrees apart");
        }
    }
}
