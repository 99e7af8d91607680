//! The versions of a key: a list from the newest to the oldest, in the arena.

use super::super::arena::Arena;
use super::super::tree::{BLOCK_SLOTS, Cell, Columns, Slots};
use super::super::{Kind, SEQUENCE_MAX};
use crate::{Error, Result};
use std::alloc::Layout;
use std::marker::PhantomData;
use std::ptr::{NonNull, null_mut};
use terrane_storage::sync::{AtomicPtr, Ordering};

/// Longest value in bytes.
pub const VALUE_LENGTH_MAX: usize = 16 << 20;

/// One version of a key's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version<'a> {
    /// Sequence number of the write that made it.
    pub begin: u64,
    /// Sequence number of the next version's write; the highest number while there is none.
    pub end: u64,
    /// Whether the key was put or deleted.
    pub kind: Kind,
    /// The value; empty for anti-matter.
    pub value: &'a [u8],
}

/// A version in the arena, created only by [`VersionHead::place`].
#[derive(Clone, Copy)]
pub(in crate::memory) struct VersionPointer(NonNull<VersionHead>);

/// Head of a version; the value's bytes follow it in memory. A slot points to it. It is written
/// before its pointer is published and never changes afterwards.
pub(in crate::memory) struct VersionHead(Slots<Head, 1>);

#[derive(Clone, Copy)]
struct Head {
    /// Null in the oldest version.
    older: *mut VersionHead,
    begin: u64,
    length: u32,
    kind: Kind,
}

impl VersionHead {
    /// Copies a version into the arena, linked to the versions that it replaces in the same arena.
    pub(super) fn place(
        arena: &mut Arena,
        older: Option<VersionPointer>,
        begin: u64,
        kind: Kind,
        value: &[u8],
    ) -> Result<VersionPointer> {
        let length = u32::try_from(value.len()).ok().filter(|_| value.len() <= VALUE_LENGTH_MAX).ok_or_else(|| {
            Error::Invalid(format!("a value of {} bytes; at most {VALUE_LENGTH_MAX} are possible", value.len()))
        })?;
        let older = older.map_or(null_mut(), |older| older.0.as_ptr());
        let size = size_of::<Self>() + value.len();
        let layout = Layout::from_size_align(size, align_of::<Self>())
            .map_err(|_| Error::Invalid("a value too long to address".into()))?;
        let place = arena.allocate(layout)?.cast::<Self>();
        // SAFETY: `place` is fresh memory that fits the head and the value behind it, and
        // `value` lies elsewhere.
        unsafe {
            place.write(Self(Slots::new()));
            let head = Head { older, begin, length, kind };
            place.as_ref().0.write(0, head);
            place.add(1).cast::<u8>().copy_from_nonoverlapping(NonNull::from(value).cast(), value.len());
        }
        Ok(VersionPointer(place))
    }
}

/// The column of a B-tree's leaf: the newest version of each key.
pub(in crate::memory) struct Newest([AtomicPtr<VersionHead>; BLOCK_SLOTS]);

impl Newest {
    /// The versions of an entry's key, newest first.
    pub(super) fn versions(cell: Cell<'_, Self>) -> Versions<'_> {
        Versions { next: cell.columns().0[cell.slot()].load(Ordering::Acquire), end: SEQUENCE_MAX, arena: PhantomData }
    }

    /// Publishes a version of an entry's key. `_latch` is the arena that holds it, and proves that
    /// the caller is the only writer.
    pub(super) fn publish(_latch: &Arena, cell: Cell<'_, Self>, version: VersionPointer) {
        cell.columns().0[cell.slot()].store(version.0.as_ptr(), Ordering::Release);
    }
}

impl Columns for Newest {
    type Extent = ();
    type Item = VersionPointer;

    fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicPtr::new(null_mut())))
    }

    unsafe fn write(&self, slot: usize, item: Self::Item) {
        // The entry's publication orders this store.
        self.0[slot].store(item.0.as_ptr(), Ordering::Relaxed);
    }

    fn item(cell: Cell<'_, Self>) -> Self::Item {
        let newest = cell.columns().0[cell.slot()].load(Ordering::Acquire);
        VersionPointer(NonNull::new(newest).expect("a published key has a version"))
    }

    fn tie(_: Cell<'_, Self>) -> u64 {
        0
    }

    fn extent(_: &Self::Item) {}
}

/// Iterator over the versions of a key, newest first.
#[derive(Clone)]
pub(super) struct Versions<'a> {
    next: *const VersionHead,
    /// End of the next version: the beginning of the one visited before it.
    end: u64,
    arena: PhantomData<&'a Arena>,
}

// SAFETY: versions are immutable once published, and the arena that holds them outlives `'a`.
unsafe impl Send for Versions<'_> {}
// SAFETY: as above.
unsafe impl Sync for Versions<'_> {}

impl<'a> Iterator for Versions<'a> {
    type Item = Version<'a>;

    fn next(&mut self) -> Option<Version<'a>> {
        // SAFETY: null, or a version that was written before its pointer was published
        // (acquired in `Newest::versions`; older ones were published before), that is
        // never changed, and whose arena outlives `'a`.
        let head = unsafe { self.next.as_ref()?.0.published(1) }[0];
        // SAFETY: `place` wrote `length` bytes behind the head; the pointer, unlike the
        // reference, may reach them.
        let value = unsafe { std::slice::from_raw_parts(self.next.add(1).cast::<u8>(), head.length as usize) };
        let version = Version { begin: head.begin, end: self.end, kind: head.kind, value };
        self.next = head.older;
        self.end = head.begin;
        Some(version)
    }
}
