//! The stores to a mapped file that a crash may leave.

use std::collections::BTreeSet;
use std::sync::Arc;

use terrane_storage::event::{Event, PersistenceDomain, PoolEvent, ThreadNumber};
use terrane_storage::{Backing, File, MappedMemory, OpenMode};
use terrane_testkit::crash::{Budget, Controller};

const ONE: ThreadNumber = ThreadNumber(1);
const OTHER: ThreadNumber = ThreadNumber(2);

fn mapping(file: &dyn File) -> Box<dyn MappedMemory> {
    match file.backing() {
        Backing::Memory(mapping) => mapping,
        other => panic!("a file in memory is mapped by {other:?}"),
    }
}

/// A controller with a durable file of zeros, and its mapping.
fn mapped(domain: PersistenceDomain) -> (Arc<Controller>, Arc<dyn File>, Box<dyn MappedMemory>) {
    let controller = Controller::new();
    let storage = controller.storage();
    let file = storage.open("pool", OpenMode::CreateNew).unwrap();
    storage.sync_directory("").unwrap();
    file.allocate(0..16384).unwrap();
    file.sync_data().unwrap();
    let mapping = mapping(&*file);
    mapping.set_domain(domain);
    (controller, file, mapping)
}

fn store(mapping: &dyn MappedMemory, offset: u64, value: u64) {
    mapping.update(ONE, offset, &mut |_| Some(value)).unwrap().unwrap();
}

/// The words at these offsets in every state that a power loss may leave now.
fn words<const N: usize>(controller: &Controller, offsets: [usize; N]) -> BTreeSet<[u64; N]> {
    let images = controller.images(controller.events(), &Budget { exhaustive_pending: 12, ..Budget::default() }, 1);
    assert!(images.is_exhaustive());
    let read = |bytes: &[u8], offset: usize| u64::from_le_bytes(bytes[offset..offset + 8].try_into().unwrap());
    images
        .map(|image| {
            let bytes = image.read("pool").unwrap();
            offsets.map(|offset| read(&bytes, offset))
        })
        .collect()
}

#[test]
fn of_each_line_a_prefix_of_its_stores_is_kept() {
    let (controller, _file, mapping) = mapped(PersistenceDomain::Adr);
    store(&*mapping, 0, 1);
    store(&*mapping, 8, 2);
    store(&*mapping, 64, 3);
    let line = [[0, 0], [1, 0], [1, 2]];
    let expected = line.iter().flat_map(|&[first, second]| [[first, second, 0], [first, second, 3]]).collect();
    assert_eq!(words(&controller, [0, 8, 64]), expected);
}

#[test]
fn a_flush_with_a_fence_of_the_same_thread_makes_earlier_stores_of_the_line_durable() {
    let (controller, _file, mapping) = mapped(PersistenceDomain::Adr);
    store(&*mapping, 0, 1);
    mapping.flush(ONE, 0, "test");
    assert_eq!(words(&controller, [0]), [[0], [1]].into(), "a flush alone promises nothing");
    mapping.fence(OTHER, "test");
    assert_eq!(words(&controller, [0]), [[0], [1]].into(), "nor does another thread's fence");
    store(&*mapping, 8, 2);
    mapping.fence(ONE, "test");
    assert_eq!(words(&controller, [0, 8]), [[1, 0], [1, 2]].into(), "what is stored after the flush is not covered");
}

#[test]
fn with_caches_in_the_domain_a_store_is_durable_at_once() {
    let (controller, _file, mapping) = mapped(PersistenceDomain::Eadr);
    store(&*mapping, 0, 1);
    assert_eq!(words(&controller, [0]), [[1]].into());
}

#[test]
fn pages_become_durable_by_syncs_alone_and_each_on_its_own() {
    let (controller, file, mapping) = mapped(PersistenceDomain::PageCache);
    store(&*mapping, 0, 1);
    store(&*mapping, 64, 2);
    store(&*mapping, 4096, 3);
    mapping.flush(ONE, 0, "test");
    mapping.fence(ONE, "test");
    let page = [[0, 0], [1, 0], [1, 2]];
    let expected = page.iter().flat_map(|&[first, second]| [[first, second, 0], [first, second, 3]]).collect();
    assert_eq!(words(&controller, [0, 64, 4096]), expected);
    file.sync_data().unwrap();
    assert_eq!(words(&controller, [0, 64, 4096]), [[1, 2, 3]].into());
}

#[test]
fn a_sync_that_failed_leaves_stores_that_no_later_sync_makes_durable() {
    let (controller, file, mapping) = mapped(PersistenceDomain::PageCache);
    store(&*mapping, 0, 1);
    file.forget_unsynced().unwrap();
    store(&*mapping, 4096, 2);
    file.sync_data().unwrap();
    assert_eq!(words(&controller, [0, 4096]), [[0, 2], [1, 2]].into());
}

#[test]
fn nothing_is_durable_beyond_a_length_that_is_not() {
    let (controller, file, mapping) = mapped(PersistenceDomain::Adr);
    file.allocate(0..32768).unwrap();
    store(&*mapping, 16384, 1);
    mapping.flush(ONE, 16384, "test");
    mapping.fence(ONE, "test");
    let images = controller.images(controller.events(), &Budget::default(), 1);
    let lengths: BTreeSet<usize> = images.map(|image| image.read("pool").unwrap().len()).collect();
    assert_eq!(lengths, [16384, 32768].into());
}

#[test]
fn a_kill_keeps_all_stores_and_leaves_them_to_a_later_power_loss() {
    let (controller, _file, mapping) = mapped(PersistenceDomain::Adr);
    store(&*mapping, 0, 1);
    mapping.flush(ONE, 0, "test");
    let restarted = controller.process_kill(controller.events()).restart();
    assert_eq!(restarted.storage().boot_id(), controller.storage().boot_id());
    let file = restarted.storage().open("pool", OpenMode::Write).unwrap();
    let reopened = self::mapping(&*file);
    assert_eq!(reopened.load(0), Some(1));
    reopened.fence(ONE, "test");
    assert_eq!(words(&restarted, [0]), [[0], [1]].into(), "the thread that began the flush is gone");
    let lost = restarted.images(restarted.events(), &Budget::default(), 1).next().unwrap();
    assert_ne!(lost.storage().boot_id(), restarted.storage().boot_id());
}

#[test]
fn stores_files_and_fences_report_in_one_order() {
    let (controller, file, mapping) = mapped(PersistenceDomain::Adr);
    let before = controller.events();
    store(&*mapping, 8, 7);
    file.sync_data().unwrap();
    mapping.flush(ONE, 0, "here");
    mapping.fence(ONE, "there");
    let log = controller.log().split_off(before);
    assert!(
        matches!(
            log[..],
            [
                Event::Pool(PoolEvent::Store { offset: 8, value: 7, thread: ONE, .. }),
                Event::Disk(_),
                Event::Pool(PoolEvent::Flush { line: 0, site: "here", .. }),
                Event::Pool(PoolEvent::Fence { site: "there", .. }),
            ]
        ),
        "{log:?}"
    );
}

#[test]
fn words_outside_of_the_file_or_across_two_are_refused() {
    let (_controller, _file, mapping) = mapped(PersistenceDomain::Adr);
    for offset in [1, 4, 16380, 16384, u64::MAX - 7, u64::MAX] {
        assert_eq!(mapping.load(offset), None, "{offset}");
        assert_eq!(mapping.update(ONE, offset, &mut |_| Some(1)), None, "{offset}");
    }
    assert_eq!(mapping.load(16376), Some(0));
    assert_eq!(mapping.update(ONE, 16376, &mut |_| None), Some(Err(0)));
}

#[test]
fn reads_of_the_file_see_stores_and_the_mapping_sees_writes() {
    let (_controller, file, mapping) = mapped(PersistenceDomain::Adr);
    store(&*mapping, 16, 0x0102_0304_0506_0708);
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, 16).unwrap();
    assert_eq!(bytes, [8, 7, 6, 5, 4, 3, 2, 1]);
    file.write_all_at(&[9], 16).unwrap();
    assert_eq!(mapping.load(16), Some(0x0102_0304_0506_0709));
}
