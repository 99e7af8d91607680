//! Backups: copies of a store as it was at a commit, and stores made of them again.
//!
//! A backup is a directory of its own:
//! - `components/NNNNNNNNNNNN.tc`: component files as they were in the store, each once, however many points have it;
//! - `points/POINT.manifest`: a manifest of the store, for each point in time;
//! - `points/POINT.log`: what the log had at that time that was in no component.
//!
//! A point counts from the moment on at which its manifest has its name, when all that it names is durable. Component
//! files never change, so a later backup copies only those that came since.

mod points;
mod restore;
mod take;
#[cfg(test)]
mod tests;

use std::path::{Component, Path};
use std::sync::Arc;

use terrane_storage::Storage;

use crate::place::storage_at;
use crate::store::Store;
use crate::{Error, Options, Result};

pub use self::points::BackupPoint;
use self::points::{POINTS, has_directory_of_points, points};
pub(crate) use self::points::{is_backup, is_begun_backup};
pub use restore::RestoreReport;
pub use take::BackupReport;

impl Store {
    /// Copies the store as it is, with everything that was acknowledged before the call, to a directory that is empty
    /// or has earlier backups of it; this process or another one may be writing meanwhile. All that the point has is read and
    /// verified, also what earlier points have of it. With `keep`, only so many points are left, the newest.
    ///
    /// Without a log ([`Durability::None`](crate::Durability::None)), what is in memory is flushed before, as a backup copies
    /// files. A store that was opened for reading beside a writer in another process has its last manifest.
    ///
    /// # Errors
    /// A directory of something else, or of a store that went on in another way; damage in what is copied; storage.
    /// Earlier points are there whatever happens.
    pub fn backup(&self, directory: impl AsRef<Path>, keep: Option<usize>) -> Result<BackupReport> {
        let (source, _) = self.storage_and_options();
        check_apart(directory.as_ref(), ("store", Path::new(&source.describe())), "take the backup")?;
        self.backup_to(backup_at(directory.as_ref())?, keep)
    }

    /// As [`Self::backup`], to any storage.
    ///
    /// # Errors
    /// As [`Self::backup`].
    pub fn backup_to(&self, target: Arc<dyn Storage>, keep: Option<usize>) -> Result<BackupReport> {
        let (source, options) = self.storage_and_options();
        if self.has_memory_alone() {
            self.flush()?;
        }
        take::take(&source, &target, options, keep)
    }

    /// Makes a store of a point of a backup, or of the newest, in a place that is empty. Every page and every entry of
    /// the log is verified before the store counts as one; nothing is written outside of its place.
    ///
    /// # Errors
    /// A place that is not empty; a point that there is not, or that a backup with fewer points to keep has removed meanwhile
    /// (of the newest, the one that is the newest then is restored); damage; storage. The files that were made are taken away again.
    pub fn restore(
        backup: impl AsRef<Path>,
        store: impl AsRef<Path>,
        point: Option<&str>,
        options: &Options,
    ) -> Result<RestoreReport> {
        restore::check_links(store.as_ref())?;
        check_apart(store.as_ref(), ("backup", backup.as_ref()), "restore")?;
        Self::restore_on(&backup_at(backup.as_ref())?, storage_at(store.as_ref(), "a store")?, point, options)
    }

    /// As [`Self::restore`], on any storage.
    ///
    /// # Errors
    /// As [`Self::restore`].
    pub fn restore_on(
        backup: &Arc<dyn Storage>,
        store: Arc<dyn Storage>,
        point: Option<&str>,
        options: &Options,
    ) -> Result<RestoreReport> {
        restore::restore(backup, &store, point, options)
    }

    /// Logs of points without their manifests, by their names in the backup: what a backup left that did not end, or of which
    /// something was taken away since. Nothing is restored from them.
    ///
    /// # Errors
    /// Storage.
    pub fn backup_remnants(backup: impl AsRef<Path>) -> Result<Vec<String>> {
        let storage = backup_at(backup.as_ref())?;
        let known: Vec<String> = points(&*storage)?.iter().map(BackupPoint::log_name).collect();
        let names = if has_directory_of_points(&*storage)? { storage.list(POINTS)? } else { Vec::new() };
        let logs = names.into_iter().filter(|name| name.ends_with(".log")).map(|name| format!("{POINTS}/{name}"));
        Ok(logs.filter(|name| !known.contains(name)).collect())
    }

    /// Component files that no point of a backup has, by their names in it: what a backup left that did not end, or that is being
    /// taken, or of which a point was changed or taken away since. Nothing is restored from them. None where it is not known of all
    /// points what they have.
    ///
    /// # Errors
    /// Storage.
    pub fn backup_components_left(backup: impl AsRef<Path>) -> Result<Vec<String>> {
        take::left_components(&backup_at(backup.as_ref())?)
    }

    /// The points that a backup has, oldest first.
    ///
    /// # Errors
    /// A place that is no backup; storage.
    pub fn backup_points(backup: impl AsRef<Path>) -> Result<Vec<BackupPoint>> {
        let storage = backup_at(backup.as_ref())?;
        let points = points(&*storage)?;
        match points.is_empty() {
            true => Err(Error::usage(format!("there is no backup at {}", storage.describe()))),
            false => Ok(points),
        }
    }
}

fn backup_at(place: &Path) -> Result<Arc<dyn Storage>> {
    storage_at(place, "a backup")
}

/// Refuses a place inside of a backup's or a store's directory, which is for what belongs to that.
fn check_apart(place: &Path, (what, directory): (&str, &Path), advice: &str) -> Result<()> {
    let Ok(directory) = directory.canonicalize() else { return Ok(()) };
    // The place itself need not be there.
    let is_there = |above: &&Path| *above != Path::new("") && above.exists();
    let above = place.ancestors().find(is_there).unwrap_or(Path::new(""));
    let missing = place.strip_prefix(above).unwrap_or(place);
    if missing.components().any(|part| part == Component::ParentDir) {
        return Err(Error::usage(format!(
            "{}: `..` stands behind a directory that does not exist, so it is not known what it means; name the \
             place without it",
            place.display()
        )));
    }
    let above = if above == Path::new("") { Path::new(".") } else { above };
    match above.canonicalize() {
        Ok(above) if above.starts_with(&directory) => Err(Error::usage(format!(
            "{} lies in the {what} {}; {advice} to another directory",
            place.display(),
            directory.display()
        ))),
        _ => Ok(()),
    }
}
