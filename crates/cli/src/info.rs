//! `terrane info`: prints what a store holds.

mod prometheus;

use crate::args::{Common, InfoArguments, InfoFormat, ReportFormat};
use crate::failure::Failure;
use crate::{environment, output, place};

pub fn run(arguments: &InfoArguments, common: &Common) -> Result<(), Failure> {
    let format = environment::info_format(arguments.format)?;
    let store = place::open_to_read(&arguments.store, common)?;
    let info = store.info()?;
    match format {
        InfoFormat::Text => output::print_report(ReportFormat::Text, &info),
        InfoFormat::Json => output::print_report(ReportFormat::Json, &info),
        InfoFormat::Prometheus => output::print_text(&prometheus::encode(&info)?),
    }
}
