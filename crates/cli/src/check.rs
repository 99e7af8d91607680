//! `terrane check`: verification of a whole store, and the repair of what can be rebuilt.

use crate::args::{CheckArguments, Common};
use crate::failure::Failure;
use crate::{environment, output, place};

pub fn run(arguments: &CheckArguments, common: &Common) -> Result<(), Failure> {
    let format = environment::report_format(arguments.report.format)?;
    let store = place::open_to_check(&arguments.report.store, common, arguments.repair)?;
    let report = store.check(arguments.repair)?;
    store.close()?;
    output::print_report(format, &report)?;
    match report.is_clean() {
        true => Ok(()),
        // The report has said it all.
        false => Err(Failure::silent(Failure::CORRUPTION)),
    }
}
