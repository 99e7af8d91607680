//! Counters and gauges of an open store.

use serde::Serialize;

use crate::engine::{Engine, MaintenanceCounters};

/// What a store has done since it was opened, and what it holds in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Metrics {
    /// Number of the last visible commit.
    pub sequence: u64,
    /// Bytes of memory components of all datasets.
    pub memory_component_bytes: u64,
    /// Bytes that memory components may take.
    pub memory_component_bytes_max: u64,
    /// Bytes of pages in the cache.
    pub cache_bytes: u64,
    /// Bytes that the page cache may take.
    pub cache_bytes_max: u64,
    /// Pages read from files.
    pub pages_read: u64,
    /// Bytes read from files.
    pub bytes_read: u64,
    /// Pages that the cache dropped to make room.
    pub pages_evicted: u64,
    /// Flushes and merges.
    pub maintenance: MaintenanceCounters,
}

impl Metrics {
    pub(crate) fn of(engine: &Engine) -> Self {
        let cache = engine.environment().cache().counters();
        Self {
            sequence: engine.core.visible(),
            memory_component_bytes: engine.datasets.memory_noted() as u64,
            memory_component_bytes_max: engine.environment().shares.components as u64,
            cache_bytes: cache.bytes_cached,
            cache_bytes_max: engine.environment().shares.cache as u64,
            pages_read: cache.pages_read,
            bytes_read: cache.bytes_read,
            pages_evicted: cache.evictions,
            maintenance: engine.maintenance.counters(),
        }
    }
}
