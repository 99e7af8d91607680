//! The flags of `terrane query` and `terrane map`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::shape::{parse_circle, parse_place, parse_window};
use crate::size::parse_count;

/// Which records are wanted.
#[derive(Debug, Args)]
pub struct ConditionFlags {
    /// Window that the geometry intersects; with x0 > x1 it crosses the antimeridian.
    #[arg(long, value_name = "x0,y0,x1,y1", allow_hyphen_values = true, value_parser = parse_window)]
    pub bbox: Option<[f64; 4]>,
    /// Geometry that the record's intersects, as WKT or GeoJSON, or @FILE with one.
    #[arg(long, value_name = "WKT|@FILE")]
    pub intersects: Option<String>,
    /// Geometry that the record's lies within, as WKT or GeoJSON, or @FILE with one.
    #[arg(long, value_name = "WKT|@FILE")]
    pub within: Option<String>,
    /// Circle that the geometry intersects; R in metres, or in units of a planar dataset.
    #[arg(long, value_name = "x,y,R", allow_hyphen_values = true, value_parser = parse_circle)]
    pub circle: Option<[f64; 3]>,
    /// Condition on the key and the attributes.
    #[arg(long = "where", value_name = "EXPR")]
    pub condition: Option<String>,
    /// Words that the text columns must contain, each in any of them, in upper or lower case.
    #[arg(long = "match", value_name = "WORDS")]
    pub words: Option<String>,
    /// Position: print the nearest of the records that meet all conditions, nearest first.
    #[arg(long, value_name = "x,y", allow_hyphen_values = true, value_parser = parse_place)]
    pub nearest: Option<[f64; 2]>,
    /// Number of nearest records.
    #[arg(long, value_name = "N", default_value_t = 10, requires = "nearest", allow_negative_numbers = true, value_parser = parse_count::<usize>)]
    pub k: usize,
    /// Maximum number of rows.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse_count::<u64>)]
    pub limit: Option<u64>,
    /// Index to use, `primary` for the records themselves [default: the cheapest by estimate].
    #[arg(long, value_name = "NAME")]
    pub index: Option<String>,
}

/// Formats of query results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum QueryFormat {
    /// Aligned columns for people.
    Table,
    /// One JSON object per line.
    Ndjson,
    /// Like ndjson, and the explanation is JSON too.
    Json,
    /// Comma-separated values.
    Csv,
    /// A GeoJSON feature collection.
    Geojson,
    /// An Arrow IPC stream.
    Arrow,
    /// Parquet; GeoParquet if there is a geometry column.
    Parquet,
    /// A web page with an interactive map, in one file that needs no network.
    Map,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A record must meet all conditions. With --nearest, rows are ordered by distance; otherwise their
order is undefined. NaN and infinities are null in NDJSON and GeoJSON, which do not have such
numbers.

EXPR compares the key and attributes with literals: = != < <= > >=, between A and B, in (A, B), is
null, match 'words', and, or, not, parentheses. A boolean column is a condition by itself. Texts,
dates, timestamps and base64 are in single quotes. Column names that are no plain words are in
double quotes. A comparison with null is neither true nor false. See docs/conditions.md.

Examples:
  terrane query s.terrane rides --bbox -122.45,37.75,-122.40,37.80 --count
  terrane query s.terrane rides --circle -122.3937,37.7955,500 --format csv
  terrane query s.terrane rides --within @mission.wkt --nearest -122.42,37.76 --explain
  terrane query s.terrane rides --where \"cab_id in (7, 12) and pickup_ts >= '2008-05-18'\"
  terrane query s.terrane cities --match 'new york' --where 'pop_max > 1e6'
  terrane query s.terrane cities --columns name,pop_max --order-by 'pop_max desc' --limit 10")]
pub struct QueryArguments {
    /// Directory of the store.
    pub store: PathBuf,
    /// Dataset to query.
    pub dataset: String,
    #[command(flatten)]
    pub conditions: ConditionFlags,
    /// Columns to print, in this order [default: all].
    #[arg(long, value_name = "C,…", value_delimiter = ',', conflicts_with = "count")]
    pub columns: Vec<String>,
    /// Order of the rows: columns, each with `desc` where it descends.
    #[cfg(feature = "sql")]
    #[arg(long, value_name = "'C [desc],…'", conflicts_with_all = ["count", "explain"])]
    pub order_by: Option<String>,
    /// Number of first rows to leave out.
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "count")]
    pub offset: u64,
    /// Print only the number of rows.
    #[arg(long)]
    pub count: bool,
    /// Output format [env: TERRANE_FORMAT] [default: table on a terminal, else ndjson].
    #[arg(long)]
    pub format: Option<QueryFormat>,
    /// Explain on standard error how the query was executed.
    #[arg(long)]
    pub explain: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The page has the records and everything that it needs to show them, without a network. The records
are kept as GeoJSON, so a page of very many is slow to open: --limit sets a maximum. For the
conditions, see `terrane query --help`.

Examples:
  terrane map s.terrane cities --output cities.html
  terrane map s.terrane rides --circle -122.3937,37.7955,500 --limit 10000 --output rides.html")]
pub struct MapArguments {
    /// Directory of the store.
    pub store: PathBuf,
    /// Dataset to show.
    pub dataset: String,
    #[command(flatten)]
    pub conditions: ConditionFlags,
    /// File of the page; one that exists is replaced. Without it, the page goes to standard output.
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}
