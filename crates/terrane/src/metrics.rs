//! Counters and gauges of an open store.

use serde::Serialize;

use crate::engine::{Engine, MaintenanceCounters};

/// A store's activity since it was opened, and its current use of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Metrics {
    /// Number of the last visible commit.
    pub sequence: u64,
    /// Bytes of memory components of all datasets.
    pub memory_component_bytes: u64,
    /// Maximal number of bytes of memory components.
    pub memory_component_bytes_max: u64,
    /// Bytes of pages in the cache.
    pub cache_bytes: u64,
    /// Maximal number of bytes of the page cache.
    pub cache_bytes_max: u64,
    /// Pages read from files.
    pub pages_read: u64,
    /// Bytes read from files.
    pub bytes_read: u64,
    /// Pages evicted from the cache.
    pub pages_evicted: u64,
    /// Flushes and merges.
    pub maintenance: MaintenanceCounters,
}

impl Metrics {
    pub(crate) fn of(engine: &Engine) -> Self {
        let cache = engine.cache.counters();
        Self {
            sequence: engine.visibility.visible(),
            memory_component_bytes: engine.memory_noted() as u64,
            memory_component_bytes_max: engine.shares.components as u64,
            cache_bytes: cache.bytes_cached,
            cache_bytes_max: engine.shares.cache as u64,
            pages_read: cache.pages_read,
            bytes_read: cache.bytes_read,
            pages_evicted: cache.evictions,
            maintenance: engine.maintenance.counters(),
        }
    }
}
