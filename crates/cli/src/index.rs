//! `terrane index`: creates and drops indexes.

use terrane::{IndexInfo, IndexOptions, StopWords, StoreInfo, counted};

use crate::args::{Common, IndexAction, IndexArguments};
use crate::failure::Failure;
use crate::messages::Messages;
use crate::size::format_size;
use crate::{output, place, shape};

pub fn run(arguments: &IndexArguments, common: &Common, messages: &Messages) -> Result<(), Failure> {
    let stop_words = match &arguments.action {
        IndexAction::Create { stop_words: Some(text), .. } => Some(parse_stop_words(text)?),
        _ => None,
    };
    let store = place::open_to_write(&arguments.store, common, messages)?;
    let dataset = store.dataset(&arguments.dataset)?;
    let said = match &arguments.action {
        IndexAction::Create { name, using, on, levels, domain, cells, stop_words: _ } => {
            let columns: Vec<&str> = on.iter().map(String::as_str).collect();
            let options =
                IndexOptions { levels: levels.clone(), domain: *domain, cells_per_object_max: *cells, stop_words };
            let is_there = find(&store.info()?, &arguments.dataset, name).is_some();
            dataset.create_index_with(name, *using, &columns, &options)?;
            let done = if is_there { "completed" } else { "created" };
            described(done, &store.info()?, &arguments.dataset, name)
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

/// Words separated by commas, or a file with such words on its lines.
fn parse_stop_words(text: &str) -> Result<StopWords, Failure> {
    const FLAG: &str = "--stop-words";
    let (from, text) = match text.strip_prefix('@') {
        Some("") => return Err(Failure::usage(format!("{FLAG}: the name of a file is missing after @"))),
        Some(path) => (format!("{FLAG}: {path}"), shape::read_file(FLAG, path)?),
        None => (FLAG.to_owned(), text.to_owned()),
    };
    let text = text.trim_start_matches('\u{feff}');
    let words = text.split([',', '\n']).map(str::trim).filter(|word| !word.is_empty());
    StopWords::new(words).map_err(|error| Failure::usage(format!("{from}: {error}")))
}

fn find<'i>(info: &'i StoreInfo, dataset: &str, name: &str) -> Option<&'i IndexInfo> {
    let indexes = info.datasets.iter().filter(|found| found.name == dataset).flat_map(|dataset| &dataset.indexes);
    indexes.into_iter().find(|index| index.name == name)
}

fn described(done: &str, info: &StoreInfo, dataset: &str, name: &str) -> String {
    let sizes = find(info, dataset, name).map_or(String::new(), |index| {
        let (entries, bytes) = (counted(index.entries, "entry", "entries"), format_size(index.bytes));
        let options = index.options.as_ref().map_or(String::new(), |options| format!(", {options}"));
        format!(" ({} on {}{options}): {entries}, {bytes}", index.kind, index.columns.join(", "))
    });
    format!("{done} index {name}{sizes}")
}
