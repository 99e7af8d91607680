//! Where a reader beside a writer puts what does not fit in its memory.

use std::fs::{DirBuilder, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use terrane_storage::{Operation, StorageError};

/// How the directories of readers begin.
const PREFIX: &str = "terrane-reader-";

/// Locked by a reader as long as it lives.
const LOCK: &str = "LOCK";

/// The lock before it is locked.
const UNNAMED_LOCK: &str = "LOCK.new";

/// A directory of its own among the system's temporary ones, made when it is first needed and
/// removed with this. What a reader that was killed has left, the next one removes that needs such a place.
#[derive(Debug)]
pub(super) struct SpillDirectory {
    path: PathBuf,
    /// The lock.
    created: OnceLock<File>,
}

impl SpillDirectory {
    pub fn new() -> Self {
        Self::below(&std::env::temp_dir())
    }

    fn below(parent: &Path) -> Self {
        // Everybody may write there: nobody else knows the name beforehand, and no process that
        // has been killed had it. The standard library draws the keys of hashers at random.
        let random = RandomState::new().build_hasher().finish();
        Self { path: parent.join(format!("{PREFIX}{random:016x}")), created: OnceLock::new() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the directory, for nobody but this user, unless this was done before. One that is
    /// there already is somebody else's and refused.
    pub fn create(&self) -> terrane_lsm::Result<()> {
        if self.created.get().is_none() {
            let failed = |error: io::Error| {
                let advice = "a reader puts there what of the log does not fit in its memory: name another place in TMPDIR, \
                              or raise the memory limit";
                let advised = io::Error::new(error.kind(), format!("{error}; {advice}"));
                let failed =
                    |error| StorageError::new(Operation::CreateDirectory, self.path.display().to_string(), None, error);
                // Another place would not help.
                let plain = failed(error);
                if plain.is_too_many_files() { plain } else { failed(advised) }
            };
            DirBuilder::new().mode(0o700).create(&self.path).map_err(failed)?;
            let lock = lock(&self.path).and_then(|lock| {
                std::fs::create_dir(self.path.join("components"))?;
                Ok(lock)
            });
            let lock = lock.inspect_err(|_| remove_unlocked(&self.path)).map_err(failed)?;
            let _ = self.created.set(lock);
            self.sweep();
        }
        Ok(())
    }

    /// Removes this user's directories of readers that live no longer. What cannot be looked at or removed stays.
    fn sweep(&self) {
        let (Some(parent), Ok(own)) = (self.path.parent(), std::fs::metadata(&self.path)) else { return };
        for sibling in std::fs::read_dir(parent).into_iter().flatten().flatten() {
            let is_ours = sibling.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX))
                && sibling.metadata().is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == own.uid());
            if !is_ours {
                continue;
            }
            let lock = sibling.path().join(LOCK);
            let found = std::fs::symlink_metadata(&lock);
            // A pipe of this name would not let itself be opened.
            if found.as_ref().is_ok_and(std::fs::Metadata::is_file)
                && let Ok(lock) = File::open(&lock)
                && lock.try_lock().is_ok()
            {
                let _ = std::fs::remove_dir_all(sibling.path());
            } else if found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound) && is_old(&sibling.path()) {
                remove_unlocked(&sibling.path());
            }
        }
    }
}

/// Whether nothing has happened in a directory for far longer than a reader takes to make its lock there.
fn is_old(directory: &Path) -> bool {
    const STARTING_MAX: Duration = Duration::from_secs(3600);
    let modified = std::fs::metadata(directory).and_then(|metadata| metadata.modified());
    modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age > STARTING_MAX))
}

/// Removes the directory of a reader that came no further than to its lock. It takes no descriptor, for want of which
/// that may have been.
fn remove_unlocked(directory: &Path) {
    // What cannot be removed is left to whoever clears that place.
    for name in [UNNAMED_LOCK, LOCK] {
        let _ = std::fs::remove_file(directory.join(name));
    }
    let _ = std::fs::remove_dir(directory);
}

/// Makes the lock in a directory. It has its name only once it is locked, so nobody takes the directory for one that was left.
fn lock(directory: &Path) -> io::Result<File> {
    let unnamed = directory.join(UNNAMED_LOCK);
    let file = File::create_new(&unnamed)?;
    file.try_lock()?;
    std::fs::rename(&unnamed, directory.join(LOCK))?;
    Ok(file)
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
    fn what_killed_readers_leave_is_removed_by_the_next_one() {
        let parent = tempfile::tempdir().unwrap();
        let alive = SpillDirectory::below(parent.path());
        alive.create().unwrap();
        let killed = SpillDirectory::below(parent.path());
        killed.create().unwrap();
        let left = parent.path().join(format!("{PREFIX}left"));
        std::fs::rename(killed.path(), &left).unwrap();
        drop(killed);
        let starting = parent.path().join(format!("{PREFIX}starting"));
        let never_started = parent.path().join(format!("{PREFIX}never_started"));
        let not_empty = parent.path().join(format!("{PREFIX}not_empty"));
        let foreign = parent.path().join("foreign");
        for path in [&starting, &foreign, &never_started, &not_empty] {
            std::fs::create_dir(path).unwrap();
        }
        std::fs::write(never_started.join(UNNAMED_LOCK), "").unwrap();
        std::fs::write(not_empty.join("notes.md"), "mine").unwrap();
        for path in [&foreign, &never_started, &not_empty] {
            let yesterday = std::time::SystemTime::now() - Duration::from_secs(86_400);
            File::open(path).unwrap().set_modified(yesterday).unwrap();
        }
        assert!(left.join("components").is_dir());

        let next = SpillDirectory::below(parent.path());
        next.create().unwrap();
        assert!(!left.exists(), "nobody holds its lock");
        assert!(!never_started.exists(), "it was killed before it had a lock");
        assert!([&starting, &foreign].into_iter().all(|path| path.is_dir()));
        assert!(not_empty.join("notes.md").is_file());
        assert!(alive.path().join("components").is_dir() && next.path().join("components").is_dir());
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
