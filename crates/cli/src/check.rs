//! `terrane check`: verification of a whole store, and the repair of what can be rebuilt.

use std::fmt;

use serde::Serialize;
use terrane::{CheckReport, TornTailInfo};

use crate::args::{CheckArguments, Common};
use crate::failure::Failure;
use crate::messages::Messages;
use crate::{environment, output, place};

#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    check: CheckReport,
    /// Not a fault: every crash during a write leaves one.
    torn_tail: Option<TornTailInfo>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.check.fmt(f)?;
        self.torn_tail.as_ref().map_or(Ok(()), |tail| write!(f, "\n  note: {tail}"))
    }
}

pub fn run(arguments: &CheckArguments, common: &Common, messages: &Messages) -> Result<(), Failure> {
    let format = environment::report_format(arguments.report.format)?;
    let store = place::open_to_check(&arguments.report.store, common, arguments.repair)?;
    let report = Report { check: store.check(arguments.repair)?, torn_tail: store.info()?.torn_tail };
    // Neither a failure to close the store nor one to tell of what was found changes what that is.
    let closed = place::close(store, messages);
    let told = closed.and(output::print_report(format, &report));
    match (report.check.is_clean(), told) {
        (true, told) => told,
        (false, Err(failure)) => Err(failure.with_exit_code(Failure::CORRUPTION)),
        // The report has said it all.
        (false, Ok(())) => Err(Failure::silent(Failure::CORRUPTION)),
    }
}
