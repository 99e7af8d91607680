//! JSON records: NDJSON, GeoJSON documents and GeoJSON text sequences.
//!
//! Documents are read feature by feature and never loaded whole. Parsing is strict: duplicate
//! member names, numbers that overflow, invalid UTF-8 and nesting beyond a fixed depth are errors
//! with their position.

mod document;
pub(crate) mod flat;
mod foreign;
mod lines;
pub(crate) mod probe;
mod reader;
mod record;
mod record_text;
mod strict;
mod survey;
mod texts;

pub use foreign::ForeignMembers;
pub(crate) use reader::open;
pub use record::{JsonRecord, RecordOptions, RecordReader};
pub(crate) use strict::VALUES_MAX;
pub use strict::{JsonError, JsonErrorKind, JsonValue, parse_strict};
