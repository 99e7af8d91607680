//! Separated values (RFC 4180 and its usual variants).
//!
//! Unlike lenient readers, this one distinguishes an empty field from an empty quoted one. It
//! reports quotes that are never closed, text after a closing quote, NUL bytes, and rows with too
//! many or too few fields.

mod dialect;
mod reader;
mod scanner;

pub(crate) use reader::open;
