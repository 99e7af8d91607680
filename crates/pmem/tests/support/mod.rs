//! A directory for pools of the operating system.

use tempfile::TempDir;
use terrane_pmem::probe;
use terrane_testkit::pool_directory;

/// A directory that is removed at the end, on a file system that keeps pools in the page cache.
pub fn directory() -> TempDir {
    pool_directory(|file| probe::page_cache(file).is_ok())
}
