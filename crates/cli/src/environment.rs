//! Configuration from `TERRANE_…` variables that only some commands heed.
//!
//! They give defaults, so a value that a command has no use for (`TERRANE_FORMAT=csv` for `info`) is passed
//! over; a value that no command knows is an error.

use clap::ValueEnum;
use terrane::Durability;

use crate::args::{QueryFormat, ReportFormat};
use crate::failure::Failure;

/// Durability of stores that are created.
const DURABILITY: &str = "TERRANE_DURABILITY";
/// Format of answers and reports.
const FORMAT: &str = "TERRANE_FORMAT";

fn variable(name: &str) -> Result<Option<String>, Failure> {
    match std::env::var_os(name) {
        None => Ok(None),
        Some(value) if value.is_empty() => Ok(None),
        Some(value) => {
            value.into_string().map(Some).map_err(|value| Failure::usage(format!("{name}={value:?} is not UTF-8")))
        }
    }
}

/// The durability of a store that is created, where no flag gives one.
pub fn durability() -> Result<Option<Durability>, Failure> {
    let Some(value) = variable(DURABILITY)? else {
        return Ok(None);
    };
    let parsed = value.parse();
    parsed.map(Some).map_err(|error: terrane::Error| Failure::usage(format!("{DURABILITY}: {error}")))
}

fn format<F: ValueEnum>() -> Result<Option<F>, Failure> {
    let Some(value) = variable(FORMAT)? else {
        return Ok(None);
    };
    let is_known = <QueryFormat as ValueEnum>::from_str(&value, false).is_ok()
        || <ReportFormat as ValueEnum>::from_str(&value, false).is_ok();
    match F::from_str(&value, false) {
        Ok(format) => Ok(Some(format)),
        Err(_) if is_known => Ok(None),
        Err(_) => Err(Failure::usage(format!(
            "{FORMAT}={value:?} is no format; there are table, ndjson, csv, geojson, arrow, parquet, text and json"
        ))),
    }
}

/// The format of a query's answer: the flag's, or the variable's.
pub fn query_format(flag: Option<QueryFormat>) -> Result<Option<QueryFormat>, Failure> {
    flag.map_or_else(format, |flag| Ok(Some(flag)))
}

/// The format of a report: the flag's, or the variable's, or text.
pub fn report_format(flag: Option<ReportFormat>) -> Result<ReportFormat, Failure> {
    match flag {
        Some(flag) => Ok(flag),
        None => Ok(format()?.unwrap_or(ReportFormat::Text)),
    }
}
