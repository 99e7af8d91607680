use std::fs;
use std::path::{Path, PathBuf};

use super::{Follow, Mark};

/// Gives the followed name to a new file, and moves the old one away.
fn rotate(path: &Path, number: u32) {
    fs::rename(path, path.with_extension(format!("log.{number}"))).unwrap();
    fs::write(path, format!("{{\"id\":{number}}}\n")).unwrap();
}

/// A followed file, read up to the end of its only line, and its path.
fn followed(directory: &Path) -> (PathBuf, Follow) {
    let path = directory.join("x.log");
    fs::write(&path, "{\"id\":0}\n").unwrap();
    let follow = Follow::open(&path).unwrap();
    follow.note_read(0, b"{\"id\":0}\n");
    (path, follow)
}

/// The ids in the first lines of the files that are read one after the other.
fn read_in_order(mut follow: Follow) -> Vec<u8> {
    let mut ids = Vec::new();
    loop {
        ids.push(follow.file.first(7).unwrap()[6] - b'0');
        match follow.next() {
            Some(next) => follow = next,
            None => return ids,
        }
    }
}

#[test]
fn files_that_waited_to_be_read_are_read_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let (path, follow) = followed(directory.path());
    rotate(&path, 1);
    follow.look_for_newer().unwrap();
    let marks = Mark::parse_all(&follow.marks()).unwrap();
    assert_eq!(marks.len(), 2);
    rotate(&path, 2);
    let resumed = Follow::open(&path).unwrap().resume(&marks, 9).unwrap().unwrap();
    assert_eq!(resumed.warnings, Vec::<String>::new());
    assert_eq!(read_in_order(resumed.file), [0, 1, 2]);
}

#[test]
fn a_file_that_gets_the_name_between_opening_and_resuming_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let (path, follow) = followed(directory.path());
    let marks = Mark::parse_all(&follow.marks()).unwrap();
    rotate(&path, 1);
    let opened = Follow::open(&path).unwrap();
    rotate(&path, 2);
    let resumed = opened.resume(&marks, 9).unwrap().unwrap();
    assert_eq!(resumed.warnings, Vec::<String>::new());
    assert_eq!(read_in_order(resumed.file), [0, 1, 2]);
}

#[test]
fn a_file_that_nobody_saw_under_the_name_gives_a_warning() {
    let directory = tempfile::tempdir().unwrap();
    let (path, follow) = followed(directory.path());
    rotate(&path, 1);
    rotate(&path, 2);
    // As written after the file that is read.
    let later = follow.file.file.metadata().unwrap().modified().unwrap() + std::time::Duration::from_secs(1);
    fs::File::open(path.with_extension("log.2")).unwrap().set_modified(later).unwrap();
    follow.look_for_newer().unwrap();
    let warnings = follow.take_warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("x.log.2 is not read"), "{warnings:?}");
    assert_eq!(read_in_order(follow), [0, 2]);
}

#[test]
fn two_threads_that_look_for_the_name_add_each_file_once_and_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let (path, follow) = followed(directory.path());
    std::thread::scope(|scope| {
        let looking = || (0..2000).for_each(|_| follow.look_for_newer().unwrap());
        let threads = [scope.spawn(looking), scope.spawn(looking)];
        for number in 1..10 {
            let newest = || follow.state().newer.back().map_or(follow.file.id, |newest| newest.id);
            let before = newest();
            rotate(&path, number);
            while newest() == before && !threads.iter().all(|thread| thread.is_finished()) {
                std::thread::yield_now();
            }
        }
    });
    follow.look_for_newer().unwrap();
    let ids = read_in_order(follow);
    assert!(ids.is_sorted_by(|a, b| a < b) && ids.last() == Some(&9), "{ids:?}");
}
