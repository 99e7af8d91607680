//! The place for components of a reader: the part of the log that does not fit in its memory.

use std::io;
use std::sync::Arc;

use terrane_storage::{OpenMode, Operation, Result, Storage, StorageError, TemporaryStorage};

/// Storage for the components of a reader, among the system's temporary files.
pub(super) fn spill_storage() -> Arc<dyn Storage> {
    Arc::new(TemporaryStorage::new(std::env::temp_dir()))
}

/// Checks that files can be created there, and says what to do if not.
pub(super) fn check_spill(storage: &dyn Storage) -> Result<()> {
    const NAME: &str = "check";
    match storage.open(NAME, OpenMode::CreateNew) {
        Ok(_) => storage.remove(NAME),
        // Another place would not help.
        Err(error) if error.is_too_many_files() => Err(error),
        Err(error) => {
            let advice = "a reader puts there the part of the log that does not fit in its memory: name another \
                          place in TMPDIR, or raise the memory limit";
            let advised = io::Error::new(error.kind(), format!("{error}; {advice}"));
            Err(StorageError::new(Operation::Create, storage.describe(), None, advised))
        }
    }
}
