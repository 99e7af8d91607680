//! The bytes of a store's files, for tests of damage.

use std::collections::BTreeMap;
use std::sync::Arc;

use terrane_lsm::disk::component_name;
use terrane_lsm::manifest::Manifest;
use terrane_storage::{OpenMode, Storage};
use terrane_testkit::MemoryStorage;

/// The files of a store by name.
pub type Files = BTreeMap<String, Vec<u8>>;

/// Reads all files.
pub fn files_of(storage: &dyn Storage) -> Files {
    let mut files = Files::new();
    for directory in ["", "components", "log"] {
        for name in storage.list(directory).unwrap() {
            let name = if directory.is_empty() { name } else { format!("{directory}/{name}") };
            let file = storage.open(&name, OpenMode::Read).unwrap();
            let mut bytes = vec![0; file.len().unwrap() as usize];
            file.read_exact_at(&mut bytes, 0).unwrap();
            files.insert(name, bytes);
        }
    }
    files
}

/// Storage with these files.
pub fn storage_of(files: &Files) -> Arc<dyn Storage> {
    Arc::new(memory_of(files))
}

/// Like [`storage_of`], with a capacity that can be set.
pub fn memory_of(files: &Files) -> MemoryStorage {
    let storage = MemoryStorage::new();
    put_files(&storage, files);
    storage
}

/// Writes all files to an empty place.
pub fn put_files(storage: &dyn Storage, files: &Files) {
    storage.create_directory("components").unwrap();
    storage.create_directory("log").unwrap();
    for (name, bytes) in files {
        storage.open(name, OpenMode::CreateNew).unwrap().write_all_at(bytes, 0).unwrap();
    }
}

/// The oldest component file of the first dataset's spatial index.
pub fn spatial_file(storage: &dyn Storage) -> String {
    let manifest = Manifest::read(storage).unwrap().unwrap();
    component_name(manifest.datasets[0].partitions[0].indexes[1].components.last().unwrap().file_id)
}
