//! The flags of `terrane join`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueEnum};

use super::QueryFormat;
use crate::shape::{parse_circle, parse_window};
use crate::size::parse_count;

/// Which pairs of a self-join are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PairsWanted {
    /// All.
    All,
    /// Those of two different records.
    Distinct,
    /// Those whose outer key is less than the inner one: of two that mirror each other, one.
    Ordered,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("on").required(true).args(["within_distance", "intersects", "within", "contains"])))]
#[command(after_help = "\
For each record of OUTER that meets its conditions, the records of INNER that lie near it and meet
theirs; the same dataset may be both. Both are read at one moment. Pairs come in no order, with the
columns of both sides; those that both have get a prefix. --within-distance adds a column of
distances. INNER is searched through a spatial index, which --index may name; with --count, indexes
alone answer where both datasets are of points and no attribute is asked for. The language of EXPR is
told by `terrane query --help`.

Examples:
  terrane join s.terrane stations rides --within-distance 250 --count
  terrane join s.terrane zones rides --within --outer-where \"zone = 'B'\" --format csv
  terrane join s.terrane rides rides --within-distance 5 --pairs ordered --limit 10 --explain")]
pub struct JoinArguments {
    /// Directory of the store.
    pub store: PathBuf,
    /// Dataset whose records are gone through.
    pub outer: String,
    /// Dataset in which their partners are looked for.
    pub inner: String,
    /// Pairs whose geometries are at most so far apart: metres, or units of planar datasets.
    #[arg(long, value_name = "R", allow_negative_numbers = true)]
    pub within_distance: Option<f64>,
    /// Pairs whose geometries have a point in common.
    #[arg(long)]
    pub intersects: bool,
    /// Pairs of which the inner geometry lies within the outer one.
    #[arg(long)]
    pub within: bool,
    /// Pairs of which the inner geometry contains the outer one.
    #[arg(long)]
    pub contains: bool,
    /// Which pairs of a join of a dataset with itself are printed.
    #[arg(long, value_name = "WHICH", default_value = "all")]
    pub pairs: PairsWanted,
    /// Window that the outer geometry meets; with x0 > x1 it crosses the antimeridian.
    #[arg(long, value_name = "x0,y0,x1,y1", allow_hyphen_values = true, value_parser = parse_window)]
    pub outer_bbox: Option<[f64; 4]>,
    /// Circle that the outer geometry meets; R in metres, or in units of a planar dataset.
    #[arg(long, value_name = "x,y,R", allow_hyphen_values = true, value_parser = parse_circle)]
    pub outer_circle: Option<[f64; 3]>,
    /// Condition on the key and the attributes of the outer record.
    #[arg(long, value_name = "EXPR")]
    pub outer_where: Option<String>,
    /// At most so many outer records.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse_count::<u64>)]
    pub outer_limit: Option<u64>,
    /// Window that the inner geometry meets.
    #[arg(long, value_name = "x0,y0,x1,y1", allow_hyphen_values = true, value_parser = parse_window)]
    pub inner_bbox: Option<[f64; 4]>,
    /// Circle that the inner geometry meets.
    #[arg(long, value_name = "x,y,R", allow_hyphen_values = true, value_parser = parse_circle)]
    pub inner_circle: Option<[f64; 3]>,
    /// Condition on the key and the attributes of the inner record.
    #[arg(long, value_name = "EXPR")]
    pub inner_where: Option<String>,
    /// In front of names of outer columns that the inner dataset has too.
    #[arg(long, value_name = "PREFIX", default_value = "outer_")]
    pub outer_prefix: String,
    /// In front of names of inner columns that the outer dataset has too.
    #[arg(long, value_name = "PREFIX", default_value = "inner_")]
    pub inner_prefix: String,
    /// At most so many pairs.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse_count::<u64>)]
    pub limit: Option<u64>,
    /// Print the number of pairs alone.
    #[arg(long)]
    pub count: bool,
    /// How pairs are printed [env: TERRANE_FORMAT] [default: table on a terminal, else ndjson]. GeoJSON and
    /// Parquet take the outer geometry for that of the pair.
    #[arg(long)]
    pub format: Option<QueryFormat>,
    /// Spatial index of INNER to look into, `primary` for the records themselves [default: its R-tree].
    #[arg(long, value_name = "NAME")]
    pub index: Option<String>,
    /// Tell on standard error how the answer was found.
    #[arg(long)]
    pub explain: bool,
}
