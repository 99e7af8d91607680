//! The commands and their flags.

mod dataset;
mod drop;
mod join;
mod mode;
mod reading;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgGroup, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use terrane::{DatasetOptions, DiskReserve, Durability};

pub use dataset::{ColumnAction, ColumnArguments, IndexAction, IndexArguments, PolicyArguments, PolicyKind};
pub use drop::DropArguments;
pub use join::{JoinArguments, PairsWanted};
pub use reading::{QuoteFlag, ReadingFlags, TypeOfColumn};
use reading::{parse_character, parse_quote};

use crate::messages::{Color, LogLevel};
use crate::shape::{parse_circle, parse_place, parse_window};
use crate::size::{parse_count, parse_reserve, parse_size};

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
    /// What the program was called with.
    ///
    /// # Errors
    /// Flags that are not understood; the help, where it is asked for.
    pub fn from_command_line() -> Result<Self, clap::Error> {
        let matches = Self::command().try_get_matches()?;
        let mut cli = Self::from_arg_matches(&matches)?;
        if let (Command::Import(arguments), Some((_, matches))) = (&mut cli.command, matches.subcommand()) {
            arguments.lat_first = matches.index_of("lat") < matches.index_of("lon");
        }
        Ok(cli)
    }
}

/// Flags of every command; what they leave open is in the environment.
#[derive(Debug, Args)]
pub struct CommonFlags {
    /// Memory for components, page cache, imports and queries together: 64MiB, 1.5GiB, 500M, or bytes
    /// [env: TERRANE_MEMORY_LIMIT] [default: 256MiB].
    #[arg(long, global = true, help_heading = COMMON, value_name = "SIZE", value_parser = parse_size)]
    #[arg(allow_negative_numbers = true)]
    pub memory_limit: Option<usize>,
    /// Disk space for deletes, drops, flushes and merges on a full disk: a size as above, 0 for none, or auto, 2 MiB. What
    /// the next flush takes comes on top [env: TERRANE_DISK_RESERVE] [default: auto].
    #[arg(long, global = true, help_heading = COMMON, value_name = "SIZE", value_parser = parse_reserve)]
    pub disk_reserve: Option<DiskReserve>,
    /// When messages are coloured [env: TERRANE_COLOR] [default: auto].
    #[arg(long, global = true, value_name = "WHEN")]
    pub color: Option<Color>,
    /// How much is told on standard error [env: TERRANE_LOG] [default: info].
    #[arg(long, global = true, value_name = "LEVEL")]
    pub log: Option<LogLevel>,
}

/// What a store or a dataset that is created is to be.
#[derive(Debug, Args)]
pub struct CreationFlags {
    /// Partitions of a new dataset, 1 to 64, each with components and indexes of its own: flushes, merges and large
    /// queries work on several at a time. Each index of each has up to five files open, or more where writes come faster
    /// than merges (ulimit -n) [default: 1].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=PARTITIONS_MAX))]
    pub partitions: Option<u16>,
    /// What acknowledged writes of a new store survive: power, process, dax, none [env: TERRANE_DURABILITY].
    #[arg(long, value_name = "MODE")]
    pub durability: Option<Durability>,
}

/// What every command is told.
#[derive(Debug)]
pub struct Common {
    /// Bytes of memory for components, page cache, imports and queries together.
    pub memory_limit: usize,
    /// Disk space for work on a full disk.
    pub disk_reserve: DiskReserve,
}

/// What is to be done.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Import files into a dataset: all of their records, or none.
    Import(ImportArguments),
    /// Insert records from standard input, printing each key once its record is durable.
    Insert(InsertArguments),
    /// Delete records by key, or those that meet a condition.
    Delete(DeleteArguments),
    /// Print the records that meet all conditions.
    Query(QueryArguments),
    /// Print the pairs of records of two datasets, or of one, that lie near each other.
    Join(JoinArguments),
    /// Create or drop an index of a dataset.
    Index(IndexArguments),
    /// Rename or drop a column of a dataset.
    Column(ColumnArguments),
    /// Drop a dataset with its records and indexes.
    Drop(DropArguments),
    /// Print or set when the components of a dataset are merged.
    Policy(PolicyArguments),
    /// Print what a store holds.
    Info(ReportArguments),
    /// Verify every page, every invariant, and that every index agrees with the records.
    Check(CheckArguments),
    /// Merge all components of every index into one.
    Compact(CompactArguments),
    /// Copy a store as it is now, also while another process writes to it.
    Backup(BackupArguments),
    /// Make a store of a backup, or list the points that it has.
    Restore(RestoreArguments),
    /// Run the laboratory, `terrane-lab`.
    Lab(LabArguments),
}

/// What happens to a row that cannot be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnInvalid {
    /// The import is given up, and nothing is imported.
    Error,
    /// The row is written to a file of rejects, and the rest is imported.
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
Format, key column and coordinate columns are detected; the guess is printed. Without a key
column, keys are row numbers, continued over the files. Columns of a file that the dataset lacks are
added to it, those that a file lacks are null. A column of integers becomes float64 where a file has
other numbers in it. With --mode replace, a dataset that exists is taken as if it did not.

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
    /// CSV (also .gz, .zst), NDJSON, GeoJSON, GeoJSON text sequence, Parquet, GeoParquet, Arrow IPC.
    /// - is standard input; pipes are copied to a file without a name first.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Column that holds the key; an empty name numbers the rows.
    #[arg(long, value_name = "COLUMN")]
    pub key: Option<String>,
    /// Column that holds the longitude, or x of a planar dataset; a member of a nested object as location.lon. Where
    /// --lon and --lat name the same column, it holds both as text, in the order of the flags.
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
    /// Coordinates are in a plane, of any unit, and not longitude and latitude.
    #[arg(long)]
    pub planar: bool,
    /// The first row of a CSV file holds data; columns are called column_1, column_2, and so on.
    #[arg(long)]
    pub no_header: bool,
    /// Numbers of a CSV file are written like 12,5; otherwise the guess is printed.
    #[arg(long)]
    pub decimal_comma: bool,
    /// Character between the fields of a CSV file, or tab; otherwise it is detected.
    #[arg(long, value_name = "CHARACTER", value_parser = parse_character)]
    pub delimiter: Option<u8>,
    /// Character that encloses fields of a CSV file [default: "], or none.
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
    /// What happens to a row that cannot be taken.
    #[arg(long, value_name = "ACTION", default_value = "error")]
    pub on_invalid: OnInvalid,
    /// Where rows go that were skipped, as NDJSON [default: the input's name + .rejects.ndjson]. Earlier
    /// rejects are replaced, any other file is left alone.
    #[arg(long, value_name = "FILE")]
    pub rejects: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("source").args(["follow", "offset_field"])))]
#[command(after_help = "\
Records come one a line, as JSON objects (members lon and lat, longitude and latitude, x and y, or
geometry) or as GeoJSON features. The key is the member of the key column's name (of a new dataset:
key or id), else a row number; the id of a feature counts as a member id. Members that the dataset has no column for become columns, and a
column of integers becomes float64 when a fraction comes. Of features, the properties count as
members; what is beside them is not taken, with a warning. Keys are printed as JSON, one a line, once
durable. Refused records are reported with their line number on standard error; the others are
inserted, and the exit code is 5. SIGINT and SIGTERM end the reading and close the store.

With --atomic all records wait until the input ends, and are inserted by one commit: all of them, or, where
one is refused, none, and nothing of the schema changes either (where the commit fails, as for want of memory,
columns that were added are dropped again; a crash may leave them, without values). They have to fit into the memory for what is
not yet on disk, three eighths of --memory-limit. With --upsert, of the records of one key the last is inserted, and
counted, alone.

A feed keeps how far its source has been read, in the same commit as the record: started again, also
after a crash, it goes on behind the last record that is stored, and stores none twice. With --follow
the source is a file of lines that grows; when another file takes its name, the old one is read until it
has not grown for a second and the new one has something in it, and then the new one; one that gets its name back is
gone on with where it was left. With --offset-field it is standard input, of which each record brings its
position as a whole number that rises from record to record; what was read before is passed.

Examples:
  echo '{\"id\":7,\"lon\":-122.42,\"lat\":37.77,\"name\":\"cafe\"}' | terrane insert s.terrane places
  terrane insert s.terrane rides --follow /var/log/rides.ndjson
  consume rides | terrane insert s.terrane rides --offset-field offset --feed rides-0")]
pub struct InsertArguments {
    /// Directory of the store; created when absent.
    pub store: PathBuf,
    /// Dataset to insert into; created with the first valid record when absent.
    pub dataset: String,
    /// Replace records whose key is there already.
    #[arg(long)]
    pub upsert: bool,
    /// Insert all records when the input ends, in one transaction, or none of them.
    #[arg(long, conflicts_with_all = ["source", "on_overload"])]
    pub atomic: bool,
    /// Coordinates are in a plane, of any unit, and not longitude and latitude.
    #[arg(long)]
    pub planar: bool,
    #[command(flatten)]
    pub reading: ReadingFlags,
    /// Read this file from where its feed stands, and go on as it grows, until a signal. What is followed is the name: a
    /// link that is set to another file is a file that takes the name. Links among the directories above are resolved at
    /// the start, but are followed in the same way where the feed has a name of its own (--feed).
    #[arg(long, value_name = "FILE")]
    pub follow: Option<PathBuf>,
    /// Member of each record that says its position in the source.
    #[arg(long, value_name = "MEMBER")]
    pub offset_field: Option<String>,
    /// Name of the feed [default: the file's path, of a link that of the link, or stdin].
    #[arg(long, value_name = "NAME", requires = "source")]
    pub feed: Option<String>,
    /// Forget how far the feed has read, and begin anew.
    #[arg(long, requires = "source")]
    pub restart: bool,
    /// What becomes of records that arrive faster than they are written.
    #[arg(long, value_name = "POLICY", default_value = "throttle")]
    pub on_overload: OnOverload,
    #[command(flatten)]
    pub creation: CreationFlags,
}

/// What becomes of records that arrive faster than they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnOverload {
    /// They are not read yet, so that their writer waits.
    Throttle,
    /// They are kept in files without names in the store's directory until their turn comes, as long as the disk has room.
    Spill,
    /// They are dropped and counted, on standard error.
    Discard,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("which").required(true).args(["key", "condition"])))]
#[command(after_help = "\
With --where, each record is judged once more when it is deleted, so one that was changed meanwhile
and no longer meets the condition stays; the records are deleted one by one. The language of
conditions is told by `terrane query --help`.

Examples:
  terrane delete s.terrane places --key 7 8 9
  terrane delete s.terrane names --key north --key=-south
  terrane delete s.terrane rides --where \"pickup_ts < '2008-05-18' or n_fixes is null\"")]
pub struct DeleteArguments {
    /// Directory of the store.
    pub store: PathBuf,
    /// Dataset to delete from.
    pub dataset: String,
    /// Keys of the records to delete (binary keys in base64); a text that begins with a hyphen as --key=-text.
    #[arg(long, num_args = 1.., allow_negative_numbers = true, value_name = "KEY")]
    pub key: Vec<String>,
    /// Condition: the records that meet it are deleted.
    #[arg(long = "where", value_name = "EXPR")]
    pub condition: Option<String>,
}

/// Formats of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum QueryFormat {
    /// Aligned columns for people.
    Table,
    /// One JSON object a line.
    Ndjson,
    /// As ndjson, and the explanation as JSON too.
    Json,
    /// Comma-separated values.
    Csv,
    /// A GeoJSON feature collection.
    Geojson,
    /// An Arrow IPC stream.
    Arrow,
    /// Parquet, GeoParquet where there is a geometry column.
    Parquet,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Conditions are combined: a record has to meet all of them. Rows come in no order, but those of
--nearest by distance. In NDJSON and GeoJSON, which have no such numbers, NaN and infinities are
null.

EXPR compares the key and attributes with literals: = != < <= > >=, between A and B, in (A, B),
is null, match 'words', and, or, not, parentheses; boolean columns stand for themselves. Texts,
dates, timestamps and base64 are in single quotes, names of columns in double quotes where they are
no plain words. A comparison with null is neither true nor false. See docs/conditions.md.

Examples:
  terrane query s.terrane rides --bbox -122.45,37.75,-122.40,37.80 --count
  terrane query s.terrane rides --circle -122.3937,37.7955,500 --format csv
  terrane query s.terrane rides --within @mission.wkt --nearest -122.42,37.76 --explain
  terrane query s.terrane rides --where \"cab_id in (7, 12) and pickup_ts >= '2008-05-18'\"
  terrane query s.terrane cities --match 'new york' --where 'pop_max > 1e6'")]
pub struct QueryArguments {
    /// Directory of the store.
    pub store: PathBuf,
    /// Dataset to query.
    pub dataset: String,
    /// Window that the geometry meets; with x0 > x1 it crosses the antimeridian.
    #[arg(long, value_name = "x0,y0,x1,y1", allow_hyphen_values = true, value_parser = parse_window)]
    pub bbox: Option<[f64; 4]>,
    /// Geometry that has a point in common with the record's, as WKT or GeoJSON, or @FILE with one.
    #[arg(long, value_name = "WKT|@FILE")]
    pub intersects: Option<String>,
    /// Geometry within which the record's lies, as WKT or GeoJSON, or @FILE with one.
    #[arg(long, value_name = "WKT|@FILE")]
    pub within: Option<String>,
    /// Circle that the geometry meets; R in metres, or in units of a planar dataset.
    #[arg(long, value_name = "x,y,R", allow_hyphen_values = true, value_parser = parse_circle)]
    pub circle: Option<[f64; 3]>,
    /// Condition on the key and the attributes.
    #[arg(long = "where", value_name = "EXPR")]
    pub condition: Option<String>,
    /// Words, each of which occurs in some column of texts, in letters of any case.
    #[arg(long = "match", value_name = "WORDS")]
    pub words: Option<String>,
    /// Place: the nearest of the records that meet all conditions, nearest first.
    #[arg(long, value_name = "x,y", allow_hyphen_values = true, value_parser = parse_place)]
    pub nearest: Option<[f64; 2]>,
    /// How many records are the nearest.
    #[arg(long, value_name = "N", default_value_t = 10, requires = "nearest", allow_negative_numbers = true, value_parser = parse_count::<usize>)]
    pub k: usize,
    /// At most so many rows.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse_count::<u64>)]
    pub limit: Option<u64>,
    /// Print the number of rows alone.
    #[arg(long)]
    pub count: bool,
    /// How rows are printed [env: TERRANE_FORMAT] [default: table on a terminal, else ndjson].
    #[arg(long)]
    pub format: Option<QueryFormat>,
    /// Index to go through, `primary` for the records themselves [default: what seems cheapest].
    #[arg(long, value_name = "NAME")]
    pub index: Option<String>,
    /// States of the dataset on which the answer may rest.
    #[arg(long, value_name = "LEVEL", default_value = "snapshot")]
    pub isolation: IsolationLevel,
    /// Tell on standard error how the answer was found.
    #[arg(long)]
    pub explain: bool,
}

/// Levels of isolation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IsolationLevel {
    /// One.
    Snapshot,
    /// The newest that the command sees, for each step anew; not for the nearest. It sees what was there when it opened the
    /// store, so the rows are those of a snapshot; it shows which way a program's queries at this level take.
    ReadCommitted,
}

/// Formats of reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// For people.
    Text,
    /// One JSON object.
    Json,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  terrane info s.terrane --format json")]
pub struct ReportArguments {
    /// Directory of the store.
    pub store: PathBuf,
    /// How the report is printed [env: TERRANE_FORMAT] [default: text].
    #[arg(long)]
    pub format: Option<ReportFormat>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The exit code is 3 when damage was found and not repaired.

Examples:
  terrane check s.terrane
  terrane check s.terrane --repair")]
pub struct CheckArguments {
    #[command(flatten)]
    pub report: ReportArguments,
    /// Rebuild indexes that are damaged or disagree with the records, which are what they are rebuilt from.
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
A backup has everything that was acknowledged when it was begun (of a store without a log: everything
that its writer had flushed). Taken to the same directory again, it
copies what is new, and adds a point; what is copied is read again and verified.

Examples:
  terrane backup s.terrane /mnt/backups/s
  terrane backup s.terrane /mnt/backups/s --keep 7")]
pub struct BackupArguments {
    #[command(flatten)]
    pub report: ReportArguments,
    /// Directory of the backup: empty, absent, or with earlier ones of the same store.
    #[arg(value_name = "BACKUP")]
    pub backup: PathBuf,
    /// Leave only so many points, the newest.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse_count::<usize>)]
    pub keep: Option<usize>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Every page and every entry of the log is verified before the store counts as one. Without STORE, the
points of the backup are listed, oldest first, one a line, with --format json each as an object.

Examples:
  terrane restore /mnt/backups/s
  terrane restore /mnt/backups/s restored.terrane")]
pub struct RestoreArguments {
    /// Directory of the backup.
    pub backup: PathBuf,
    /// Directory of the store to make: empty or absent.
    pub store: Option<PathBuf>,
    /// Point to restore [default: the newest].
    #[arg(long, value_name = "POINT", requires = "store")]
    pub at: Option<String>,
    /// How the report is printed [env: TERRANE_FORMAT] [default: text].
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
                assert_eq!(query.bbox, Some([-180.0, -90.0, 180.0, 90.0]));
                assert_eq!(query.circle, Some([-122.4, 37.7, 500.0]));
                assert_eq!(query.nearest, Some([-1.0, 2.0]));
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
