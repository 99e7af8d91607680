//! `terrane backup` and `terrane restore`: copies of a store, and stores restored from them.

use std::fmt;

use serde::Serialize;
use terrane::{BackupPoint, BackupReport, Options, RestoreReport, Store, counted};

use crate::args::{BackupArguments, Common, RestoreArguments};
use crate::failure::Failure;
use crate::messages::Messages;
use crate::size::format_size;
use crate::{environment, output, place};

/// A backup's result, in words or as JSON.
#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Taken(BackupReport);

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BackupReport { point, sequence, components, components_copied, bytes_written, points_removed, .. } =
            &self.0;
        write!(
            f,
            "point {point}: commit {sequence}, {}, of which {components_copied} copied; {} written",
            counted(*components, "component", "components"),
            format_size(*bytes_written)
        )?;
        match points_removed {
            0 => Ok(()),
            removed => write!(f, "; {} removed", counted(*removed, "older point", "older points")),
        }
    }
}

/// A restore's result, in words or as JSON.
#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Restored(RestoreReport);

impl fmt::Display for Restored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RestoreReport { point, sequence, datasets, components, pages, log_entries, bytes } = &self.0;
        write!(
            f,
            "restored point {point}: commit {sequence}, {}, {} of {}; {} and {} verified",
            counted(*datasets, "dataset", "datasets"),
            counted(*components, "component", "components"),
            format_size(*bytes),
            counted(*pages, "page", "pages"),
            counted(*log_entries, "log entry", "log entries"),
        )
    }
}

/// A point of a backup, in words or as JSON.
#[derive(Debug, Serialize)]
struct Listed {
    point: String,
    #[serde(flatten)]
    at: BackupPoint,
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let taken = terrane_literal::format_timestamp(self.at.unix_seconds as i64 * 1_000_000, true);
        write!(f, "{}  commit {}, {taken}", self.point, self.at.sequence)
    }
}

pub fn take(arguments: &BackupArguments, common: &Common, messages: &Messages) -> Result<(), Failure> {
    let format = environment::report_format(arguments.report.format)?;
    let store = place::open_to_read(&arguments.report.store, common)?;
    let report = store.backup(&arguments.backup, arguments.keep)?;
    for point in &report.points_damaged {
        messages.warn(format_args!(
            "the manifest of the earlier point {point} is damaged, so that point cannot be restored; to remove it, \
             use --keep, or delete its files in {}",
            arguments.backup.join("points").display()
        ));
    }
    output::print_report(format, &Taken(report))
}

pub fn restore(arguments: &RestoreArguments, common: &Common, messages: &Messages) -> Result<(), Failure> {
    let format = environment::report_format(arguments.format)?;
    for remnant in Store::backup_remnants(&arguments.backup)? {
        messages.warn(format_args!(
            "{remnant} has no manifest: its backup was interrupted or changed since; it cannot be restored"
        ));
    }
    if let [first, more @ ..] = Store::backup_components_left(&arguments.backup)?.as_slice() {
        let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
        messages.warn(format_args!(
            "no point has {first}{more}: the backup was interrupted or changed since; nothing is restored from there"
        ));
    }
    let Some(store) = &arguments.store else {
        for at in Store::backup_points(&arguments.backup)? {
            output::print_report(format, &Listed { point: at.name(), at })?;
        }
        return Ok(());
    };
    let options = Options { memory_limit: common.memory_limit, ..Options::default() };
    let report = Store::restore(&arguments.backup, store, arguments.at.as_deref(), &options)?;
    output::print_report(format, &Restored(report))
}
