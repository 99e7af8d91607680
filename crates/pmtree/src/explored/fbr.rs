//! The flushes and fences of the trees, and what shows that they are needed where no history of single steps does.

use terrane_pmem::Instruction;
use terrane_pmem::explorer::{Dropped, Place};

pub(super) const PLACES: [Place; 47] = [
    Place::both("fbr.complete.link"),
    Place::both("fbr.complete.link.entry"),
    Place::flush("fbr.complete.nodes"),
    Place::fence("fbr.complete.redistribute"),
    Place::both("fbr.complete.root"),
    Place::flush("fbr.complete.unlink"),
    Place::both("fbr.create"),
    Place::both("fbr.create.link"),
    Place::flush("fbr.create.root"),
    Place::both("fbr.delete.metadata"),
    Place::both("fbr.delete.root"),
    Place::flush("fbr.insert.enlarge"),
    Place::both("fbr.insert.entry"),
    Place::fence("fbr.insert.failed"),
    Place::both("fbr.insert.metadata"),
    Place::both("fbr.log.clear"),
    Place::both("fbr.log.commit"),
    Place::flush("fbr.log.prepare"),
    Place::flush("fbr.log.withdraw"),
    Place::flush("fbr.merge.bounds"),
    Place::both("fbr.merge.copy"),
    Place::flush("fbr.merge.copy.entry"),
    Place::both("fbr.merge.entries"),
    Place::both("fbr.search.persist"),
    Place::flush("fbr.shorten"),
    Place::both("fbr.split.copy"),
    Place::flush("fbr.split.copy.entry"),
    Place::flush("fbr.split.new-root"),
    Place::flush("fbr.split.root.copy"),
    Place::both("fbr.split.root.link"),
    Place::flush("fbr.split.root.node"),
    Place::both("fbr.split.sibling"),
    Place::both("fbr.tags.entry"),
    Place::both("fbr.tags.generation"),
    Place::fence("fbr.tags.grown"),
    Place::both("logged.create"),
    Place::both("logged.create.link"),
    Place::flush("logged.create.root"),
    Place::both("logged.log.apply"),
    Place::flush("logged.log.apply.root"),
    Place::both("logged.log.clear"),
    Place::both("logged.log.commit"),
    Place::fence("logged.log.extend"),
    Place::both("logged.log.extend.link"),
    Place::both("logged.log.image"),
    Place::flush("logged.log.later"),
    Place::flush("logged.log.node"),
];

/// File and name of the test that shows what a flush or fence is for.
pub(super) fn shown_by(Dropped { instruction, site }: &Dropped) -> Option<&'static str> {
    match (instruction, site.as_str()) {
        (_, "fbr.search.persist") => {
            Some("pmtree/tests/interleavings.rs: what_a_search_has_seen_is_lost_if_it_does_not_make_it_durable")
        }
        // Disks are not full in histories.
        (_, "fbr.insert.failed") => {
            Some("pmtree/tests/full_disk.rs: what_a_failed_insertion_has_enlarged_is_lost_without_its_fence")
        }
        // Its blocks have to be used again before the loss does harm.
        (Instruction::Flush, "fbr.log.withdraw") => {
            Some("pmtree/tests/crash.rs: a_change_that_was_undone_stays_undone_when_its_blocks_are_used_again")
        }
        // All trees that histories make are of today.
        (_, "fbr.shorten") => {
            Some("pmtree/tests/marks.rs: an_older_tree_is_one_for_ever_if_it_is_not_flushed_that_it_is_none")
        }
        _ => None,
    }
}
