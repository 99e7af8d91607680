//! Components whose front was taken over by another one: a merge that has no room for all of its result at once writes the first part
//! of it, and gives up the space of what went in. Entries of a tree lie in the file in their order, so that what is gone
//! is all before a leaf, and some entries of that leaf.
//!
//! F1 What a component's description in the manifest says to be gone is in a newer component, or was left out with what hid it.
//! F2 Pages of the part that is gone may be zeros; nobody reads them. Where the tree leads there, there is an inner page without
//!    children.
//! F3 Space is given up when all who might read it in this process have let go of it, and only if no other process has
//!    opened the file for reading.

use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use terrane_storage::sync::{AtomicBool, Mutex, Ordering};
use terrane_storage::{LockKind, OpenMode, Storage};

use super::page::{Page, PageKind, PagePointer};

/// What is gone of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gone {
    /// The leaf of the first entry that is left. All pages with lower numbers are gone.
    pub leaf: PagePointer,
    /// Entries of this leaf that are gone.
    pub in_leaf: u32,
    /// Live entries that are gone.
    pub entries: u64,
    /// Anti-matter entries that are gone.
    pub antimatter: u64,
}

impl Gone {
    /// Whether a page is gone.
    pub(super) fn has(&self, pointer: PagePointer) -> bool {
        pointer.offset < self.leaf.offset
    }
}

/// An inner page without children, as if it were in a component of this kind; it stands for pages that are gone.
pub(super) fn nothing(kind: &str) -> Page {
    let (kind, words) = match kind {
        // No Bloom filter; keys in the form of integers of no bytes.
        super::btree::KIND => (PageKind::BTreeInner, 2 + 2 + 1),
        super::rtree::KIND => (PageKind::RTreeInner, 0),
        // First and last positions, as integers of no bytes.
        _ => (PageKind::CurveInner, 2 * (2 + 1)),
    };
    Page::assemble(kind, 1, 0, 0, bytemuck::cast_slice(&vec![0_u64; words]))
}

/// All that have one component file open in this process.
#[derive(Debug, Default)]
pub(super) struct Holders {
    /// Where what each of them can read begins.
    fronts: Mutex<Vec<u64>>,
    is_obsolete: AtomicBool,
    /// Whether something stays that nobody here can read, as others had the file open when it was to be given up.
    is_kept: AtomicBool,
}

impl Holders {
    /// Notes one more.
    pub(super) fn add(&self, front: u64) {
        self.fronts.lock().push(front);
    }

    /// Has the file removed when the last of them lets go of it.
    pub(super) fn set_obsolete(&self) {
        self.is_obsolete.store(true, Ordering::Release);
    }

    /// One of them lets go: what is not needed any more is removed, or its space given up.
    pub(super) fn remove(&self, storage: &Arc<dyn Storage>, name: &str, front: u64) {
        let mut fronts = self.fronts.lock();
        if let Some(place) = fronts.iter().position(|other| *other == front) {
            fronts.swap_remove(place);
        }
        match (self.is_obsolete.load(Ordering::Acquire), fronts.iter().min()) {
            // A file that stays behind is a stray, which the next open removes.
            (true, None) => _ = storage.remove(name),
            (false, Some(&needed)) if front < needed => self.try_give_up(&**storage, name, needed),
            _ => {}
        }
    }

    /// Gives up what lies before a front, of a file that was opened just now.
    pub(super) fn give_up_front(&self, storage: &dyn Storage, name: &str, front: u64) {
        let _fronts = self.fronts.lock();
        self.try_give_up(storage, name, front);
    }

    /// Gives up what others have kept when it was to be given up; whether they have let go of it.
    pub(super) fn give_up_kept(&self, storage: &dyn Storage, name: &str) -> bool {
        let fronts = self.fronts.lock();
        match fronts.iter().min() {
            Some(&needed) if self.is_kept.load(Ordering::Acquire) => {
                self.try_give_up(storage, name, needed);
                !self.is_kept.load(Ordering::Acquire)
            }
            _ => false,
        }
    }

    /// To be called with the fronts held.
    fn try_give_up(&self, storage: &dyn Storage, name: &str, needed: u64) {
        self.is_kept.store(!give_up(storage, name, 0..needed), Ordering::Release);
    }
}

/// Gives up the space of a part of a file, unless somebody else has the file open for reading; false then. What stays for any other reason
/// is given up when the store is opened the next time.
fn give_up(storage: &dyn Storage, name: &str, range: Range<u64>) -> bool {
    let Ok(file) = storage.open(name, OpenMode::Write) else { return true };
    match file.try_lock(LockKind::Exclusive) {
        Ok(true) => {
            let _ = file.punch(range);
            true
        }
        Ok(false) => false,
        Err(_) => true,
    }
}
