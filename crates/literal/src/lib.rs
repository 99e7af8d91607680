//! Literal values: dates, timestamps, UUIDs and sizes as text, decimal columns, and exact
//! conversions between integers and floats.
//!
//! The store, the readers and the writers of files all use this crate, so a value means the same
//! whichever way it comes. Nothing here does I/O, keeps state or panics on input.

#![forbid(unsafe_code)]

pub mod decimal;
mod number;
mod pattern;
mod size;
mod time;
mod uuid;

pub use self::uuid::{
    UUID_STORAGE, UuidBytes, append_uuid, format_uuid, is_uuid, marked_uuid, parse_uuid, stores_uuids, uuid_at,
    uuid_builder,
};
pub use number::{exact_float, exact_integer, json_integer, shortest};
pub use pattern::TimePattern;
pub use size::parse_size;
pub use time::{Time, Timestamp, format_date, format_timestamp, parse_date, parse_timestamp};
