//! The contents and lengths of a file that a power loss may leave.

use std::collections::BTreeSet;
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use terrane_storage::{File, OpenMode};
use terrane_testkit::crash::{Budget, Controller};

/// A controller with a durable, empty file.
fn with_file() -> (Arc<Controller>, Arc<dyn File>) {
    let controller = Controller::new();
    let storage = controller.storage();
    let file = storage.open("a", OpenMode::CreateNew).unwrap();
    storage.sync_directory("").unwrap();
    (controller, file)
}

/// Bytes as runs of equal ones, which is readable when a test fails.
type Runs = Vec<(u8, usize)>;

fn runs(bytes: &[u8]) -> Runs {
    bytes.chunk_by(|left, right| left == right).map(|run| (run[0], run.len())).collect()
}

/// Every content that the file can have after a power loss now.
fn contents(controller: &Controller) -> BTreeSet<Runs> {
    let images = controller.images(controller.events(), &Budget::default(), 1);
    assert!(images.is_exhaustive());
    images.map(|image| runs(&image.read("a").expect("the name is durable"))).collect()
}

fn set<const N: usize>(contents: [Vec<u8>; N]) -> BTreeSet<Runs> {
    contents.iter().map(|bytes| runs(bytes)).collect()
}

#[test]
fn an_unsynced_overwrite_is_lost_kept_or_torn_at_sectors() {
    let (controller, file) = with_file();
    file.write_all_at(&[0; 1024], 0).unwrap();
    file.sync_data().unwrap();
    file.write_all_at(&[1; 600], 100).unwrap();
    let mix = |first: u8, second: u8| {
        let mut bytes = vec![0; 1024];
        bytes[100..512].fill(first);
        bytes[512..700].fill(second);
        bytes
    };
    assert_eq!(contents(&controller), set([mix(0, 0), mix(0, 1), mix(1, 0), mix(1, 1)]));
}

#[test]
fn a_synced_write_is_there_in_every_image() {
    let (controller, file) = with_file();
    file.write_all_at(&[1; 3000], 7).unwrap();
    file.sync_data().unwrap();
    let expected = [vec![0; 7], vec![1; 3000]].concat();
    assert_eq!(contents(&controller), set([expected]));
}

#[test]
fn of_two_writes_to_a_sector_either_may_be_the_last_on_disk() {
    let (controller, file) = with_file();
    file.write_all_at(&[0; 512], 0).unwrap();
    file.sync_data().unwrap();
    file.write_all_at(&[1; 512], 0).unwrap();
    file.write_all_at(&[2; 512], 0).unwrap();
    assert_eq!(contents(&controller), set([vec![0; 512], vec![1; 512], vec![2; 512]]));
}

#[test]
fn a_later_write_may_be_on_disk_without_an_earlier_one() {
    let (controller, file) = with_file();
    file.write_all_at(&[0; 1024], 0).unwrap();
    file.sync_data().unwrap();
    file.write_all_at(&[1; 512], 0).unwrap();
    file.write_all_at(&[2; 512], 512).unwrap();
    let mix = |first: u8, second: u8| [vec![first; 512], vec![second; 512]].concat();
    assert_eq!(contents(&controller), set([mix(0, 0), mix(1, 0), mix(0, 2), mix(1, 2)]));
}

#[test]
fn a_sector_on_disk_has_all_that_was_written_to_it_before() {
    let (controller, file) = with_file();
    file.write_all_at(&[0; 512], 0).unwrap();
    file.sync_data().unwrap();
    file.write_all_at(&[1; 10], 0).unwrap();
    file.write_all_at(&[2; 10], 20).unwrap();
    let mix = |first: u8, second: u8| {
        let mut bytes = vec![0; 512];
        bytes[..10].fill(first);
        bytes[20..30].fill(second);
        bytes
    };
    assert_eq!(contents(&controller), set([mix(0, 0), mix(1, 0), mix(1, 2)]));
}

#[test]
fn an_appended_length_without_its_bytes_reads_zeros() {
    let (controller, file) = with_file();
    file.write_all_at(&[1; 512], 0).unwrap();
    file.sync_data().unwrap();
    file.write_all_at(&[2; 512], 512).unwrap();
    let with = |byte: u8| [vec![1; 512], vec![byte; 512]].concat();
    assert_eq!(contents(&controller), set([vec![1; 512], with(0), with(2)]));
}

#[test]
fn reserved_space_reads_zeros_and_may_be_lost() {
    let (controller, file) = with_file();
    file.allocate(0..100).unwrap();
    file.allocate(0..50).unwrap();
    assert_eq!(contents(&controller), set([vec![], vec![0; 100]]));
    file.sync_data().unwrap();
    assert_eq!(contents(&controller), set([vec![0; 100]]));
}

#[test]
fn bytes_that_were_cut_off_do_not_come_back_with_a_later_length() {
    let (controller, file) = with_file();
    file.write_all_at(&[1; 1024], 0).unwrap();
    file.sync_data().unwrap();
    file.set_len(100).unwrap();
    file.set_len(1024).unwrap();
    let cut = [vec![1; 100], vec![0; 924]].concat();
    assert_eq!(contents(&controller), set([vec![1; 1024], vec![1; 100], cut.clone()]));
    file.sync_data().unwrap();
    assert_eq!(contents(&controller), set([cut]));
}

#[test]
fn a_sector_written_after_a_cut_may_be_on_disk_without_the_cut() {
    let (controller, file) = with_file();
    file.write_all_at(&[1; 1024], 0).unwrap();
    file.sync_data().unwrap();
    file.set_len(100).unwrap();
    file.write_all_at(&[2; 10], 0).unwrap();
    let start = |byte: u8| [vec![byte; 10], vec![1; 90]].concat();
    let uncut = |first: Vec<u8>| [first, vec![1; 512]].concat();
    let expected = set([uncut(vec![1; 512]), uncut([start(2), vec![0; 412]].concat()), start(1), start(2)]);
    assert_eq!(contents(&controller), expected);
}

#[test]
fn a_sync_of_one_file_does_not_help_another() {
    let (controller, file) = with_file();
    let other = controller.storage().open("b", OpenMode::CreateNew).unwrap();
    controller.storage().sync_directory("").unwrap();
    file.write_all_at(b"x", 0).unwrap();
    other.sync_data().unwrap();
    assert!(contents(&controller).contains(&vec![]));
}

/// Random calls on one file, compared with copies of the whole file after every call. Each sector
/// may hold only its state at some point since the last sync, or zeros.
#[test]
fn images_hold_only_what_was_in_a_sector_since_the_last_sync() {
    for seed in 0..40 {
        let mut random = SmallRng::seed_from_u64(seed);
        let (controller, file) = with_file();
        let mut model: Vec<u8> = Vec::new();
        let mut since_sync: Vec<Vec<u8>> = vec![Vec::new()];
        for step in 1..60u8 {
            let offset = random.random_range(0..3000usize);
            let length = random.random_range(1..1500usize);
            match random.random_range(0..8) {
                0 => {
                    file.set_len(offset as u64).unwrap();
                    model.resize(offset, 0);
                }
                1 => {
                    file.allocate(random.random_range(0..=offset as u64)..offset as u64).unwrap();
                    model.resize(model.len().max(offset), 0);
                }
                2 | 3 => {
                    file.sync_data().unwrap();
                    since_sync.clear();
                }
                _ => {
                    file.write_all_at(&vec![step; length], offset as u64).unwrap();
                    model.resize(model.len().max(offset + length), 0);
                    model[offset..offset + length].fill(step);
                }
            }
            since_sync.push(model.clone());
            let budget = Budget { samples: 20, ..Budget::default() };
            let mut found = Vec::new();
            for image in controller.images(controller.events(), &budget, seed) {
                let bytes = image.read("a").unwrap();
                let lengths: Vec<usize> = since_sync.iter().map(Vec::len).collect();
                assert!(lengths.contains(&bytes.len()), "length {} with seed {seed}: {image:?}", bytes.len());
                for (number, sector) in bytes.chunks(512).enumerate() {
                    let seen = |copy: &Vec<u8>| {
                        let byte = |index: usize| copy.get(number * 512 + index).copied().unwrap_or(0);
                        sector.iter().enumerate().all(|(index, &found)| found == 0 || found == byte(index))
                    };
                    assert!(since_sync.iter().any(seen), "sector {number} with seed {seed}: {image:?}");
                }
                found.push(bytes);
            }
            assert!(found.contains(&model), "everything kept, seed {seed}, step {step}");
            assert!(found.contains(&since_sync[0]), "nothing kept, seed {seed}, step {step}");
            assert_eq!(controller.process_kill(usize::MAX).read("a").unwrap(), model, "seed {seed}");
        }
    }
}
