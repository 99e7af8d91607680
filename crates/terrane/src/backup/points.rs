//! The points of a backup: their names, their files and their list.

use std::sync::Arc;

use serde::Serialize;
use terrane_lsm::manifest::Manifest;
use terrane_storage::{File, OpenMode, Storage};

use crate::{Error, Result};

pub(super) const COMPONENTS: &str = "components";
pub(super) const POINTS: &str = "points";
/// Suffix of a file that is being written.
pub(super) const NEW: &str = ".new";

/// A state of a store in a backup.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct BackupPoint {
    /// Number of its last commit.
    pub sequence: u64,
    /// When it was taken: seconds since 1970 by the machine's clock.
    pub unix_seconds: u64,
}

impl BackupPoint {
    /// The point's name: both numbers, padded so that names sort like points.
    pub fn name(&self) -> String {
        format!("{:020}-{:012}", self.sequence, self.unix_seconds)
    }

    pub(super) fn parse(name: &str) -> Option<Self> {
        let (sequence, seconds) = name.split_once('-')?;
        let point = Self { sequence: sequence.parse().ok()?, unix_seconds: seconds.parse().ok()? };
        (point.name() == name).then_some(point)
    }

    pub(super) fn manifest_name(&self) -> String {
        format!("{POINTS}/{}.manifest", self.name())
    }

    pub(super) fn log_name(&self) -> String {
        format!("{POINTS}/{}.log", self.name())
    }
}

/// Whether a place holds points of a backup.
pub(crate) fn is_backup(place: &dyn Storage) -> Result<bool> {
    Ok(!points(place)?.is_empty())
}

/// Whether a place holds an unfinished first backup. A store that lost its manifest has a log as
/// well.
pub(crate) fn is_begun_backup(place: &dyn Storage) -> Result<bool> {
    Ok(has_directory_of_points(place)? && place.exists(COMPONENTS)? && !place.exists("log")? && !is_backup(place)?)
}

/// A plain file of this name belongs to somebody else.
pub(super) fn has_directory_of_points(place: &dyn Storage) -> Result<bool> {
    Ok(place.exists(POINTS)? && place.list_directories("")?.iter().any(|name| name == POINTS))
}

/// The points, oldest first.
pub(super) fn points(backup: &dyn Storage) -> Result<Vec<BackupPoint>> {
    if !has_directory_of_points(backup)? {
        return Ok(Vec::new());
    }
    let names = backup.list(POINTS)?;
    let mut points: Vec<BackupPoint> =
        names.iter().filter_map(|name| BackupPoint::parse(name.strip_suffix(".manifest")?)).collect();
    points.sort_unstable();
    Ok(points)
}

/// The manifest of a point.
pub(super) fn manifest_of(backup: &dyn Storage, point: &BackupPoint) -> Result<Manifest> {
    let name = point.manifest_name();
    Manifest::read_from(backup, &name)?.ok_or_else(|| Error::damaged(name, 0, "the file is missing"))
}

/// The log of a point.
pub(super) fn log_of(backup: &dyn Storage, point: &BackupPoint) -> Result<Arc<dyn File>> {
    let name = point.log_name();
    match backup.open(&name, OpenMode::Read) {
        Err(error) if error.is_not_found() => Err(Error::damaged(name, 0, "the file is missing")),
        log => Ok(log?),
    }
}
