//! Pools that something else has changed. They lead to errors or answers, never to a panic, a loop,
//! or an access outside of the pool.

use std::collections::BTreeSet;

use crate::support::{BOTH, FORMS, TestedTree, options, random, rect};
use rand::Rng;
use terrane_pmem::{Backend, PersistenceDomain, Pool, ROOT, Traced};
use terrane_pmtree::fbr::{FbrTree, LeafForm, Options, SearchMode};
use terrane_pmtree::logged::LoggedTree;
use terrane_pmtree::{Error, PersistentRTree, PersistentTree, Rect};
use terrane_storage::event::{Event, PoolEvent};
use terrane_storage::{OpenMode, Storage};
use terrane_testkit::MemoryStorage;
use terrane_testkit::crash::Controller;

fn filled(options: &Options) -> MemoryStorage {
    with_entries(60, options)
}

fn with_entries(count: u64, options: &Options) -> MemoryStorage {
    let storage = MemoryStorage::new();
    let tree: FbrTree<2, Traced> = FbrTree::create(&storage, "tree", options).unwrap();
    let mut random = random(1);
    for payload in 0..count {
        tree.insert(&rect(&mut random, 30), payload).unwrap();
    }
    tree.close().unwrap();
    storage
}

pub fn bytes(storage: &dyn Storage) -> Vec<u8> {
    let file = storage.open("tree", OpenMode::Read).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

pub fn with(bytes: &[u8]) -> MemoryStorage {
    let storage = MemoryStorage::new();
    let file = storage.open("tree", OpenMode::CreateNew).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    storage
}

/// Runs every operation, with any result.
fn use_all(storage: &dyn Storage, options: &Options) -> Result<(), Error> {
    let before = bytes(storage);
    let mut tree: FbrTree<2, Traced> = FbrTree::open(storage, "tree", options)
        .inspect_err(|error| assert!(bytes(storage) == before, "the file was changed and then refused: {error}"))?;
    let everything = Rect::new([-1e300; 2], [1e300; 2])?;
    for mode in [SearchMode::Validated, SearchMode::ReadUncommitted, SearchMode::SharedLock] {
        let _ = tree.window(&everything, mode, |_, _| {});
    }
    let _ = tree.nearest(&[1.0, 2.0], 10, SearchMode::Validated, |_, _| true);
    let mut random = random(1);
    for payload in 0..60 {
        let _ = tree.delete(&rect(&mut random, 30), payload);
    }
    for payload in 0..20 {
        let _ = tree.insert(&rect(&mut random, 30), payload);
    }
    tree.check().map(drop)
}

#[test]
fn any_word_may_be_damaged() {
    let mut caught = 0;
    for (leaves, rebalancing) in FORMS.into_iter().flat_map(|leaves| BOTH.map(|rebalancing| (leaves, rebalancing))) {
        let options = Options { leaves, ..options(PersistenceDomain::PageCache, 4, rebalancing) };
        let sound = bytes(&filled(&options));
        use_all(&with(&sound), &options).unwrap();
        // Nothing lies behind the last block.
        let end = sound.iter().rposition(|&byte| byte != 0).unwrap() + 1;
        let mut random = random(2);
        for _ in 0..1500 {
            let mut damaged = sound.clone();
            let word = random.random_range(0..end / 8) * 8;
            let other = random.random_range(0..end / 8) * 8;
            let value = match random.random_range(0..5) {
                0 => 0,
                1 => u64::MAX,
                2 => random.random(),
                3 => u64::from_le_bytes(sound[other..other + 8].try_into().unwrap()),
                _ => u64::from_le_bytes(sound[word..word + 8].try_into().unwrap()) ^ 1 << random.random_range(0..64),
            };
            damaged[word..word + 8].copy_from_slice(&value.to_le_bytes());
            caught += usize::from(use_all(&with(&damaged), &options).is_err());
        }
    }
    assert!(caught > 50, "{caught}");
}

/// Pools that open and are not trees.
#[test]
fn a_check_tells_what_breaks_the_structure() {
    let own = [7.125, 7.25, 7.5, 7.75];
    let own_bytes = own.map(f64::to_le_bytes).concat();
    let word = |bytes: &[u8], at: u64| u64::from_le_bytes(bytes[at as usize..][..8].try_into().unwrap());
    for (leaves, rebalancing) in FORMS.into_iter().flat_map(|leaves| BOTH.map(|rebalancing| (leaves, rebalancing))) {
        let options = Options { leaves, ..options(PersistenceDomain::PageCache, 4, rebalancing) };
        let storage = filled(&options);
        let tree: FbrTree<2, Traced> = FbrTree::open(&storage, "tree", &options).unwrap();
        tree.insert(&Rect::new([own[0], own[1]], [own[2], own[3]]).unwrap(), 1000).unwrap();
        tree.close().unwrap();
        let sound = bytes(&storage);
        let checked = |damage: &dyn Fn(&mut [u8])| {
            let mut damaged = sound.clone();
            damage(&mut damaged);
            let mut tree: FbrTree<2, Traced> = FbrTree::open(&with(&damaged), "tree", &options).unwrap();
            tree.check().map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(checked(&|_| {}), Ok(()));
        // Blocks that are free now may hold it, too.
        let places: Vec<usize> =
            (0..sound.len() - 32).step_by(8).filter(|&at| sound[at..][..32] == own_bytes).collect();
        for (value, says) in
            [(1e6, "the box of a child does not contain"), (f64::NAN, "the box of an entry is invalid")]
        {
            let outcome = checked(&|damaged| {
                places.iter().for_each(|at| damaged[at + 16..][..8].copy_from_slice(&value.to_le_bytes()));
            });
            assert!(outcome.is_err_and(|error| error.contains(says)), "{says}, {options:?}");
        }
        let root = word(&sound, word(&sound, ROOT) + 64) as usize;
        let children: Vec<usize> = (0..4).filter(|slot| word(&sound, root as u64) >> slot & 1 == 1).collect();
        let [first, second] = [children[0], children[1]].map(|slot| root + 64 * (1 + slot));
        let outcome = checked(&|damaged| damaged.copy_within(first..first + 64, second));
        assert!(outcome.is_err_and(|error| error.contains("a node is linked twice")), "{options:?}");
    }
}

/// States that no file shows, since opening settles or refuses them: words are changed while the
/// tree is open.
#[test]
fn a_check_tells_what_is_left_over_or_lost() {
    type Damage = fn(&Pool<Traced>, Places);
    #[derive(Clone, Copy)]
    struct Places {
        block: u64,
        root: u64,
        leaf: u64,
    }
    let cases: [(&str, Damage); 6] = [
        ("entry 0 of the log is still in use", |pool, at| pool.backend().store(at.block + LOG, 1 << 1)),
        ("the pool's root word has changed", |pool, at| pool.backend().store(ROOT, at.block + 64)),
        ("a block is acquired and not linked", |pool, at| {
            let mut intent = pool.intent();
            let lost = intent.acquire(64, ROOT).unwrap();
            pool.backend().store(ROOT, lost);
            intent.finish();
            pool.backend().store(ROOT, at.block);
        }),
        ("a block of the tree is free", |pool, at| {
            let mut intent = pool.intent();
            intent.release(at.root, at.block + ROOT_WORD).unwrap();
            pool.backend().store(at.block + ROOT_WORD, 0);
            intent.finish();
            pool.backend().store(at.block + ROOT_WORD, at.root);
        }),
        ("an inner node has no children", |pool, at| {
            pool.backend().store(at.root, pool.backend().load(at.root) & !0b1111);
        }),
        ("the bitmap of a leaf differs from its entries' tags", |pool, at| {
            let metadata = pool.backend().load(at.leaf);
            pool.backend().store(at.leaf, metadata & (metadata - 1));
        }),
    ];
    for (leaves, rebalancing) in FORMS.into_iter().flat_map(|leaves| BOTH.map(|rebalancing| (leaves, rebalancing))) {
        let options = Options { leaves, ..options(PersistenceDomain::PageCache, 4, rebalancing) };
        let by_tags = leaves == LeafForm::SelfValidating;
        for (says, damage) in &cases[..if by_tags { 6 } else { 5 }] {
            let mut tree: FbrTree<2, Traced> = FbrTree::open(&with_entries(7, &options), "tree", &options).unwrap();
            // Bitmaps were made from the tags by now.
            assert_eq!(tree.check().unwrap().height, 1);
            let load = |word| tree.pool().backend().load(word);
            let block = load(ROOT);
            let root = load(block + ROOT_WORD);
            let slot = u64::from(load(root).trailing_zeros());
            damage(tree.pool(), Places { block, root, leaf: load(root + 64 * (1 + slot) + 32) });
            let error = tree.check().unwrap_err().to_string();
            assert!(error.contains(says), "{error}, not: {says}; {options:?}");
        }
    }
}

/// A link into the node that contains it, which an insertion has locked. Without the number of a
/// level, its target looks like a leaf.
#[test]
fn nothing_waits_for_itself_in_a_node_that_links_its_inside() {
    let word = |bytes: &[u8], at: u64| u64::from_le_bytes(bytes[at as usize..][..8].try_into().unwrap());
    for (leaves, rebalancing) in FORMS.into_iter().flat_map(|leaves| BOTH.map(|rebalancing| (leaves, rebalancing))) {
        let options = Options { leaves, ..options(PersistenceDomain::PageCache, 4, rebalancing) };
        let sound = bytes(&with_entries(7, &options));
        let root = word(&sound, word(&sound, ROOT) + 64);
        let node = root..root + 5 * 64;
        let leads_to_a_line = |at: &u64| (8192..sound.len() as u64).contains(&word(&sound, *at));
        let links: Vec<u64> = node.clone().skip(64).step_by(8).filter(leads_to_a_line).collect();
        assert!(links.len() > 1, "{links:?}");
        let mut refused = 0;
        for (link, inside) in links.iter().flat_map(|link| node.clone().step_by(8).map(move |inside| (*link, inside))) {
            let mut damaged = sound.clone();
            damaged[link as usize..][..8].copy_from_slice(&inside.to_le_bytes());
            let _ = use_all(&with(&damaged), &options);
            let storage = with(&damaged);
            let Ok(tree) = FbrTree::<2, Traced>::open(&storage, "tree", &options) else { continue };
            let mut random = random(3);
            let outcomes = (0..20).map(|payload| tree.insert(&rect(&mut random, 30), payload));
            refused += outcomes.filter(|outcome| is_no_block(outcome, inside)).count();
        }
        assert!(refused > 0, "{options:?}");
    }
}

fn is_no_block(outcome: &Result<(), Error>, place: u64) -> bool {
    matches!(outcome, Err(Error::Pool(terrane_pmem::Error::Damaged { offset, .. })) if *offset == place)
}

/// Words of the tree's block: dimensions, fan-out, form of leaves; then the log.
const SHAPE: [u64; 3] = [0, 8, 16];
const ROOT_WORD: u64 = 64;
const LOG: u64 = 128;
/// In a logged tree, where the log names blocks for images.
const IMAGES: u64 = 576;

/// Damage that recovery would act on, which must be refused before.
#[test]
fn a_damaged_tree_is_refused_and_its_file_left_as_it_is() {
    let options = options(PersistenceDomain::PageCache, 4, BOTH[0]);
    let sound = bytes(&filled(&options));
    let word = |at: u64| u64::from_le_bytes(sound[at as usize..at as usize + 8].try_into().unwrap());
    let block = word(ROOT);
    let root = word(block + 64);
    // A split without a commitment, and committed ones of a block that is no node, and of no node.
    let [announced, committed] = [2, 3];
    let shape = SHAPE.map(|word| vec![(block + word, 1 << 20)]);
    let log = [
        vec![(block + LOG, 0b1111)],
        vec![(block + LOG, announced), (block + LOG + 24, root + 8)],
        vec![(block + LOG, committed), (block + LOG + 16, root), (block + LOG + 24, 1 << 40)],
        vec![(block + LOG, committed), (block + LOG + 16, root), (block + LOG + 24, 64)],
        vec![(block + LOG, committed)],
        // Blocks that would be freed: the root, and the tree's own.
        vec![(block + LOG, announced), (block + LOG + 24, root)],
        vec![(block + LOG, announced), (block + LOG + 24, block)],
    ];
    for damage in shape.into_iter().chain(log).chain([vec![(ROOT, block + 8)], vec![(ROOT, 1 << 40)]]) {
        let mut damaged = sound.clone();
        for &(at, value) in &damage {
            damaged[at as usize..at as usize + 8].copy_from_slice(&u64::to_le_bytes(value));
        }
        let storage = with(&damaged);
        let opened = FbrTree::<2, Traced>::open(&storage, "tree", &options);
        assert!(opened.is_err(), "{damage:?}");
        assert!(bytes(&storage) == damaged, "{damage:?}: the file was changed");
    }
}

/// A changed bit of the fan-out, of the form of leaves, or of the root word is found by the nodes
/// behind it.
#[test]
fn a_tree_of_another_shape_than_its_nodes_is_refused_and_its_file_left_as_it_is() {
    for leaves in FORMS {
        let options = Options { leaves, ..options(PersistenceDomain::PageCache, 4, BOTH[0]) };
        let sound = bytes(&filled(&options));
        let block = u64::from_le_bytes(sound[ROOT as usize..][..8].try_into().unwrap());
        // The other bit of the form says how marks are numbered. Either value is valid.
        let form = (0..64).filter(|bit| *bit != 1).map(|bit| (SHAPE[2], bit));
        let others = [SHAPE[1], ROOT_WORD].into_iter().flat_map(|word| (0..64).map(move |bit| (word, bit)));
        for (word, bit) in form.chain(others) {
            let mut damaged = sound.clone();
            damaged[(block + word + bit / 8) as usize] ^= 1 << (bit % 8);
            let storage = with(&damaged);
            let error = FbrTree::<2, Traced>::open(&storage, "tree", &options).err();
            let is_damage = error.as_ref().is_some_and(is_damage);
            assert!(is_damage, "{leaves:?}, word {word}, bit {bit}: {error:?}");
            assert!(bytes(&storage) == damaged, "{leaves:?}, word {word}, bit {bit}: the file was changed");
        }
    }
}

/// Where leaves of the other form have an incarnation, these may have a coordinate.
#[test]
fn a_sound_tree_is_opened_whatever_its_coordinates_and_its_fan_out_are() {
    for fan_out in (4..=503).step_by(7).chain(248..=311) {
        for leaves in FORMS {
            let sound = Options { leaves, ..options(PersistenceDomain::PageCache, fan_out, BOTH[0]) };
            for coordinate in [-0.0, 0.0, f64::from_bits(1), -f64::from_bits(1), -1.0, f64::MAX] {
                let storage = MemoryStorage::new();
                let tree: FbrTree<2, Traced> = FbrTree::create(&storage, "tree", &sound).unwrap();
                tree.insert(&Rect::point([coordinate, 1.0]).unwrap(), 1).unwrap();
                tree.close().unwrap();
                let opened = FbrTree::<2, Traced>::open(&storage, "tree", &sound);
                assert!(opened.is_ok(), "{fan_out}, {leaves:?}, {coordinate}: {opened:?}");
            }
        }
    }
}

/// A block that seems to be free would be given to another owner.
#[test]
fn a_tree_whose_blocks_are_said_to_be_free_is_refused_and_its_file_left_as_it_is() {
    /// `links` are the words of the tree's block that name blocks. `log` gives the contents of the
    /// log for a tree with this root.
    fn check<T: TestedTree<2>>(links: &[u64], log: fn(u64) -> Vec<(u64, u64)>) {
        let mut options = T::options(PersistenceDomain::PageCache, 4);
        let chunk_length = T::pool_of(&mut options).chunk_length;
        let storage = MemoryStorage::new();
        let tree = T::create(&storage, "tree", &options).unwrap();
        let mut random = random(1);
        (0..60).for_each(|payload| tree.insert(&rect(&mut random, 30), payload).unwrap());
        Box::new(tree).close().unwrap();
        let mut sound = bytes(&storage);
        let word = |bytes: &[u8], at: u64| u64::from_le_bytes(bytes[at as usize..at as usize + 8].try_into().unwrap());
        let block = word(&sound, ROOT);
        for (at, value) in log(word(&sound, block + ROOT_WORD)) {
            sound[(block + at) as usize..][..8].copy_from_slice(&value.to_le_bytes());
        }
        let word = |at: u64| word(&sound, at);
        let mut missed: BTreeSet<u64> = links.iter().map(|link| word(block + link)).chain([block]).collect();
        assert!(missed.len() == links.len() + 1 && !missed.contains(&0), "{missed:?}");
        // A chunk begins with the length of its blocks and their bitmap.
        let words = (8192..sound.len() as u64).step_by(chunk_length as usize).map(|chunk| chunk + 8);
        for (at, bit) in words.flat_map(|word| (0..64).map(move |bit| (word, bit))) {
            let mut damaged = sound.clone();
            damaged[at as usize..][..8].copy_from_slice(&(word(at) & !(1 << bit)).to_le_bytes());
            let storage = with(&damaged);
            if let Err(error) = T::open(&storage, "tree", &options) {
                let Error::Damaged { offset, .. } = error else { panic!("{error}") };
                assert!(bytes(&storage) == damaged, "{error}: the file was changed");
                missed.remove(&offset);
            }
        }
        assert!(missed.is_empty(), "{missed:?}");
    }
    check::<FbrTree<2, Traced>>(&[ROOT_WORD], |_| Vec::new());
    let with_images = [ROOT_WORD, IMAGES, IMAGES + 8];
    check::<LoggedTree<2, Traced>>(&with_images, |_| Vec::new());
    // As after a crash with a committed change of one image.
    check::<LoggedTree<2, Traced>>(&with_images, |root| vec![(LOG + 40, root), (LOG, 1 << 8 | 1)]);
}

/// Otherwise it would become an empty tree, as after a crash during the creation, and its contents
/// could be overwritten.
#[test]
fn a_tree_that_no_word_names_is_refused_and_its_file_left_as_it_is() {
    fn check<T: TestedTree<2>>(count: u64) {
        let options = T::options(PersistenceDomain::PageCache, 4);
        for is_closed in [false, true] {
            let storage = MemoryStorage::new();
            let tree = T::create(&storage, "tree", &options).unwrap();
            let mut random = random(1);
            (0..count).for_each(|payload| tree.insert(&rect(&mut random, 30), payload).unwrap());
            if is_closed {
                Box::new(tree).close().unwrap();
            } else {
                drop(tree);
            }
            let sound = bytes(&storage);
            T::open(&with(&sound), "tree", &options).unwrap();
            // The word, and a sector of the disk.
            for length in [8, 512] {
                let mut damaged = sound.clone();
                damaged[ROOT as usize..][..length].fill(0);
                let storage = with(&damaged);
                let error = T::open(&storage, "tree", &options).err();
                assert!(error.as_ref().is_some_and(is_damage), "{count}, {is_closed}, {length}: {error:?}");
                assert!(bytes(&storage) == damaged, "{count}, {is_closed}, {length}: the file was changed");
            }
        }
    }
    for count in [0, 1, 60] {
        check::<FbrTree<2, Traced>>(count);
        check::<LoggedTree<2, Traced>>(count);
    }
}

pub fn is_damage(error: &Error) -> bool {
    matches!(error, Error::Damaged { .. } | Error::Pool(terrane_pmem::Error::Damaged { .. }))
}

/// Pools of killed processes, right after the commitments of changes.
fn half_changed(options: &Options) -> Vec<Vec<u8>> {
    let controller = Controller::new();
    let tree: FbrTree<2, Traced> = FbrTree::create(&*controller.storage(), "tree", options).unwrap();
    let mut random = random(1);
    let entries: Vec<(Rect<2>, u64)> = (0..60).map(|payload| (rect(&mut random, 30), payload)).collect();
    entries.iter().for_each(|(rect, payload)| tree.insert(rect, *payload).unwrap());
    entries.iter().take(50).for_each(|(rect, payload)| assert!(tree.delete(rect, *payload).unwrap()));
    let is_commitment = |event: &Event| matches!(event, Event::Pool(PoolEvent::Fence { site: "fbr.log.commit", .. }));
    let commitments: Vec<usize> =
        controller.log().iter().enumerate().filter(|(_, event)| is_commitment(event)).map(|(at, _)| at).collect();
    let images = commitments.iter().step_by(7).map(|&cut| controller.process_kill(cut).read("tree").unwrap());
    images.collect()
}

/// It would be freed twice, or take the place of two nodes.
#[test]
fn a_log_that_names_one_node_twice_is_refused_and_the_file_left_as_it_is() {
    for rebalancing in BOTH {
        let options = options(PersistenceDomain::Adr, 4, rebalancing);
        // Changes that are committed, and announced ones, where only the new nodes matter.
        let mut refused = [0; 2];
        for (mut sound, is_committed) in half_changed(&options)
            .into_iter()
            .flat_map(|sound| [false, true].map(|is_committed| (sound.clone(), is_committed)))
        {
            let word = |at: u64| u64::from_le_bytes(sound[at as usize..at as usize + 8].try_into().unwrap());
            let entry = (word(ROOT) + LOG..).step_by(64).take(32).find(|&entry| word(entry) & 1 == 1).unwrap();
            if !is_committed {
                sound[entry as usize] &= !1;
            }
            let word = |at: u64| u64::from_le_bytes(sound[at as usize..at as usize + 8].try_into().unwrap());
            let roles = (1..=5).map(|role| entry + 8 * role).filter(|&role| word(role) != 0);
            for (one, other) in roles.clone().flat_map(|one| roles.clone().map(move |other| (one, other))) {
                let mut damaged = sound.clone();
                damaged[one as usize..one as usize + 8].copy_from_slice(&word(other).to_le_bytes());
                let storage = with(&damaged);
                match FbrTree::<2, Traced>::open(&storage, "tree", &options) {
                    Ok(_) => assert!(one == other || !is_committed),
                    Err(error) => {
                        assert!(one != other && bytes(&storage) == damaged, "{error}: or the file was changed");
                        // For some, the error is different: a root may not be released, for
                        // example.
                        refused[usize::from(is_committed)] +=
                            usize::from(error.to_string().contains("names one node twice"));
                    }
                }
            }
        }
        assert!(refused[0] > 1 && refused[1] > 10, "{rebalancing:?}: {refused:?} were refused");
    }
    let options = LoggedTree::<2, Traced>::options(PersistenceDomain::PageCache, 4);
    let storage = MemoryStorage::new();
    let tree: LoggedTree<2, Traced> = LoggedTree::create(&storage, "tree", &options).unwrap();
    let mut random = random(1);
    (0..60).for_each(|payload| tree.insert(&rect(&mut random, 30), payload).unwrap());
    let mut leaf = 0;
    tree.pool().visit_blocks(|block, _| leaf = block).unwrap();
    Box::new(tree).close().unwrap();
    let mut damaged = bytes(&storage);
    let block = u64::from_le_bytes(damaged[ROOT as usize..ROOT as usize + 8].try_into().unwrap());
    for new in [LOG + 8, LOG + 16] {
        damaged[(block + new) as usize..][..8].copy_from_slice(&leaf.to_le_bytes());
    }
    let storage = with(&damaged);
    let error = LoggedTree::<2, Traced>::open(&storage, "tree", &options).unwrap_err();
    assert!(error.to_string().contains("as two new nodes"), "{error}");
    assert!(bytes(&storage) == damaged, "{error}: the file was changed");
}

/// The log names sound blocks, and these are damaged.
#[test]
fn damage_that_only_recovery_meets_is_refused_and_the_file_left_as_it_is() {
    for (leaves, rebalancing) in FORMS.into_iter().flat_map(|leaves| BOTH.map(|rebalancing| (leaves, rebalancing))) {
        let options = Options { leaves, ..options(PersistenceDomain::Adr, 4, rebalancing) };
        let (mut refused, mut random) = (0, random(3));
        for sound in half_changed(&options) {
            let open = |bytes: &[u8]| {
                let storage = with(bytes);
                let opened = FbrTree::<2, Traced>::open(&storage, "tree", &options);
                let error = opened.err();
                if let Some(error) = &error {
                    let after = self::bytes(&storage);
                    assert!(
                        after == bytes,
                        "{leaves:?}, {rebalancing:?}: the file was changed and then refused: {error}"
                    );
                }
                error
            };
            assert!(open(&sound).is_none(), "{leaves:?}, {rebalancing:?}");
            let word = |at: u64| u64::from_le_bytes(sound[at as usize..at as usize + 8].try_into().unwrap());
            let block = word(ROOT);
            let is_committed = |entry: &u64| word(*entry) & 1 == 1;
            let entry = (block + LOG..).step_by(64).take(32).find(is_committed).unwrap();
            // The nodes that the change names: their first line, and the targets and marks of their
            // entries.
            let nodes = (1..=5).map(|role| word(entry + 8 * role)).filter(|&node| node != 0);
            let places = |node: u64| {
                (0..4)
                    .map(move |at| node + at * 8)
                    .chain((64..320).step_by(64).flat_map(move |at| [node + at + 32, node + at + 40]))
            };
            for at in nodes.flat_map(places) {
                for value in [0, u64::MAX, word(at) ^ 1 << random.random_range(0..64)] {
                    let mut damaged = sound.clone();
                    damaged[at as usize..at as usize + 8].copy_from_slice(&value.to_le_bytes());
                    refused += usize::from(open(&damaged).is_some());
                }
            }
        }
        assert!(refused > 10, "{leaves:?}, {rebalancing:?}: {refused} were refused");
    }
}

/// The first leaf, whether recovery changes it or not.
#[test]
fn a_damaged_leaf_on_the_way_down_is_refused_where_a_crash_has_left_a_change_too() {
    // In a node's first line, and in an entry.
    const LEVEL: u64 = 24;
    const TARGET: u64 = 32;
    for rebalancing in BOTH {
        let options = options(PersistenceDomain::Adr, 4, rebalancing);
        for sound in half_changed(&options) {
            let storage = with(&sound);
            drop(FbrTree::<2, Traced>::open(&storage, "tree", &options).unwrap());
            let recovered = bytes(&storage);
            let word = |at: u64| u64::from_le_bytes(recovered[at as usize..at as usize + 8].try_into().unwrap());
            let mut node = word(word(ROOT) + ROOT_WORD);
            while word(node + LEVEL) > 0 {
                let slot = u64::from(word(node).trailing_zeros());
                node = word(node + 64 + slot * 64 + TARGET);
            }
            let mut damaged = sound;
            damaged[(node + LEVEL) as usize..][..8].copy_from_slice(&5_u64.to_le_bytes());
            let storage = with(&damaged);
            let error = FbrTree::<2, Traced>::open(&storage, "tree", &options).unwrap_err();
            assert!(bytes(&storage) == damaged, "{rebalancing:?}: {error}: the file was changed");
        }
    }
}

#[test]
fn a_tree_of_another_shape_is_refused_and_its_file_left_as_it_is() {
    let options = options(PersistenceDomain::PageCache, 4, BOTH[0]);
    let storage = filled(&options);
    let before = bytes(&storage);
    let opened = FbrTree::<3, Traced>::open(&storage, "tree", &options);
    assert!(matches!(opened, Err(Error::OtherShape { .. })), "{opened:?}");
    assert!(bytes(&storage) == before, "it was closed, and stays so");
    // A pool in which a crash has left no tree yet.
    let empty = MemoryStorage::new();
    let layout_id = u64::from_le_bytes(*b"FBRTREE1");
    let of_pool = terrane_pmem::Options { layout_id, ..options.pool.clone() };
    Pool::<Traced>::create(&empty, "tree", &of_pool).unwrap().close().unwrap();
    let before = bytes(&empty);
    let opened = FbrTree::<2, Traced>::open(&empty, "tree", &Options { fan_out: 3, ..options.clone() });
    assert!(matches!(opened, Err(Error::FanOut { fan_out: 3, .. })), "{opened:?}");
    assert!(bytes(&empty) == before, "it was closed, and stays so");
    let created = FbrTree::<2, Traced>::create(&storage, "other", &Options { fan_out: 3, ..options.clone() });
    assert!(matches!(created, Err(Error::FanOut { fan_out: 3, .. })), "{created:?}");
    // The fan-out is the tree's own.
    let tree: FbrTree<2, Traced> = FbrTree::open(&storage, "tree", &Options { fan_out: 55, ..options }).unwrap();
    assert_eq!(tree.nearest(&[0.0; 2], 100, SearchMode::Validated, |_, _| true).unwrap().len(), 60);
}
