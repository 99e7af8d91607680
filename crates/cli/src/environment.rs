//! Configuration from `TERRANE_…` variables, for flags that are not given.
//!
//! An empty variable counts as unset. Variables only give defaults: a command ignores a value that
//! it has no use for (`TERRANE_FORMAT=csv` for `info`). A value that no command knows is an error.

use clap::ValueEnum;
use terrane::{Durability, MEMORY_LIMIT_DEFAULT};
use terrane_literal::parse_size;

use crate::args::{Common, CommonFlags, InfoFormat, QueryFormat, ReportFormat};
use crate::failure::Failure;
use crate::messages::{Color, LogLevel, Messages};
use crate::size::parse_reserve;

/// Memory limit of every command.
const MEMORY_LIMIT: &str = "TERRANE_MEMORY_LIMIT";
/// Disk space that stores reserve.
const DISK_RESERVE: &str = "TERRANE_DISK_RESERVE";
/// When messages are coloured.
const COLOR: &str = "TERRANE_COLOR";
/// Level of messages.
const LOG: &str = "TERRANE_LOG";
/// Durability of new stores.
const DURABILITY: &str = "TERRANE_DURABILITY";
/// Format of results and reports.
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

/// A variable's value, parsed by `read`.
fn read<T>(name: &str, read: impl FnOnce(&str) -> Result<T, String>) -> Result<Option<T>, Failure> {
    let value = variable(name)?;
    value.map(|value| read(&value).map_err(|reason| Failure::usage(format!("{name}: {reason}")))).transpose()
}

/// One of the values of a flag.
fn choice<T: ValueEnum>(value: &str) -> Result<T, String> {
    T::from_str(value, false).map_err(|_| {
        let known = T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        let names: Vec<String> = known.map(|value| value.get_name().to_owned()).collect();
        format!("{value:?} is not one of {}", names.join(", "))
    })
}

/// The flag's value, else the variable's, else the default; with the error of the variable, if it
/// has one.
fn or_default<T: ValueEnum>(flag: Option<T>, name: &str, default: T) -> (T, Result<(), Failure>) {
    match flag.map_or_else(|| read(name, choice), |flag| Ok(Some(flag))) {
        Ok(value) => (value.unwrap_or(default), Ok(())),
        Err(failure) => (default, Err(failure)),
    }
}

/// The printer of messages, which exists even if a variable is wrong.
pub fn messages(flags: &CommonFlags) -> (Messages, Result<(), Failure>) {
    let (level, level_known) = or_default(flags.log, LOG, LogLevel::Info);
    let (color, color_known) = or_default(flags.color, COLOR, Color::Auto);
    (Messages::new(level, color), level_known.and(color_known))
}

/// The options of every command.
pub fn common(flags: &CommonFlags) -> Result<Common, Failure> {
    let memory_limit = flags.memory_limit.map_or_else(|| read(MEMORY_LIMIT, parse_size), |limit| Ok(Some(limit)))?;
    let disk_reserve =
        flags.disk_reserve.map_or_else(|| read(DISK_RESERVE, parse_reserve), |reserve| Ok(Some(reserve)))?;
    Ok(Common {
        memory_limit: memory_limit.unwrap_or(MEMORY_LIMIT_DEFAULT),
        disk_reserve: disk_reserve.unwrap_or_default(),
    })
}

/// The durability of a new store, if no flag gives one.
pub fn durability() -> Result<Option<Durability>, Failure> {
    read(DURABILITY, |value| value.parse().map_err(|error: terrane::Error| error.to_string()))
}

fn format<F: ValueEnum>() -> Result<Option<F>, Failure> {
    let Some(value) = variable(FORMAT)? else {
        return Ok(None);
    };
    let is_known = <QueryFormat as ValueEnum>::from_str(&value, false).is_ok()
        || <InfoFormat as ValueEnum>::from_str(&value, false).is_ok();
    match F::from_str(&value, false) {
        Ok(format) => Ok(Some(format)),
        Err(_) if is_known => Ok(None),
        Err(_) => Err(Failure::usage(format!(
            "{FORMAT}={value:?} is not a format; the formats are table, ndjson, csv, geojson, arrow, parquet, text, \
             json and prometheus"
        ))),
    }
}

/// The format of a query's rows: the flag's, or the variable's.
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

/// The format of what a store holds: the flag's, or the variable's, or text.
pub fn info_format(flag: Option<InfoFormat>) -> Result<InfoFormat, Failure> {
    match flag {
        Some(flag) => Ok(flag),
        None => Ok(format()?.unwrap_or(InfoFormat::Text)),
    }
}
