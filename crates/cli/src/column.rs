//! `terrane column`: renaming and dropping columns.

use crate::args::{ColumnAction, ColumnArguments, Common};
use crate::failure::Failure;
use crate::messages::Messages;
use crate::{output, place};

pub fn run(arguments: &ColumnArguments, common: &Common, messages: &Messages) -> Result<(), Failure> {
    let store = place::open_to_write(&arguments.store, common, messages)?;
    let dataset = store.dataset(&arguments.dataset)?;
    let said = match &arguments.action {
        ColumnAction::Rename { from, to } => {
            dataset.rename_column(from, to)?;
            format!("renamed column {from} to {to}")
        }
        ColumnAction::Drop { name } => {
            dataset.drop_column(name)?;
            format!("dropped column {name}")
        }
    };
    drop(dataset);
    place::close(store, messages)?;
    output::print_line(said)
}
