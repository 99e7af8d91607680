//! `terrane index`: creating and dropping indexes.

use terrane::{StoreInfo, counted};

use crate::args::{Common, IndexAction, IndexArguments};
use crate::failure::Failure;
use crate::messages::Messages;
use crate::size::format_size;
use crate::{output, place};

pub fn run(arguments: &IndexArguments, common: &Common, messages: &Messages) -> Result<(), Failure> {
    let store = place::open_to_write(&arguments.store, common, messages)?;
    let dataset = store.dataset(&arguments.dataset)?;
    let said = match &arguments.action {
        IndexAction::Create { name, using, on } => {
            let columns: Vec<&str> = on.iter().map(String::as_str).collect();
            dataset.create_index(name, *using, &columns)?;
            described(&store.info()?, &arguments.dataset, name)
        }
        IndexAction::Drop { name } => {
            dataset.drop_index(name)?;
            format!("dropped index {name}")
        }
    };
    drop(dataset);
    place::close(store, messages)?;
    output::print_line(said)
}

fn described(info: &StoreInfo, dataset: &str, name: &str) -> String {
    let indexes = info.datasets.iter().filter(|found| found.name == dataset).flat_map(|dataset| &dataset.indexes);
    let found = indexes.into_iter().find(|index| index.name == name);
    let sizes = found.map_or(String::new(), |index| {
        let (entries, bytes) = (counted(index.entries, "entry", "entries"), format_size(index.bytes));
        format!(" ({} on {}): {entries}, {bytes}", index.kind, index.columns.join(", "))
    });
    format!("created index {name}{sizes}")
}
