//! Features of in-memory storage only, capacity and clock, and the guarantees of handles.

use terrane_storage::{LockKind, OpenMode, Storage};
use terrane_testkit::MemoryStorage;

#[test]
fn growth_beyond_the_capacity_is_refused_and_changes_nothing() {
    let storage = MemoryStorage::new();
    storage.set_capacity(1000);
    let file = storage.open("a", OpenMode::CreateNew).unwrap();
    file.write_all_at(&[1; 600], 0).unwrap();
    assert!(file.write_all_at(&[2; 500], 501).unwrap_err().is_storage_full());
    assert!(file.set_len(1001).unwrap_err().is_storage_full());
    assert!(file.allocate(0..1001).unwrap_err().is_storage_full());
    assert_eq!(file.len().unwrap(), 600);
    let mut bytes = [0; 600];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, [1; 600]);

    let other = storage.open("b", OpenMode::CreateNew).unwrap();
    assert!(other.write_all_at(&[3; 401], 0).unwrap_err().is_storage_full());
    other.write_all_at(&[3; 400], 0).unwrap();
    assert_eq!(storage.used_bytes(), 1000);
}

#[test]
fn reserved_space_cannot_meet_a_full_disk() {
    let storage = MemoryStorage::new();
    storage.set_capacity(1000);
    let file = storage.open("a", OpenMode::CreateNew).unwrap();
    file.allocate(0..1000).unwrap();
    assert_eq!(file.len().unwrap(), 1000);
    file.write_all_at(&[1; 1000], 0).unwrap();
    file.allocate(0..10).unwrap();
    assert_eq!(file.len().unwrap(), 1000);
}

#[test]
fn a_removed_file_gives_its_space_back_with_its_last_handle() {
    let storage = MemoryStorage::new();
    let file = storage.open("a", OpenMode::CreateNew).unwrap();
    file.write_all_at(b"still here", 0).unwrap();
    storage.remove("a").unwrap();
    assert!(storage.open("a", OpenMode::Read).unwrap_err().is_not_found());
    let mut bytes = [0; 10];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"still here");
    assert_eq!(storage.used_bytes(), 10);
    drop(file);
    assert_eq!(storage.used_bytes(), 0);
}

#[test]
fn a_dropped_handle_gives_its_lock_back() {
    let storage = MemoryStorage::new();
    let first = storage.open("lock", OpenMode::CreateNew).unwrap();
    let second = storage.open("lock", OpenMode::Read).unwrap();
    assert!(first.try_lock(LockKind::Exclusive).unwrap());
    assert!(!second.try_lock(LockKind::Shared).unwrap());
    drop(first);
    assert!(second.try_lock(LockKind::Exclusive).unwrap());
}

#[test]
fn the_clock_moves_only_when_told() {
    let storage = MemoryStorage::new();
    let (unix, monotonic) = (storage.unix_time_ns(), storage.monotonic_ns());
    assert_eq!((storage.unix_time_ns(), storage.monotonic_ns()), (unix, monotonic));
    storage.clone().advance(7);
    assert_eq!((storage.unix_time_ns(), storage.monotonic_ns()), (unix + 7, monotonic + 7));
}

#[test]
fn a_huge_length_costs_no_memory() {
    let storage = MemoryStorage::new();
    let file = storage.open("a", OpenMode::CreateNew).unwrap();
    file.set_len(1 << 60).unwrap();
    file.write_all_at(b"x", 1 << 61).unwrap();
    let mut bytes = [9; 3];
    file.read_exact_at(&mut bytes, 1 << 40).unwrap();
    assert_eq!(bytes, [0; 3]);
}
