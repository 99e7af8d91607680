//! Results as text, or one JSON object a line.

use std::fmt::Display;
use std::io::{self, Write};
use std::time::Duration;

use serde_json::{Value, json};
use terrane_pmem::explorer::{Failure, GateReport, Tally};

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Sentences.
    Text,
    /// One JSON object a line.
    Json,
}

fn figure(out: &mut dyn Write, system: &str, params: &Value, metric: &str, value: Value, unit: &str) -> io::Result<()> {
    let line = json!({
        "experiment": "crash", "system": system, "params": params, "metric": metric, "value": value, "unit": unit,
    });
    writeln!(out, "{line}")
}

/// The size of the search.
pub fn tally(
    format: Format,
    structure: &str,
    what: &str,
    tally: &Tally,
    time: Duration,
    out: &mut dyn Write,
) -> io::Result<()> {
    let Tally { histories, cuts, cuts_sampled, images, distinct } = *tally;
    let seconds = time.as_secs_f64();
    let a_minute = (images as f64 / seconds * 60.0).round();
    match format {
        Format::Text => {
            writeln!(out, "{structure}: {what}")?;
            writeln!(
                out,
                "  {histories} histories, {cuts} cuts ({cuts_sampled} of them sampled), {images} images ({distinct} distinct)"
            )?;
            writeln!(out, "  {seconds:.1} s, {a_minute} images a minute")
        }
        Format::Json => {
            let params = json!({ "of": what });
            let counts = [
                ("histories", histories),
                ("cuts", cuts),
                ("cuts sampled", cuts_sampled),
                ("images", images),
                ("distinct images", distinct),
            ];
            for (metric, value) in counts {
                figure(out, structure, &params, metric, value.into(), "")?;
            }
            figure(out, structure, &params, "images a minute", a_minute.into(), "1/min")
        }
    }
}

/// A failure, and how to replay it.
pub fn failure<Step: Display>(format: Format, failure: &Failure<Step>, out: &mut dyn Write) -> io::Result<()> {
    match format {
        Format::Text => writeln!(out, "{failure}"),
        Format::Json => {
            let params = json!({
                "configuration": failure.case.configuration, "what": failure.problem,
                "crashes": failure.crashes, "replay": failure.command(),
            });
            figure(out, failure.structure, &params, "violations", 1.into(), "")
        }
    }
}

/// The report that a replayed case shows nothing.
pub fn nothing(format: Format, structure: &str, configuration: &str, out: &mut dyn Write) -> io::Result<()> {
    match format {
        Format::Text => writeln!(out, "nothing goes wrong"),
        Format::Json => figure(out, structure, &json!({ "configuration": configuration }), "violations", 0.into(), ""),
    }
}

/// The cases that catch the loss of each flush and fence.
pub fn gate<Step: Display>(format: Format, report: &GateReport<Step>, out: &mut dyn Write) -> io::Result<()> {
    if format == Format::Text {
        return write!(out, "{report}");
    }
    for caught in &report.caught {
        let params = json!({
            "site": caught.dropped.to_string(), "configuration": caught.configuration(), "seed": caught.seed,
            "steps_done": caught.steps_done, "step": caught.step, "cuts": caught.cuts(), "what": caught.failure.problem,
            "replay": caught.failure.command(),
        });
        figure(out, report.structure, &params, "caught", 1.into(), "")?;
    }
    for (dropped, test) in &report.elsewhere {
        let params = json!({ "site": dropped.to_string(), "test": test });
        figure(out, report.structure, &params, "caught", 1.into(), "")?;
    }
    for dropped in report.unreached.iter().chain(&report.unlisted) {
        let params = json!({ "site": dropped.to_string() });
        figure(out, report.structure, &params, "reached and listed", 0.into(), "")?;
    }
    report.uncaught.iter().try_for_each(|(dropped, configuration)| {
        let params = json!({ "site": dropped.to_string(), "configuration": configuration });
        figure(out, report.structure, &params, "caught", 0.into(), "")
    })
}
