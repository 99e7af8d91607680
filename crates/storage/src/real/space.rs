//! Space for a file's bytes, reserved before they are written.

use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::fs::{FallocateFlags, FsWord, SeekFrom};
use rustix::io::Errno;

const ZEROS_LENGTH: usize = 64 * 1024;

/// The type number of a tmpfs.
const TMPFS: FsWord = 0x0102_1994;

/// Reserves space for a range of a file, and extends the file to its end.
pub(super) fn reserve(file: &fs::File, range: Range<u64>) -> io::Result<()> {
    if i64::try_from(range.end).is_err() {
        return Err(Errno::FBIG.into());
    }
    // A hopeless attempt would take the free space from all others for a moment.
    if lacks_space(file, &range) {
        return Err(Errno::NOSPC.into());
    }
    let length = range.end - range.start;
    let reserve = |flags| rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, flags, range.start, length));
    let reserved = match reserve(FallocateFlags::UNSHARE_RANGE) {
        // No other file shares its blocks, or the file system cannot tell.
        Err(Errno::OPNOTSUPP | Errno::INVAL) => reserve(FallocateFlags::empty()),
        reserved => reserved,
    };
    match reserved {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => fill_with_zeros(file, range),
        result => Ok(result?),
    }
}

/// Whether a file lies in a tmpfs, has at least `end` bytes, and has space for all of them.
/// Reserving the space again would examine each of its pages, which takes longer than everything
/// else in opening a large pool.
///
/// The count of blocks includes space reserved behind the file's end, which could hide holes. If
/// the count suffices, that space is released, and the blocks are counted again.
pub(super) fn is_whole_in_tmpfs(file: &fs::File, end: u64) -> bool {
    let Some(page) = page_of_tmpfs(file) else { return false };
    // The count includes pages in memory and swapped-out pages, and no holes.
    let whole = || {
        let (length, taken) = length_and_space(file).ok()?;
        (length >= end && taken == length.next_multiple_of(page)).then_some(length)
    };
    whole().is_some_and(|length| file.set_len(length).is_ok() && whole() == Some(length))
}

/// The page size, if a file lies in a tmpfs whose pages have one size.
fn page_of_tmpfs(file: &fs::File) -> Option<u64> {
    let system = rustix::fs::fstatfs(file).ok().filter(|system| system.f_type == TMPFS)?;
    let page = u64::try_from(system.f_bsize).ok().filter(|page| *page > 0)?;
    // The space of larger pages behind the end is not released.
    file.metadata().is_ok_and(|metadata| metadata.blksize() == page).then_some(page)
}

/// The length of a file, and the bytes of its blocks.
fn length_and_space(file: &fs::File) -> io::Result<(u64, u64)> {
    let metadata = file.metadata()?;
    Ok((metadata.len(), metadata.blocks().saturating_mul(512)))
}

/// Whether the file system reports less free space than a range of a file lacks.
fn lacks_space(file: &fs::File, range: &Range<u64>) -> bool {
    let (Ok(found), Ok(space)) = (length_and_space(file), rustix::fs::fstatvfs(file)) else { return false };
    let free = space.f_bfree.saturating_mul(space.f_frsize);
    // Some, like a tmpfs without a limit, report nothing.
    space.f_blocks > 0 && lacks_at_least(range, found) > free
}

/// Least bytes that a range of a file of this length and space lacks. The existing space may lie in
/// the range, or behind the end.
fn lacks_at_least(range: &Range<u64>, (length, taken): (u64, u64)) -> u64 {
    let behind_the_start = length.saturating_sub(range.start).saturating_add(taken.saturating_sub(length));
    (range.end - range.start).saturating_sub(taken.min(behind_the_start))
}

/// Reserves space on a file system without a call for it: writes zeros into the reported holes and
/// behind the end. On failure the file may be longer, with zeros. It is not truncated, since that
/// could remove what another handle has appended.
fn fill_with_zeros(file: &fs::File, range: Range<u64>) -> io::Result<()> {
    let end = file.metadata()?.len();
    let mut position = range.start;
    while let Some(hole) = next_hole(file, position..end.min(range.end))? {
        write_zeros(file, hole.clone())?;
        position = hole.end;
    }
    write_zeros(file, end.max(range.start)..range.end)
}

/// The first hole in a range of a file, which lies before its end.
fn next_hole(file: &fs::File, range: Range<u64>) -> io::Result<Option<Range<u64>>> {
    let seek = |from| match rustix::fs::seek(file, from) {
        Ok(position) => Ok(position.min(range.end)),
        // Behind the last hole; or the file system does not support holes.
        Err(Errno::NXIO | Errno::INVAL) => Ok(range.end),
        Err(error) => Err(error),
    };
    let start = seek(SeekFrom::Hole(range.start))?;
    Ok(if start < range.end { Some(start..seek(SeekFrom::Data(start))?) } else { None })
}

fn write_zeros(file: &fs::File, mut range: Range<u64>) -> io::Result<()> {
    let zeros = [0; ZEROS_LENGTH];
    while range.start < range.end {
        let step = (range.end - range.start).min(ZEROS_LENGTH as u64);
        file.write_all_at(&zeros[..step as usize], range.start)?;
        range.start += step;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::{File, OpenMode, RealStorage, Storage};

    #[test]
    fn zeros_replace_a_missing_allocation_call_and_keep_what_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, b"kept").unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        let length = ZEROS_LENGTH as u64 + 5;
        fill_with_zeros(&file, 0..length).unwrap();
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.len() as u64, length);
        assert_eq!(&bytes[..4], b"kept");
        assert!(bytes[4..].iter().all(|&byte| byte == 0));
        fill_with_zeros(&file, 0..2).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), length);
    }

    #[test]
    fn what_a_range_lacks_is_told_by_length_and_space_alone() {
        for (range, found, least) in [
            (0..100, (0, 0), 100),
            (0..100, (100, 100), 0),
            (0..100, (100, 60), 40),
            (0..300, (100, 100), 200),
            (100..130, (100, 100), 30),
            (90..130, (100, 100), 30),
            (90..130, (100, 4), 36),
            (90..110, (200, 70), 0),
            // All blocks of the file may lie behind its end, and be the requested ones.
            (100..130, (100, 120), 10),
            (100..130, (100, 500), 0),
            (150..180, (100, 100), 30),
        ] {
            assert_eq!(lacks_at_least(&range, found), least, "{range:?} {found:?}");
        }
    }

    #[test]
    fn zeros_take_the_space_of_holes_where_the_allocation_call_is_missing() {
        const LENGTH: u64 = 1 << 20;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let file = OpenOptions::new().write(true).create_new(true).open(&path).unwrap();
        file.set_len(LENGTH).unwrap();
        let kept = [(300_000, b"kept"), (LENGTH / 2, b"too.")];
        kept.iter().for_each(|(place, bytes)| file.write_all_at(*bytes, *place).unwrap());
        file.sync_all().unwrap();
        // Some write zeros for holes at once, and have none then.
        assert!(file.metadata().unwrap().blocks() * 512 < LENGTH, "{path:?}: a file system without holes");
        let filled = || {
            file.sync_all().unwrap();
            file.metadata().unwrap().blocks() * 512
        };
        fill_with_zeros(&file, LENGTH / 4..LENGTH / 2).unwrap();
        assert!((LENGTH / 4..LENGTH / 2).contains(&filled()), "{path:?}: holes elsewhere have space");
        fill_with_zeros(&file, 0..LENGTH - 5).unwrap();
        assert!(filled() >= LENGTH);
        let mut expected = vec![0; LENGTH as usize];
        kept.iter().for_each(|(place, bytes)| expected[*place as usize..][..4].copy_from_slice(*bytes));
        assert!(fs::read(&path).unwrap() == expected);
        // The same behind the end: the gap remains a hole.
        fill_with_zeros(&file, 3 * LENGTH..4 * LENGTH).unwrap();
        expected.resize(4 * LENGTH as usize, 0);
        assert!((2 * LENGTH..3 * LENGTH).contains(&filled()));
        assert!(fs::read(&path).unwrap() == expected);
    }

    /// A multiple of all page sizes, and large compared to the file system's own data on a file's
    /// blocks.
    const UNIT: u64 = 64 * 1024;

    /// A file of holes, and the number of its units that have space.
    fn sparse(directory: &Path, units: u64) -> (RealStorage, Arc<dyn File>, impl Fn() -> u64 + use<>) {
        let storage = RealStorage::new(directory);
        let file = storage.open("file", OpenMode::CreateNew).unwrap();
        file.set_len(units * UNIT).unwrap();
        let path = directory.join("file");
        (storage, file, move || fs::metadata(&path).unwrap().blocks() * 512 / UNIT)
    }

    /// Makes a hole in the file.
    fn punch(directory: &Path, range: Range<u64>) {
        let file = OpenOptions::new().write(true).open(directory.join("file")).unwrap();
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, flags, range.start, range.end - range.start).unwrap();
    }

    #[test]
    fn space_is_reserved_for_a_range_and_no_more() {
        for place in [std::env::temp_dir(), "/dev/shm".into()] {
            // Not every machine has a tmpfs there.
            let Ok(directory) = tempfile::tempdir_in(&place) else { continue };
            let (_storage, file, taken) = sparse(directory.path(), 64);
            if fs::metadata(directory.path().join("file")).unwrap().blksize() > UNIT {
                // Its pages are larger than a unit.
                continue;
            }
            file.allocate(16 * UNIT..32 * UNIT).unwrap();
            assert_eq!((taken(), file.len().unwrap()), (16, 64 * UNIT), "{place:?}");
            file.allocate(64 * UNIT..80 * UNIT).unwrap();
            assert_eq!((taken(), file.len().unwrap()), (32, 80 * UNIT), "{place:?}");
            file.allocate(24 * UNIT..40 * UNIT).unwrap();
            assert_eq!(taken(), 40, "{place:?}");
            file.allocate(0..80 * UNIT).unwrap();
            assert_eq!((taken(), file.len().unwrap()), (80, 80 * UNIT), "{place:?}");
            // The hole is before the requested end, and then another one behind it.
            for (end, whole) in [(80, 80), (2, 79)] {
                punch(directory.path(), UNIT..2 * UNIT);
                punch(directory.path(), 3 * UNIT..4 * UNIT);
                file.allocate(0..end * UNIT).unwrap();
                assert_eq!(taken(), whole, "{place:?}");
            }
        }
    }

    #[test]
    fn a_file_in_a_tmpfs_is_whole_where_all_of_it_has_space_and_nothing_behind_it() {
        let place = Path::new("/dev/shm");
        if fs::File::open(place).ok().and_then(|file| page_of_tmpfs(&file)).is_none() {
            return println!("skipped: {} is no tmpfs with small pages alone", place.display());
        }
        let directory = tempfile::tempdir_in(place).unwrap();
        let (storage, file, taken) = sparse(directory.path(), 8);
        let inner = OpenOptions::new().write(true).open(directory.path().join("file")).unwrap();
        let is_whole = |end| is_whole_in_tmpfs(&inner, end);
        assert!(!is_whole(UNIT));
        file.allocate(0..8 * UNIT).unwrap();
        assert!(is_whole(8 * UNIT) && is_whole(UNIT) && !is_whole(8 * UNIT + 1));
        file.set_len(7 * UNIT + 1).unwrap();
        assert!(is_whole(7 * UNIT) && !is_whole(8 * UNIT));
        file.allocate(0..8 * UNIT).unwrap();
        let reserve_behind = || {
            rustix::fs::fallocate(&inner, FallocateFlags::KEEP_SIZE, 20 * UNIT, UNIT).unwrap();
        };
        // A hole, and as much behind the end.
        for end in [8, 4] {
            punch(directory.path(), UNIT..2 * UNIT);
            assert!(!is_whole(8 * UNIT));
            reserve_behind();
            assert_eq!(taken(), 8);
            file.allocate(0..end * UNIT).unwrap();
            assert_eq!((taken(), file.len().unwrap()), (8, 8 * UNIT));
            assert!(is_whole(8 * UNIT));
        }
        let read = storage.open("file", OpenMode::Read).unwrap();
        assert!(read.allocate(0..UNIT).is_err(), "it is open for reading");
    }
}
