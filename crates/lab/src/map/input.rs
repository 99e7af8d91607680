//! The input of a map: NDJSON rows with two coordinate columns, and an outline in WKT.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Map, Value};
use wkt::Wkt;
use wkt::types::{Coord, LineString, Polygon};

use super::Position;

/// Column names tried in this order when none are given.
const COLUMNS: [(&str, &str); 6] = [
    ("lon", "lat"),
    ("longitude", "latitude"),
    ("lng", "lat"),
    ("x", "y"),
    ("pickup_lon", "pickup_lat"),
    ("Lon", "Lat"),
];

/// The rows of one file.
#[derive(Debug, Default)]
pub struct Points {
    /// Positions of the rows that have one.
    pub positions: Vec<Position>,
    /// Rows without one.
    pub skipped: u64,
}

/// A line of the outline; closed for rings of polygons.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The corners.
    pub positions: Vec<Position>,
    /// Whether the last corner is joined with the first.
    pub closed: bool,
}

/// Reads NDJSON. Rows with missing or null coordinates are counted; other defects are errors.
pub fn read_points(path: &Path, columns: Option<&(String, String)>) -> Result<Points> {
    if path.as_os_str() == "-" {
        return parse_points(io::stdin().lock(), columns).context("standard input");
    }
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    parse_points(BufReader::new(file), columns).with_context(|| path.display().to_string())
}

/// As [`read_points`], from any source of lines.
pub fn parse_points(input: impl BufRead, columns: Option<&(String, String)>) -> Result<Points> {
    let mut columns = columns.cloned();
    let mut points = Points::default();
    for (number, line) in input.lines().enumerate() {
        let number = number + 1;
        let line = line.with_context(|| format!("line {number}"))?;
        if line.trim().is_empty() {
            continue;
        }
        let row: Map<String, Value> =
            serde_json::from_str(&line).with_context(|| format!("line {number}: not a JSON object"))?;
        if columns.is_none() {
            columns = Some(guess_columns(&row).with_context(|| format!("line {number}"))?);
        }
        let Some((x, y)) = &columns else {
            bail!("line {number}: no coordinate columns are known");
        };
        let coordinate = |name: &String| match row.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => value
                .as_f64()
                .filter(|value| value.is_finite())
                .map(Some)
                .ok_or_else(|| anyhow!("line {number}: {name} is {value}, not a number")),
        };
        match (coordinate(x)?, coordinate(y)?) {
            (Some(x), Some(y)) => points.positions.push([x, y]),
            _ => points.skipped += 1,
        }
    }
    Ok(points)
}

fn guess_columns(row: &Map<String, Value>) -> Result<(String, String)> {
    COLUMNS
        .iter()
        .find(|(x, y)| row.contains_key(*x) && row.contains_key(*y))
        .map(|&(x, y)| (x.to_owned(), y.to_owned()))
        .ok_or_else(|| {
            let names: Vec<_> = row.keys().map(String::as_str).collect();
            anyhow!("no coordinate columns among {}: name them with --x and --y", names.join(", "))
        })
}

/// The lines of a geometry given as WKT, or as `@FILE` that holds WKT.
pub fn read_outline(text: &str) -> Result<Vec<Line>> {
    let content;
    let (text, origin) = match text.strip_prefix('@') {
        Some(path) => {
            content = fs::read_to_string(path).with_context(|| format!("cannot read outline {path}"))?;
            (content.trim(), path)
        }
        None => (text.trim(), "--outline"),
    };
    let geometry = Wkt::<f64>::from_str(text).map_err(|reason| anyhow!("{origin}: not WKT: {reason}"))?;
    let mut lines = Vec::new();
    collect_lines(&geometry, &mut lines)?;
    Ok(lines)
}

fn collect_lines(geometry: &Wkt<f64>, lines: &mut Vec<Line>) -> Result<()> {
    match geometry {
        Wkt::LineString(line) => push(line, false, lines)?,
        Wkt::MultiLineString(many) => {
            for line in many.line_strings() {
                push(line, false, lines)?;
            }
        }
        Wkt::Polygon(polygon) => push_rings(polygon, lines)?,
        Wkt::MultiPolygon(many) => {
            for polygon in many.polygons() {
                push_rings(polygon, lines)?;
            }
        }
        Wkt::Point(_) | Wkt::MultiPoint(_) | Wkt::GeometryCollection(_) => {
            bail!("an outline is a line or a polygon, or several of one kind")
        }
    }
    Ok(())
}

fn push_rings(polygon: &Polygon<f64>, lines: &mut Vec<Line>) -> Result<()> {
    polygon.rings().iter().try_for_each(|ring| push(ring, true, lines))
}

fn push(line: &LineString<f64>, closed: bool, lines: &mut Vec<Line>) -> Result<()> {
    let positions = line.coords().iter().map(|&Coord { x, y, .. }| {
        if x.is_finite() && y.is_finite() { Ok([x, y]) } else { Err(anyhow!("the outline has a corner at {x} {y}")) }
    });
    lines.push(Line { positions: positions.collect::<Result<_>>()?, closed });
    Ok(())
}
