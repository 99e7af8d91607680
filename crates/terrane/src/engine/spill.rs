//! Where a reader beside a writer puts what does not fit in its memory.

use std::fs::DirBuilder;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use terrane_storage::{Operation, RealStorage, Storage, StorageError};

/// A directory of its own among the system's temporary ones, made when it is first needed and
/// removed with this. A reader that is killed leaves it to whoever clears that place.
#[derive(Debug)]
pub(super) struct SpillDirectory {
    path: PathBuf,
    created: OnceLock<()>,
}

impl SpillDirectory {
    pub fn new() -> Self {
        Self::below(&std::env::temp_dir())
    }

    fn below(parent: &Path) -> Self {
        // Everybody may write there: nobody else knows the name beforehand, and no process that
        // has been killed had it. The standard library draws the keys of hashers at random.
        let random = RandomState::new().build_hasher().finish();
        Self { path: parent.join(format!("terrane-reader-{random:016x}")), created: OnceLock::new() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the directory, for nobody but this user, unless this was done before. One that is
    /// there already is somebody else's and refused.
    pub fn create(&self) -> terrane_lsm::Result<()> {
        if self.created.get().is_none() {
            let failed = |error: io::Error| {
                StorageError::new(Operation::CreateDirectory, self.path.display().to_string(), None, error)
            };
            DirBuilder::new().mode(0o700).create(&self.path).map_err(failed)?;
            let _ = self.created.set(());
            RealStorage::new(&self.path).create_directory("components")?;
        }
        Ok(())
    }
}

impl Drop for SpillDirectory {
    fn drop(&mut self) {
        if self.created.get().is_some() {
            // What cannot be removed is left to whoever clears that place.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn it_is_made_when_needed_for_one_user_and_removed() {
        let parent = tempfile::tempdir().unwrap();
        let spill = SpillDirectory::below(parent.path());
        assert!(!spill.path().exists());
        for _ in 0..2 {
            spill.create().unwrap();
            assert!(spill.path().join("components").is_dir());
        }
        assert_eq!(std::fs::metadata(spill.path()).unwrap().permissions().mode() & 0o777, 0o700);
        drop(spill);
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn its_name_does_not_repeat() {
        let parent = tempfile::tempdir().unwrap();
        let names: std::collections::BTreeSet<PathBuf> =
            (0..100).map(|_| SpillDirectory::below(parent.path()).path().to_path_buf()).collect();
        assert_eq!(names.len(), 100);
    }

    #[test]
    fn a_directory_that_is_there_is_neither_used_nor_removed() {
        let parent = tempfile::tempdir().unwrap();
        let spill = SpillDirectory::below(parent.path());
        std::fs::create_dir(spill.path()).unwrap();
        let error = spill.create().unwrap_err();
        assert!(matches!(&error, terrane_lsm::Error::Storage(error) if error.is_already_exists()), "{error}");
        let path = spill.path().to_path_buf();
        drop(spill);
        assert_eq!(std::fs::read_dir(path).unwrap().count(), 0, "it is as it was");
    }
}
