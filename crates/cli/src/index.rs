//! `terrane index`: creating and dropping indexes.

use terrane::{IndexOptions, StoreInfo, counted};

use crate::args::{Common, IndexAction, IndexArguments};
use crate::failure::Failure;
use crate::messages::Messages;
use crate::size::format_size;
use crate::{output, place};

pub fn run(arguments: &IndexArguments, common: &Common, messages: &Messages) -> Result<(), Failure> {
    let store = place::open_to_write(&arguments.store, common, messages)?;
    let dataset = store.dataset(&arguments.dataset)?;
    let said = match &arguments.action {
        IndexAction::Create { name, using, on, levels, domain, cells } => {
            let columns: Vec<&str> = on.iter().map(String::as_str).collect();
            let options = IndexOptions { levels: levels.clone(), domain: *domain, cells_per_object_max: *cells };
            dataset.create_index_with(name, *using, &columns, &options)?;
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
        let options = index.options.as_ref().map_or(String::new(), |options| format!(", {options}"));
        format!(" ({} on {}{options}): {entries}, {bytes}", index.kind, index.columns.join(", "))
    });
    format!("created index {name}{sizes}")
}
