//! The commands and their flags.

mod dataset;
mod drop;
mod join;
mod mode;
mod query;
mod reading;
#[cfg(feature = "sql")]
mod sql;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgGroup, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use terrane::{DatasetOptions, DiskReserve, Durability, OnOverload};
use terrane_literal::parse_size;

pub use dataset::{ColumnAction, ColumnArguments, IndexAction, IndexArguments, PolicyArguments, PolicyKind};
pub use drop::DropArguments;
pub use join::{JoinArguments, PairsWanted};
pub use query::{ConditionFlags, MapArguments, QueryArguments, QueryFormat};
pub use reading::{QuoteFlag, ReadingFlags, TypeOfColumn};
use reading::{parse_character, parse_quote};
#[cfg(feature = "sql")]
pub use sql::SqlArguments;

use crate::messages::{Color, LogLevel};
use crate::size::{parse_count, parse_reserve};

const EXIT_CODES: &str = "\
Exit codes: 0 success, 1 failure, 2 usage, 3 corruption found, 4 store locked, 5 data refused.

Example:
  terrane import rides.terrane rides data/sf_cab_rides.parquet
  terrane query rides.terrane rides --nearest -122.3937,37.7955 --k 3";

/// Most partitions of a dataset.
const PARTITIONS_MAX: i64 = DatasetOptions::PARTITIONS_MAX as i64;
/// Heading of the flags that every command has.
const COMMON: &str = "Common options";

/// An embeddable, crash-consistent spatial database.
#[derive(Debug, Parser)]
#[command(name = "terrane", version, after_help = EXIT_CODES, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    pub common: CommonFlags,
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Parses the command line.
    ///
    /// # Errors
    /// When flags are not understood, or the help was asked for.
    pub fn from_command_line() -> Result<Self, clap::Error> {
        let matches = Self::command().try_get_matches()?;
        let mut cli = Self::from_arg_matches(&matches)?;
        if let (Command::Import(arguments), Some((_, matches))) = (&mut cli.command, matches.subcommand()) {
            arguments.lat_first = matches.index_of("lat") < matches.index_of("lon");
        }
        Ok(cli)
    }
}

/// Flags of every command. The environment gives those that are missing.
#[derive(Debug, Args)]
pub struct CommonFlags {
    /// Memory for components, page cache, imports and queries together: 64MiB, 1.5GiB, 500M, or
    /// bytes [env: TERRANE_MEMORY_LIMIT] [default: 256MiB].
    #[arg(long, global = true, help_heading = COMMON, value_name = "SIZE", value_parser = parse_size)]
    #[arg(allow_negative_numbers = true)]
    pub memory_limit: Option<usize>,
    /// Disk space for deletes, drops, flushes and merges on a full disk: a size as above, 0 for
    /// none, or auto for 2 MiB. The space of the next flush is added [env: TERRANE_DISK_RESERVE]
    /// [default: auto].
    #[arg(long, global = true, help_heading = COMMON, value_name = "SIZE", value_parser = parse_reserve)]
    pub disk_reserve: Option<DiskReserve>,
    /// When messages are coloured [env: TERRANE_COLOR] [default: auto].
    #[arg(long, global = true, value_name = "WHEN")]
    pub color: Option<Color>,
    /// Level of messages on standard error [env: TERRANE_LOG] [default: info].
    #[arg(long, global = true, value_name = "LEVEL")]
    pub log: Option<LogLevel>,
}

/// Flags for creating a store or a dataset.
#[derive(Debug, Args)]
pub struct CreationFlags {
    /// Partitions of a new dataset, 1 to 64. Each has components and indexes of its own; flushes,
    /// merges and large queries work on several at a time. Each index of each partition has up to
    /// five files open, or more if writes outpace merges (ulimit -n) [default: 1].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=PARTITIONS_MAX))]
    pub partitions: Option<u16>,
    /// Failures that acknowledged writes of a new store survive: power, process, dax, none [env:
    /// TERRANE_DURABILITY].
    #[arg(long, value_name = "MODE")]
    pub durability: Option<Durability>,
}

/// Options of every command.
#[derive(Debug)]
pub struct Common {
    /// Bytes of memory for components, page cache, imports and queries together.
    pub memory_limit: usize,
    /// Disk space for work on a full disk.
    pub disk_reserve: DiskReserve,
}

/// The command to run.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Import files into a dataset: all of their records, or none.
    Import(ImportArguments),
    /// Insert records from standard input, printing each key once its record is durable.
    Insert(InsertArguments),
    /// Delete records by key or by a condition.
    Delete(DeleteArguments),
    /// Print the records that meet all conditions.
    Query(QueryArguments),
    /// Write an interactive map of the records that meet all conditions, as one HTML page.
    Map(MapArguments),
    /// Run SQL statements and print their rows.
    #[cfg(feature = "sql")]
    Sql(SqlArguments),
    /// Print pairs of nearby records of two datasets, or of one.
    Join(JoinArguments),
    /// Create or drop an index of a dataset.
    Index(IndexArguments),
    /// Rename or drop a column of a dataset.
    Column(ColumnArguments),
    /// Drop a dataset with its records and indexes.
    Drop(DropArguments),
    /// Print or set the policy by which the components of a dataset are merged.
    Policy(PolicyArguments),
    /// Print what a store holds.
    Info(InfoArguments),
    /// Verify every page, every invariant, and that every index agrees with the records.
    Check(CheckArguments),
    /// Merge all components of each index into one.
    Compact(CompactArguments),
    /// Copy a store as it is now, even while another process writes to it.
    Backup(BackupArguments),
    /// Create a store from a backup, or list the points of the backup.
    Restore(RestoreArguments),
    /// Run the laboratory, `terrane-lab`.
    Lab(LabArguments),
}

/// What an import does with an invalid row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnInvalid {
    /// Import nothing.
    Error,
    /// Write the row to a file of rejects, and import the rest.
    Skip,
}

/// Kinds of spatial index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IndexKind {
    /// The R-tree.
    Rtree,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Format, key column and coordinate columns are detected, and the guess is printed. Without a key
column, keys are row numbers, which continue from file to file.

Columns of a file that the dataset lacks are added to it. Columns that a file lacks are null. A
column of integers becomes float64 if a file has other numbers in it. With --mode replace, the
file is read as if the dataset did not exist.

Examples:
  terrane import s.terrane cities data/cities200.csv
  terrane import s.terrane rides rides-*.parquet --key ride_id --lon pickup_lon --lat pickup_lat
  terrane import s.terrane plots plots.csv --planar --geometry outline --on-invalid skip
  terrane import s.terrane cities corrected.csv --mode upsert")]
pub struct ImportArguments {
    /// Directory of the store; created when absent.
    pub store: PathBuf,
    /// Dataset to import into; created with the columns of the first file when absent.
    pub dataset: String,
    /// CSV (also .gz, .zst), NDJSON, GeoJSON, GeoJSON text sequence, Parquet, GeoParquet, Arrow
    /// IPC. Use - for standard input; pipes are first copied to an unnamed temporary file.
    /// - is standard input; pipes are copied to a file without a name first.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Column that holds the key; an empty name numbers the rows.
    #[arg(long, value_name = "COLUMN")]
    pub key: Option<String>,
    /// Column that holds the longitude, or x of a planar dataset. A member of a nested object is
    /// written like location.lon. If --lon and --lat name the same column, it holds both as text,
    /// in the order of the flags.
    #[arg(long, visible_alias = "x", value_name = "COLUMN", requires = "lat", conflicts_with = "geometry")]
    pub lon: Option<String>,
    /// Column that holds the latitude, or y of a planar dataset.
    #[arg(long, visible_alias = "y", value_name = "COLUMN", requires = "lon")]
    pub lat: Option<String>,
    /// Whether --lat came before --lon.
    #[arg(skip)]
    pub lat_first: bool,
    /// Column that holds the geometry, as WKT, WKB or GeoJSON.
    #[arg(long, value_name = "COLUMN")]
    pub geometry: Option<String>,
    /// The coordinates are planar, in any unit, not longitude and latitude.
    #[arg(long)]
    pub planar: bool,
    /// The CSV file has no header row; columns are called column_1, column_2, and so on.
    #[arg(long)]
    pub no_header: bool,
    /// Numbers of the CSV file are written like 12,5 [default: detected and printed].
    #[arg(long)]
    pub decimal_comma: bool,
    /// Separator of the fields of a CSV file, a character or tab [default: detected].
    #[arg(long, value_name = "CHARACTER", value_parser = parse_character)]
    pub delimiter: Option<u8>,
    /// Character that encloses fields of a CSV file, or none [default: "].
    #[arg(long, value_name = "CHARACTER|none", value_parser = parse_quote)]
    pub quote: Option<QuoteFlag>,
    #[command(flatten)]
    pub reading: ReadingFlags,
    /// Kind of the spatial index.
    #[arg(long, value_name = "KIND", default_value = "rtree")]
    pub index: IndexKind,
    #[command(flatten)]
    pub mode: mode::ModeFlags,
    #[command(flatten)]
    pub creation: CreationFlags,
    /// What to do with invalid rows.
    #[arg(long, value_name = "ACTION", default_value = "error")]
    pub on_invalid: OnInvalid,
    /// File for skipped rows, as NDJSON [default: the input's name + .rejects.ndjson]. Earlier
    /// rejects in it are replaced; a file with other content is never overwritten.
    #[arg(long, value_name = "FILE")]
    pub rejects: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("source").args(["follow", "offset_field"])))]
#[command(after_help = "\
The input has one record per line, as a GeoJSON feature or as a JSON object. An object has its
position in the members lon and lat, longitude and latitude, x and y, or geometry. The properties
of a feature are its members; other content of the feature is ignored, with a warning.

The key is the member with the name of the key column (in a new dataset: key or id), else a row
number. The id of a feature counts as a member id. Members without a column get a new one. A
column of integers becomes float64 when a fraction comes.

Keys are printed as JSON, one per line, once their records are durable. Refused records are
reported on standard error with their line number; the others are inserted, and the exit code is
5. SIGINT and SIGTERM end the reading and close the store.

With --atomic, all records wait until the input ends and are inserted by one commit. If one is
refused, none is inserted, and the schema stays unchanged. If the commit fails, for example
because memory is short, added columns are dropped again; a crash may leave them, without values.
The records must fit into the memory for unflushed data, three eighths of --memory-limit. With
--upsert, only the last record of each key is inserted and counted.

A feed stores the position up to which its source has been read, in the same commit as the record.
Started again, even after a crash, it continues behind the last stored record and stores none
twice.

With --follow, the source is a growing file of lines. When another file takes its name, the old
one is read until it has not grown for a second and the new one has content; then the new one is
read. A truncated file is read from its beginning. After a restart, the file is recognised by its
inode and its first KiB; if it was renamed meanwhile, it is found in its directory. If no file
fits the position, the command ends with an error that says what to do.

With --offset-field, the source is standard input. Each record holds its position, a whole number
that rises from record to record. Records that were read before are skipped.

Examples:
  echo '{\"id\":7,\"lon\":-122.42,\"lat\":37.77,\"name\":\"cafe\"}' | terrane insert s.terrane places
  terrane insert s.terrane rides --follow /var/log/rides.ndjson
  consume rides | terrane insert s.terrane rides --offset-field offset --feed rides-0")]
pub struct InsertArguments {
    /// Directory of the store; created when absent.
    pub store: PathBuf,
    /// Dataset to insert into; created with the first valid record when absent.
    pub dataset: String,
    /// Replace records whose key exists already.
    #[arg(long)]
    pub upsert: bool,
    /// Insert all records in one transaction when the input ends, or none of them.
    #[arg(long, conflicts_with_all = ["source", "on_overload"])]
    pub atomic: bool,
    /// The coordinates are planar, in any unit, not longitude and latitude.
    #[arg(long)]
    pub planar: bool,
    #[command(flatten)]
    pub reading: ReadingFlags,
    /// Read this file from the position of its feed, and continue as it grows, until a signal. The
    /// file is followed by name: if the name or the link is set to another file, that file comes
    /// next. Links among the parent directories are resolved once at the start.
    #[arg(long, value_name = "FILE")]
    pub follow: Option<PathBuf>,
    /// Member of each record that holds its position in the source.
    #[arg(long, value_name = "MEMBER")]
    pub offset_field: Option<String>,
    /// Name of the feed [default: stdin, or the path of the file; of a link, the path of the link].
    #[arg(long, value_name = "NAME", requires = "source")]
    pub feed: Option<String>,
    /// Forget the position of the feed, and start from the beginning.
    #[arg(long, requires = "source")]
    pub restart: bool,
    /// What to do with records that arrive faster than they are written.
    #[arg(long, value_name = "POLICY", default_value = "throttle")]
    pub on_overload: OverloadPolicy,
    #[command(flatten)]
    pub creation: CreationFlags,
}

/// What to do with records that arrive faster than they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OverloadPolicy {
    /// Stop reading, so that their producer waits.
    Throttle,
    /// Keep them in unnamed files in the store's directory until they can be written, as long as
    /// the disk has space.
    Spill,
    /// Drop and count them; the count is printed on standard error.
    Discard,
}

impl From<OverloadPolicy> for OnOverload {
    fn from(policy: OverloadPolicy) -> Self {
        match policy {
            OverloadPolicy::Throttle => Self::Throttle,
            OverloadPolicy::Spill => Self::Spill,
            OverloadPolicy::Discard => Self::Discard,
        }
    }
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("which").required(true).args(["key", "condition"])))]
#[command(after_help = "\
With --where, records are deleted one by one. The condition is checked again at each deletion, so
a record that was changed meanwhile and no longer meets it stays. For the language of conditions,
see `terrane query --help`.

Examples:
  terrane delete s.terrane places --key 7 8 9
  terrane delete s.terrane names --key north --key=-south
  terrane delete s.terrane rides --where \"pickup_ts < '2008-05-18' or n_fixes is null\"")]
pub struct DeleteArguments {
    /// Directory of the store.
    pub store: PathBuf,
    /// Dataset to delete from.
    pub dataset: String,
    /// Keys of the records to delete (binary keys in base64). A text that begins with a hyphen is
    /// written like --key=-text.
    #[arg(long, num_args = 1.., allow_negative_numbers = true, value_name = "KEY")]
    pub key: Vec<String>,
    /// Condition of the records to delete.
    #[arg(long = "where", value_name = "EXPR")]
    pub condition: Option<String>,
}

/// Formats of reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// For people.
    Text,
    /// One JSON object.
    Json,
}

/// Formats of what a store holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum InfoFormat {
    /// For people.
    Text,
    /// One JSON object.
    Json,
    /// Gauges in the text format of Prometheus (OpenMetrics).
    Prometheus,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  terrane info s.terrane --format json")]
pub struct InfoArguments {
    /// Directory of the store.
    pub store: PathBuf,
    /// How the report is printed [env: TERRANE_FORMAT] [default: text].
    #[arg(long)]
    pub format: Option<InfoFormat>,
}

#[derive(Debug, Args)]
pub struct ReportArguments {
    /// Directory of the store.
    pub store: PathBuf,
    /// Format of the report [env: TERRANE_FORMAT] [default: text].
    #[arg(long)]
    pub format: Option<ReportFormat>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The exit code is 3 if damage was found and not repaired.

Examples:
  terrane check s.terrane
  terrane check s.terrane --repair")]
pub struct CheckArguments {
    #[command(flatten)]
    pub report: ReportArguments,
    /// Rebuild indexes that are damaged or disagree with the records.
    #[arg(long)]
    pub repair: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  terrane compact s.terrane")]
pub struct CompactArguments {
    #[command(flatten)]
    pub report: ReportArguments,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A backup has everything that was acknowledged when it began. For a store without a log, it has
everything that was flushed. A later backup into the same directory copies what is new and adds a
point. Everything that is copied is read again and verified.

Examples:
  terrane backup s.terrane /mnt/backups/s
  terrane backup s.terrane /mnt/backups/s --keep 7")]
pub struct BackupArguments {
    #[command(flatten)]
    pub report: ReportArguments,
    /// Directory of the backup: empty, absent, or with earlier backups of the same store.
    #[arg(value_name = "BACKUP")]
    pub backup: PathBuf,
    /// Keep only the N newest points.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse_count::<usize>)]
    pub keep: Option<usize>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Every page and every entry of the log is verified before the store counts as restored. Without
STORE, the points of the backup are listed, one per line, oldest first. With --format json, each
is a JSON object.

Examples:
  terrane restore /mnt/backups/s
  terrane restore /mnt/backups/s restored.terrane")]
pub struct RestoreArguments {
    /// Directory of the backup.
    pub backup: PathBuf,
    /// Directory of the new store: empty or absent.
    pub store: Option<PathBuf>,
    /// Point to restore [default: the newest].
    #[arg(long, value_name = "POINT", requires = "store")]
    pub at: Option<String>,
    /// Format of the report [env: TERRANE_FORMAT] [default: text].
    #[arg(long)]
    pub format: Option<ReportFormat>,
}

#[derive(Debug, Args)]
#[command(disable_help_flag = true, after_help = "Example:\n  terrane lab compare --format json")]
pub struct LabArguments {
    /// Arguments of terrane-lab: list, run EXPERIMENT, crash STRUCTURE, compare, map.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    pub arguments: Vec<OsString>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_commands_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_flag_has_a_help_text_and_every_command_an_example() {
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            let example = command.get_after_help().map(ToString::to_string);
            assert!(example.is_some_and(|text| text.contains("terrane")), "{name}");
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{name} {}", argument.get_id());
            }
        }
    }

    #[test]
    fn values_may_begin_with_a_minus_sign() {
        let cli = Cli::try_parse_from([
            "terrane",
            "query",
            "s",
            "d",
            "--bbox",
            "-180,-90,180,90",
            "--circle",
            "-122.4,37.7,500",
            "--nearest",
            "-1,2",
        ]);
        match cli.map(|cli| cli.command) {
            Ok(Command::Query(query)) => {
                assert_eq!(query.conditions.bbox, Some([-180.0, -90.0, 180.0, 90.0]));
                assert_eq!(query.conditions.circle, Some([-122.4, 37.7, 500.0]));
                assert_eq!(query.conditions.nearest, Some([-1.0, 2.0]));
            }
            other => panic!("{other:?}"),
        }
        let keys = ["terrane", "delete", "s", "d", "--key", "-5", "6", "--key=-north", "--key", "-7"];
        match Cli::try_parse_from(keys).map(|cli| cli.command) {
            Ok(Command::Delete(delete)) => assert_eq!(delete.key, ["-5", "6", "-north", "-7"]),
            other => panic!("{other:?}"),
        }
    }
}
