//! The trees under the model checker: every interleaving of one writer and one reader, up to a
//! bound on preemptions.
//!
//! `make loom`
//!
//! Nodes are tiny under loom, so that a few writes split leaves and inner nodes. The slots of nodes
//! are tracked, so a read that no publication ordered fails the test.

use super::hilbert::Shapes;
use super::{Kind, MemoryBTree, MemoryRTree, SEQUENCE_MAX, Shape};
use loom::thread;
use std::ops::ControlFlow;
use std::sync::Arc;
use terrane_space::Rect;
use terrane_storage::sync::{AtomicU64, Ordering};

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.max_branches = 50_000;
    builder.check(model);
}

fn shape() -> Shape {
    Shape::new(2, 4).expect("a valid shape")
}

fn point(x: u32) -> Rect {
    let x = f64::from(x);
    Rect { x0: x, y0: x, x1: x, y1: x }
}

const EVERYWHERE: Rect = Rect { x0: -1e9, y0: -1e9, x1: 1e9, y1: 1e9 };

/// Sequence numbers and kinds that a snapshot sees, in ascending order.
fn seen(tree: &MemoryRTree, window: &Rect, snapshot: u64) -> Vec<(u64, Kind)> {
    let mut found = Vec::new();
    tree.search(window, snapshot, &mut |entry| {
        assert_eq!(entry.entry.key, entry.entry.position.to_be_bytes(), "an entry was torn");
        assert_eq!(entry.entry.rect.x0, entry.entry.position as f64, "an entry was torn");
        found.push((entry.begin, entry.kind));
        ControlFlow::Continue(())
    });
    found.sort_by_key(|&(begin, kind)| (begin, kind == Kind::AntiMatter));
    found
}

/// A tree that holds `before` from number 1 on. A thread then inserts `during` while the reader
/// reads, first what is visible and then everything it meets.
fn insertions(shape: Shape, before: &'static [u32], during: &'static [u32]) {
    explore(move || {
        let tree = Arc::new(MemoryRTree::with_shape(Shapes::Points, shape).expect("memory"));
        let visible = Arc::new(AtomicU64::new(before.len() as u64));
        let insert = |tree: &MemoryRTree, place: u32, sequence: u64| {
            let position = u64::from(place);
            tree.insert(position, point(place), &position.to_be_bytes(), sequence).expect("open");
        };
        for (&place, sequence) in before.iter().zip(1..) {
            insert(&tree, place, sequence);
        }
        let writer = {
            let (tree, visible) = (Arc::clone(&tree), Arc::clone(&visible));
            thread::spawn(move || {
                for (&place, sequence) in during.iter().zip(before.len() as u64 + 1..) {
                    insert(&tree, place, sequence);
                    visible.store(sequence, Ordering::Release);
                }
            })
        };
        let snapshot = visible.load(Ordering::Acquire);
        let expected: Vec<_> = (1..=snapshot).map(|sequence| (sequence, Kind::Put)).collect();
        assert_eq!(seen(&tree, &EVERYWHERE, snapshot), expected);
        let mut any = seen(&tree, &EVERYWHERE, SEQUENCE_MAX);
        assert!(any.starts_with(&expected));
        any.dedup();
        assert!(any.len() <= before.len() + during.len(), "an entry was met twice");
        writer.join().expect("the writer panicked");
        assert_eq!(seen(&tree, &EVERYWHERE, SEQUENCE_MAX).len(), before.len() + during.len());
    });
}

#[test]
fn loom_an_entry_is_published_whole() {
    insertions(shape(), &[5], &[7]);
}

#[test]
fn loom_a_new_block_is_published_with_its_first_entry() {
    insertions(Shape::new(4, 4).expect("a valid shape"), &[5, 3], &[7]);
}

#[test]
fn loom_an_extent_covers_an_entry_before_it_is_visible() {
    explore(|| {
        let tree = Arc::new(MemoryRTree::with_shape(Shapes::Points, shape()).expect("memory"));
        let visible = Arc::new(AtomicU64::new(0));
        let writer = {
            let (tree, visible) = (Arc::clone(&tree), Arc::clone(&visible));
            thread::spawn(move || {
                tree.insert(9, point(9), &9_u64.to_be_bytes(), 1).expect("open");
                visible.store(1, Ordering::Release);
            })
        };
        let snapshot = visible.load(Ordering::Acquire);
        assert_eq!(seen(&tree, &point(9), snapshot).len() as u64, snapshot);
        writer.join().expect("the writer panicked");
    });
}

#[test]
fn loom_a_leaf_split_hides_and_repeats_nothing() {
    insertions(shape(), &[2, 8], &[5]);
}

#[test]
fn loom_a_leaf_beside_a_full_one_hides_and_repeats_nothing() {
    insertions(shape(), &[2, 4], &[8]);
    insertions(shape(), &[4, 8], &[2]);
}

#[test]
fn loom_a_root_split_hides_and_repeats_nothing() {
    // Four leaves of two fill the root; the middle one then becomes two.
    insertions(shape(), &[10, 12, 20, 22, 30, 32, 40, 42], &[21]);
}

#[test]
fn loom_an_inner_node_is_replaced_by_its_copy() {
    // The root is split before the reader starts. The split of a leaf below then replaces its
    // parent in the root by a copy.
    let before = &[10, 12, 20, 22, 30, 32, 40, 42, 21];
    insertions(shape(), before, &[31]);
}

#[test]
fn loom_an_end_is_seen_by_the_snapshots_behind_it_only() {
    explore(|| {
        let tree = Arc::new(MemoryRTree::with_shape(Shapes::Points, shape()).expect("memory"));
        tree.insert(5, point(5), &5_u64.to_be_bytes(), 1).expect("open");
        let visible = Arc::new(AtomicU64::new(1));
        let writer = {
            let (tree, visible) = (Arc::clone(&tree), Arc::clone(&visible));
            thread::spawn(move || {
                tree.delete(5, point(5), &5_u64.to_be_bytes(), 2).expect("open");
                visible.store(2, Ordering::Release);
            })
        };
        let snapshot = visible.load(Ordering::Acquire);
        let expected = if snapshot == 1 { vec![(1, Kind::Put)] } else { vec![(2, Kind::AntiMatter)] };
        assert_eq!(seen(&tree, &EVERYWHERE, snapshot), expected);
        assert_eq!(seen(&tree, &EVERYWHERE, 1), [(1, Kind::Put)]);
        writer.join().expect("the writer panicked");
    });
}

#[test]
fn loom_a_version_is_published_whole_and_a_split_keeps_it() {
    explore(|| {
        let tree = Arc::new(MemoryBTree::with_shape(shape()).expect("memory"));
        tree.put(b"b", b"one", 1).expect("open");
        tree.put(b"d", b"one", 2).expect("open");
        let visible = Arc::new(AtomicU64::new(2));
        let writer = {
            let (tree, visible) = (Arc::clone(&tree), Arc::clone(&visible));
            thread::spawn(move || {
                tree.put(b"b", b"three", 3).expect("open");
                visible.store(3, Ordering::Release);
                tree.put(b"c", b"four", 4).expect("open");
                visible.store(4, Ordering::Release);
            })
        };
        let snapshot = visible.load(Ordering::Acquire);
        let read = |key: &[u8]| tree.get(key, snapshot).map(|version| version.value);
        assert_eq!(read(b"b"), Some(if snapshot < 3 { &b"one"[..] } else { b"three" }));
        assert_eq!(read(b"c"), (snapshot == 4).then_some(&b"four"[..]));
        assert_eq!(read(b"d"), Some(&b"one"[..]));
        assert_eq!(tree.get(b"b", 2).map(|version| version.value), Some(&b"one"[..]));
        writer.join().expect("the writer panicked");
    });
}
