//! Numbers that differ between any two openings of a tree, including a tree with the older
//! numbering of marks.

use crate::support::{BOTH, FORMS, options};
use terrane_pmem::{Backend, Dropping, Instruction, OPENINGS_MAX, PersistenceDomain, ROOT, Traced};
use terrane_pmtree::fbr::{FbrTree, LeafForm, Options};
use terrane_pmtree::{Error, Rect};
use terrane_storage::{OpenMode, Storage};
use terrane_testkit::crash::{Budget, Controller, Image, NameOrder};

type Tree = FbrTree<2, Dropping<Traced>>;

/// The word of the tree's block with the form of its leaves and the numbering of its marks.
const FORM: u64 = 16;

/// A tree of ten entries, made with this number of openings when marks had 40 bits beside the
/// opening's.
fn older(options: &Options, openings: u64) -> Image {
    let controller = Controller::new();
    let storage = controller.storage();
    let tree = Tree::create(&*storage, "tree", options).unwrap();
    (0..10).for_each(|payload| tree.insert(&point(payload), payload).unwrap());
    let backend = tree.pool().backend();
    let form = backend.load(ROOT) + FORM;
    backend.store(form, backend.load(form) & 1);
    tree.pool().skip_openings(openings);
    tree.close().unwrap();
    controller.process_kill(controller.events())
}

fn point(payload: u64) -> Rect<2> {
    Rect::point([payload as f64, 0.5]).unwrap()
}

fn openings(storage: &dyn Storage, options: &Options) -> u64 {
    Tree::open(storage, "tree", options).unwrap().pool().open_counter()
}

/// Opens an older tree, inserts into it, loses power, and opens it again. Gives the highest number
/// of this opening.
fn reopened(image: &Image, options: &Options) -> u64 {
    let controller = image.restart();
    let tree = Tree::open(&*controller.storage(), "tree", options).unwrap();
    (0..10).for_each(|payload| assert!(tree.contains(&point(payload), payload).unwrap()));
    tree.insert(&point(10), 10).unwrap();
    drop(tree);
    let budget = Budget { exhaustive_pending: 0, samples: 4, name_order: NameOrder::AnySubset };
    let numbers = controller.images(controller.events(), &budget, 1).map(|image| {
        let mut tree = Tree::open(&*image.storage(), "tree", options).unwrap();
        assert_eq!(tree.check().unwrap().entries, 11);
        tree.pool().open_counter()
    });
    numbers.max().unwrap()
}

#[test]
fn an_older_tree_is_opened_under_numbers_that_its_marks_are_below() {
    for options in all_options() {
        // The sixth opening has the marks that the 1,536th has now. Those of the next may exist,
        // too.
        let image = older(&options, 5);
        assert_eq!(reopened(&image, &options), 7 * 256 + 1, "{:?}", options.leaves);
        let storage = image.storage();
        assert_eq!([(); 3].map(|()| openings(&*storage, &options)), [1792, 1793, 1794]);
    }
}

#[test]
fn an_older_tree_is_one_for_ever_if_it_is_not_flushed_that_it_is_none() {
    let options = options(PersistenceDomain::Adr, 4, BOTH[0]);
    let image = older(&options, 5);
    let again = Dropping::<Traced>::leaving_out(Instruction::Flush, "fbr.shorten", || reopened(&image, &options));
    assert!(again > 256 * 256, "{again}");
}

#[test]
fn a_tree_that_was_opened_too_often_is_refused_and_left_as_it_is() {
    for options in all_options() {
        let (older_max, max) = (OPENINGS_MAX / 256, OPENINGS_MAX);
        assert!(openings(&*older(&options, older_max - 3).storage(), &options) < max);
        for openings in [older_max - 2, older_max, max, u64::MAX] {
            let storage = older(&options, openings).storage();
            let before = contents(&*storage);
            let refused = Tree::open(&*storage, "tree", &options).unwrap_err();
            assert!(matches!(refused, Error::Pool(terrane_pmem::Error::Untrusted { .. })), "{refused}");
            assert!(refused.to_string().contains("opened too often"), "{refused}");
            assert!(contents(&*storage) == before, "changed");
        }
    }
}

fn all_options() -> [Options; 2] {
    FORMS.map(|leaves: LeafForm| Options { leaves, ..options(PersistenceDomain::Adr, 4, BOTH[0]) })
}

fn contents(storage: &dyn Storage) -> Vec<u8> {
    let file = storage.open("tree", OpenMode::Read).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}
