//! Where tests make pools of the operating system.

pub mod sites;

use std::os::fd::AsFd;

use tempfile::TempDir;
use terrane_pmem::probe;

/// A directory that is removed at the end, on a file system that keeps pools in the page cache. In a
/// container that is often not the usual place.
pub fn directory() -> TempDir {
    let places = [std::env::temp_dir(), "/dev/shm".into(), "/var/tmp".into()];
    let mut directories = places.iter().filter_map(|place| TempDir::new_in(place).ok());
    let is_accepted = |directory: &TempDir| {
        tempfile::tempfile_in(directory.path()).is_ok_and(|file| probe::page_cache(file.as_fd()).is_ok())
    };
    directories.find(is_accepted).unwrap_or_else(|| {
        panic!("no file system for a pool among {places:?}: set TMPDIR to a place on ext4, XFS or tmpfs")
    })
}
