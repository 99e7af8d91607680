//! Damage to component files: found, named, and never believed.

use crate::disk_support::Bench;
use terrane_lsm::Error;
use terrane_lsm::disk::ComponentMeta;
use terrane_lsm::disk::btree::{BTreeBuilder, BTreeComponent};
use terrane_lsm::disk::rtree::{RTreeBuilder, RTreeComponent};
use terrane_space::{CoordinateSystem, Rect, hilbert};

const RECORDS: u64 = 600;

fn btree(bench: &mut Bench) -> ComponentMeta {
    let mut builder = BTreeBuilder::new(bench.writer(), false);
    for key in 0..RECORDS {
        builder.push(&key.to_be_bytes(), false, 0, format!("value {key} {}", "x".repeat(40)).as_bytes()).unwrap();
    }
    builder.finish((1, RECORDS)).unwrap()
}

fn rtree(bench: &mut Bench) -> ComponentMeta {
    let mut places: Vec<(u64, f64, f64, u64)> = (0..RECORDS)
        .map(|key| {
            let (x, y) = ((key % 37) as f64, (key / 37) as f64);
            (hilbert::position(CoordinateSystem::Planar, terrane_space::Point::new(x, y)), x, y, key)
        })
        .collect();
    places.sort_by_key(|place| (place.0, place.3));
    let mut builder = RTreeBuilder::new(bench.writer(), true, false);
    for (position, x, y, key) in places {
        builder.push(position, Rect { x0: x, y0: y, x1: x, y1: y }, &key.to_be_bytes(), false, (0, u64::MAX)).unwrap();
    }
    builder.finish((1, RECORDS)).unwrap()
}

fn check(bench: &Bench, meta: &ComponentMeta) -> terrane_lsm::Result<()> {
    let file = bench.open(meta)?;
    if meta.kind == "btree" {
        BTreeComponent::open(file)?.check()?;
    } else {
        RTreeComponent::open(file)?.check(CoordinateSystem::Planar)?;
    }
    Ok(())
}

fn assert_damage(bench: &Bench, meta: &ComponentMeta, what: &str) {
    match check(bench, meta) {
        Err(Error::Damaged { file, .. }) => assert!(file.contains(&format!("{:012}", meta.file_id)), "{what}: {file}"),
        Err(Error::UnknownVersion { .. }) => {}
        other => panic!("{what}: {other:?}"),
    }
}

#[test]
fn every_flipped_byte_is_found() {
    let mut bench = Bench::new();
    for meta in [btree(&mut bench), rtree(&mut bench)] {
        check(&bench, &meta).unwrap();
        let bytes = bench.bytes(&meta);
        for (offset, byte) in bytes.iter().enumerate() {
            // Every byte of what has structure, and a sample of the rest.
            if offset % 13 != 0 && offset + 600 < bytes.len() {
                continue;
            }
            bench.overwrite(&meta, &[byte ^ 0x10], offset as u64);
            assert_damage(&bench, &meta, &format!("{} byte {offset}", meta.kind));
            bench.overwrite(&meta, &[*byte], offset as u64);
        }
        check(&bench, &meta).unwrap();
    }
}

#[test]
fn a_cut_file_is_found() {
    let mut bench = Bench::new();
    for meta in [btree(&mut bench), rtree(&mut bench)] {
        for length in [0, 1, 40, 47, 48, 1000, meta.file_len / 2, meta.file_len - 1] {
            let mut bench = Bench::new();
            let meta = if meta.kind == "btree" { btree(&mut bench) } else { rtree(&mut bench) };
            let name = terrane_lsm::disk::component_name(meta.file_id);
            bench.storage.open(&name, terrane_storage::OpenMode::Write).unwrap().set_len(length).unwrap();
            assert_damage(&bench, &meta, &format!("{} cut to {length}", meta.kind));
        }
    }
}

#[test]
fn the_same_page_of_another_file_is_not_believed() {
    let mut bench = Bench::new();
    for make in [btree, rtree] {
        let (one, other) = (make(&mut bench), make(&mut bench));
        let bytes = bench.bytes(&other);
        let original = bench.bytes(&one);
        // The first page is the first leaf; both files hold the same entries.
        let end = original.len().min(4096);
        bench.overwrite(&one, &bytes[..end], 0);
        assert_damage(&bench, &one, "a page of another file");
        bench.overwrite(&one, &original[..end], 0);
        bench.overwrite(&one, &bytes, 0);
        assert_damage(&bench, &one, "another file whole");
    }
}

#[test]
fn a_missing_file_is_damage() {
    let mut bench = Bench::new();
    let meta = btree(&mut bench);
    bench.storage.remove(&terrane_lsm::disk::component_name(meta.file_id)).unwrap();
    assert_damage(&bench, &meta, "a missing file");
}
