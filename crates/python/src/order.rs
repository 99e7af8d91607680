//! The order of an answer, as Python gives it.

use pyo3::prelude::*;
use terrane::schema::{GeometryColumn, Schema};

use crate::error::{Result, usage};

/// Reads an order: a text such as "speed desc, id", or a list of such columns. Each is a name and
/// whether it descends.
pub fn parse(order: &Bound<'_, PyAny>, schema: &Schema) -> Result<Vec<(String, bool)>> {
    let is_column = |name: &str| schema.to_arrow().index_of(name).is_ok();
    let items: Vec<String> = match order.extract::<String>() {
        Ok(text) if is_column(&text) => vec![text],
        Ok(text) => text.split(',').map(str::to_owned).collect(),
        Err(_) => order.extract().map_err(|_| {
            usage("order_by is a text such as \"speed desc, id\", or a list of texts such as \"speed desc\"")
        })?,
    };
    let columns = items.iter().map(|item| column(item, &is_column)).collect::<Result<Vec<_>>>()?;
    if let GeometryColumn::Geometry { name } = &schema.geometry
        && columns.iter().any(|(column, _)| column == name)
    {
        return Err(usage(format!("order_by: geometries such as {name:?} have no order")));
    }
    Ok(columns)
}

/// A column's name, and whether it descends.
fn column(item: &str, is_column: &dyn Fn(&str) -> bool) -> Result<(String, bool)> {
    if is_column(item) {
        return Ok((item.to_owned(), false));
    }
    let item = item.trim();
    let (name, descends) = match item.rsplit_once(char::is_whitespace) {
        Some((name, word)) if word.eq_ignore_ascii_case("desc") => (name.trim_end(), true),
        Some((name, word)) if word.eq_ignore_ascii_case("asc") => (name.trim_end(), false),
        _ => (item, false),
    };
    let quoted = name.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let name = quoted.map_or_else(|| name.to_owned(), |inner| inner.replace("\"\"", "\""));
    match is_column(&name) {
        true => Ok((name, descends)),
        false => Err(usage(format!("order_by: there is no column {name:?}; write a column, or a column and desc"))),
    }
}
