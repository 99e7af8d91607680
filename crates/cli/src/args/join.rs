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
    /// Pairs of two different records.
    Distinct,
    /// Pairs whose outer key is less than the inner one: one of each two mirrored pairs.
    Ordered,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("on").required(true).args(["within_distance", "intersects", "within", "contains"])))]
#[command(after_help = "\
Pairs each record of OUTER that meets its conditions with the nearby records of INNER that meet
theirs. Both may be the same dataset. Both are read in the same state. The order of pairs is
undefined. A pair has the columns of both sides, with a prefix if their names are the same;
--within-distance adds a column of distances.

INNER is searched through a spatial index, which --index may name. With --count, indexes alone
answer if both datasets hold points and no condition uses an attribute. For the language of EXPR,
see `terrane query --help`.

Examples:
  terrane join s.terrane stations rides --within-distance 250 --count
  terrane join s.terrane zones rides --within --outer-where \"zone = 'B'\" --format csv
  terrane join s.terrane rides rides --within-distance 5 --pairs ordered --limit 10 --explain")]
pub struct JoinArguments {
    /// Directory of the store.
    pub store: PathBuf,
    /// Dataset whose records are scanned.
    pub outer: String,
    /// Dataset in which their partners are searched.
    pub inner: String,
    /// Pairs whose geometries are at most R apart: metres, or units of planar datasets.
    #[arg(long, value_name = "R", allow_negative_numbers = true)]
    pub within_distance: Option<f64>,
    /// Pairs whose geometries intersect.
    #[arg(long)]
    pub intersects: bool,
    /// Pairs whose inner geometry lies within the outer one.
    #[arg(long)]
    pub within: bool,
    /// Pairs whose inner geometry contains the outer one.
    #[arg(long)]
    pub contains: bool,
    /// For a join of a dataset with itself: which pairs are printed.
    #[arg(long, value_name = "WHICH", default_value = "all")]
    pub pairs: PairsWanted,
    /// Window that the outer geometry intersects; with x0 > x1 it crosses the antimeridian.
    #[arg(long, value_name = "x0,y0,x1,y1", allow_hyphen_values = true, value_parser = parse_window)]
    pub outer_bbox: Option<[f64; 4]>,
    /// Circle that the outer geometry intersects; R in metres, or in units of a planar dataset.
    #[arg(long, value_name = "x,y,R", allow_hyphen_values = true, value_parser = parse_circle)]
    pub outer_circle: Option<[f64; 3]>,
    /// Condition on the key and the attributes of the outer record.
    #[arg(long, value_name = "EXPR")]
    pub outer_where: Option<String>,
    /// Maximum number of outer records.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse_count::<u64>)]
    pub outer_limit: Option<u64>,
    /// Window that the inner geometry intersects.
    #[arg(long, value_name = "x0,y0,x1,y1", allow_hyphen_values = true, value_parser = parse_window)]
    pub inner_bbox: Option<[f64; 4]>,
    /// Circle that the inner geometry intersects.
    #[arg(long, value_name = "x,y,R", allow_hyphen_values = true, value_parser = parse_circle)]
    pub inner_circle: Option<[f64; 3]>,
    /// Condition on the key and the attributes of the inner record.
    #[arg(long, value_name = "EXPR")]
    pub inner_where: Option<String>,
    /// Prefix of outer columns whose name the inner dataset has too.
    #[arg(long, value_name = "PREFIX", default_value = "outer_")]
    pub outer_prefix: String,
    /// Prefix of inner columns whose name the outer dataset has too.
    #[arg(long, value_name = "PREFIX", default_value = "inner_")]
    pub inner_prefix: String,
    /// Maximum number of pairs.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse_count::<u64>)]
    pub limit: Option<u64>,
    /// Print only the number of pairs.
    #[arg(long)]
    pub count: bool,
    /// Output format [env: TERRANE_FORMAT] [default: table on a terminal, else ndjson]. In GeoJSON
    /// and Parquet, the outer geometry is that of the pair.
    #[arg(long)]
    pub format: Option<QueryFormat>,
    /// Spatial index of INNER to use, `primary` for the records themselves [default: its R-tree].
    #[arg(long, value_name = "NAME")]
    pub index: Option<String>,
    /// Explain on standard error how the join was executed.
    #[arg(long)]
    pub explain: bool,
}
