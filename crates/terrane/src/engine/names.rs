//! The names of a store's files: which are its own, which are somebody else's, and which are
//! strays.

use std::collections::HashSet;

use terrane_lsm::disk::component_name;
use terrane_lsm::log::is_log_file;
use terrane_lsm::manifest::{self, Manifest};
use terrane_storage::Storage;

use super::reserve::RESERVE_NAME;
use crate::backup::{is_backup, is_begun_backup};
use crate::{Error, Result};

pub(super) const LOCK_NAME: &str = "LOCK";
const NEW_MANIFEST_NAME: &str = "MANIFEST.new";
/// In the place of a store that is being restored, before anything else of it; until there is a
/// manifest, it is none.
pub(crate) const RESTORING_NAME: &str = "RESTORING";

/// Why there is no manifest: it was lost, or there was no store.
pub(super) fn no_store(storage: &dyn Storage) -> Error {
    match check_not_lost(storage) {
        // Unless another process has created one since.
        Err(error) if matches!(storage.exists(manifest::NAME), Ok(false)) => error,
        _ => Error::usage(format!("there is no store at {}", storage.describe())),
    }
}

/// A directory that has something else in it does not become a store. Another process may be
/// creating one there now.
pub(crate) fn check_not_foreign(storage: &dyn Storage) -> Result<()> {
    if !storage.exists("")? {
        return Ok(());
    }
    foreign_names(storage)?.first().map_or(Ok(()), |name| {
        Err(Error::usage(format!(
            "{} is no store, and it is not empty (it has {name}); choose another directory",
            storage.describe()
        )))
    })
}

/// Files and directories in the place of a store that are not named as a store's are. It leaves
/// them alone.
pub(crate) fn foreign_names(storage: &dyn Storage) -> Result<Vec<String>> {
    Ok(Names::of(storage)?.foreign)
}

/// The store's own files and directories, in an order in which they can be removed: what a
/// directory has comes before it, and the lock last.
pub(crate) fn own_names(storage: &dyn Storage) -> Result<Vec<String>> {
    Ok(Names::of(storage)?.own)
}

/// What is in the place of a store.
struct Names {
    own: Vec<String>,
    foreign: Vec<String>,
}

impl Names {
    fn of(storage: &dyn Storage) -> Result<Self> {
        const OWN: [&str; 5] = [manifest::NAME, NEW_MANIFEST_NAME, LOCK_NAME, RESERVE_NAME, RESTORING_NAME];
        let is_own = |name: &String| OWN.contains(&name.as_str());
        let (mut files, foreign): (Vec<_>, Vec<_>) = storage.list("")?.into_iter().partition(is_own);
        let mut names = Self { own: Vec::new(), foreign };
        for directory in directories_of_place(storage)? {
            match directory.as_str() {
                "components" => names.add_inside(storage, directory, is_component)?,
                "log" => names.add_inside(storage, directory, is_log_file)?,
                _ => names.foreign.push(directory),
            }
        }
        files.sort_by_key(|name| name == LOCK_NAME);
        names.own.extend(files);
        Ok(names)
    }

    /// Adds a directory of the store's and what is in it.
    fn add_inside(&mut self, storage: &dyn Storage, directory: String, is_own: fn(&str) -> bool) -> Result<()> {
        for name in storage.list(&directory)? {
            let names = if is_own(&name) { &mut self.own } else { &mut self.foreign };
            names.push(format!("{directory}/{name}"));
        }
        let inner = storage.list_directories(&directory)?.into_iter().map(|name| format!("{directory}/{name}"));
        self.foreign.extend(inner);
        self.own.push(directory);
        Ok(())
    }
}

/// Directories in the place of a store or a backup, but for the empty one that file systems are
/// made with in their roots.
pub(crate) fn directories_of_place(storage: &dyn Storage) -> Result<Vec<String>> {
    const OF_FILE_SYSTEM: &str = "lost+found";
    let mut names = storage.list_directories("")?;
    if names.iter().any(|name| name == OF_FILE_SYSTEM) && is_known_to_be_empty(storage, OF_FILE_SYSTEM)? {
        names.retain(|name| name != OF_FILE_SYSTEM);
    }
    Ok(names)
}

fn is_known_to_be_empty(storage: &dyn Storage, directory: &str) -> Result<bool> {
    Ok(storage.list(directory)?.is_empty() && storage.list_directories(directory)?.is_empty())
}

pub(crate) fn is_component(name: &str) -> bool {
    let id = name.strip_suffix(".tc").and_then(|id| id.parse().ok());
    id.is_some_and(|id| component_name(id) == format!("components/{name}"))
}

/// The first manifest is durable before any file is made below these directories, so with one of
/// them it was there and is lost. To be called under the lock, or when no store is created.
pub(super) fn check_not_lost(storage: &dyn Storage) -> Result<()> {
    if storage.exists(RESTORING_NAME)? {
        return Err(Error::usage(format!(
            "{} is what a restoration left that did not end; remove it and restore again",
            storage.describe()
        )));
    }
    if is_backup(storage)? {
        return Err(Error::usage(format!(
            "{} is a backup and no store; make a store of it with `terrane restore` or `Store::restore`",
            storage.describe()
        )));
    }
    if is_begun_backup(storage)? {
        return Err(Error::usage(format!(
            "{} is a backup that has not been completed, and has no point yet; take it again",
            storage.describe()
        )));
    }
    for directory in ["components", "log"] {
        let is_own = if directory == "log" { is_log_file } else { is_component };
        if !storage.exists(directory)? {
            continue;
        }
        if let Some(name) = storage.list(directory)?.into_iter().find(|name| is_own(name)) {
            return Err(Error::damaged("MANIFEST", 0, format!("the file is missing, but {directory}/{name} is there")));
        }
    }
    Ok(())
}

/// A store that keeps a log has files of it from its second manifest on: the first file is durable
/// before it, and they are never all given up. Without any, what was written since the last flush
/// is lost.
pub(super) fn check_log_not_lost(storage: &dyn Storage, manifest: &Manifest) -> Result<()> {
    const FIRST_GENERATION: u64 = 1;
    let has_files =
        || -> Result<bool> { Ok(storage.exists("log")? && storage.list("log")?.iter().any(|name| is_log_file(name))) };
    match manifest.generation > FIRST_GENERATION && !has_files()? {
        true => Err(Error::damaged("log", 0, "its files are missing, all of them; what was not flushed is in them")),
        false => Ok(()),
    }
}

/// The first id that no component file has, be it a stray.
pub(super) fn next_file_id(storage: &dyn Storage, manifest: &Manifest) -> Result<u64> {
    /// No store gets as far, so who has such a number is no stray of ours, and need not be avoided.
    const ID_END: u64 = 1 << 48;
    // A directory that held nothing may be lost on the way of a store from one place to another.
    let names = if storage.exists("components")? { storage.list("components")? } else { Vec::new() };
    let ids = names.into_iter().filter_map(|name| name.strip_suffix(".tc")?.parse::<u64>().ok());
    Ok(ids.filter(|id| *id < ID_END).map(|id| id + 1).fold(manifest.next_file_id, u64::max))
}

/// What a crash left without a name in the manifest, and nothing that is not named as it would be.
pub(super) fn strays(storage: &dyn Storage, manifest: &Manifest) -> Result<Vec<String>> {
    let known: HashSet<String> = manifest.components().map(|meta| component_name(meta.file_id)).collect();
    let components = storage.list("components")?.into_iter().filter(|name| is_component(name));
    let unnamed = components.map(|name| format!("components/{name}")).filter(|name| !known.contains(name));
    Ok(unnamed.collect())
}

/// Whether there is a manifest that was never put in force.
pub(super) fn has_new_manifest(storage: &dyn Storage) -> Result<bool> {
    Ok(storage.exists(NEW_MANIFEST_NAME)?)
}

/// Removes strays, a manifest that was never put in force, and the sign of a restoration that has
/// ended.
pub(super) fn remove_strays(storage: &dyn Storage, strays: &[String]) -> Result<()> {
    for name in strays {
        match storage.remove(name) {
            // A reader that was the last to need it has removed it itself.
            Err(error) if error.is_not_found() => {}
            removed => removed?,
        }
    }
    for name in [NEW_MANIFEST_NAME, RESTORING_NAME] {
        if storage.exists(name)? {
            storage.remove(name)?;
        }
    }
    Ok(())
}
