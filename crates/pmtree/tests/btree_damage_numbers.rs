//! B+-trees in which a node states an impossible number: of entries, of children, or a tag. Every
//! change is refused, or is there afterwards.

use std::collections::{BTreeMap, BTreeSet};

use terrane_pmtree::btree::{
    BTreeWal, Census, FastFair, FastFairSp, Options, PersistentMap, PersistentUnsorted, VolatileBTree,
};
use terrane_pmtree::{Error, PersistentTree};
use terrane_testkit::is_soak;

use crate::btree_damage::{COUNT, Of, file, flipped, nodes, options, scan, set, word};
use crate::damage::{bytes, is_damage, with};
use crate::support::ends;

/// Uses a tree with an impossible number in a node. Each operation reports damage or has the right
/// outcome, and what was acknowledged is there after another opening. Something reports it.
fn uses_right_or_refuses<T>(what: &str, damaged: &[u8], model: &BTreeMap<u64, u64>)
where
    T: PersistentMap<1, 1> + PersistentTree<Options = Options, Census = Census>,
{
    fn checked<R>(what: &str, outcome: Result<R, Error>) -> Option<R> {
        outcome.map_err(|error| assert!(is_damage(&error), "{what}: {error}")).ok()
    }
    let storage = with(damaged);
    let open = || checked(what, ends(what, || T::open(&storage, "tree", &options())));
    let Some(mut tree) = open() else { return assert!(bytes(&storage) == damaged, "{what}: the file was changed") };
    assert!(checked(what, tree.check()).is_none(), "{what} is not found by a check");
    let (mut model, mut unknown) = (model.clone(), BTreeSet::new());
    let agrees = |tree: &T, model: &BTreeMap<u64, u64>, unknown: &BTreeSet<u64>| {
        let Some(mut found) = checked(what, ends(what, || scan(tree))) else { return false };
        found.retain(|key, _| !unknown.contains(key));
        let known = model.iter().filter(|(key, _)| !unknown.contains(key));
        assert!(known.eq(&found), "{what}: a scan gives {found:?}, and {model:?} was acknowledged");
        true
    };
    let mut is_right = agrees(&tree, &model, &unknown);
    for key in 0..COUNT * 3 / 2 {
        let found = checked(what, ends(what, || tree.get(&[key])));
        assert!(found.is_none_or(|found| found == model.get(&key).map(|value| [*value])), "{what}: {key}: {found:?}");
        let before = match key % 3 {
            0 => checked(what, ends(what, || tree.remove(&[key]))),
            _ => checked(what, ends(what, || tree.upsert(&[key], &[key]))),
        };
        is_right &= found.is_some() && before.is_some();
        match before {
            None => _ = unknown.insert(key),
            Some(before) => {
                let expected = if key % 3 == 0 { model.remove(&key) } else { model.insert(key, key) };
                assert_eq!(before, expected.map(|value| [value]), "{what}: {key}");
            }
        }
    }
    is_right &= agrees(&tree, &model, &unknown);
    for key in (0..COUNT * 3 / 2).filter(|key| !unknown.contains(key)) {
        let found = checked(what, tree.get(&[key]));
        assert!(found.is_none_or(|found| found == model.get(&key).map(|value| [*value])), "{what}: {key}: {found:?}");
    }
    assert!(!is_right, "{what} was not noticed");
    assert!(bytes(&storage).len() <= 2 * damaged.len(), "{what}: the file grows");
    checked(what, Box::new(tree).close());
    if let Some(tree) = open() {
        agrees(&tree, &model, &unknown);
    }
}

/// Damages the numbers of entries or of children so that no node can have them.
fn damage_counts<T>(is_leaf: bool, most: u64)
where
    T: PersistentMap<1, 1> + PersistentTree<Options = Options, Census = Census>,
{
    let file = file::<T>(true);
    let mut cases = 0;
    for (place, node) in nodes(&file, is_leaf).into_iter().enumerate() {
        let sound = word(&file.bytes, node);
        let none = (!is_leaf).then_some(sound & 0xffff_ffff);
        for meta in (32..64).map(|bit| sound ^ 1 << bit).filter(|meta| meta >> 32 > most).chain(none) {
            cases += 1;
            if !is_soak() && cases % 8 != place % 8 {
                continue;
            }
            let mut damaged = file.bytes.clone();
            set(&mut damaged, node, meta);
            let what = format!("{}: the first word of the node at {node} is {meta:#x}", std::any::type_name::<T>());
            uses_right_or_refuses::<T>(&what, &damaged, &file.model);
        }
    }
    assert!(cases > 100, "{cases}");
}

/// A split of a leaf with a greater number than it has room for would never have made room.
#[test]
fn numbers_of_entries_that_no_leaf_can_have_are_refused_and_lose_nothing() {
    damage_counts::<Of<BTreeWal>>(true, 7);
    damage_counts::<Of<VolatileBTree>>(true, 7);
    damage_counts::<Of<PersistentUnsorted>>(true, 7);
}

/// Otherwise a split would move what lies behind the children into the new node.
#[test]
fn numbers_of_children_that_no_node_can_have_are_refused_and_lose_nothing() {
    damage_counts::<Of<PersistentUnsorted>>(false, 7);
    damage_counts::<Of<FastFair>>(false, 7);
    damage_counts::<Of<BTreeWal>>(false, 7);
}

/// A free slot whose tag is damaged would count, and the tag behind the greatest one is that of a
/// free slot.
fn damage_tags<T>()
where
    T: PersistentMap<1, 1> + PersistentTree<Options = Options, Census = Census>,
{
    let file = file::<T>(true);
    let (mut free, mut cases) = (0, 0);
    for leaf in nodes(&file, true) {
        let tags = (0..4).map(|slot| leaf + 32 + slot * 24);
        for at in tags.take_while(|at| word(&file.bytes, *at) != 0) {
            let is_free = word(&file.bytes, at) == u64::MAX;
            free += usize::from(is_free);
            for bit in if is_free { 0..64 } else { 47..64 } {
                cases += 1;
                if is_soak() || cases % 16 == 0 {
                    let what = format!("{}: bit {bit} of the tag at {at}", std::any::type_name::<T>());
                    uses_right_or_refuses::<T>(&what, &flipped(&file.bytes, at, bit), &file.model);
                }
            }
        }
    }
    assert!(free > 10, "{free}");
}

#[test]
fn tags_that_no_entry_can_have_are_refused_and_lose_nothing() {
    damage_tags::<Of<FastFair>>();
    damage_tags::<Of<FastFairSp>>();
}
