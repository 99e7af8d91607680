//! Backups of a store, and stores restored from them.
//!
//! A backup is a directory with one or more points. A point is the state of the store at a commit:
//! - `components/NNNNNNNNNNNN.tc`: component files, copied from the store. Points share them; each
//!   is stored once.
//! - `points/POINT.manifest`: the store's manifest at this point.
//! - `points/POINT.log`: the log entries at this point that were in no component yet.
//!
//! A point exists once its manifest has its name, and everything the manifest names is durable by
//! then. Component files never change, so a later backup copies only the components that are new.

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
    /// Backs up the store to a directory that is empty or holds earlier backups of this store.
    ///
    /// The new point has every write acknowledged before the call. Writers may continue, in this
    /// process or another. Everything in the point is read and verified, including components
    /// shared with earlier points. With `keep`, only that number of points remains, the newest
    /// ones.
    ///
    /// Without a log ([`Durability::None`](crate::Durability::None)), the memory components are
    /// flushed first, because a backup copies files. A store opened read-only beside a writing
    /// process is backed up at its last manifest.
    ///
    /// # Errors
    /// The directory holds something else, or backups of a store with a different history; damage
    /// in the copied data; storage. Earlier points remain after every error.
    pub fn backup(&self, directory: impl AsRef<Path>, keep: Option<usize>) -> Result<BackupReport> {
        let (source, _) = self.storage_and_options();
        check_apart(directory.as_ref(), ("store", Path::new(&source.describe())), "take the backup")?;
        self.backup_to(backup_at(directory.as_ref())?, keep)
    }

    /// Like [`Self::backup`], to any storage.
    ///
    /// # Errors
    /// Those of [`Self::backup`].
    pub fn backup_to(&self, target: Arc<dyn Storage>, keep: Option<usize>) -> Result<BackupReport> {
        let (source, options) = self.storage_and_options();
        if self.has_memory_alone() {
            self.flush()?;
        }
        take::take(&source, &target, options, keep)
    }

    /// Restores a point of a backup, by default the newest, as a store in an empty place.
    ///
    /// Every page and every log entry is verified before the store can be opened. Nothing is
    /// written outside of the place. If another backup removes the newest point meanwhile, the next
    /// newest is restored.
    ///
    /// # Errors
    /// The place is not empty; the point does not exist, or another backup removed it meanwhile;
    /// damage; storage. After an error, the files of the restoration are removed.
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

    /// Like [`Self::restore`], on any storage.
    ///
    /// # Errors
    /// Those of [`Self::restore`].
    pub fn restore_on(
        backup: &Arc<dyn Storage>,
        store: Arc<dyn Storage>,
        point: Option<&str>,
        options: &Options,
    ) -> Result<RestoreReport> {
        restore::restore(backup, &store, point, options)
    }

    /// Names of the logs in a backup without a manifest. An unfinished backup leaves them, or
    /// somebody has removed the manifest. They are never restored.
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

    /// Names of the component files in a backup that no point uses. They belong to a backup that is
    /// running or was interrupted, or to a point that was changed or removed. They are never
    /// restored. The list is empty if the contents of any point are unknown.
    ///
    /// # Errors
    /// Storage.
    pub fn backup_components_left(backup: impl AsRef<Path>) -> Result<Vec<String>> {
        take::left_components(&backup_at(backup.as_ref())?)
    }

    /// The points of a backup, oldest first.
    ///
    /// # Errors
    /// The place is no backup; storage.
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

/// Refuses a place inside a backup or a store: these directories hold only their own files.
fn check_apart(place: &Path, (what, directory): (&str, &Path), advice: &str) -> Result<()> {
    let Ok(directory) = directory.canonicalize() else { return Ok(()) };
    // The place itself may not exist yet.
    let is_there = |above: &&Path| *above != Path::new("") && above.exists();
    let above = place.ancestors().find(is_there).unwrap_or(Path::new(""));
    let missing = place.strip_prefix(above).unwrap_or(place);
    if missing.components().any(|part| part == Component::ParentDir) {
        return Err(Error::usage(format!(
            "{}: `..` follows a directory that does not exist, so its meaning is unknown; name the \
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
