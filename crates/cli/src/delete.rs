//! `terrane delete`: records by key.

use terrane::Key;

use crate::args::{Common, DeleteArguments};
use crate::failure::Failure;
use crate::messages::Messages;
use crate::{output, place};

pub fn run(arguments: &DeleteArguments, common: &Common, messages: &Messages) -> Result<(), Failure> {
    let store = place::open_to_write(&arguments.store, common, messages)?;
    let dataset = store.dataset(&arguments.dataset)?;
    let key_type = dataset.schema().key.key_type;
    // All keys are read before the first record is deleted.
    let keys = arguments
        .key
        .iter()
        .map(|text| Key::parse(key_type, text))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| Failure::usage(format!("--key: {error}")))?;
    let mut deleted = 0;
    for key in &keys {
        match dataset.delete(key)? {
            true => deleted += 1,
            false => messages.warn(format_args!("there is no record with the key {key}")),
        }
    }
    place::close(store, messages)?;
    output::print_line(format_args!("deleted {deleted} of {}", keys.len()))
}
