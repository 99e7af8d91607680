//! The directory of a store: opens it, and removes a new store without content.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use terrane::{Dataset, DatasetOptions, Durability, Error, Finding, Options, Store, check_place, counted};

use crate::args::Common;
use crate::environment;
use crate::failure::Failure;
use crate::messages::Messages;

/// The options of every command.
fn options(common: &Common) -> Options {
    Options {
        memory_limit: common.memory_limit,
        disk_reserve: common.disk_reserve,
        create: false,
        ..Options::default()
    }
}

/// Bytes that a command may take beside the store's.
pub fn working_memory(common: &Common) -> usize {
    options(common).working_memory()
}

/// The memory and threads of SQL beside the store's.
#[cfg(feature = "sql")]
pub fn session_options(common: &Common) -> terrane_sql::SessionOptions {
    terrane_sql::SessionOptions { reads_files: true, ..terrane_sql::SessionOptions::of_store(&options(common)) }
}

/// Bytes that decoding one piece of a file may take, in a command that writes.
pub fn decoding_memory(common: &Common) -> usize {
    options(common).decoding_memory()
}

/// Opens a store for a query, while another process may write. Damaged indexes are reported, and
/// the rest is read.
pub fn open_to_query(path: &Path, common: &Common, messages: &Messages) -> Result<Store, Failure> {
    let options = Options { lenient: true, ..options(common) };
    let store = Store::open_read_only(path, options)?;
    for Finding { dataset, partition, index, reason, .. } in store.damage() {
        let partition = partition.map_or(String::new(), |partition| format!(", partition {partition}"));
        messages.warn(format_args!("index {index:?} of dataset {dataset:?}{partition}: {reason}; run `terrane check`"));
    }
    Ok(store)
}

/// Opens a store for reading, while another process may write.
pub fn open_to_read(path: &Path, common: &Common) -> Result<Store, Failure> {
    Ok(Store::open_read_only(path, options(common))?)
}

/// Opens an existing store for writing.
pub fn open_to_write(path: &Path, common: &Common, messages: &Messages) -> Result<Store, Failure> {
    let store = Store::open(path, options(common))?;
    warn_of_torn_tail(&store, messages)?;
    Ok(store)
}

/// Closes a store. Only data that could not be made durable is a failure. A merge that failed loses
/// no record, and neither do files of the log that could not be reclaimed, so they do not change
/// the result of the command.
pub fn close(store: Store, messages: &Messages) -> Result<(), Failure> {
    let durability = store.durability();
    match store.close() {
        Err(kept @ (Error::Unmerged { .. } | Error::Unreclaimed { .. } | Error::Unbuilt { .. })) => messages.warn(kept),
        Err(error) if durability == Durability::None => {
            return Err(Failure::from(error).followed_by(
                "records that were not flushed before are lost, even acknowledged ones, since a store of durability \
                 none has no log",
            ));
        }
        outcome => outcome?,
    }
    Ok(())
}

/// Prints what opening the store cut off the log.
fn warn_of_torn_tail(store: &Store, messages: &Messages) -> Result<(), Failure> {
    if let Some(tail) = store.info()?.torn_tail {
        messages.warn(tail);
    }
    Ok(())
}

/// Opens a store for a check, even if components cannot be opened.
pub fn open_to_check(path: &Path, common: &Common, repair: bool) -> Result<Store, Failure> {
    let options = Options { lenient: true, ..options(common) };
    Ok(match repair {
        true => Store::open(path, options)?,
        false => Store::open_read_only(path, options)?,
    })
}

/// The location of a store that exists or will be created.
#[derive(Debug)]
pub struct StorePlace {
    path: PathBuf,
    is_vacant: bool,
    /// Directories that do not exist yet, the innermost first.
    missing: Vec<PathBuf>,
}

impl StorePlace {
    /// Examines the location.
    pub fn examine(path: &Path) -> Result<Self, Failure> {
        check_place(path, "a store")?;
        let failed = |error: io::Error| Failure::io(format_args!("examine {}", path.display()), &error);
        let is_vacant = match fs::read_dir(path) {
            Ok(mut entries) => entries.next().is_none(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => true,
            Err(error) => return Err(failed(error)),
        };
        let mut missing = Vec::new();
        let mut ancestor = Some(path);
        while let Some(directory) = ancestor.filter(|path| !path.as_os_str().is_empty()) {
            if directory.try_exists().map_err(failed)? {
                break;
            }
            missing.push(directory.to_path_buf());
            ancestor = directory.parent();
        }
        Ok(Self { path: path.to_path_buf(), is_vacant, missing })
    }

    /// Whether there is nothing yet.
    pub fn is_vacant(&self) -> bool {
        self.is_vacant
    }

    /// Opens the store for writing, or creates it. The durability from the environment applies to
    /// new stores. One from a flag must be that of an existing store.
    pub fn open(&self, durability: Option<Durability>, common: &Common, messages: &Messages) -> Result<Store, Failure> {
        let from_environment = environment::durability()?;
        let options = Options {
            durability: durability.or(from_environment.filter(|_| self.is_vacant)),
            create: true,
            ..options(common)
        };
        let store = Store::open(&self.path, options)?;
        warn_of_torn_tail(&store, messages)?;
        Ok(store)
    }

    /// Closes a store that was opened for writing. A new store without content is removed.
    pub fn close(&self, store: Store, messages: &Messages) -> Result<(), Failure> {
        if self.is_vacant && store.dataset_names().is_empty() {
            self.undo(store);
            return Ok(());
        }
        close(store, messages)
    }

    /// Removes a store that was created for refused data. The store is still locked, so nobody else
    /// has written to it. Foreign files beside it stay.
    pub fn undo(&self, store: Store) {
        if self.is_vacant && store.dataset_names().is_empty() {
            // If something cannot be removed, an empty store is left, or a part of one.
            let _ = self.remove(&store);
        }
        drop(store);
    }

    /// Removes what the command created; an empty directory that existed before stays.
    fn remove(&self, store: &Store) -> io::Result<()> {
        for name in store.give_up().map_err(io::Error::other)? {
            let path = self.path.join(name);
            match fs::symlink_metadata(&path)?.is_dir() {
                true => remove_if_empty(&path)?,
                false => fs::remove_file(&path)?,
            }
        }
        self.missing.iter().try_for_each(|directory| remove_if_empty(directory))
    }
}

/// Removes a directory, unless it has files of others.
fn remove_if_empty(directory: &Path) -> io::Result<()> {
    match fs::remove_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        outcome => outcome,
    }
}

/// The options of a new dataset with this number of partitions.
pub fn dataset_options(partitions: Option<u16>) -> DatasetOptions {
    partitions.map_or_else(DatasetOptions::default, |partitions| DatasetOptions { partitions: partitions.into() })
}

/// Refuses a number of partitions that differs from an existing dataset's.
pub fn check_partitions(partitions: Option<u16>, dataset: &Dataset) -> Result<(), Failure> {
    let (name, has) = (dataset.name(), dataset.partitions());
    match partitions.filter(|partitions| usize::from(*partitions) != has) {
        None => Ok(()),
        Some(partitions) => Err(Failure::usage(format!(
            "dataset {name:?} was created with {}, not {partitions}; omit --partitions, or name another dataset",
            counted(has as u64, "partition", "partitions")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{Color, LogLevel};

    /// Creates a store below `place` and removes it again; `meanwhile` gets the store's directory.
    fn create_and_undo(path: &Path, meanwhile: impl FnOnce(&Path)) {
        let common = Common { memory_limit: terrane::MEMORY_LIMIT_MIN, disk_reserve: terrane::DiskReserve::default() };
        let messages = Messages::new(LogLevel::Error, Color::Never);
        let place = StorePlace::examine(path).unwrap();
        let store = place.open(None, &common, &messages).unwrap();
        assert!(path.join("LOCK").is_file() && path.join("MANIFEST").is_file());
        meanwhile(path);
        place.undo(store);
    }

    fn names(path: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn an_undone_creation_leaves_what_was_there_before() {
        let place = tempfile::tempdir().unwrap();
        create_and_undo(place.path(), |_| ());
        assert!(names(place.path()).is_empty());
        create_and_undo(&place.path().join("a/b"), |_| ());
        assert!(names(place.path()).is_empty());
    }

    #[test]
    fn an_undone_creation_leaves_the_files_of_others() {
        for below in ["", "a/b"] {
            let place = tempfile::tempdir().unwrap();
            let path = place.path().join(below);
            create_and_undo(&path, |path| {
                fs::write(path.join("notes.md"), "mine").unwrap();
                fs::write(path.join("log/app.log"), "mine").unwrap();
                fs::create_dir(path.join("components/photos")).unwrap();
            });
            assert_eq!(names(&path), ["components", "log", "notes.md"]);
            assert_eq!(names(&path.join("log")), ["app.log"]);
            assert_eq!(names(&path.join("components")), ["photos"]);
            assert_eq!(fs::read(path.join("notes.md")).unwrap(), b"mine");
        }
    }

    #[test]
    fn a_directory_that_others_have_begun_to_use_stays() {
        let place = tempfile::tempdir().unwrap();
        create_and_undo(&place.path().join("a/b"), |_| fs::write(place.path().join("a/notes.md"), "mine").unwrap());
        assert_eq!(names(&place.path().join("a")), ["notes.md"]);
    }
}
