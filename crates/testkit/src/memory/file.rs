//! Files in memory and the handles to them.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;
use terrane_storage::event::{DiskEvent, FileId};
use terrane_storage::{Backing, Context, DiskSpace, File, LockKind, Operation, Result};

use super::content::Content;
use super::mapped::MappedFile;
use super::reads::Watch;
use super::{Node, Shared};

/// The limit of space for the lengths of all files together.
#[derive(Debug)]
pub(super) struct Space {
    capacity: AtomicU64,
    used: AtomicU64,
}

impl Space {
    pub(super) fn unlimited() -> Self {
        Self { capacity: AtomicU64::new(u64::MAX), used: AtomicU64::new(0) }
    }

    pub(super) fn set_capacity(&self, bytes: u64) {
        self.capacity.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// `None` without a limit.
    pub(super) fn of_disk(&self) -> Option<DiskSpace> {
        let total_bytes = self.capacity.load(Ordering::Relaxed);
        let free_bytes = total_bytes.saturating_sub(self.used());
        (total_bytes < u64::MAX).then_some(DiskSpace { total_bytes, free_bytes })
    }

    fn take(&self, bytes: u64) -> std::result::Result<(), Errno> {
        if bytes == 0 {
            return Ok(());
        }
        let capacity = self.capacity.load(Ordering::Relaxed);
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes).filter(|&used| used <= capacity)
            })
            .map(|_| ())
            .map_err(|_| Errno::NOSPC)
    }

    fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// A file, which lives as long as it has a name or a handle.
#[derive(Debug)]
pub(super) struct Inode {
    pub(super) id: FileId,
    pub(super) content: RwLock<Content>,
    /// Read and changed only while the content is locked.
    pub(super) watch: Option<Arc<Watch>>,
    locks: Mutex<BTreeMap<u64, LockKind>>,
    space: Arc<Space>,
}

impl Inode {
    /// A file with these contents, which count as used whatever the capacity.
    pub(super) fn new(id: FileId, content: Content, space: &Arc<Space>, watch: Option<Arc<Watch>>) -> Arc<Self> {
        space.used.fetch_add(content.length(), Ordering::Relaxed);
        Arc::new(Self { id, content: RwLock::new(content), watch, locks: Mutex::default(), space: space.clone() })
    }
}

impl Drop for Inode {
    fn drop(&mut self) {
        self.space.give_back(self.content.get_mut().length());
    }
}

/// An open handle.
#[derive(Debug)]
pub(super) struct MemoryFile {
    inode: Arc<Inode>,
    name: String,
    writable: bool,
    /// Distinguishes the handle's lock from those of others.
    handle: u64,
    shared: Arc<Shared>,
}

impl MemoryFile {
    pub(super) fn new(inode: Arc<Inode>, name: &str, writable: bool, shared: Arc<Shared>) -> Self {
        let handle = shared.next_handle.fetch_add(1, Ordering::Relaxed);
        Self { inode, name: name.to_owned(), writable, handle, shared }
    }

    /// Changes the length and reports it while the file is still locked. The recorder therefore
    /// gets a file's changes in the order in which they took effect.
    fn change_length(&self, content: &mut Content, length: u64, event: DiskEvent) -> std::result::Result<(), Errno> {
        let before = content.length();
        self.inode.space.take(length.saturating_sub(before))?;
        content.set_length(length);
        self.inode.space.give_back(before.saturating_sub(length));
        self.shared.record(|| event);
        Ok(())
    }

    fn write(&self, bytes: &[u8], offset: u64) -> std::result::Result<(), Errno> {
        if bytes.is_empty() {
            return Ok(());
        }
        if !self.writable {
            return Err(Errno::BADF);
        }
        if i64::try_from(offset).is_err() {
            return Err(Errno::INVAL);
        }
        let end =
            offset.checked_add(bytes.len() as u64).filter(|&end| i64::try_from(end).is_ok()).ok_or(Errno::FBIG)?;
        let mut content = self.inode.content.write();
        self.inode.space.take(end.saturating_sub(content.length()))?;
        content.write(bytes, offset);
        if let Some(watch) = &self.inode.watch {
            watch.note_stored(offset, bytes.len() as u64);
        }
        self.shared.record(|| DiskEvent::Write { file: self.inode.id, offset, bytes: bytes.into() });
        Ok(())
    }

    fn allocate_space(&self, range: Range<u64>) -> std::result::Result<(), Errno> {
        if range.is_empty() {
            return Ok(());
        }
        let length = range.end;
        if i64::try_from(length).is_err() {
            return Err(Errno::FBIG);
        }
        if !self.writable {
            return Err(Errno::BADF);
        }
        let mut content = self.inode.content.write();
        // There are no holes here: what is in the file has its space.
        if length <= content.length() {
            return Ok(());
        }
        self.change_length(&mut content, length, DiskEvent::Allocate { file: self.inode.id, length })
    }
}

impl File for MemoryFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        if buffer.is_empty() {
            return Ok(());
        }
        let context = |cause: io::Error| Err(cause).context(Operation::Read, &self.name, Some(offset));
        if i64::try_from(offset).is_err() {
            return context(Errno::INVAL.into());
        }
        let content = self.inode.content.read();
        if offset.saturating_add(buffer.len() as u64) > content.length() {
            return context(io::Error::new(io::ErrorKind::UnexpectedEof, "failed to fill whole buffer"));
        }
        content.read(buffer, offset);
        if let Some(watch) = &self.inode.watch {
            watch.note_read(offset, buffer.len() as u64);
        }
        Ok(())
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.write(bytes, offset).context(Operation::Write, &self.name, Some(offset))
    }

    fn len(&self) -> Result<u64> {
        Ok(self.inode.content.read().length())
    }

    fn set_len(&self, length: u64) -> Result<()> {
        let result = if !self.writable || i64::try_from(length).is_err() {
            Err(Errno::INVAL)
        } else {
            let event = DiskEvent::SetLength { file: self.inode.id, length };
            self.change_length(&mut self.inode.content.write(), length, event)
        };
        result.context(Operation::SetLength, &self.name, None)
    }

    fn allocate(&self, range: Range<u64>) -> Result<()> {
        self.allocate_space(range).context(Operation::Allocate, &self.name, None)
    }

    fn sync_data(&self) -> Result<()> {
        self.shared.record(|| DiskEvent::Sync { file: self.inode.id });
        Ok(())
    }

    fn forget_unsynced(&self) -> Result<()> {
        self.shared.record(|| DiskEvent::SyncFailed { file: self.inode.id });
        Ok(())
    }

    fn try_lock(&self, kind: LockKind) -> Result<bool> {
        let mut locks = self.inode.locks.lock();
        if locks.get(&self.handle) == Some(&kind) {
            return Ok(true);
        }
        // Like `flock`: changing the kind releases the lock first.
        locks.remove(&self.handle);
        let free = match kind {
            LockKind::Shared => locks.values().all(|&held| held == LockKind::Shared),
            LockKind::Exclusive => locks.is_empty(),
        };
        if free {
            locks.insert(self.handle, kind);
        }
        Ok(free)
    }

    fn unlock(&self) -> Result<()> {
        self.inode.locks.lock().remove(&self.handle);
        Ok(())
    }

    fn has_name(&self) -> Result<bool> {
        let names = self.shared.names.read();
        Ok(matches!(names.get(self.name.as_str()), Some(Node::File(inode)) if Arc::ptr_eq(inode, &self.inode)))
    }

    fn backing(&self) -> Backing<'_> {
        if !self.writable {
            return Backing::Unmappable;
        }
        Backing::Memory(Box::new(MappedFile::new(self.inode.clone(), self.shared.clone())))
    }

    fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        self.inode.locks.lock().remove(&self.handle);
    }
}
