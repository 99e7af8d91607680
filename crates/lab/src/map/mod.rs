//! `terrane-lab map`: points, an answer and the outline of the query, as an SVG picture.

mod density;
mod draw;
mod frame;
mod input;
mod palette;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use frame::{Extent, Frame};

/// Options of `map`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Points as NDJSON, one object a line; - reads standard input.
    #[arg(long, value_name = "FILE")]
    pub points: PathBuf,
    /// Points to show on top of the others, such as the answer of a query.
    #[arg(long, value_name = "FILE")]
    pub highlight: Option<PathBuf>,
    /// Geometry to outline, such as the query: WKT, or a file of WKT.
    #[arg(long, value_name = "WKT|@FILE", allow_hyphen_values = true)]
    pub outline: Option<String>,
    /// Heading of the map.
    #[arg(long, default_value = "Points", value_name = "TEXT")]
    pub title: String,
    /// Line under the heading.
    #[arg(long, value_name = "TEXT")]
    pub subtitle: Option<String>,
    /// Label of the highlighted points.
    #[arg(long, default_value = "answer", value_name = "TEXT")]
    pub highlight_label: String,
    /// Label of the outline.
    #[arg(long, default_value = "query", value_name = "TEXT")]
    pub outline_label: String,
    /// Source and licence of the data.
    #[arg(long, value_name = "TEXT")]
    pub attribution: Option<String>,
    /// Name of the longitude or x column; guessed from the first object when absent.
    #[arg(long, value_name = "NAME", requires = "y")]
    pub x: Option<String>,
    /// Name of the latitude or y column.
    #[arg(long, value_name = "NAME", requires = "x")]
    pub y: Option<String>,
    /// Coordinates are planar, not degrees.
    #[arg(long)]
    pub planar: bool,
    /// What the map shows; chosen from the data when absent.
    #[arg(long, value_name = "X0,Y0,X1,Y1", allow_hyphen_values = true, value_delimiter = ',', num_args = 1)]
    pub extent: Option<Vec<f64>>,
    /// SVG file to write.
    #[arg(long, value_name = "FILE.svg", value_parser = svg_path)]
    pub out: PathBuf,
}

/// A position: longitude and latitude, or x and y.
pub type Position = [f64; 2];

/// A file name, unless its extension is that of another format than SVG.
fn svg_path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension() {
        Some(other) if !other.eq_ignore_ascii_case("svg") => {
            Err("maps are written as SVG; name a file that ends in .svg".into())
        }
        _ => Ok(path),
    }
}

/// Reads the inputs and writes the map.
pub fn run(options: &Options) -> Result<()> {
    let columns = options.x.clone().zip(options.y.clone());
    let points = input::read_points(&options.points, columns.as_ref())?;
    let highlight = match &options.highlight {
        Some(path) => Some(input::read_points(path, columns.as_ref())?),
        None => None,
    };
    let outline = match &options.outline {
        Some(text) => input::read_outline(text)?,
        None => Vec::new(),
    };
    for (name, found) in [("--points", Some(&points)), ("--highlight", highlight.as_ref())] {
        if let Some(found) = found
            && found.skipped > 0
        {
            eprintln!("terrane-lab: {name}: {} rows without a position are not shown", found.skipped);
        }
    }
    let answer = highlight.as_ref().map(|found| found.positions.as_slice());
    let chosen = match &options.extent {
        Some(corners) => Extent::from_corners(corners)?,
        None => frame::choose_extent(&points.positions, answer.unwrap_or_default(), &outline)
            .context("there is no point to show")?,
    };
    ensure!(
        options.planar || chosen.is_on_earth(),
        "coordinates are no degrees: name the columns with --x and --y, or give --planar"
    );
    let extent = match options.extent {
        Some(_) => chosen,
        None => chosen.padded(options.planar),
    };
    let frame = Frame::new(extent, options.planar);
    let document = draw::draw(&draw::Content {
        frame: &frame,
        points: &points.positions,
        highlight: answer,
        outline: &outline,
        options,
    });
    fs::write(&options.out, document.to_string()).with_context(|| format!("cannot write {}", options.out.display()))
}

#[cfg(test)]
mod map_tests;
