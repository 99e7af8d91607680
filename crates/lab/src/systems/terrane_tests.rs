use std::fs;

use tempfile::tempdir;

use super::*;

#[test]
fn one_insert_writes_as_many_log_bytes_as_the_bare_disk_is_given() {
    const SEGMENT_HEADER_AREA: usize = 4096;
    let dir = tempdir().unwrap();
    let writer = systems()[0].open_writer(dir.path()).unwrap();
    // The key's last byte, which ends the entry, is not zero.
    let location = Location { x: -100.1, y: 40.3 };
    writer.insert(&Record { id: 0x0101, time_us: 1, location }).unwrap();
    let segments: Vec<Vec<u8>> = fs::read_dir(dir.path().join("log"))
        .unwrap()
        .map(|entry| fs::read(entry.unwrap().path()).unwrap())
        .filter(|bytes| bytes.iter().any(|&byte| byte != 0))
        .collect();
    let [segment] = &segments[..] else { panic!("{} segments were written", segments.len()) };
    let group = &segment[SEGMENT_HEADER_AREA..];
    let length = group.iter().rposition(|&byte| byte != 0).unwrap() + 1;
    assert_eq!(writer.bytes_per_insert(), Some(length.next_multiple_of(8) as u64));
}

#[test]
fn a_mode_without_a_log_tells_no_log_bytes() {
    let dir = tempdir().unwrap();
    let writer = systems()[1].open_writer(dir.path()).unwrap();
    assert_eq!(writer.bytes_per_insert(), None);
}

#[test]
fn a_store_that_was_compacted_gives_the_same_answer() {
    let points = Points::generate(3_000).unwrap();
    let dir = tempdir().unwrap();
    let system = &systems()[0];
    drop(system.build(&points.deal(5), dir.path()).unwrap());
    let writer = system.open_writer(dir.path()).unwrap();
    writer.compact().unwrap();
    let reader = writer.reader().unwrap();
    let found = crate::system::count_and_sum(reader.as_ref(), &crate::workload::EXTENT).unwrap();
    assert_eq!(found, (3_000, points.id_sum()));
}
