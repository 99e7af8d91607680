//! Directories of stores and backups.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use terrane_storage::{RealStorage, Storage};

use crate::{Error, Result};

/// Refuses a place where no directory exists and none can be created. `what` names a store or a
/// backup.
///
/// # Errors
/// A file; a link with a missing target; a place below a file.
pub fn check_place(place: &Path, what: &str) -> Result<()> {
    // A link with a slash at its end would be resolved.
    let place = place.components().as_path();
    let refuse = |reason: &str| Err(Error::usage(format!("{} {reason}", place.display())));
    let leads_nowhere = |path: &&Path| path.is_symlink() && !path.exists();
    match fs::metadata(place) {
        Ok(found) if !found.is_dir() => refuse(&format!("is a file; {what} is a directory")),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => refuse("lies below a file; name another place"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match place.ancestors().find(leads_nowhere) {
            Some(link) => Err(Error::usage(format!(
                "{} is a link whose target does not exist; create this directory, or name another place",
                link.display()
            ))),
            None => Ok(()),
        },
        // The storage reports any other obstacle when it is used.
        _ => Ok(()),
    }
}

/// The storage in a directory, which may not exist yet. `what` names a store or a backup.
pub(crate) fn storage_at(place: &Path, what: &str) -> Result<Arc<dyn Storage>> {
    check_place(place, what)?;
    Ok(Arc::new(RealStorage::new(place)))
}
