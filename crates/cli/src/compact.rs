//! `terrane compact`: merges all components of each index into one.

use std::fmt;

use serde::Serialize;
use terrane::{StoreInfo, counted};

use crate::args::{Common, CompactArguments};
use crate::failure::Failure;
use crate::messages::Messages;
use crate::size::format_size;
use crate::{environment, output, place};

#[derive(Debug, Serialize)]
struct Report {
    components_before: u64,
    /// Bytes of memory components that were flushed before.
    memory_bytes_before: u64,
    components: u64,
    bytes_before: u64,
    bytes: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "compacted {} of {}{} into {} of {}",
            counted(self.components_before, "component", "components"),
            format_size(self.bytes_before),
            match self.memory_bytes_before {
                0 => String::new(),
                bytes => format!(" and what was in memory ({})", format_size(bytes)),
            },
            self.components,
            format_size(self.bytes)
        )
    }
}

fn components_and_bytes(info: &StoreInfo) -> (u64, u64) {
    let indexes = || info.datasets.iter().flat_map(|dataset| &dataset.indexes);
    (indexes().map(|index| index.components as u64).sum(), indexes().map(|index| index.bytes).sum())
}

pub fn run(arguments: &CompactArguments, common: &Common, messages: &Messages) -> Result<(), Failure> {
    let format = environment::report_format(arguments.report.format)?;
    let store = place::open_to_write(&arguments.report.store, common, messages)?;
    let before = store.info()?;
    let memory_bytes_before = before.datasets.iter().map(|dataset| dataset.memory_bytes).sum();
    let (components_before, bytes_before) = components_and_bytes(&before);
    store.compact()?;
    let (components, bytes) = components_and_bytes(&store.info()?);
    place::close(store, messages)?;
    let report = Report { components_before, memory_bytes_before, components, bytes_before, bytes };
    output::print_report(format, &report)
}
