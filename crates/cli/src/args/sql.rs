//! The flags of `terrane sql`.

use std::convert::Infallible;
use std::path::PathBuf;

use clap::Args;
use terrane_sql::Param;

use super::QueryFormat;

#[derive(Debug, Args)]
#[command(after_help = "\
Each dataset is a table: its key, its attributes, the coordinates it was made from, and `geometry`.
Statements that read take no lock. Each sees the newest state, while another process may write.
The first one that changes the store opens it for writing, until the command ends.
Statements run in order and stop at the first error. A text separates its statements by `;`.

A geometry is written as WKT: 'POINT(-122.4 37.8)'. Functions on geometries use the units of the
coordinates, and those whose names end in Sphere use metres. EXPLAIN shows which index is used.

Examples:
  terrane sql s.terrane \"SELECT count(*) FROM rides\"
  terrane sql s.terrane \"SELECT * FROM rides
    WHERE ST_DWithinSphere(geometry, 'POINT(-122.39 37.79)', 500)\" --format csv
  terrane sql s.terrane \"UPDATE rides SET fare = 0 WHERE fare < 0\"
  terrane sql s.terrane \"SELECT name FROM places WHERE id = \\$1\" --param 7")]
pub struct SqlArguments {
    /// Directory of the store.
    pub store: PathBuf,
    /// Statements to run [default: those on standard input, or typed on a terminal].
    pub sql: Vec<String>,
    /// Refuse statements that change the store.
    #[arg(long)]
    pub read_only: bool,
    /// File with statements, which run after the others.
    #[arg(long = "file", value_name = "F")]
    pub files: Vec<String>,
    /// Value of the next parameter, $1, $2, …: null, true, false, a number, or else a text.
    #[arg(long = "param", value_name = "V", allow_hyphen_values = true, value_parser = param)]
    pub params: Vec<Param>,
    /// Output format [env: TERRANE_FORMAT] [default: table on a terminal, else ndjson].
    #[arg(long)]
    pub format: Option<QueryFormat>,
}

fn param(text: &str) -> Result<Param, Infallible> {
    Ok(Param::parse(text))
}
