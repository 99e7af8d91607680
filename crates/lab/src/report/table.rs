//! Tables for people: one row a system, one column a metric, ratios beside, targets beneath.

use std::io::{self, Write};

use super::units::human;
use super::{Bound, Table, Target};

pub fn write(table: &Table, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", table.title)?;
    for note in &table.notes {
        writeln!(out, "  {note}")?;
    }
    let cells = cells(table);
    let columns = cells.first().map_or(0, Vec::len);
    let widths: Vec<usize> =
        (0..columns).map(|column| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)).collect();
    for row in &cells {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            // The first column names the row; numbers line up at their right ends.
            if column == 0 {
                line.push_str(&format!("  {cell:<width$}"));
            } else {
                line.push_str(&format!("  {cell:>width$}"));
            }
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    for target in &table.targets {
        writeln!(out, "  {}", verdict(table, target))?;
    }
    writeln!(out)
}

fn cells(table: &Table) -> Vec<Vec<String>> {
    let mut rows: Vec<&str> = Vec::new();
    let mut metrics: Vec<&'static str> = Vec::new();
    for figure in &table.figures {
        if !rows.contains(&figure.row.as_str()) {
            rows.push(&figure.row);
        }
        if !metrics.contains(&figure.metric) {
            metrics.push(figure.metric);
        }
    }
    let ratio = |metric: &'static str| {
        let (row, with_ratio) = table.ratios.as_ref()?;
        let measured = table.value(row, metric).is_some_and(|value| value != 0.0);
        (with_ratio.contains(&metric) && measured).then_some(row.as_str())
    };
    let has_paper = |metric: &str| table.figures.iter().any(|figure| figure.metric == metric && figure.paper.is_some());
    let mut header = vec![String::new()];
    for metric in &metrics {
        header.push((*metric).to_owned());
        if has_paper(metric) {
            header.push(String::from("paper"));
        }
        if let Some(baseline) = ratio(metric) {
            header.push(format!("to {baseline}"));
        }
    }
    let mut cells = vec![header];
    for row in rows {
        let mut line = vec![row.to_owned()];
        for metric in &metrics {
            let figure = table.figures.iter().find(|figure| figure.row == row && figure.metric == *metric);
            line.push(figure.map_or(String::from("-"), |figure| human(figure.value, figure.unit)));
            if has_paper(metric) {
                let paper = figure.and_then(|figure| Some(human(figure.paper?, figure.unit)));
                line.push(paper.unwrap_or_else(|| String::from("-")));
            }
            if let Some(baseline) = ratio(metric) {
                let divisor = table.value(baseline, metric);
                line.push(match (figure, divisor) {
                    (Some(figure), Some(divisor)) => human(figure.value / divisor, "x"),
                    _ => String::from("-"),
                });
            }
        }
        cells.push(line);
    }
    cells
}

fn verdict(table: &Table, target: &Target) -> String {
    let unit = target.unit;
    let wanted = match target.bound {
        Bound::AtMost(limit) => format!("at most {}", human(limit, unit)),
        Bound::AtLeast(limit) => format!("at least {}", human(limit, unit)),
    };
    let of = target.relative_to.as_ref().map_or(String::new(), |row| format!(" {row}"));
    let outcome = match table.reached(target) {
        Some(value) if target.bound.is_met(value) => format!("{}, met", human(value, unit)),
        Some(value) => format!("{}, MISSED", human(value, unit)),
        None => String::from("not measured"),
    };
    format!("target: {} {} {wanted}{of}: {outcome}", target.row, target.metric)
}
