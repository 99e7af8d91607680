//! Images by the reads of recovery: as few as needed, and none that matters is left out.

use std::collections::BTreeSet;
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use terrane_storage::event::{PersistenceDomain, ThreadNumber};
use terrane_storage::{Backing, File, MappedMemory, OpenMode, Storage};
use terrane_testkit::crash::{Budget, Controller};

const THREAD: ThreadNumber = ThreadNumber(1);
const WORDS: u64 = 48;

fn mapping(file: &dyn File) -> Box<dyn MappedMemory> {
    match file.backing() {
        Backing::Memory(mapping) => mapping,
        other => panic!("a file in memory is mapped by {other:?}"),
    }
}

/// Stores to a few lines, some of them fenced, and a file whose name and bytes may be lost.
fn run(seed: u64) -> Arc<Controller> {
    let mut random = SmallRng::seed_from_u64(seed);
    let controller = Controller::new();
    let storage = controller.storage();
    let file = storage.open("pool", OpenMode::CreateNew).unwrap();
    storage.sync_directory("").unwrap();
    file.allocate(0..WORDS * 8).unwrap();
    file.sync_data().unwrap();
    let memory = mapping(&*file);
    memory.set_domain(PersistenceDomain::Adr);
    for _ in 0..random.random_range(3..9) {
        let word = random.random_range(0..WORDS);
        memory.store(THREAD, word * 8, random.random_range(1..WORDS)).unwrap();
        if random.random_range(0..4) == 0 {
            memory.flush(THREAD, word / 8 * 64, "test");
            memory.fence(THREAD, "test");
        }
    }
    if seed.is_multiple_of(3) {
        let other = storage.open("other", OpenMode::CreateNew).unwrap();
        other.write_all_at(&[7; 600], 0).unwrap();
    }
    controller
}

/// Follows the words as pointers, and records their values. Words that it has stored itself give it
/// no information.
fn recover(storage: &dyn Storage) -> Vec<u64> {
    let file = storage.open("pool", OpenMode::Write).unwrap();
    let memory = mapping(&*file);
    memory.store(THREAD, 8, 1).unwrap();
    let mut met = vec![memory.load(8).unwrap()];
    let mut word = 0;
    for _ in 0..4 {
        let value = memory.load(word * 8).unwrap();
        met.push(value);
        word = value % WORDS;
    }
    if storage.exists("other").unwrap() {
        let other = storage.open("other", OpenMode::Read).unwrap();
        met.push(other.len().unwrap());
    }
    met
}

#[test]
fn recoveries_go_every_way_that_they_go_with_all_images() {
    let mut tried = (0, 0);
    for seed in 0..300 {
        let controller = run(seed);
        for cut in 0..=controller.events() {
            let images = controller.images(cut, &Budget { exhaustive_pending: 16, ..Budget::default() }, 1);
            assert!(images.is_exhaustive());
            let opens = |name: &str, image: &terrane_testkit::crash::Image| image.files().any(|file| file == name);
            let all: Vec<_> =
                images.filter(|image| opens("pool", image) && image.read("pool").unwrap().len() > 8).collect();
            tried.0 += all.len();
            let expected: BTreeSet<_> = all.iter().map(|image| recover(&*image.storage())).collect();
            let mut found = BTreeSet::new();
            let mut branches = controller.branches(cut);
            while let Some(image) = branches.next() {
                let storage = image.watched();
                if opens("pool", &image) && image.read("pool").unwrap().len() > 8 {
                    tried.1 += 1;
                    found.insert(recover(&storage));
                }
                branches.note(&storage.reads());
            }
            assert_eq!(found, expected, "seed {seed}, cut {cut}");
        }
    }
    assert!(tried.1 * 2 < tried.0, "{tried:?}");
}

#[test]
fn images_that_hold_the_same_have_the_same_hash() {
    for seed in 0..50 {
        let controller = run(seed);
        let budget = Budget { exhaustive_pending: 12, ..Budget::default() };
        let whole = |image: &terrane_testkit::crash::Image| {
            let files: Vec<_> = image.files().map(|name| (name.to_owned(), image.read(name))).collect();
            files
        };
        let images: Vec<_> = (0..=controller.events()).flat_map(|cut| controller.images(cut, &budget, 1)).collect();
        let contents: BTreeSet<_> = images.iter().map(whole).collect();
        let hashes: BTreeSet<_> = images.iter().map(|image| image.hash_contents()).collect();
        assert_eq!(hashes.len(), contents.len(), "seed {seed}");
        let last = controller.events();
        let (kill, loss) = (controller.process_kill(last), controller.images(last, &budget, 1));
        assert!(loss.into_iter().all(|loss| loss.hash_contents() != kill.hash_contents()), "they differ in the boot");
    }
}
