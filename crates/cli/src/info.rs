//! `terrane info`: prints what a store holds.

use crate::args::{Common, ReportArguments};
use crate::failure::Failure;
use crate::{environment, output, place};

pub fn run(arguments: &ReportArguments, common: &Common) -> Result<(), Failure> {
    let format = environment::report_format(arguments.format)?;
    let store = place::open_to_read(&arguments.store, common)?;
    output::print_report(format, &store.info()?)
}
