//! Components in memory, for tests of the disk layer.
#![allow(dead_code, reason = "each test file uses a part")]

use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use terrane_lsm::disk::{ComponentFile, ComponentMeta, ComponentWriter, PageCache, component_name};
use terrane_storage::{OpenMode, Storage};
use terrane_testkit::MemoryStorage;

/// A place for components.
pub struct Bench {
    pub storage: Arc<dyn Storage>,
    pub cache: Arc<PageCache>,
    next: u64,
}

impl Bench {
    pub fn new() -> Self {
        Self::with_cache(64 << 20)
    }

    pub fn with_cache(capacity: usize) -> Self {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        storage.create_directory("components").unwrap();
        Self { storage, cache: PageCache::new(capacity), next: 1 }
    }

    pub fn writer(&mut self) -> ComponentWriter {
        self.next += 1;
        ComponentWriter::create(&self.storage, self.next - 1).unwrap()
    }

    pub fn open(&self, meta: &ComponentMeta) -> terrane_lsm::Result<Arc<ComponentFile>> {
        ComponentFile::open(&self.storage, &self.cache, meta)
    }

    /// The bytes of a component.
    pub fn bytes(&self, meta: &ComponentMeta) -> Vec<u8> {
        let file = self.storage.open(&component_name(meta.file_id), OpenMode::Read).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    /// Overwrites a part of a component.
    pub fn overwrite(&self, meta: &ComponentMeta, bytes: &[u8], offset: u64) {
        let file = self.storage.open(&component_name(meta.file_id), OpenMode::Write).unwrap();
        file.write_all_at(bytes, offset).unwrap();
    }
}

/// A generator and its seed, from `TERRANE_TEST_SEED` or chosen by the test.
pub fn seeded(test: &str, default: u64) -> SmallRng {
    let seed = std::env::var("TERRANE_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(default);
    eprintln!("replay with TERRANE_TEST_SEED={seed} cargo test -p terrane-lsm --test suite {test}");
    SmallRng::seed_from_u64(seed)
}
