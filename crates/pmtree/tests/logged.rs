//! The tree with whole-node logging: compared with a list, on damaged pools, and the costs of its
//! operations.

use crate::damage::is_damage;
use crate::support::{ONE_LEAF, TestedTree, grow_and_shrink, random, rect, window};
use rand::Rng;
use terrane_pmem::{Backend, Counted, Counters, PersistenceDomain, ROOT, Traced};
use terrane_pmtree::fbr::{FbrTree, SearchMode};
use terrane_pmtree::logged::{LoggedTree, Logging, Options};
use terrane_pmtree::{Durability, Error, NearestSearch, PersistentRTree, PersistentTree, Rect, Split};
use terrane_storage::{OpenMode, Storage};
use terrane_testkit::MemoryStorage;

fn small_of<T: TestedTree<2>>(fan_out: usize) -> T::Options {
    T::options(PersistenceDomain::PageCache, fan_out)
}

fn small(fan_out: usize) -> Options {
    small_of::<LoggedTree<2, Traced>>(fan_out)
}

fn compare<const D: usize>(seed: u64, options: &Options, operations: usize) {
    assert_eq!(grow_and_shrink::<D, LoggedTree<D, Traced>>(seed, options, operations), ONE_LEAF);
}

#[test]
fn it_holds_what_a_list_holds() {
    for split in [Split::RStar, Split::Quadratic] {
        for fan_out in [4, 5, 9, 60] {
            compare::<2>(1, &Options { split, ..small(fan_out) }, 2000);
        }
    }
    for logging in [Logging::Ranges, Logging::None] {
        compare::<2>(4, &Options { logging, ..small(5) }, 2000);
        compare::<3>(5, &Options { logging, ..small(60) }, 1000);
    }
    compare::<3>(2, &small(4), 1000);
    compare::<4>(3, &small(503), 1000);
}

/// Chunks that hold the block in the error hold all of the tree.
fn is_told_what_chunks_have_to_hold<T: TestedTree<2>>() {
    let storage = MemoryStorage::new();
    let mut options = small_of::<T>(503);
    T::pool_of(&mut options).chunk_length = 4096;
    let Err(refused) = T::create(&storage, "tree", &options) else { panic!("chunks shorter than nodes") };
    let Error::Pool(terrane_pmem::Error::BlockLength { wanted, longest, .. }) = refused else { panic!("{refused}") };
    assert!(longest < 4096 && !storage.exists("tree").unwrap(), "{longest}");
    T::pool_of(&mut options).chunk_length = (wanted + 512).next_multiple_of(4096);
    let tree = T::create(&storage, "tree", &options).unwrap();
    (0..600).for_each(|payload| tree.insert(&Rect::point([payload as f64; 2]).unwrap(), payload).unwrap());
}

#[test]
fn chunks_shorter_than_nodes_are_refused_with_the_length_that_they_need() {
    is_told_what_chunks_have_to_hold::<FbrTree<2, Traced>>();
    is_told_what_chunks_have_to_hold::<LoggedTree<2, Traced>>();
}

#[test]
fn trees_state_that_operations_survive_what_their_medium_does() {
    fn states<T: TestedTree<2>>() -> [Durability; 3] {
        [PersistenceDomain::PageCache, PersistenceDomain::Eadr, PersistenceDomain::Adr]
            .map(|domain| T::create(&MemoryStorage::new(), "tree", &T::options(domain, 4)).unwrap().durability())
    }
    let expected = [Durability::ProcessKill, Durability::PowerLoss, Durability::PowerLoss];
    assert_eq!(states::<FbrTree<2, Traced>>(), expected);
    assert_eq!(states::<LoggedTree<2, Traced>>(), expected);
}

fn compares_coordinates_as_numbers<T: TestedTree<2>>() {
    let tree = T::create(&MemoryStorage::new(), "tree", &small_of::<T>(4)).unwrap();
    let [negative, positive] = [-0.0, 0.0].map(|zero| Rect::point([zero, 1.0]).unwrap());
    for (inserted, named) in [(negative, positive), (positive, negative)] {
        tree.insert(&inserted, 7).unwrap();
        assert!(tree.contains(&named, 7).unwrap() && tree.delete(&named, 7).unwrap());
        assert!(!tree.contains(&inserted, 7).unwrap());
    }
}

#[test]
fn a_box_at_negative_zero_is_the_one_at_zero() {
    compares_coordinates_as_numbers::<FbrTree<2, Traced>>();
    compares_coordinates_as_numbers::<LoggedTree<2, Traced>>();
}

#[test]
fn trees_behind_the_trait_give_the_same_answers() {
    fn answers<T: TestedTree<2>>() -> Vec<Vec<u64>> {
        let tree = T::create(&MemoryStorage::new(), "tree", &small_of::<T>(6)).unwrap();
        let mut random = random(5);
        (0..300).for_each(|payload| tree.insert(&rect(&mut random, 40), payload).unwrap());
        (0..50).map(|_| window(&tree, &rect(&mut random, 40), SearchMode::Validated)).collect()
    }
    let logged = answers::<LoggedTree<2, Traced>>();
    assert_eq!(logged, answers::<FbrTree<2, Traced>>());
    assert!(logged.iter().any(|hits| hits.len() > 1));
}

#[test]
fn neighbours_of_a_point_that_is_none_are_refused() {
    fn refuses<T: TestedTree<2>>() {
        let tree = T::create(&MemoryStorage::new(), "tree", &small_of::<T>(4)).unwrap();
        tree.insert(&Rect::point([1.0, 1.0]).unwrap(), 1).unwrap();
        for point in [[f64::NAN, 0.0], [0.0, f64::INFINITY], [f64::NEG_INFINITY, 0.0]] {
            let refused = tree.nearest(&point, 3, &|_, _| true);
            assert!(matches!(refused, Err(Error::NotFinite { .. })), "{point:?}: {refused:?}");
        }
        assert_eq!(tree.nearest(&[f64::MAX, f64::MIN], 3, &|_, _| true).unwrap().len(), 1);
    }
    refuses::<FbrTree<2, Traced>>();
    refuses::<LoggedTree<2, Traced>>();
}

#[test]
fn pools_of_other_trees_are_refused_and_left_as_they_are() {
    let storage = MemoryStorage::new();
    FbrTree::<2, Traced>::create(&storage, "fbr", &small_of::<FbrTree<2, Traced>>(4)).unwrap().close().unwrap();
    Box::new(LoggedTree::<2, Traced>::create(&storage, "logged", &small(4)).unwrap()).close().unwrap();
    let before = ["fbr", "logged"].map(|name| bytes(&storage, name));
    let pool = |error: Error| matches!(error, Error::Pool(terrane_pmem::Error::OtherLayout { .. }));
    assert!(pool(LoggedTree::<2, Traced>::open(&storage, "fbr", &small(4)).unwrap_err()));
    assert!(pool(FbrTree::<2, Traced>::open(&storage, "logged", &small_of::<FbrTree<2, Traced>>(4)).unwrap_err()));
    let of_three = LoggedTree::<3, Traced>::open(&storage, "logged", &small(4));
    assert!(matches!(of_three, Err(Error::OtherShape { .. })), "{of_three:?}");
    assert!(["fbr", "logged"].map(|name| bytes(&storage, name)) == before, "they were closed, and stay so");
    let too_small = LoggedTree::<2, Traced>::create(&storage, "other", &small(3));
    assert!(matches!(too_small, Err(Error::FanOut { fan_out: 3, .. })), "{too_small:?}");
}

fn bytes(storage: &dyn Storage, name: &str) -> Vec<u8> {
    let file = storage.open(name, OpenMode::Read).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Runs every operation, with any result.
fn use_all(storage: &dyn Storage) -> Result<(), Error> {
    let before = bytes(storage, "tree");
    let mut tree: LoggedTree<2, Traced> = LoggedTree::open(storage, "tree", &small(4))
        .inspect_err(|error| assert!(bytes(storage, "tree") == before, "it was changed and then refused: {error}"))?;
    let _ = tree.window(&Rect::new([-1e300; 2], [1e300; 2])?, &mut |_, _| {});
    let _ = tree.nearest(&[1.0, 2.0], 10, &|_, _| true);
    let mut random = random(1);
    (0..60).for_each(|payload| drop(tree.delete(&rect(&mut random, 30), payload)));
    (0..20).for_each(|payload| drop(tree.insert(&rect(&mut random, 30), payload)));
    tree.check().map(drop)
}

#[test]
fn any_word_may_be_damaged() {
    let storage = MemoryStorage::new();
    let tree: LoggedTree<2, Traced> = LoggedTree::create(&storage, "tree", &small(4)).unwrap();
    let mut of_tree = random(1);
    (0..60).for_each(|payload| tree.insert(&rect(&mut of_tree, 30), payload).unwrap());
    Box::new(tree).close().unwrap();
    let sound = bytes(&storage, "tree");
    let end = sound.iter().rposition(|&byte| byte != 0).unwrap() + 1;
    let mut random = random(2);
    let mut caught = 0;
    for _ in 0..1500 {
        let mut damaged = sound.clone();
        let place = random.random_range(0..end / 8) * 8;
        let other = random.random_range(0..end / 8) * 8;
        let value = match random.random_range(0..4) {
            0 => u64::MAX,
            1 => random.random_range(0..16),
            2 => u64::from_le_bytes(sound[other..other + 8].try_into().unwrap()),
            _ => u64::from_le_bytes(sound[place..place + 8].try_into().unwrap()) ^ 1 << random.random_range(0..64),
        };
        damaged[place..place + 8].copy_from_slice(&value.to_le_bytes());
        let storage = MemoryStorage::new();
        storage.open("tree", OpenMode::CreateNew).unwrap().write_all_at(&damaged, 0).unwrap();
        caught += usize::from(use_all(&storage).is_err());
    }
    assert!(caught > 20, "{caught}");
}

/// Even if all answers are right: no operation leaves a box that is too large.
#[test]
fn a_box_that_is_larger_than_what_lies_in_it_is_damage() {
    let mut tree = LoggedTree::<2, Traced>::create(&MemoryStorage::new(), "tree", &small(4)).unwrap();
    (1..6).for_each(|number| tree.insert(&Rect::point([f64::from(number); 2]).unwrap(), 1).unwrap());
    assert_eq!(tree.check().unwrap().leaves, 2);
    let backend = tree.pool().backend();
    let root = backend.load(backend.load(ROOT) + 64);
    // The lower corners of the root's first entry.
    let corners = [root + 64, root + 72];
    for corner in corners {
        let before = tree.pool().backend().load(corner);
        tree.pool().backend().store(corner, 0.5_f64.to_bits());
        assert!(is_damage(&tree.check().unwrap_err()), "{corner}");
        tree.pool().backend().store(corner, before);
    }
    tree.check().unwrap();
}

/// Damage that recovery would act on, which must be refused before.
#[test]
fn a_damaged_log_is_refused_and_its_file_left_as_it_is() {
    let storage = MemoryStorage::new();
    let tree = LoggedTree::<2, Traced>::create(&storage, "tree", &small(4)).unwrap();
    // Then the log has images.
    (0..9).for_each(|number| tree.insert(&Rect::point([f64::from(number); 2]).unwrap(), 1).unwrap());
    Box::new(tree).close().unwrap();
    let sound = bytes(&storage, "tree");
    let word = |at: u64| u64::from_le_bytes(sound[at as usize..at as usize + 8].try_into().unwrap());
    let block = word(ROOT);
    let (root_word, images) = (block + 64, [block + 576, block + 584]);
    let (root, image) = (word(root_word), word(images[0]));
    assert!(root != 0 && image != 0 && word(images[1]) != 0, "places of the root word and of two images' blocks");
    // Places in the block: shape, state of the log, blocks that it owns, nodes.
    let [dimensions, fan_out, state, acquired, released, new_root, node] =
        [0, 8, 128, 136, 152, 160, 168].map(|word| block + word);
    let committed = |images: u64| images << 8 | 1;
    for damage in [
        vec![(ROOT, block + 8)],
        vec![(dimensions, 77)],
        vec![(fan_out, 1 << 20)],
        vec![(acquired, 77)],
        vec![(state, committed(0)), (released, 77)],
        vec![(state, committed(77))],
        vec![(state, committed(1)), (node, 1 << 40)],
        vec![(state, committed(1)), (node, block)],
        vec![(state, committed(1)), (node, root + 64)],
        vec![(state, committed(1)), (node, image)],
        vec![(state, committed(1)), (node, root), (image + 8, 5)],
        vec![(state, committed(1)), (node, root), (block + 576, image + 64)],
        vec![(state, committed(1)), (node, root), (new_root, block)],
        vec![(state, committed(1)), (node, root), (new_root, 1 << 40)],
        vec![(acquired, root)],
        vec![(acquired, image)],
        vec![(state, committed(0)), (released, root)],
        vec![(state, committed(0)), (released, block)],
        vec![(images[0], root)],
        vec![(images[0], block)],
        vec![(images[1], image)],
    ] {
        let mut damaged = sound.clone();
        for &(at, value) in &damage {
            damaged[at as usize..at as usize + 8].copy_from_slice(&u64::to_le_bytes(value));
        }
        assert_is_refused(&damaged, &damage);
    }
    // Any changed bit of the fan-out, the root word or an image's block.
    for (place, bit) in
        [fan_out, root_word, images[0], images[1]].into_iter().flat_map(|place| (0..64).map(move |bit| (place, bit)))
    {
        let mut damaged = sound.clone();
        damaged[place as usize + bit / 8] ^= 1 << (bit % 8);
        assert_is_refused(&damaged, &(place, bit));
    }
}

fn assert_is_refused(damaged: &[u8], damage: &dyn std::fmt::Debug) {
    let storage = MemoryStorage::new();
    storage.open("tree", OpenMode::CreateNew).unwrap().write_all_at(damaged, 0).unwrap();
    let error = LoggedTree::<2, Traced>::open(&storage, "tree", &small(4)).err();
    let is_refused = error.as_ref().is_some_and(|error| is_damage(error) || matches!(error, Error::OtherShape { .. }));
    assert!(is_refused, "{damage:?}: {error:?}");
    assert!(bytes(&storage, "tree") == damaged, "{damage:?}: the file was changed");
}

/// A block that a merge would free after its commitment is checked before.
#[test]
fn a_sibling_that_is_no_block_of_the_tree_is_met_before_the_change_commits() {
    const LOG: u64 = 128;
    const ENTRIES: u64 = 64;
    const TARGET: u64 = 32;
    let storage = MemoryStorage::new();
    let tree = LoggedTree::<2, Traced>::create(&storage, "tree", &small(4)).unwrap();
    let point = |number: u64| Rect::point([(number / 2 * 10 + number % 2) as f64, 0.0]).unwrap();
    (0..12).for_each(|number| tree.insert(&point(number), number).unwrap());
    let backend = tree.pool().backend();
    let block = backend.load(ROOT);
    let mut parent = backend.load(block + 64);
    while backend.load(parent) > 1 {
        parent = backend.load(parent + ENTRIES + TARGET);
    }
    // A copy of the second leaf, behind the start of a block that nobody has.
    let mut last = 0;
    tree.pool().visit_blocks(|block, length| last = last.max(block + length)).unwrap();
    let (link, place) = (parent + ENTRIES + 64 + TARGET, last + 64);
    (0..40).for_each(|word| backend.store(place + word * 8, backend.load(backend.load(link) + word * 8)));
    backend.store(link, place);
    let refused = (0..12).filter(|&number| tree.delete(&point(number), number).is_err_and(|error| is_damage(&error)));
    assert!(refused.count() > 0);
    assert_eq!(backend.load(block + LOG), 0, "a change is committed and has not ended");
    let copy = MemoryStorage::new();
    copy.open("tree", OpenMode::CreateNew).unwrap().write_all_at(&bytes(&storage, "tree"), 0).unwrap();
    LoggedTree::<2, Traced>::open(&copy, "tree", &small(4)).unwrap();
}

/// The new root is checked before the change that makes it the root commits.
#[test]
fn an_only_child_that_is_no_block_of_the_tree_does_not_become_the_root() {
    const LOG: u64 = 128;
    const LINK: u64 = 64 + 32;
    for kept in 0..2 {
        let storage = MemoryStorage::new();
        let mut tree = LoggedTree::<2, Traced>::create(&storage, "tree", &small(4)).unwrap();
        let point = |number: u64| Rect::point([(number / 3 * 10 + number % 3) as f64, 0.0]).unwrap();
        (0..6).for_each(|number| tree.insert(&point(number), number).unwrap());
        assert_eq!(tree.check().unwrap().leaves, 2);
        let backend = tree.pool().backend();
        let block = backend.load(ROOT);
        let root = backend.load(block + 64);
        let mut last = 0;
        tree.pool().visit_blocks(|block, length| last = last.max(block + length)).unwrap();
        // A copy of one of the leaves, behind the start of a block that nobody has, takes over the
        // contents of the other.
        let (link, place) = (root + kept * 64 + LINK, last + 64);
        (0..40).for_each(|word| backend.store(place + word * 8, backend.load(backend.load(link) + word * 8)));
        backend.store(link, place);
        let refused =
            (0..6).filter(|&number| tree.delete(&point(number), number).is_err_and(|error| is_damage(&error)));
        assert!(refused.count() > 0, "child {kept}");
        assert_eq!((backend.load(block + 64), backend.load(block + LOG)), (root, 0), "child {kept}");
        let copy = MemoryStorage::new();
        copy.open("tree", OpenMode::CreateNew).unwrap().write_all_at(&bytes(&storage, "tree"), 0).unwrap();
        LoggedTree::<2, Traced>::open(&copy, "tree", &small(4)).unwrap();
    }
}

/// It would be overwritten, and the part that was not applied to the nodes yet would be lost.
#[test]
fn nothing_is_changed_while_a_committed_change_stands_in_the_log() {
    const LOG: u64 = 128;
    let storage = MemoryStorage::new();
    let tree = LoggedTree::<2, Traced>::create(&storage, "tree", &small(4)).unwrap();
    let point = |number: u64| Rect::point([number as f64, 0.0]).unwrap();
    (0..20).for_each(|number| tree.insert(&point(number), number).unwrap());
    let state = tree.pool().backend().load(ROOT) + LOG;
    // With no images, so that it can be completed.
    tree.pool().backend().store(state, 1);
    for error in [tree.insert(&point(20), 20).unwrap_err(), tree.delete(&point(3), 3).unwrap_err()] {
        assert!(error.to_string().contains("a change of nodes has failed in the middle"), "{error}");
    }
    assert_eq!(tree.pool().backend().load(state), 1);
    assert!(tree.contains(&point(3), 3).unwrap() && !tree.contains(&point(20), 20).unwrap());
    drop(tree);
    let mut tree = LoggedTree::<2, Traced>::open(&storage, "tree", &small(4)).unwrap();
    tree.insert(&point(20), 20).unwrap();
    assert_eq!(tree.check().unwrap().entries, 21);
}

fn counted<const D: usize>(
    tree: &LoggedTree<D, Counted<Traced>>,
    run: impl FnOnce(&LoggedTree<D, Counted<Traced>>),
) -> Counters {
    tree.pool().backend().take();
    run(tree);
    tree.pool().backend().take()
}

fn counting<const D: usize>(fan_out: usize) -> LoggedTree<D, Counted<Traced>> {
    let options = LoggedTree::<D, Counted<Traced>>::options(PersistenceDomain::Adr, fan_out);
    LoggedTree::create(&MemoryStorage::new(), "tree", &options).unwrap()
}

/// Lines of a node of three dimensions: the header, and one for each entry.
const NODE_LINES: u64 = 1 + 55;

#[test]
fn an_insertion_into_a_leaf_logs_the_leaf_whole_and_takes_four_fences() {
    let tree = counting::<3>(55);
    let rect = |number: u64| Rect::point([number as f64; 3]).unwrap();
    // The log gets its first block.
    tree.insert(&rect(0), 0).unwrap();
    for number in 1..55 {
        let cost = counted(&tree, |tree| tree.insert(&rect(number), number).unwrap());
        // The image; its commitment; header and entry in place; the end of the log.
        assert_eq!((cost.flushes, cost.fences), (NODE_LINES + 1 + 2 + 1, 4), "{number}");
    }
}

#[test]
fn each_box_that_grows_logs_one_more_node() {
    let tree = counting::<3>(55);
    let point = |at: f64| Rect::point([at; 3]).unwrap();
    (0..600).for_each(|number| tree.insert(&point(f64::from(number)), 0).unwrap());
    // Inside of all boxes, and then beyond all of them.
    for (at, levels) in [(300.0, 0), (900.0, 1)] {
        let cost = counted(&tree, |tree| tree.insert(&point(at), 0).unwrap());
        assert_eq!((cost.flushes, cost.fences), ((1 + levels) * NODE_LINES + 1 + 2 + levels + 1, 4), "{at}");
    }
}

#[test]
fn a_search_flushes_nothing_and_a_deletion_logs_what_it_changes() {
    let tree = counting::<2>(55);
    (0..30).for_each(|number| tree.insert(&Rect::point([f64::from(number); 2]).unwrap(), 1).unwrap());
    let rect = Rect::point([3.0; 2]).unwrap();
    let search = counted(&tree, |tree| tree.window(&rect, &mut |_, _| {}).unwrap());
    assert_eq!((search.flushes, search.fences, search.stores), (0, 0, 0));
    let deletion = counted(&tree, |tree| assert!(tree.delete(&rect, 1).unwrap()));
    assert_eq!((deletion.flushes, deletion.fences), (NODE_LINES + 1 + 2 + 1, 4));
}
