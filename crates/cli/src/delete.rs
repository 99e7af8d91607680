//! `terrane delete`: deletes records by key or by a condition.

use std::collections::HashSet;

use terrane::{Condition, Dataset, Key, counted};

use crate::args::{Common, DeleteArguments};
use crate::failure::Failure;
use crate::messages::Messages;
use crate::shape::{parse_condition, warn_of_condition};
use crate::{output, place};

pub fn run(arguments: &DeleteArguments, common: &Common, messages: &Messages) -> Result<(), Failure> {
    let condition = arguments.condition.as_deref().map(|text| parse_condition("--where", text)).transpose()?;
    let store = place::open_to_write(&arguments.store, common, messages)?;
    let dataset = store.dataset(&arguments.dataset)?;
    warn_of_condition(arguments.condition.as_ref(), &dataset.schema(), messages);
    let deleted = match condition {
        Some(condition) => delete_where(&dataset, &condition)?,
        None => delete_keys(&dataset, &arguments.key, messages)?,
    };
    place::close(store, messages)?;
    output::print_line(deleted)
}

/// Deletes the records that meet a condition; returns their number.
fn delete_where(dataset: &Dataset, condition: &Condition) -> Result<String, Failure> {
    let deleted = dataset.delete_where(condition, &[])?;
    Ok(format!("deleted {}", counted(deleted, "record", "records")))
}

/// Deletes the records with these keys; returns the number of keys that had one.
fn delete_keys(dataset: &Dataset, keys: &[String], messages: &Messages) -> Result<String, Failure> {
    let key_type = dataset.schema().key.key_type;
    // All keys are read before the first record is deleted.
    let mut keys = keys
        .iter()
        .map(|text| Key::parse(key_type, text))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| Failure::usage(format!("--key: {error}")))?;
    // A key that is given twice is not missing the second time.
    let mut asked = HashSet::new();
    keys.retain(|key| asked.insert(key.clone()));
    let mut deleted = 0;
    for key in &keys {
        match dataset.delete(key).map_err(|error| error.after_deleting(deleted))? {
            true => deleted += 1,
            false => messages.warn(format_args!("there is no record with the key {key}")),
        }
    }
    Ok(format!("deleted {deleted} of {}", keys.len()))
}
