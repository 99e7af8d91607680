//! Files without names in a directory of the operating system, for one user of them.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::error::Context;
use crate::real::RealFile;
use crate::sync::Mutex;
use crate::{File, OpenMode, Operation, RealStorage, Result, Storage, names};

/// Storage whose files have names only here. The operating system frees each file with its last
/// handle, so none is left after a kill. Only the user of the process can open them meanwhile.
#[derive(Debug)]
pub struct TemporaryStorage {
    directory: Arc<Path>,
    files: Mutex<BTreeMap<String, Arc<dyn File>>>,
    clock: RealStorage,
}

impl TemporaryStorage {
    /// Uses the space of a directory. Nothing is created in it before the first file.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        let directory: PathBuf = directory.into();
        Self { clock: RealStorage::new(&directory), directory: directory.into(), files: Mutex::default() }
    }

    fn missing(&self, operation: Operation, name: &str) -> Result<Arc<dyn File>> {
        Err(Errno::NOENT).context_below(&self.directory, operation, name, None)
    }

    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        names::check_file(name).context_below(&self.directory, Operation::Create, name, None)?;
        let file = create_unnamed(&self.directory).context_below(&self.directory, Operation::Create, name, None)?;
        Ok(Arc::new(RealFile::new(file, self.directory.clone(), name)))
    }
}

/// A file in a directory that has no name there.
fn create_unnamed(directory: &Path) -> io::Result<fs::File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    match options.clone().custom_flags(OFlags::TMPFILE.bits().cast_signed()).open(directory) {
        // The file system, or the system, does not support it.
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL)) => {}
        opened => return opened,
    }
    // Other users may write in such a directory, so the name must not be known beforehand. The
    // standard library draws the keys of hashers at random.
    let path = directory.join(format!("terrane-{:016x}", RandomState::new().build_hasher().finish()));
    let file = options.create_new(true).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

impl Storage for TemporaryStorage {
    fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        let mut files = self.files.lock();
        match (files.get(name), mode) {
            (Some(_), OpenMode::CreateNew) => {
                Err(Errno::EXIST).context_below(&self.directory, Operation::Create, name, None)
            }
            (Some(file), OpenMode::Read | OpenMode::Write) => Ok(file.clone()),
            (None, OpenMode::Read | OpenMode::Write) => self.missing(Operation::Open, name),
            (None, OpenMode::CreateNew) => {
                let file = self.create(name)?;
                files.insert(name.to_owned(), file.clone());
                Ok(file)
            }
        }
    }

    fn exists(&self, name: &str) -> Result<bool> {
        Ok(self.files.lock().contains_key(name))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let mut files = self.files.lock();
        let Some(file) = files.remove(from) else { return self.missing(Operation::Rename, from).map(drop) };
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn rename_new(&self, from: &str, to: &str) -> Result<()> {
        match self.exists(to)? {
            true => Err(Errno::EXIST).context_below(&self.directory, Operation::Rename, to, None),
            false => self.rename(from, to),
        }
    }

    fn remove(&self, name: &str) -> Result<()> {
        match self.files.lock().remove(name) {
            Some(_) => Ok(()),
            None => self.missing(Operation::Remove, name).map(drop),
        }
    }

    /// Names need no directories.
    fn create_directory(&self, _: &str) -> Result<()> {
        Ok(())
    }

    fn list(&self, directory: &str) -> Result<Vec<String>> {
        let inside = |name: &String| {
            let (parent, last) = name.rsplit_once('/').unwrap_or(("", name));
            (parent == directory).then(|| last.to_owned())
        };
        Ok(self.files.lock().keys().filter_map(inside).collect())
    }

    fn list_directories(&self, _: &str) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    /// Names end with the process.
    fn sync_directory(&self, _: &str) -> Result<()> {
        Ok(())
    }

    fn unix_time_ns(&self) -> u64 {
        self.clock.unix_time_ns()
    }

    fn monotonic_ns(&self) -> u64 {
        self.clock.monotonic_ns()
    }

    fn describe(&self) -> String {
        format!("{} (without names)", self.directory.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_by_name_and_leave_nothing_in_the_directory() {
        let directory = tempfile::tempdir().unwrap();
        let storage = TemporaryStorage::new(directory.path());
        let file = storage.open("components/1.tc", OpenMode::CreateNew).unwrap();
        file.write_all_at(b"content", 0).unwrap();
        assert!(storage.open("components/1.tc", OpenMode::CreateNew).unwrap_err().is_already_exists());
        storage.rename("components/1.tc", "components/2.tc").unwrap();
        assert!(storage.open("components/1.tc", OpenMode::Read).unwrap_err().is_not_found());
        assert_eq!(storage.list("components").unwrap(), ["2.tc"]);
        let mut content = [0; 7];
        storage.open("components/2.tc", OpenMode::Read).unwrap().read_exact_at(&mut content, 0).unwrap();
        assert_eq!(&content, b"content");
        storage.remove("components/2.tc").unwrap();
        assert!(!storage.exists("components/2.tc").unwrap());
        file.read_exact_at(&mut content, 0).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_that_is_missing_is_an_error_that_names_it() {
        let directory = tempfile::tempdir().unwrap();
        let storage = TemporaryStorage::new(directory.path().join("missing"));
        let error = storage.open("a", OpenMode::CreateNew).unwrap_err();
        assert!(error.is_not_found() && error.to_string().contains("missing"), "{error}");
    }
}
