//! The spatial memory component gives the same results as a scanned list of entries.

use proptest::prelude::*;
use std::ops::ControlFlow;
use terrane_lsm::memory::hilbert::{Child, NodeHandle, Shapes, SpatialEntry};
use terrane_lsm::memory::{ErasedMemory, Kind, MemoryRTree, SEQUENCE_MAX, Shape, Versioned};
use terrane_space::Rect;

/// Position of the n-th entry.
type Placement = fn(u64) -> u64;

#[derive(Debug, Clone, PartialEq)]
struct Entry {
    position: u64,
    key: Vec<u8>,
    begin: u64,
    end: u64,
    kind: Kind,
    rect: Rect,
}

impl From<Versioned<SpatialEntry<'_>>> for Entry {
    fn from(found: Versioned<SpatialEntry<'_>>) -> Self {
        let Versioned { entry: SpatialEntry { position, rect, key }, kind, begin, end } = found;
        Self { position, key: key.to_vec(), begin, end, kind, rect }
    }
}

impl Entry {
    fn order(&self) -> (u64, &[u8], u64) {
        (self.position, &self.key, self.begin)
    }

    fn is_seen(&self, snapshot: u64) -> bool {
        self.begin <= snapshot && (self.end > snapshot || self.end == SEQUENCE_MAX)
    }
}

#[derive(Debug, Clone)]
struct Operation {
    x: u8,
    y: u8,
    extent: u8,
    key: Vec<u8>,
    /// Delete before inserting, delete only, or (mostly) insert.
    choice: u8,
}

impl Operation {
    /// Few distinct positions, so that many entries share one.
    fn position(&self) -> u64 {
        u64::from(self.x / 4) << 32 | u64::from(self.y / 4)
    }

    fn rect(&self, shapes: Shapes) -> Rect {
        let extent = if shapes == Shapes::Points { 0.0 } else { f64::from(self.extent) };
        let (x0, y0) = (f64::from(self.x), f64::from(self.y) - 8.0);
        Rect { x0, y0, x1: x0 + extent, y1: y0 + extent / 2.0 }
    }
}

fn operation() -> impl Strategy<Value = Operation> {
    let key = prop_oneof![
        3 => (0_u64..40).prop_map(|number| number.to_be_bytes().to_vec()),
        1 => (0_u8..4, 0_usize..3).prop_map(|(byte, length)| vec![byte; 1 + 20 * length]),
    ];
    (0_u8..24, 0_u8..24, 0_u8..9, key, 0_u8..10).prop_map(|(x, y, extent, key, choice)| Operation {
        x,
        y,
        extent,
        key,
        choice,
    })
}

fn tree_kind() -> impl Strategy<Value = (Shapes, Shape)> {
    (any::<bool>(), 2_usize..24, 4_usize..9).prop_map(|(points, leaf_slots, fanout)| {
        let shapes = if points { Shapes::Points } else { Shapes::Rects };
        (shapes, Shape::new(leaf_slots, fanout).expect("a valid shape"))
    })
}

/// Applies the operations to a tree and to a list. A key has at most one live entry at a position,
/// as callers guarantee.
fn build(shapes: Shapes, shape: Shape, operations: &[Operation]) -> (MemoryRTree, Vec<Entry>) {
    let tree = MemoryRTree::with_shape(shapes, shape).expect("memory");
    let mut model: Vec<Entry> = Vec::new();
    for (operation, sequence) in operations.iter().zip(1_u64..) {
        let (position, rect, key) = (operation.position(), operation.rect(shapes), &operation.key);
        let live = model.iter_mut().find(|entry| {
            entry.kind == Kind::Put && entry.end == SEQUENCE_MAX && entry.position == position && entry.key == *key
        });
        let entry = Entry { position, key: key.clone(), begin: sequence, end: SEQUENCE_MAX, kind: Kind::Put, rect };
        if live.is_some() || operation.choice < 3 {
            tree.delete(position, rect, key, sequence).expect("admissible");
            if let Some(live) = live {
                live.end = sequence;
            }
            model.push(Entry { kind: Kind::AntiMatter, ..entry.clone() });
        }
        if operation.choice != 0 {
            tree.insert(position, rect, key, sequence).expect("admissible");
            model.push(entry);
        }
    }
    (tree, model)
}

fn sorted(mut entries: Vec<Entry>) -> Vec<Entry> {
    // Anti-matter was written before the entry of the same number.
    entries.sort_by(|a, b| a.order().cmp(&b.order()).then_with(|| (a.kind == Kind::Put).cmp(&(b.kind == Kind::Put))));
    entries
}

fn search(tree: &MemoryRTree, window: &Rect, snapshot: u64) -> Vec<Entry> {
    let mut found = Vec::new();
    tree.search(window, snapshot, &mut |entry| {
        found.push(entry.into());
        ControlFlow::Continue(())
    });
    sorted(found)
}

/// All that the snapshot sees, node by node, with a check that rectangles enclose.
fn expand<'a>(tree: &'a MemoryRTree, node: NodeHandle<'a>, mbr: Rect, snapshot: u64, found: &mut Vec<Entry>) {
    tree.leaf_entries(node, snapshot, &mut |entry| {
        assert_eq!(mbr.union(&entry.entry.rect), mbr, "an entry outside of its leaf's rectangle");
        found.push(entry.into());
    });
    let mut children: Vec<Child<'_>> = Vec::new();
    tree.children(node, &mut |child| children.push(child));
    assert_eq!(children.is_empty(), node.is_leaf());
    for child in children {
        assert_eq!(mbr.union(&child.mbr), mbr, "a child outside of its parent's rectangle");
        expand(tree, child.node, child.mbr, snapshot, found);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 3 } else { 192 }))]

    #[test]
    fn windows_find_what_a_scan_finds_at_every_snapshot(
        (shapes, shape) in tree_kind(),
        operations in prop::collection::vec(operation(), 0..300),
        windows in prop::collection::vec((0_u8..30, 0_u8..30, 0_u8..12, 0_u8..12), 6),
    ) {
        let (tree, model) = build(shapes, shape, &operations);
        let step = (operations.len() / 6).max(1);
        for snapshot in (0..=operations.len() as u64).step_by(step).chain([SEQUENCE_MAX]) {
            for &(x, y, width, height) in &windows {
                let (x0, y0) = (f64::from(x) - 2.0, f64::from(y) - 10.0);
                let window = Rect { x0, y0, x1: x0 + f64::from(width), y1: y0 + f64::from(height) };
                let expected = model.iter().filter(|entry| entry.is_seen(snapshot) && entry.rect.intersects(&window)).cloned().collect();
                prop_assert_eq!(search(&tree, &window, snapshot), sorted(expected));
            }
        }
        let report = tree.check().map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(report.entries, model.len());
    }

    #[test]
    fn nodes_lead_to_every_entry_once_and_enclose_it((shapes, shape) in tree_kind(), operations in prop::collection::vec(operation(), 0..300)) {
        let (tree, model) = build(shapes, shape, &operations);
        let snapshot = operations.len() as u64 / 2;
        let mut found = Vec::new();
        expand(&tree, tree.root(), tree.bounds(), snapshot, &mut found);
        let expected = model.iter().filter(|entry| entry.is_seen(snapshot)).cloned().collect();
        prop_assert_eq!(sorted(found), sorted(expected));
        let bounds = model.iter().fold(Rect::EMPTY, |all, entry| all.union(&entry.rect));
        prop_assert_eq!(tree.bounds(), bounds);
    }

    #[test]
    fn a_drain_gives_every_entry_in_order((shapes, shape) in tree_kind(), operations in prop::collection::vec(operation(), 0..400)) {
        let (tree, model) = build(shapes, shape, &operations);
        let mut found: Vec<Entry> = Vec::new();
        let drained = tree.drain(&mut |entry| {
            found.push(entry.into());
            Ok(ControlFlow::Continue(()))
        });
        prop_assert!(drained.is_ok());
        prop_assert_eq!(tree.len(), model.len());
        prop_assert_eq!(tree.anti_matter_len(), model.iter().filter(|entry| entry.kind == Kind::AntiMatter).count());
        prop_assert_eq!(found, sorted(model));
    }
}

#[test]
fn a_search_stops_where_its_visitor_stops() {
    let tree = MemoryRTree::with_shape(Shapes::Points, Shape::new(4, 4).expect("valid")).expect("memory");
    for number in 0_u64..200 {
        let x = number as f64;
        tree.insert(number, Rect { x0: x, y0: 0.0, x1: x, y1: 0.0 }, &number.to_be_bytes(), number).expect("open");
    }
    let mut visited = 0;
    tree.search(&tree.bounds(), SEQUENCE_MAX, &mut |_| {
        visited += 1;
        if visited == 50 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(visited, 50);
}

#[test]
fn a_key_updated_in_place_thousands_of_times_has_one_live_entry() {
    let tree = MemoryRTree::with_shape(Shapes::Points, Shape::new(8, 4).expect("valid")).expect("memory");
    let rect = Rect { x0: 3.0, y0: 4.0, x1: 3.0, y1: 4.0 };
    let updates = if cfg!(miri) { 60 } else { 5_000 };
    for sequence in 1..=updates {
        tree.delete(9, rect, b"parked", sequence).expect("open");
        tree.insert(9, rect, b"parked", sequence).expect("open");
    }
    for snapshot in [1, 2, updates / 2, updates] {
        let puts: Vec<u64> = search(&tree, &rect, snapshot)
            .iter()
            .filter(|entry| entry.kind == Kind::Put)
            .map(|entry| entry.begin)
            .collect();
        assert_eq!(puts, [snapshot]);
    }
    tree.check().expect("intact");
}

#[test]
fn memory_stays_near_the_live_bytes_in_every_order_of_insertion() {
    let entries = if cfg!(miri) { 300 } else { 60_000_u64 };
    let mixed = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let orders: [(&str, Placement); 3] =
        [("ascending", |number| number << 20), ("descending", |number| u64::MAX - (number << 20)), ("mixed", mixed)];
    for (name, position) in orders {
        let tree = MemoryRTree::new(Shapes::Points).expect("memory");
        for number in 0..entries {
            let x = number as f64;
            tree.insert(position(number), Rect { x0: x, y0: x, x1: x, y1: x }, &number.to_be_bytes(), number)
                .expect("open");
        }
        // 50 bytes of columns for each point, and one chunk that may be nearly empty.
        let live = entries as usize * 50;
        let used = tree.memory_used();
        assert!(used >= live && used <= live * 5 / 2 + (1 << 20), "{name}: {used} bytes for {live} live ones");
    }
}
