//! Slots of cached pages. Readers follow them without a lock and without writing memory.
//!
//! A reader enters ([`ReadGuard`]) and then follows plain pointers. A page that is dropped
//! meanwhile is freed once all readers that entered before have left. Searches therefore leave and
//! enter again after a few pages. The crate `seize` implements all of this; its unsafe use is
//! confined to this module and `Page::from_raw`.
//!
//! S1 A slot's pointer is null or owns one reference to a page.
//! S2 Taking a pointer out of a slot retires its reference. The page is freed only after every
//!    guard that could have seen the pointer is gone.
//! S3 All slots of the process have one collector, so a guard protects every slot.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr;
// Not from `terrane_storage::sync`: the collector protects loads of these.
use std::sync::LazyLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use seize::{Collector, Guard, LocalGuard};

use super::page::Page;

/// Pages are few and large, so retired ones are not batched. A page that is dropped while `n`
/// threads search may still wait for up to `n` more.
static COLLECTOR: LazyLock<Collector> = LazyLock::new(|| Collector::new().batch_size(1));

/// Keeps every page alive that was borrowed from a slot while this value lives.
pub struct ReadGuard(LocalGuard<'static>);

impl std::fmt::Debug for ReadGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReadGuard")
    }
}

impl ReadGuard {
    /// Enters. Entering again inside costs next to nothing.
    #[inline]
    pub fn enter() -> Self {
        Self(COLLECTOR.enter())
    }

    /// Leaves and enters again, unless the thread has entered elsewhere too.
    #[inline]
    pub fn renew(&mut self) {
        self.0.refresh();
    }
}

/// A page borrowed from a slot as long as the guard lives.
#[derive(Debug)]
pub struct Lent<'g> {
    page: ManuallyDrop<Page>,
    guard: PhantomData<&'g ReadGuard>,
}

impl Deref for Lent<'_> {
    type Target = Page;

    #[inline]
    fn deref(&self) -> &Page {
        &self.page
    }
}

/// A slot for a page.
#[derive(Debug, Default)]
pub struct PageSlot(AtomicPtr<c_void>);

impl PageSlot {
    /// The page in the slot. Does not access the page's memory.
    #[inline]
    pub fn get<'g>(&self, guard: &'g ReadGuard) -> Option<Lent<'g>> {
        let pointer = guard.0.protect(&self.0, Ordering::Acquire);
        if pointer.is_null() {
            return None;
        }
        // SAFETY: by S1 the pointer came from `Page::into_raw`. By S2 and S3 its reference is not
        // returned before the guard is gone, and `ManuallyDrop` returns none.
        let page = ManuallyDrop::new(unsafe { Page::from_raw(pointer) });
        Some(Lent { page, guard: PhantomData })
    }

    /// Puts a page or none into the slot; returns the previous one.
    pub fn replace<'g>(&self, page: Option<Page>, guard: &'g ReadGuard) -> Option<Lent<'g>> {
        let new = page.map_or(ptr::null_mut(), |page| page.into_raw().cast_mut());
        let old = guard.0.swap(&self.0, new, Ordering::AcqRel);
        if old.is_null() {
            return None;
        }
        // SAFETY: as in `get`; `defer_retire` frees nothing before this thread's guard is gone.
        let page = ManuallyDrop::new(unsafe { Page::from_raw(old) });
        // SAFETY: the swap made the pointer unreachable for later guards. Its reference is the
        // slot's (S1), and nothing else returns it.
        unsafe { guard.0.defer_retire(old, free) };
        Some(Lent { page, guard: PhantomData })
    }
}

impl Drop for PageSlot {
    fn drop(&mut self) {
        // A page may still be borrowed under another guard.
        if !self.0.get_mut().is_null() {
            self.replace(None, &ReadGuard::enter());
        }
    }
}

/// Returns a slot's reference to a page.
///
/// # Safety
/// The pointer owned one reference, and nothing else returns it.
unsafe fn free(pointer: *mut c_void, _: &Collector) {
    // SAFETY: the caller's promise.
    drop(unsafe { Page::from_raw(pointer) });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::page::test_page;

    #[test]
    fn a_lent_page_outlives_its_slot() {
        let guard = ReadGuard::enter();
        let slot = PageSlot::default();
        slot.replace(Some(test_page(7)), &guard);
        let lent = slot.get(&guard).unwrap();
        assert!(slot.replace(Some(test_page(8)), &guard).is_some());
        let other = slot.get(&guard).unwrap();
        drop(slot);
        assert_eq!((lent.level(), other.level()), (7, 8));
    }

    #[test]
    fn a_dropped_page_is_freed_when_who_saw_it_has_left() {
        let (slot, page) = (PageSlot::default(), test_page(3));
        let mut guard = ReadGuard::enter();
        slot.replace(Some(page.clone()), &guard);
        assert!(slot.get(&guard).is_some());
        slot.replace(None, &guard);
        assert_eq!(page.owners(), 2);
        // Other tests also enter for moments, and may hold the page slightly longer.
        while page.owners() > 1 {
            guard.renew();
            slot.replace(Some(test_page(4)), &guard);
        }
    }

    #[test]
    fn readers_see_whole_pages_while_others_replace_them() {
        let slot = PageSlot::default();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for round in 0..2_000_u32 {
                        let page = (!round.is_multiple_of(5)).then(|| test_page((round % 100) as u8));
                        slot.replace(page, &ReadGuard::enter());
                    }
                });
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        let guard = ReadGuard::enter();
                        let pages: Vec<_> = (0..10).filter_map(|_| slot.get(&guard)).collect();
                        for page in &pages {
                            assert!(page.payload().iter().all(|byte| *byte == page.level()));
                        }
                    }
                });
            }
        });
    }
}
