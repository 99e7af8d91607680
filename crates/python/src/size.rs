//! Sizes: a number of bytes, or a text with a unit.

use pyo3::prelude::*;
use terrane_literal::parse_size;

use crate::error::{Result, usage};

/// Reads a number of bytes, or a text such as "64MiB".
pub fn parse(value: &Bound<'_, PyAny>) -> Result<usize> {
    if let Ok(bytes) = value.extract::<usize>() {
        return Ok(bytes);
    }
    let text: String =
        value.extract().map_err(|_| usage("memory_limit is a number of bytes, or a text such as \"256MiB\""))?;
    parse_size(&text).map_err(usage)
}
