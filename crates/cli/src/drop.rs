//! `terrane drop`: drops a dataset with everything that belongs to it.

use crate::args::{Common, DropArguments};
use crate::failure::Failure;
use crate::messages::Messages;
use crate::{output, place};

pub fn run(arguments: &DropArguments, common: &Common, messages: &Messages) -> Result<(), Failure> {
    let store = place::open_to_write(&arguments.store, common, messages)?;
    store.drop_dataset(&arguments.dataset)?;
    place::close(store, messages)?;
    output::print_line(format!("dropped dataset {}", arguments.dataset))
}
