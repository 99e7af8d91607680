//! A directory for pools of the operating system.

use std::os::fd::{AsFd, BorrowedFd};

use tempfile::TempDir;

/// A directory that is removed at the end, on a file system where `is_accepted` accepts a file. In
/// a container that is often not the usual place.
pub fn pool_directory(is_accepted: impl Fn(BorrowedFd<'_>) -> bool) -> TempDir {
    let places = [std::env::temp_dir(), "/dev/shm".into(), "/var/tmp".into()];
    let mut directories = places.iter().filter_map(|place| TempDir::new_in(place).ok());
    let is_usable =
        |directory: &TempDir| tempfile::tempfile_in(directory.path()).is_ok_and(|file| is_accepted(file.as_fd()));
    directories.find(is_usable).unwrap_or_else(|| {
        panic!("no file system for a pool among {places:?}: set TMPDIR to a place on ext4, XFS or tmpfs")
    })
}
