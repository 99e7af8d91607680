//! Places of cached pages that readers follow without a lock and without writing memory.
//!
//! A reader enters ([`ReadGuard`]) and then follows plain pointers; a page that is dropped
//! meanwhile is freed when all who entered before have left. So nobody stays for many pages:
//! searches leave and enter again. All of that is the crate `seize`; what is unsafe about it
//! stays here and in `Page::from_raw`.
//!
//! S1 A slot's pointer is null or owns one count of a page.
//! S2 Whoever takes a pointer out of a slot retires its count, and the page is freed no
//!    earlier than every guard is gone that could have seen the pointer.
//! S3 All slots of the process have one collector, so a guard protects every slot.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr;
// Not of `terrane_storage::sync`: the collector protects loads of these.
use std::sync::LazyLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use seize::{Collector, Guard, LocalGuard};

use super::page::Page;

/// Pages are few and large, so they are not collected before they are freed; one that is dropped
/// while `n` threads search may still wait for up to `n` more.
static COLLECTOR: LazyLock<Collector> = LazyLock::new(|| Collector::new().batch_size(1));

/// Keeps every page that is lent by a slot while it lives.
pub struct ReadGuard(LocalGuard<'static>);

impl std::fmt::Debug for ReadGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReadGuard")
    }
}

impl ReadGuard {
    /// Enters; to enter again within costs next to nothing.
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

/// A page that a slot lends as long as the guard lives.
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

/// The place of a page.
#[derive(Debug, Default)]
pub struct PageSlot(AtomicPtr<c_void>);

impl PageSlot {
    /// The page here. Its memory is not looked at.
    #[inline]
    pub fn get<'g>(&self, guard: &'g ReadGuard) -> Option<Lent<'g>> {
        let pointer = guard.0.protect(&self.0, Ordering::Acquire);
        if pointer.is_null() {
            return None;
        }
        // SAFETY: by S1 the pointer came from `Page::into_raw`, by S2 and S3 its count is not given
        // back before the guard is gone, and `ManuallyDrop` gives none back.
        let page = ManuallyDrop::new(unsafe { Page::from_raw(pointer) });
        Some(Lent { page, guard: PhantomData })
    }

    /// Puts a page here, or none; returns the one that was here.
    pub fn replace<'g>(&self, page: Option<Page>, guard: &'g ReadGuard) -> Option<Lent<'g>> {
        let new = page.map_or(ptr::null_mut(), |page| page.into_raw().cast_mut());
        let old = guard.0.swap(&self.0, new, Ordering::AcqRel);
        if old.is_null() {
            return None;
        }
        // SAFETY: as in `get`; `defer_retire` frees nothing before this thread's guard is gone.
        let page = ManuallyDrop::new(unsafe { Page::from_raw(old) });
        // SAFETY: the swap made the pointer unreachable for guards to come, and its count is the
        // slot's (S1), which nobody else gives back.
        unsafe { guard.0.defer_retire(old, free) };
        Some(Lent { page, guard: PhantomData })
    }
}

impl Drop for PageSlot {
    fn drop(&mut self) {
        // A page may still be lent to somebody who has not let go of the guard.
        if !self.0.get_mut().is_null() {
            self.replace(None, &ReadGuard::enter());
        }
    }
}

/// Gives back a slot's count of a page.
///
/// # Safety
/// The pointer owned one count, and nobody else gives it back.
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
        // Tests beside this one enter for moments too, and may hold the page a little longer.
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
