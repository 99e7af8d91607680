//! Real and in-memory storage give the same results for every sequence of calls.

use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use terrane_storage::{File, LockKind, OpenMode, RealStorage, Result, Storage, StorageError};
use terrane_testkit::MemoryStorage;

const NAMES: [&str; 9] = ["a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "a/x", "../out"];

/// The comparable part of a result: errors by operation, location, kind and number.
fn outcome<T: PartialEq + std::fmt::Debug>(result: Result<T>) -> std::result::Result<T, String> {
    result.map_err(|error: StorageError| {
        let number = error.io_error().raw_os_error();
        let (operation, name, offset) = (error.operation(), error.name().to_owned(), error.offset());
        format!("{operation:?} {name:?} {offset:?} {:?} {number:?}", error.kind())
    })
}

struct Pair {
    real: Arc<dyn Storage>,
    memory: Arc<dyn Storage>,
    handles: Vec<(Arc<dyn File>, Arc<dyn File>)>,
    history: Vec<String>,
    seed: u64,
}

impl Pair {
    fn same<T: PartialEq + std::fmt::Debug>(&mut self, call: String, real: Result<T>, memory: Result<T>) {
        self.history.push(call);
        let (real, memory) = (outcome(real), outcome(memory));
        assert_eq!(
            real,
            memory,
            "real (left) and memory (right) differ with seed {} after:\n{}",
            self.seed,
            self.history.join("\n")
        );
    }

    fn open(&mut self, name: &str, mode: OpenMode) {
        let real = self.real.open(name, mode);
        let memory = self.memory.open(name, mode);
        let handles = match (&real, &memory) {
            (Ok(real), Ok(memory)) => Some((real.clone(), memory.clone())),
            _ => None,
        };
        self.same(format!("open {name} {mode:?}"), real.map(|_| ()), memory.map(|_| ()));
        self.handles.extend(handles);
    }

    fn step(&mut self, random: &mut SmallRng) {
        let name = *NAMES.choose(random).unwrap();
        let other = *NAMES.choose(random).unwrap();
        let (real, memory) = (self.real.clone(), self.memory.clone());
        match random.random_range(0..22) {
            0..=2 => self.open(name, OpenMode::CreateNew),
            3 => self.open(name, OpenMode::Write),
            4 => self.open(name, OpenMode::Read),
            5 => self.same(format!("exists {name}"), real.exists(name), memory.exists(name)),
            6 if random.random() => {
                let call = format!("rename {name} to the new {other}");
                self.same(call, real.rename_new(name, other), memory.rename_new(name, other));
            }
            6 => self.same(format!("rename {name} {other}"), real.rename(name, other), memory.rename(name, other)),
            7 => self.same(format!("remove {name}"), real.remove(name), memory.remove(name)),
            8 => {
                let call = format!("create directory {name}");
                self.same(call, real.create_directory(name), memory.create_directory(name));
            }
            9 => {
                let name = *["", name].choose(random).unwrap();
                self.same(format!("list {name}"), real.list(name), memory.list(name));
                let (real, memory) = (real.list_directories(name), memory.list_directories(name));
                self.same(format!("list directories of {name}"), real, memory);
            }
            10 => {
                let name = *["", name].choose(random).unwrap();
                self.same(format!("sync directory {name}"), real.sync_directory(name), memory.sync_directory(name));
            }
            11 => {
                if !self.handles.is_empty() {
                    let index = random.random_range(0..self.handles.len());
                    self.handles.swap_remove(index);
                    self.history.push(format!("close {index}"));
                }
            }
            _ => self.file_step(random),
        }
    }

    fn file_step(&mut self, random: &mut SmallRng) {
        if self.handles.is_empty() {
            return;
        }
        let index = random.random_range(0..self.handles.len());
        let (real, memory) = self.handles[index].clone();
        let offset = match random.random_range(0..20) {
            0 => u64::MAX - random.random_range(0..3),
            _ => random.random_range(0..6000u64),
        };
        let length = random.random_range(0..5000usize);
        match random.random_range(0..9) {
            8 => self.same(format!("has name {index}"), real.has_name(), memory.has_name()),
            0 | 1 => {
                let bytes: Vec<u8> = (0..length).map(|_| random.random()).collect();
                // Each file system has its own limit of a file's length.
                let offset = offset.min(100_000);
                let call = format!("write {index} {length} bytes at {offset}");
                self.same(call, real.write_all_at(&bytes, offset), memory.write_all_at(&bytes, offset));
            }
            2 => {
                let read = |file: &Arc<dyn File>| {
                    let mut buffer = vec![0; length];
                    file.read_exact_at(&mut buffer, offset).map(|()| buffer)
                };
                self.same(format!("read {index} {length} bytes at {offset}"), read(&real), read(&memory));
            }
            3 => self.same(format!("length {index}"), real.len(), memory.len()),
            4 => {
                let call = format!("set length {index} {offset}");
                self.same(call, real.set_len(offset), memory.set_len(offset));
            }
            5 => {
                let range = random.random_range(0..=offset)..offset;
                let call = format!("allocate {index} {range:?}");
                self.same(call, real.allocate(range.clone()), memory.allocate(range));
            }
            6 => self.same(format!("sync {index}"), real.sync_data(), memory.sync_data()),
            _ => match random.random_range(0..3) {
                0 => self.same(format!("unlock {index}"), real.unlock(), memory.unlock()),
                number => {
                    let kind = if number == 1 { LockKind::Shared } else { LockKind::Exclusive };
                    self.same(format!("lock {index} {kind:?}"), real.try_lock(kind), memory.try_lock(kind));
                }
            },
        }
    }

    fn contents(&mut self) {
        for name in NAMES {
            let read = |storage: &Arc<dyn Storage>| {
                let file = storage.open(name, OpenMode::Read)?;
                let mut bytes = vec![0; file.len()? as usize];
                file.read_exact_at(&mut bytes, 0).map(|()| bytes)
            };
            let (real, memory) = (read(&self.real), read(&self.memory));
            self.same(format!("contents of {name}"), real, memory);
        }
    }
}

#[test]
fn random_calls_have_the_same_outcome() {
    for seed in 0..40 {
        let directory = tempfile::tempdir().unwrap();
        let mut pair = Pair {
            real: Arc::new(RealStorage::new(directory.path())),
            memory: Arc::new(MemoryStorage::new()),
            handles: Vec::new(),
            history: Vec::new(),
            seed,
        };
        let mut random = SmallRng::seed_from_u64(seed);
        for _ in 0..250 {
            pair.step(&mut random);
        }
        pair.contents();
    }
}

#[test]
fn the_root_is_created_on_request() {
    let directory = tempfile::tempdir().unwrap();
    let storage = RealStorage::new(directory.path().join("deep/store"));
    assert!(!storage.exists("").unwrap());
    assert!(storage.open("file", OpenMode::CreateNew).unwrap_err().is_not_found());
    storage.create_directory("").unwrap();
    storage.create_directory("").unwrap();
    storage.open("file", OpenMode::CreateNew).unwrap();
    assert_eq!(storage.list("").unwrap(), ["file"]);
    assert!(storage.describe().ends_with("deep/store"));
}

#[test]
fn time_does_not_go_back() {
    let storage = RealStorage::new("unused");
    let (first, second) = (storage.monotonic_ns(), storage.monotonic_ns());
    assert!(first > 0 && first <= second);
    // The start of 2020: every machine that runs this has a later clock.
    assert!(storage.unix_time_ns() > 1_577_836_800_000_000_000);
}
