//! Figures, and how they are shown: one JSON object a line, or tables with ratios and targets.

mod table;
mod units;

use std::io::{self, Write};

use serde_json::{Map, Value, json};

/// One measured value.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Row of the table: the system, and the properties that distinguish rows of one system.
    pub row: String,
    /// System measured.
    pub system: String,
    /// Settings the value depends on.
    pub params: Map<String, Value>,
    /// The measured quantity.
    pub metric: &'static str,
    /// The value.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
    /// The value that a paper reports for the same, if one does.
    pub paper: Option<f64>,
}

impl Figure {
    /// Adds the value that a paper reports for the same.
    pub fn paper(&mut self, value: f64) {
        self.paper = Some(value);
    }
}

/// Which side of a bound is good.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// The value or ratio may not exceed this.
    AtMost(f64),
    /// The value or ratio must reach this.
    AtLeast(f64),
}

impl Bound {
    fn is_met(self, value: f64) -> bool {
        match self {
            Bound::AtMost(bound) => value <= bound,
            Bound::AtLeast(bound) => value >= bound,
        }
    }

    fn limit(self) -> f64 {
        let (Bound::AtMost(limit) | Bound::AtLeast(limit)) = self;
        limit
    }
}

/// A figure to reach.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Row it is about.
    pub row: String,
    /// Metric it is about.
    pub metric: &'static str,
    /// Row the metric is divided by; `None` bounds the value itself.
    pub relative_to: Option<String>,
    /// The bound of the value or ratio.
    pub bound: Bound,
    /// Unit of the bound; ratios are in `x`.
    pub unit: &'static str,
}

/// The figures of one experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Name of the experiment, such as `windows`.
    pub experiment: &'static str,
    /// The compared quantities, in words.
    pub title: String,
    /// How it was measured.
    pub notes: Vec<String>,
    /// Row that ratios refer to, and the metrics that get a ratio column.
    pub ratios: Option<(String, Vec<&'static str>)>,
    /// The figures, in the order of rows and columns.
    pub figures: Vec<Figure>,
    /// The targets.
    pub targets: Vec<Target>,
}

impl Table {
    /// An empty table.
    pub fn new(experiment: &'static str, title: impl Into<String>) -> Self {
        Self {
            experiment,
            title: title.into(),
            notes: Vec::new(),
            ratios: None,
            figures: Vec::new(),
            targets: Vec::new(),
        }
    }

    /// Adds a line about how the figures were measured.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Adds a figure in the row with the system's name.
    pub fn figure(
        &mut self,
        system: &str,
        params: &Value,
        metric: &'static str,
        value: f64,
        unit: &'static str,
    ) -> &mut Figure {
        self.figure_in_row(system, system, params, metric, value, unit)
    }

    /// Adds a figure in a row with its own name.
    pub fn figure_in_row(
        &mut self,
        row: &str,
        system: &str,
        params: &Value,
        metric: &'static str,
        value: f64,
        unit: &'static str,
    ) -> &mut Figure {
        self.figures.push(Figure {
            row: row.to_owned(),
            system: system.to_owned(),
            params: params.as_object().cloned().unwrap_or_default(),
            metric,
            value,
            unit,
            paper: None,
        });
        let last = self.figures.len() - 1;
        &mut self.figures[last]
    }

    /// States the target of `row`'s metric.
    pub fn target(&mut self, row: &str, metric: &'static str, bound: Bound, unit: &'static str) {
        self.targets.push(Target { row: row.to_owned(), metric, relative_to: None, bound, unit });
    }

    /// States the target of `row`'s metric divided by `relative_to`'s.
    pub fn ratio_target(&mut self, row: &str, metric: &'static str, relative_to: &str, bound: Bound) {
        self.targets.push(Target {
            row: row.to_owned(),
            metric,
            relative_to: Some(relative_to.to_owned()),
            bound,
            unit: "x",
        });
    }

    fn value(&self, row: &str, metric: &str) -> Option<f64> {
        self.figures.iter().find(|figure| figure.row == row && figure.metric == metric).map(|figure| figure.value)
    }

    /// The value that the target bounds, if everything it needs was measured.
    fn reached(&self, target: &Target) -> Option<f64> {
        let value = self.value(&target.row, target.metric)?;
        match &target.relative_to {
            None => Some(value),
            Some(row) => {
                self.value(row, target.metric).filter(|&divisor| divisor != 0.0).map(|divisor| value / divisor)
            }
        }
    }
}

/// How figures are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Aligned tables with ratios to peers and the targets.
    Table,
    /// One JSON object a line.
    Json,
}

/// Takes a finished table.
pub type Emit<'a> = dyn FnMut(Table) -> anyhow::Result<()> + 'a;

/// Writes tables as they come, except empty ones.
pub fn emitter(format: Format, out: &mut dyn Write) -> impl FnMut(Table) -> anyhow::Result<()> {
    move |table| {
        if !table.figures.is_empty() {
            write(&table, format, out)?;
        }
        Ok(())
    }
}

/// Writes one experiment's figures as soon as it is done.
pub fn write(table: &Table, format: Format, out: &mut dyn Write) -> io::Result<()> {
    match format {
        Format::Table => table::write(table, out)?,
        Format::Json => write_json(table, out)?,
    }
    out.flush()
}

fn write_json(table: &Table, out: &mut dyn Write) -> io::Result<()> {
    for figure in &table.figures {
        let mut line = json!({
            "experiment": table.experiment,
            "system": figure.system,
            "params": figure.params,
            "metric": figure.metric,
            "value": figure.value,
            "unit": figure.unit,
        });
        if let Some(paper) = figure.paper {
            line["paper"] = json!(paper);
        }
        writeln!(out, "{line}")?;
    }
    for target in &table.targets {
        let Some(reached) = table.reached(target) else { continue };
        let system = table
            .figures
            .iter()
            .find(|figure| figure.row == target.row)
            .map_or(target.row.as_str(), |figure| figure.system.as_str());
        let mut params = json!({
            "row": target.row,
            "target": target.bound.limit(),
            "met": target.bound.is_met(reached),
        });
        let metric = match &target.relative_to {
            Some(relative_to) => {
                params["relative_to"] = json!(relative_to);
                format!("ratio of {}", target.metric)
            }
            None => format!("target of {}", target.metric),
        };
        let line = json!({
            "experiment": table.experiment, "system": system, "params": params,
            "metric": metric, "value": reached, "unit": target.unit,
        });
        writeln!(out, "{line}")?;
    }
    Ok(())
}

#[cfg(test)]
mod report_tests;
