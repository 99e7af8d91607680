//! What ordered maps are measured by.

use anyhow::Result;

/// A map from integers to integers.
pub trait Ordered {
    /// Inserts an entry.
    fn insert(&mut self, key: u64, value: u64) -> Result<()>;

    /// The value of a key.
    fn get(&self, key: u64) -> Result<Option<u64>>;
}
