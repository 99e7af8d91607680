//! A file of the operating system in one reserved range of addresses.
//!
//! The range is reserved once, without access. Parts of the file are mapped into it, from its start
//! on. So a growing pool never moves, and words keep their addresses. Words are given out by
//! offset, and the offset is checked against the mapped length. No address leaves this module.
#![expect(unsafe_code, reason = "mapping a file and reaching its words; every block states its argument")]

use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

const WORD_LENGTH: usize = size_of::<u64>();

/// Words of a file, at addresses that do not change.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    reserved: usize,
    /// Bytes from the start that are mapped. Only grows.
    mapped: AtomicUsize,
    /// Whether a failed call may have left a hole behind the mapped part. Others may have taken its
    /// addresses since. Held while the mapping grows.
    has_hole: Mutex<bool>,
}

// SAFETY: the range belongs to the mapping until it is dropped, whichever thread uses it. All
// access to it is through atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above; growing takes a lock and publishes the new length after the range is mapped.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Reserves a range of addresses. Nothing of it can be reached yet.
    pub(crate) fn reserve(length: usize) -> Result<Self, Errno> {
        // SAFETY: this is a new private range without access, at an address that the system
        // chooses. So it overlaps nothing that exists.
        let base = unsafe {
            mmap_anonymous(ptr::null_mut(), length, ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE)?
        };
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { base, reserved: length, mapped: AtomicUsize::new(0), has_hole: Mutex::new(false) })
    }

    /// Bytes reserved.
    pub(crate) fn reserved(&self) -> usize {
        self.reserved
    }

    /// Bytes that can be reached.
    #[inline]
    pub(crate) fn mapped(&self) -> usize {
        self.mapped.load(Ordering::Acquire)
    }

    /// Maps the file up to `length`, a multiple of the page size. The file's space up to there must
    /// be allocated before a word of it is reached. With `sync`, only a mapping of persistent
    /// memory that needs no sync succeeds (MAP_SYNC).
    pub(crate) fn extend(&self, file: BorrowedFd<'_>, length: usize, sync: bool) -> Result<(), Errno> {
        let mut has_hole = self.has_hole.lock();
        let mapped = self.mapped();
        if length <= mapped {
            return Ok(());
        }
        if length > self.reserved || *has_hole {
            return Err(Errno::NOMEM);
        }
        let flags = if sync { MapFlags::SHARED_VALIDATE | MapFlags::SYNC } else { MapFlags::SHARED };
        // SAFETY: `mapped` is within the reserved range.
        let start = unsafe { self.base.as_ptr().add(mapped) };
        // SAFETY: the range from `mapped` to `length` lies in the reserved one. It is ours, as
        // there is no hole. Nothing refers to it yet, as only words below `mapped` are given out.
        let outcome = unsafe {
            mmap(
                start.cast(),
                length - mapped,
                ProtFlags::READ | ProtFlags::WRITE,
                flags | MapFlags::FIXED,
                file,
                mapped as u64,
            )
        };
        match outcome {
            Ok(_) => {
                // A fork would be a second writer, without the lock. If the system refuses, the
                // fork has the words, as with any other mapping.
                // SAFETY: it changes what a fork gets, and nothing in this process.
                let _ = unsafe { madvise(start.cast(), length - mapped, Advice::LinuxDontFork) };
                self.mapped.store(length, Ordering::Release);
                Ok(())
            }
            Err(errno) => {
                // The system may have removed the reservation before it failed.
                *has_hole = true;
                Err(errno)
            }
        }
    }

    /// The word at an offset; `None` if it is not aligned or not mapped.
    #[inline]
    pub(crate) fn word(&self, offset: u64) -> Option<&AtomicU64> {
        self.words(offset, WORD_LENGTH as u64)?.first()
    }

    /// The words of `length` bytes at an offset; `None` if they are not aligned or not all mapped.
    #[inline]
    pub(crate) fn words(&self, offset: u64, length: u64) -> Option<&[AtomicU64]> {
        let (offset, length) = (usize::try_from(offset).ok()?, usize::try_from(length).ok()?);
        let mapped = self.mapped();
        let is_aligned = offset.is_multiple_of(WORD_LENGTH) && length.is_multiple_of(WORD_LENGTH);
        if !is_aligned || offset > mapped || mapped - offset < length {
            return None;
        }
        // SAFETY: the words lie in the mapped part, which stays mapped as long as `self` lives.
        // They are aligned, since the base is page-aligned. Every access in this process is atomic.
        // Another process that ignores the lock can change the file, which atomics allow for, or
        // truncate it, which ends this process by a signal.
        Some(unsafe { slice::from_raw_parts(self.base.as_ptr().add(offset).cast(), length / WORD_LENGTH) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let length = if *self.has_hole.get_mut() { *self.mapped.get_mut() } else { self.reserved };
        if length == 0 {
            return;
        }
        // SAFETY: the range is ours, and no reference into it outlives `self`. Anything behind a
        // hole stays reserved, which costs addresses only.
        let outcome = unsafe { munmap(self.base.as_ptr().cast(), length) };
        debug_assert!(outcome.is_ok(), "a range that was mapped is unmapped: {outcome:?}");
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};
    use std::os::fd::AsFd;

    use super::*;

    /// After a failure, others may have taken the addresses behind the mapped part. Growing would
    /// map over them.
    #[test]
    fn a_mapping_does_not_grow_after_it_has_failed_to() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pool");
        let readable = File::create_new(&path).unwrap();
        readable.set_len(1 << 16).unwrap();
        let unreadable = OpenOptions::new().write(true).open(&path).unwrap();
        let mapping = Mapping::reserve(1 << 20).unwrap();
        mapping.extend(readable.as_fd(), 1 << 13, false).unwrap();
        // A file that cannot be read cannot be mapped.
        assert_eq!(mapping.extend(unreadable.as_fd(), 1 << 14, false), Err(Errno::ACCESS));
        assert_eq!(mapping.extend(readable.as_fd(), 1 << 14, false), Err(Errno::NOMEM));
        assert_eq!(mapping.mapped(), 1 << 13);
        assert!(mapping.word(1 << 13).is_none() && mapping.word((1 << 13) - 8).is_some());
    }
}
