//! Directories of stores and backups.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use terrane_storage::{RealStorage, Storage};

use crate::{Error, Result};

/// Refuses the place of a store or a backup, as `what` says, where no directory is and none can be made.
///
/// # Errors
/// A file; a link to what does not exist; a place below a file.
pub fn check_place(place: &Path, what: &str) -> Result<()> {
    // What stands behind a slash at the end would be looked for below it.
    let place = place.components().as_path();
    let refuse = |reason: &str| Err(Error::usage(format!("{} {reason}", place.display())));
    let leads_nowhere = |path: &&Path| path.is_symlink() && !path.exists();
    match fs::metadata(place) {
        Ok(found) if !found.is_dir() => refuse(&format!("is a file; {what} is a directory")),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => refuse("lies below a file; name another place"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match place.ancestors().find(leads_nowhere) {
            Some(link) => Err(Error::usage(format!(
                "{} is a link to what does not exist; make the directory that it names, or name another place",
                link.display()
            ))),
            None => Ok(()),
        },
        // Of anything else the storage tells when it is used.
        _ => Ok(()),
    }
}

/// The storage in the directory of a store or a backup, as `what` says; the directory need not be there.
pub(crate) fn storage_at(place: &Path, what: &str) -> Result<Arc<dyn Storage>> {
    check_place(place, what)?;
    Ok(Arc::new(RealStorage::new(place)))
}
