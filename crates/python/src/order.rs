//! The order of an answer, as Python gives it.

use pyo3::prelude::*;
use terrane::schema::Schema;
use terrane_sql::order_of;

use crate::error::{Result, usage};

/// Reads an order: a text such as "speed desc, id", or a list of such columns. Each is a name and
/// whether it descends.
pub fn parse(order: &Bound<'_, PyAny>, schema: &Schema) -> Result<Vec<(String, bool)>> {
    let items: Vec<String> = match order.extract::<String>() {
        Ok(text) => vec![text],
        Err(_) => order.extract().map_err(|_| {
            usage("order_by is a text such as \"speed desc, id\", or a list of texts such as \"speed desc\"")
        })?,
    };
    order_of(&items, schema).map_err(|reason| usage(format!("order_by: {reason}")))
}
