//! `terrane check`: verifies a whole store, and repairs what can be rebuilt.

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
    // A failure to close the store or to print does not change the result.
    let closed = place::close(store, messages);
    let printed = closed.and(output::print_report(format, &report));
    match (report.check.is_clean(), printed) {
        (true, printed) => printed,
        (false, Err(failure)) => Err(failure.with_exit_code(Failure::CORRUPTION)),
        // The report has said everything already.
        (false, Ok(())) => Err(Failure::silent(Failure::CORRUPTION)),
    }
}
