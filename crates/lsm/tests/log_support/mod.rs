//! Shared by the tests of the log.
#![allow(dead_code, reason = "every test file uses its part")]

use std::sync::Arc;

use terrane_lsm::Result;
use terrane_lsm::log::{Appended, Log, LogOptions, LogPosition, Lsn, ReadOnlyTail, RecoveryReport, replay_read_only};
use terrane_storage::{OpenMode, Storage};
use terrane_testkit::MemoryStorage;

pub const STORE_ID: [u8; 16] = *b"store of a test.";
pub const SEGMENT_SIZE: u64 = 16 << 10;
/// Offset of the first group in a segment file.
pub const FIRST_GROUP: u64 = 4096;
pub const GROUP_HEADER_LENGTH: u64 = 64;
pub const OPTIONS: LogOptions =
    LogOptions { segment_size: SEGMENT_SIZE, first_segment_size: SEGMENT_SIZE, spare_segments: 2 };

/// An entry with its LSN.
pub type Replayed = (Lsn, Vec<u8>);

#[derive(Debug)]
pub struct Opened {
    pub log: Log,
    pub report: RecoveryReport,
    pub entries: Vec<Replayed>,
}

pub fn memory() -> Arc<dyn Storage> {
    Arc::new(MemoryStorage::new())
}

pub fn open(storage: &Arc<dyn Storage>, from: LogPosition) -> Result<Opened> {
    open_with(storage, OPTIONS, from)
}

pub fn open_with(storage: &Arc<dyn Storage>, options: LogOptions, from: LogPosition) -> Result<Opened> {
    let mut entries = Vec::new();
    let (log, report) = Log::open(storage.clone(), options, STORE_ID, from, &mut |lsn, bytes| {
        entries.push((lsn, bytes.to_vec()));
        Ok(())
    })?;
    Ok(Opened { log, report, entries })
}

pub fn read_only(storage: &Arc<dyn Storage>, from: LogPosition) -> Result<(ReadOnlyTail, Vec<Replayed>)> {
    let mut entries = Vec::new();
    let tail = replay_read_only(storage.as_ref(), STORE_ID, from, &mut |lsn, bytes| {
        entries.push((lsn, bytes.to_vec()));
        Ok(())
    })?;
    Ok((tail, entries))
}

/// The `number`-th entry of a test: its number, then bytes that depend on it.
pub fn entry(number: u64, length: usize) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend((8..length.max(8)).map(|index| (number.wrapping_mul(31).wrapping_add(index as u64) % 251) as u8));
    bytes
}

pub fn number_of(entry: &[u8]) -> u64 {
    u64::from_le_bytes(entry[..8].try_into().expect("entries of the tests begin with their number"))
}

pub fn numbers(entries: &[Replayed]) -> Vec<u64> {
    entries.iter().map(|(_, bytes)| number_of(bytes)).collect()
}

/// Appends an entry, after making room for it, but does not wait.
pub fn append(log: &Log, bytes: &[u8]) -> Result<Appended> {
    log.reserve(bytes.len())?;
    log.append(bytes)
}

/// Appends an entry and waits until it is durable.
pub fn commit(log: &Log, bytes: &[u8]) -> Result<Appended> {
    let appended = append(log, bytes)?;
    log.sync_to(appended.end_lsn)?;
    Ok(appended)
}

/// Names of the files in the log's directory.
pub fn files(storage: &dyn Storage) -> Vec<String> {
    let names = storage.list("log").expect("the directory is there");
    names.iter().map(|name| format!("log/{}", name.rsplit('/').next().unwrap_or(name))).collect()
}

pub fn read(storage: &dyn Storage, name: &str) -> Vec<u8> {
    let file = storage.open(name, OpenMode::Read).expect("the file is there");
    let mut bytes = vec![0; file.len().expect("it has a length") as usize];
    file.read_exact_at(&mut bytes, 0).expect("it can be read");
    bytes
}

pub fn write(storage: &dyn Storage, name: &str, offset: u64, bytes: &[u8]) {
    let file = storage.open(name, OpenMode::Write).expect("the file is there");
    file.write_all_at(bytes, offset).expect("it can be written");
}

pub fn flip(storage: &dyn Storage, name: &str, offset: u64) {
    let old = read(storage, name)[offset as usize];
    write(storage, name, offset, &[old ^ 0x40]);
}

/// All files of the log with their bytes.
pub fn contents(storage: &dyn Storage) -> Vec<(String, Vec<u8>)> {
    files(storage).into_iter().map(|name| (name.clone(), read(storage, &name))).collect()
}

/// A new storage with these files.
pub fn restore(contents: &[(String, Vec<u8>)]) -> Arc<dyn Storage> {
    let storage = memory();
    storage.create_directory("log").expect("memory has room");
    for (name, bytes) in contents {
        let file = storage.open(name, OpenMode::CreateNew).expect("the name is free");
        file.write_all_at(bytes, 0).expect("memory has room");
        file.sync_data().expect("memory can be synced");
    }
    storage.sync_directory("log").expect("memory can be synced");
    storage.sync_directory("").expect("memory can be synced");
    storage
}

/// The base LSN that a segment's header holds.
pub fn base_lsn(segment: &[u8]) -> Lsn {
    Lsn::from_le_bytes(segment[40..48].try_into().expect("a segment begins with its header"))
}

/// The session that a segment's header holds.
pub fn session(segment: &[u8]) -> u64 {
    u64::from_le_bytes(segment[72..80].try_into().expect("a segment begins with its header"))
}
