//! The lock of a store's writer.

use std::sync::Arc;

use terrane_storage::{File, LockKind, OpenMode, RootLock, Storage};

use super::names::{LOCK_NAME, no_store};
use crate::{Error, Result};

/// A writer whose lock file is removed while it locks it begins again, at most this often.
const LOCK_ATTEMPTS: usize = 100;

/// Keeps other writers out while it lives. The directory is unlocked first, so that a process that
/// gets the file gets both.
#[derive(Debug)]
pub(crate) struct WriterLock {
    _root: RootLock,
    _file: Arc<dyn File>,
}

/// Takes the lock, in a directory that is created if a store may be created.
pub(crate) fn lock(storage: &dyn Storage, create: bool) -> Result<WriterLock> {
    for _ in 0..LOCK_ATTEMPTS {
        if create {
            storage.create_directory("")?;
        }
        let file = match open_lock(storage) {
            // The directory went with a store that was removed again.
            Err(error) if error.is_not_found() && create => continue,
            Err(error) if error.is_not_found() => return Err(no_store(storage)),
            opened => opened?,
        };
        if !file.try_lock(LockKind::Exclusive)? {
            return Err(Error::Locked { pid: holder(&*file)? });
        }
        // A process that removes a store removes the file under its lock. A file that was opened
        // just before is no one else's now, and keeps no one out who opens the file of that name.
        if file.has_name()? {
            // Somebody may have removed the file under its holder, taking it for a stale one.
            let Some(root) = storage.lock_root()? else { return Err(Error::Locked { pid: None }) };
            file.set_len(0)?;
            match file.write_all_at(format!("{}\n", std::process::id()).as_bytes(), 0) {
                // It is for messages alone, and work that makes room on a full disk begins here.
                Err(error) if error.is_storage_full() => {}
                written => written?,
            }
            return Ok(WriterLock { _root: root, _file: file });
        }
    }
    Err(Error::Locked { pid: None })
}

fn open_lock(storage: &dyn Storage) -> terrane_storage::Result<Arc<dyn File>> {
    match storage.open(LOCK_NAME, OpenMode::Write) {
        Err(error) if error.is_not_found() => match storage.open(LOCK_NAME, OpenMode::CreateNew) {
            Err(error) if error.is_already_exists() => storage.open(LOCK_NAME, OpenMode::Write),
            created => created,
        },
        opened => opened,
    }
}

/// The process that a lock file names. It may be writing its number at this moment, so only a whole
/// line counts, of any length.
fn holder(file: &dyn File) -> Result<Option<u32>> {
    let mut text = [0; 20];
    for length in (1..=text.len()).rev() {
        match file.read_exact_at(&mut text[..length], 0) {
            Err(error) if error.is_unexpected_end() => {}
            read => {
                read?;
                let text = String::from_utf8_lossy(&text[..length]);
                return Ok(text.strip_suffix('\n').and_then(|line| line.parse().ok()));
            }
        }
    }
    Ok(None)
}
