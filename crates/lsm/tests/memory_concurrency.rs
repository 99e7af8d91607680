//! Readers beside writers: everything up to a snapshot is met exactly once, nothing after it.
//!
//! Write number `n` is a function of `n`, so a reader knows the content of its snapshot. Writers
//! own disjoint keys and run freely: the numbers arrive out of order.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use terrane_lsm::memory::btree::KeyRange;
use terrane_lsm::memory::hilbert::Shapes;
use terrane_lsm::memory::{Kind, MemoryBTree, MemoryRTree, SEQUENCE_MAX, Shape};
use terrane_space::Rect;

const WRITES: u64 = if cfg!(miri) { 150 } else { 12_000 };
const KEYS: u64 = WRITES / 4;
const WRITERS: u64 = 3;
const READERS: u64 = 2;

fn mix(number: u64, salt: u64) -> u64 {
    let mixed = (number ^ salt.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 7
}

/// The highest number up to which all writes are done.
#[derive(Default)]
struct Visible {
    up_to: AtomicU64,
    done: Mutex<BTreeSet<u64>>,
}

impl Visible {
    fn mark(&self, sequence: u64) {
        let mut done = self.done.lock().expect("no writer panicked");
        done.insert(sequence);
        let mut up_to = self.up_to.load(Ordering::Relaxed);
        while done.remove(&(up_to + 1)) {
            up_to += 1;
        }
        self.up_to.store(up_to, Ordering::Release);
    }
}

/// Runs the writers over all numbers, and readers until the writers are done and once more.
fn race(salt: u64, write: impl Fn(u64) + Sync, read: impl Fn(u64) + Sync) {
    println!("salt {salt}; the schedule differs from run to run, the writes do not");
    let visible = Visible::default();
    let finished = AtomicBool::new(false);
    thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS)
            .map(|_| {
                scope.spawn(|| {
                    loop {
                        let last = finished.load(Ordering::Acquire);
                        read(visible.up_to.load(Ordering::Acquire));
                        if last {
                            return;
                        }
                    }
                })
            })
            .collect();
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (visible, write) = (&visible, &write);
                scope.spawn(move || {
                    for sequence in (1..=WRITES).filter(|&sequence| key_of(sequence, salt) % WRITERS == writer) {
                        write(sequence);
                        visible.mark(sequence);
                    }
                })
            })
            .collect();
        let outcomes: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        finished.store(true, Ordering::Release);
        for outcome in outcomes.into_iter().chain(readers.into_iter().map(thread::ScopedJoinHandle::join)) {
            if let Err(panic) = outcome {
                std::panic::resume_unwind(panic);
            }
        }
    });
    assert_eq!(visible.up_to.load(Ordering::Acquire), WRITES);
}

fn key_of(sequence: u64, salt: u64) -> u64 {
    mix(sequence, salt) % KEYS
}

fn shapes() -> [Shape; 2] {
    [Shape::new(4, 4).expect("valid"), Shape::new(32, 16).expect("valid")]
}

#[test]
fn key_readers_see_their_snapshot_and_nothing_else() {
    for (shape, salt) in shapes().into_iter().zip(11..) {
        let tree = MemoryBTree::with_shape(shape).expect("memory");
        let is_deletion = |sequence| mix(sequence, salt + 1).is_multiple_of(5);
        let write = |sequence: u64| {
            let key = key_of(sequence, salt).to_be_bytes();
            let outcome = if is_deletion(sequence) {
                tree.delete(&key, sequence)
            } else {
                tree.put(&key, &sequence.to_be_bytes(), sequence)
            };
            outcome.expect("open");
        };
        let read = |snapshot: u64| {
            let expected: BTreeMap<u64, u64> =
                (1..=snapshot).map(|sequence| (key_of(sequence, salt), sequence)).collect();
            let mut found = tree.range(KeyRange::ALL, snapshot);
            for (&key, &sequence) in &expected {
                let (found_key, version) = found.next().expect("as many keys as the model has");
                assert_eq!((found_key, version.begin), (&key.to_be_bytes()[..], sequence), "snapshot {snapshot}");
                assert_eq!(version.kind == Kind::AntiMatter, is_deletion(sequence));
                let value = if is_deletion(sequence) { Vec::new() } else { sequence.to_be_bytes().to_vec() };
                assert_eq!(version.value, value);
                assert_eq!(tree.get(&key.to_be_bytes(), snapshot).map(|version| version.begin), Some(sequence));
            }
            assert_eq!(found.next(), None, "snapshot {snapshot}");
        };
        race(salt, write, read);
        tree.check().expect("intact");
    }
}

#[test]
fn window_readers_see_their_snapshot_and_nothing_else() {
    for (shape, salt) in shapes().into_iter().zip(21..) {
        let tree = MemoryRTree::with_shape(Shapes::Points, shape).expect("memory");
        let place = |sequence: u64| {
            let position = mix(sequence, salt + 1) % 4096;
            let (x, y) = ((position / 64) as f64, (position % 64) as f64);
            (position, Rect { x0: x, y0: y, x1: x, y1: y })
        };
        // Each write of a key deletes it at the place of the previous write.
        let mut before = BTreeMap::new();
        let previous: Vec<Option<u64>> = (0..=WRITES)
            .map(|sequence| if sequence == 0 { None } else { before.insert(key_of(sequence, salt), sequence) })
            .collect();
        let next: BTreeMap<u64, u64> =
            (1..=WRITES).filter_map(|sequence| previous[sequence as usize].map(|old| (old, sequence))).collect();
        let write = |sequence: u64| {
            let key = key_of(sequence, salt).to_be_bytes();
            if let Some(old) = previous[sequence as usize] {
                let (position, rect) = place(old);
                tree.delete(position, rect, &key, sequence).expect("open");
            }
            let (position, rect) = place(sequence);
            tree.insert(position, rect, &key, sequence).expect("open");
        };
        let read = |snapshot: u64| {
            let corner = (mix(snapshot, salt + 2) % 50) as f64;
            for window in [
                Rect { x0: 0.0, y0: 0.0, x1: 63.0, y1: 63.0 },
                Rect { x0: corner, y0: 9.0, x1: corner + 9.0, y1: 40.0 },
            ] {
                let mut expected = Vec::new();
                for sequence in 1..=snapshot {
                    let is_live = next.get(&sequence).is_none_or(|&end| end > snapshot);
                    if is_live && place(sequence).1.intersects(&window) {
                        expected.push((sequence, false));
                    }
                    if previous[sequence as usize].is_some_and(|old| place(old).1.intersects(&window)) {
                        expected.push((sequence, true));
                    }
                }
                let mut found = Vec::new();
                tree.search(&window, snapshot, &mut |entry| {
                    assert_eq!(entry.entry.key, key_of(entry.begin, salt).to_be_bytes());
                    found.push((entry.begin, entry.kind == Kind::AntiMatter));
                    ControlFlow::Continue(())
                });
                found.sort_unstable();
                expected.sort_unstable();
                assert_eq!(found, expected, "snapshot {snapshot}, window {window:?}");
            }
        };
        race(salt, write, read);
        assert_eq!(tree.check().expect("intact").entries as u64, WRITES + next.len() as u64);
    }
}

#[test]
fn a_cursor_keeps_its_place_while_the_tree_grows_around_it() {
    let tree = MemoryBTree::with_shape(Shape::new(4, 4).expect("valid")).expect("memory");
    let odd = if cfg!(miri) { 60 } else { 3_000_u64 };
    for number in 0..odd {
        tree.put(&(2 * number + 1).to_be_bytes(), b"", 1).expect("open");
    }
    let mut found = Vec::new();
    for (step, (key, _)) in tree.range(KeyRange::ALL, 1).enumerate() {
        found.push(key.to_vec());
        // Before, around and behind the cursor.
        for number in [step as u64, odd - step as u64, 2 * odd + step as u64] {
            tree.put(&(2 * number).to_be_bytes(), b"", 2 + step as u64).expect("open");
        }
    }
    let expected: Vec<_> = (0..odd).map(|number| (2 * number + 1).to_be_bytes().to_vec()).collect();
    assert_eq!(found, expected);
    assert!(tree.range(KeyRange::ALL, SEQUENCE_MAX).count() > expected.len());
}
