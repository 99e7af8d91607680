//! Who has how much of a reserve, and for how long.

use terrane_space::CoordinateSystem;
use terrane_testkit::MemoryStorage;

use super::*;
use crate::dataset::Dataset;
use crate::options::{DatasetOptions, Options};
use crate::record::Record;
use crate::schema::{GeometryColumn, KeyColumn, KeyType, Schema};

/// So many that there are last bytes.
const BYTES: u64 = 4 * size::LAST;
const NEEDS: Needs = Needs { stored: 1, in_memory: 0, logged: 0 };

fn full() -> Error {
    Error::Full { what: "a test".to_owned() }
}

/// An engine with a reserve on a disk that is full but for that.
fn full_engine(disk: &MemoryStorage) -> (Arc<Engine>, Dataset) {
    let options = Options { background: false, disk_reserve: DiskReserve::Bytes(BYTES), ..Options::default() };
    let engine = Engine::open(Arc::new(disk.clone()), options).unwrap();
    let id = KeyColumn { name: "id".into(), key_type: KeyType::Int64, generated: false };
    let point = GeometryColumn::Point { x: "x".into(), y: "y".into() };
    let schema = Schema::new(id, point, CoordinateSystem::Planar, Vec::new()).unwrap();
    let handle = engine.create_dataset("d", schema, &DatasetOptions::default()).unwrap();
    let dataset = Dataset { engine: engine.clone(), handle };
    insert(&dataset, 0).unwrap();
    engine.restore_reserve();
    disk.set_capacity(disk.used_bytes());
    (engine, dataset)
}

fn insert(dataset: &Dataset, key: i64) -> Result<()> {
    dataset.insert(&Record::at(key, 1.0, 2.0, Vec::new()))
}

/// One that fails gives back what it had, unless another is still at work with it.
#[test]
fn nothing_is_taken_back_of_what_another_uses() {
    let disk = MemoryStorage::new();
    let reserve = Reserve::open(Arc::new(disk.clone()), DiskReserve::Bytes(BYTES)).unwrap();
    assert!(reserve.restore(NEEDS));
    disk.set_capacity(disk.used_bytes());
    let mut attempts = 0;
    let work = || {
        attempts += 1;
        if attempts == 1 {
            return Err(full());
        }
        // Has what this one left, and no room with that either.
        assert!(reserve.on_full(|| Err::<(), Error>(full())).is_err());
        // All that was given up is there as before.
        Ok(disk.open("merged", OpenMode::CreateNew)?.allocate(0..BYTES)?)
    };
    reserve.on_full_after(Share::Most, work, || Ok(())).unwrap();
    assert_eq!(attempts, 2);
}

/// Before whoever comes next looks: nobody else has it meanwhile, and nothing is refused for it.
#[test]
fn what_has_no_room_with_the_reserve_gives_it_back_at_once() {
    let disk = MemoryStorage::new();
    let reserve = Reserve::open(Arc::new(disk.clone()), DiskReserve::Bytes(BYTES)).unwrap();
    assert!(reserve.restore(NEEDS));
    disk.set_capacity(disk.used_bytes());
    let mut lengths = Vec::new();
    let work = || {
        lengths.push(reserve_bytes(&disk).unwrap());
        Err::<(), Error>(full())
    };
    assert!(reserve.on_full(work).is_err());
    assert_eq!(lengths, [Some(BYTES), Some(0)]);
    assert_eq!((reserve_bytes(&disk).unwrap(), reserve.is_spent()), (Some(BYTES), false));
}

/// Its place is in the reserve, which the merge has from then on.
#[test]
fn what_is_in_memory_is_flushed_before_a_merge_has_its_place() {
    let disk = MemoryStorage::new();
    let (engine, dataset) = full_engine(&disk);
    // For the flush alone.
    disk.set_capacity(disk.used_bytes() + (64 << 10));
    assert!(engine.memory_noted() > 0);
    let (mut in_memory, whole) = (Vec::new(), reserve_bytes(&disk).unwrap());
    let merge = || {
        in_memory.push((engine.memory_noted() > 0, reserve_bytes(&disk).unwrap() == whole));
        if in_memory.len() == 1 { Err(full()) } else { Ok(()) }
    };
    engine.on_full_flushed(merge).unwrap();
    assert_eq!(in_memory, [(true, true), (false, false)]);
    assert_eq!(dataset.snapshot().count(&crate::Query::new()).unwrap(), 1);
}

/// A flush or a merge that has the reserve gives it back when it ends, and is no reason to refuse anything.
#[test]
fn an_insert_waits_for_who_has_the_reserve() {
    let disk = MemoryStorage::new();
    let (engine, dataset) = full_engine(&disk);
    std::thread::scope(|scope| {
        let mut inserting = None;
        let work = || {
            if inserting.is_none() {
                let (engine, dataset) = (&engine, &dataset);
                inserting = Some(scope.spawn(move || {
                    while !engine.reserve.is_spent() {
                        std::thread::yield_now();
                    }
                    insert(dataset, 1)
                }));
                return Err(full());
            }
            // Time for what should not happen.
            let is_refused = || inserting.as_ref().is_some_and(|inserting| inserting.is_finished());
            (0..100_000).take_while(|_| !is_refused()).for_each(|_| std::thread::yield_now());
            Ok(())
        };
        engine.on_full(work).unwrap();
        inserting.unwrap().join().unwrap().unwrap();
    });
    assert_eq!(dataset.snapshot().count(&crate::Query::new()).unwrap(), 2);
}

/// No reserve that somebody asks for has such a length, however large.
#[test]
fn a_length_tells_whether_a_reserve_was_given_up() {
    assert!((0..=200).all(|blocks| is_given_up(size::last_of(blocks))));
    for bytes in [1, 3583, 3585, 4096, 2 << 20, u64::MAX - 4096, u64::MAX] {
        assert!(!is_given_up(bytes), "{bytes}");
    }
    for bytes in [1, size::LAST, size::last_of(3), u64::MAX - 511, u64::MAX] {
        let wanted = DiskReserve::Bytes(bytes).bytes(NEEDS);
        assert!(wanted >= bytes && !is_given_up(wanted), "{bytes}: {wanted}");
    }
}
