//! The flags of the commands that change what a dataset is: its indexes, its columns, its merge policy.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::shape::parse_window;
use crate::size::{parse_count, parse_size};

#[derive(Debug, Args)]
#[command(after_help = "\
Kinds: btree on one or several attributes; inverted on the words of a text; of the geometry rtree, a
tree of boxes; dhb and dhvb, points in the order of a Hilbert curve, dhvb with their values on it;
shb, geometries under the cells of a grid; sif, points under the cells of all levels of a grid. An
index takes nothing from an answer and adds nothing to it; queries use it where it makes them
cheaper, or where `query --index` names it. Creating one again that was interrupted completes it;
where another command that writes has done so since, the answer is that it is there, with exit code 2.

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

/// What becomes of an index.
#[derive(Debug, Subcommand)]
pub enum IndexAction {
    /// Create an index and build it from the records there are.
    Create {
        /// Its name.
        name: String,
        /// Its kind: btree, inverted, rtree, dhb, dhvb, shb, sif.
        #[arg(long, value_name = "KIND")]
        using: terrane::IndexKind,
        /// Columns that it is on, in order. A spatial kind needs none; `geometry` names the geometry of any dataset.
        #[arg(long, value_name = "COLUMN", num_args = 1..)]
        on: Vec<String>,
        /// Levels of the grid of shb and sif, the coarsest first: into how many cells each divides one of
        /// the level above, l for 4x4, m for 8x8, h for 16x16 [default: h,h,h,h,h,h for points, else
        /// l,l,l,l,h,m].
        #[arg(long, value_name = "L,L,…")]
        levels: Option<terrane::Levels>,
        /// What the grid of shb and sif divides in a planar dataset, which needs it; objects beyond it are
        /// found as well.
        #[arg(long, value_name = "x0,y0,x1,y1", allow_hyphen_values = true, value_parser = parse_window)]
        domain: Option<[f64; 4]>,
        /// Most cells under which shb files a geometry that is no point [default: 4].
        #[arg(long, value_name = "N", allow_negative_numbers = true)]
        cells: Option<u32>,
        /// Words that inverted leaves out, with commas between them, or @FILE with such on its lines. Queries
        /// find the same rows; those for such words alone cannot go through the index.
        #[arg(long, value_name = "WORD,…|@FILE")]
        stop_words: Option<String>,
    },
    /// Drop an index. The records stay what they are.
    Drop {
        /// Its name.
        name: String,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "\
Either is one step, whatever the number of records, which are not written again. The key and the
columns of the geometry can be renamed and not dropped. Indexes on a renamed column go on; a column
that an index is on is dropped after the index. What is dropped does not come back, also not by a
column of the same name; its bytes leave the store as records are replaced or deleted.

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

/// What becomes of a column.
#[derive(Debug, Subcommand)]
pub enum ColumnAction {
    /// Give a column another name.
    Rename {
        /// Its name.
        from: String,
        /// The name it gets.
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
prefix merges the components up to a size once they are so many or together larger; constant merges all
once they are so many, so that queries meet few; size-tiered merges neighbours of about one size, so that
little is written again. A policy holds in later sessions too; default takes it away.

Examples:
  terrane policy s.terrane rides
  terrane policy s.terrane rides size-tiered --components 6
  terrane policy s.terrane rides default")]
pub struct PolicyArguments {
    /// Directory of the store.
    pub store: PathBuf,
    /// Dataset whose components are merged.
    pub dataset: String,
    /// The policy from now on; without one, that which there is is printed.
    #[arg(value_name = "POLICY")]
    pub kind: Option<PolicyKind>,
    /// As many components are merged [default: 5; of size-tiered 4].
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse_count::<usize>)]
    pub components: Option<usize>,
    /// Of prefix: larger components are left alone, and all with 0 [default: 1GiB].
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = parse_size)]
    pub max_bytes: Option<usize>,
    /// Of size-tiered: smaller components count as this large [default: 1MiB].
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = parse_size)]
    pub min_bytes: Option<usize>,
    /// Of size-tiered: the largest of neighbours is at most so many times the smallest [default: 4].
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse_count::<u64>)]
    pub ratio: Option<u64>,
}

/// When components are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PolicyKind {
    /// As of a dataset for which nothing was said.
    Default,
    /// Small components, once there are enough of them.
    Prefix,
    /// All components, once there are so many.
    Constant,
    /// Neighbours of about one size, once there are so many.
    SizeTiered,
}
