//! What look-ups beside an unfinished operation have seen, in any tree.

use std::sync::{Arc, Mutex};

use terrane_pmem::Instruction;
use terrane_pmem::interrupting::{At, Interrupting, interrupt};
use terrane_pmtree::{PersistentRTree, PersistentTree, Rect};
use terrane_testkit::crash::{Budget, Controller, NameOrder};

pub const IMAGES: Budget = Budget { exhaustive_pending: 6, samples: 12, name_order: NameOrder::AnySubset };

pub fn point(payload: u64) -> Rect<2> {
    Rect::point([(payload * 7 % 31) as f64, (payload * 11 % 29) as f64]).unwrap()
}

pub fn everything() -> Rect<2> {
    Rect::new([-1e9; 2], [1e9; 2]).unwrap()
}

/// Looks an entry up after each change of the operation that inserts or deletes it, and loses
/// power. Gives whether a crash has taken back what was seen. `of_searches` names the flush and the
/// fence of look-ups, and `dropped` tells which of them is left out.
pub fn is_seen_and_gone<T>(options: &T::Options, of_searches: &str, dropped: Option<Instruction>) -> bool
where
    T: PersistentRTree<2> + PersistentTree<Backend = Interrupting> + 'static,
{
    for is_insertion in [true, false] {
        for number in 0.. {
            let controller = Controller::new();
            let tree = Arc::new(T::create(&*controller.storage(), "tree", options).unwrap());
            (0..3).for_each(|payload| tree.insert(&point(payload), payload).unwrap());
            if let Some(instruction) = dropped {
                tree.pool().backend().0.leave_out(instruction, of_searches);
            }
            let outcome = Arc::new(Mutex::new(None));
            let (reader, seen, at) = (tree.clone(), outcome.clone(), controller.clone());
            let payload = if is_insertion { 7 } else { 1 };
            let look = move || {
                let is_there = reader.contains(&point(payload), payload).unwrap();
                *seen.lock().unwrap() = Some((is_there, at.events()));
            };
            let (_, was_interrupted) = interrupt(At::Change, number, look, || match is_insertion {
                true => tree.insert(&point(payload), payload).unwrap(),
                false => assert!(tree.delete(&point(payload), payload).unwrap()),
            });
            if !was_interrupted {
                break;
            }
            let Some((is_there, cut)) = *outcome.lock().unwrap() else { panic!("the search did not run") };
            for image in controller.images(cut, &IMAGES, 1) {
                let tree = T::open(&*image.storage(), "tree", options).unwrap();
                if is_there == is_insertion && tree.contains(&point(payload), payload).unwrap() != is_there {
                    return true;
                }
            }
        }
    }
    false
}
