//! The structure check detects damage, and ascending entries leave full leaves.

use super::*;

fn point(x: u32) -> Rect {
    let x = f64::from(x);
    Rect { x0: x, y0: -x, x1: x, y1: -x }
}

fn ascending(entries: u32) -> MemoryRTree {
    let shape = Shape::new(4, 4).expect("a valid shape");
    let tree = MemoryRTree::with_shape(Shapes::Points, shape).expect("memory");
    for number in 0..entries {
        tree.insert(u64::from(number), point(number), &number.to_be_bytes(), u64::from(number)).expect("open");
    }
    tree
}

fn points(tree: &MemoryRTree) -> &Tree<Spatial<2>> {
    match &tree.kinds {
        Kinds::Points(tree) => tree,
        Kinds::Rects(_) => panic!("a tree of points was made"),
    }
}

#[test]
fn the_check_sees_an_extent_that_does_not_cover_its_child() {
    let tree = ascending(80);
    tree.check().expect("intact before");
    points(&tree).root().children().corrupt_extent(0);
    let error = tree.check().expect_err("the extent is wrong").to_string();
    assert!(error.contains("does not cover"), "{error}");
}

#[test]
fn the_check_sees_an_entry_in_the_wrong_leaf() {
    let tree = ascending(2);
    let inner = points(&tree);
    for number in 2..50 {
        tree.insert(number, point(7), b"key", number).expect("open");
    }
    let (right, wrong) = (Order { head: 49, key: b"key", tie: 60 }, Order { head: 3, key: b"key", tie: 60 });
    let item = SpatialItem { rect: point(7), begin: 60, end: SEQUENCE_MAX };
    let mut arena = inner.write();
    let place = inner.descend(&arena, right, item.rect);
    inner.insert(&mut arena, place, wrong, false, item).expect("memory");
    drop(arena);
    let error = tree.check().expect_err("the entry is misplaced").to_string();
    assert!(error.contains("outside of its leaf"), "{error}");
}

#[test]
fn ascending_entries_fill_their_leaves() {
    let leaves = if cfg!(miri) { 30 } else { 1_000 };
    let report = ascending(4 * leaves).check().expect("intact");
    assert_eq!((report.entries, report.leaves), (4 * leaves as usize, leaves as usize));
}

#[test]
fn entries_that_descend_towards_a_full_leaf_share_leaves() {
    let tree = ascending(4);
    let highest = if cfg!(miri) { 100 } else { 1_000 };
    for number in (10..highest).rev() {
        tree.insert(number, point(1), b"k", number).expect("open");
    }
    let report = tree.check().expect("intact");
    assert!(report.leaves * 3 <= report.entries, "{report:?}");
}
