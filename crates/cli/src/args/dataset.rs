//! The flags of the commands that change a dataset: its indexes, its columns, its merge policy.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use terrane_literal::parse_size;

use crate::shape::parse_window;
use crate::size::parse_count;

#[derive(Debug, Args)]
#[command(after_help = "\
Kinds of index:
  btree      one or several attributes
  inverted   words of a text
  rtree      geometries, in a tree of boxes
  dhb        points, in the order of a Hilbert curve
  dhvb       the same, with the curve values stored
  shb        geometries, by the cells of a grid
  sif        points, by the cells of all levels of a grid

An index never changes the rows of a query. Queries use it if it makes them cheaper, or if
`query --index` names it. To complete an interrupted creation, create the index again. If another
writing command has completed it since, the index exists already, and the exit code is 2.

Examples:
  terrane index s.terrane rides create by_time --using btree --on pickup_time
  terrane index s.terrane rides create cells --using shb --levels h,h,h,h
  terrane index s.terrane plots create cells --using shb --domain 0,0,5000,5000 --cells 8
  terrane index s.terrane cities create words --using inverted --on adm0name --stop-words of,the
  terrane index s.terrane rides drop by_time")]
pub struct IndexArguments {
    /// Directory of the store.
    pub store: PathBuf,
    /// Dataset of the index.
    pub dataset: String,
    #[command(subcommand)]
    pub action: IndexAction,
}

/// Operations on an index.
#[derive(Debug, Subcommand)]
pub enum IndexAction {
    /// Create an index and build it from the existing records.
    Create {
        /// Its name.
        name: String,
        /// Its kind: btree, inverted, rtree, dhb, dhvb, shb, sif.
        #[arg(long, value_name = "KIND")]
        using: terrane::IndexKind,
        /// Columns of the index, in order. A spatial index needs none; `geometry` names the
        /// geometry of any dataset.
        #[arg(long, value_name = "COLUMN", num_args = 1..)]
        on: Vec<String>,
        /// Levels of the grid of shb and sif, coarsest first. Each divides a cell of the level
        /// above: l into 4x4, m into 8x8, h into 16x16 cells [default: h,h,h,h,h,h for points, else
        /// l,l,l,l,h,m].
        #[arg(long, value_name = "L,L,…")]
        levels: Option<terrane::Levels>,
        /// Area that the grid of shb and sif divides. Planar datasets need it. Objects outside of
        /// it are found too.
        #[arg(long, value_name = "x0,y0,x1,y1", allow_hyphen_values = true, value_parser = parse_window)]
        domain: Option<[f64; 4]>,
        /// Maximum number of cells in which shb stores a geometry other than a point [default: 4].
        #[arg(long, value_name = "N", allow_negative_numbers = true)]
        cells: Option<u32>,
        /// Words that inverted leaves out, separated by commas, or @FILE with one or several per
        /// line. Queries still find the same rows, but a query for such words alone cannot use the
        /// index.
        #[arg(long, value_name = "WORD,…|@FILE")]
        stop_words: Option<String>,
    },
    /// Drop an index. The records are unchanged.
    Drop {
        /// Its name.
        name: String,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "\
Renaming and dropping are each one step, whatever the number of records, and rewrite no record.
The key and the columns of the geometry can be renamed but not dropped. Indexes on a renamed
column stay. To drop a column with an index, drop the index first.

Dropped values never come back, not even with a new column of the same name. Their bytes leave the
store as records are replaced or deleted.

Examples:
  terrane column s.terrane rides rename pickup_ts pickup_time
  terrane column s.terrane rides drop n_fixes")]
pub struct ColumnArguments {
    /// Directory of the store.
    pub store: PathBuf,
    /// Dataset of the column.
    pub dataset: String,
    #[command(subcommand)]
    pub action: ColumnAction,
}

/// Operations on a column.
#[derive(Debug, Subcommand)]
pub enum ColumnAction {
    /// Give a column another name.
    Rename {
        /// Its name.
        from: String,
        /// Its new name.
        to: String,
    },
    /// Drop an attribute with its values.
    Drop {
        /// Its name.
        name: String,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "\
Policies:
  prefix       merges components up to a size, once they reach a number or together exceed the size
  constant     merges all components once they reach a number, so that queries read few
  size-tiered  merges neighbours of similar size, so that data are rewritten rarely
  default      removes the policy of the dataset

A policy is stored with the dataset and applies to later sessions too.

Examples:
  terrane policy s.terrane rides
  terrane policy s.terrane rides size-tiered --components 6
  terrane policy s.terrane rides default")]
pub struct PolicyArguments {
    /// Directory of the store.
    pub store: PathBuf,
    /// Dataset whose components are merged.
    pub dataset: String,
    /// The new policy [default: print the current one].
    #[arg(value_name = "POLICY")]
    pub kind: Option<PolicyKind>,
    /// Number of components that triggers a merge [default: 5; for size-tiered 4].
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse_count::<usize>)]
    pub components: Option<usize>,
    /// For prefix: do not merge larger components; 0 merges none [default: 1GiB].
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = parse_size)]
    pub max_bytes: Option<usize>,
    /// For size-tiered: smaller components count as this large [default: 1MiB].
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = parse_size)]
    pub min_bytes: Option<usize>,
    /// For size-tiered: merged neighbours differ in size at most by this factor [default: 4].
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse_count::<u64>)]
    pub ratio: Option<u64>,
}

/// When components are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PolicyKind {
    /// The policy of datasets for which none was set.
    Default,
    /// Merge small components, once there are enough of them.
    Prefix,
    /// Merge all components, once there are enough of them.
    Constant,
    /// Merge neighbours of similar size, once there are enough of them.
    SizeTiered,
}
