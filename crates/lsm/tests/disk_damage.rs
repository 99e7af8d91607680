//! Damage to component files is found and named, and damaged data are never used.

use crate::curve_objects::setting;
use crate::disk_support::{Bench, seeded};
use rand::Rng;
use rand::rngs::SmallRng;
use std::ops::ControlFlow;
use std::sync::Arc;
use terrane_lsm::Error;
use terrane_lsm::curve::Curve;
use terrane_lsm::disk::btree::{BTreeBuilder, BTreeComponent};
use terrane_lsm::disk::curve::{CurveBuilder, CurveComponent};
use terrane_lsm::disk::rtree::{RTreeBuilder, RTreeComponent};
use terrane_lsm::disk::rtree::{RTreeCursor, WindowSearch};
use terrane_lsm::disk::spatial::{SpatialTree, TreeCursor};
use terrane_lsm::disk::{ComponentMeta, PageKind, ReadGuard};
use terrane_space::{CoordinateSystem, Rect, hilbert};

const RECORDS: u64 = 600;

fn btree(bench: &mut Bench) -> ComponentMeta {
    let mut builder = BTreeBuilder::new(bench.writer(), false).with_filters();
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

fn curve_of(kind: &str) -> Curve {
    let setting = setting(kind, CoordinateSystem::Planar, kind != "shb");
    Curve::new(&setting.options, setting.system, setting.points).unwrap()
}

/// A component of a curve-keyed kind; `shb` of rectangles.
fn curve_keyed(bench: &mut Bench, kind: &str) -> ComponentMeta {
    let curve = curve_of(kind);
    let mut entries = Vec::new();
    for key in 0..RECORDS {
        let (x, y) = ((key % 37) as f64, (key / 37) as f64);
        let length = if curve.points() { 0.0 } else { 0.1 };
        let rect = Rect::new(x, y, x + length, y);
        entries.extend(curve.positions(&rect).into_iter().map(|position| (position, key, rect)));
    }
    entries.sort_by_key(|entry| (entry.0, entry.1));
    let mut builder = CurveBuilder::new(bench.writer(), &curve, kind == "dhvb");
    for (position, key, rect) in entries {
        builder.push(position, rect, &key.to_be_bytes(), key % 9 == 0, (0, u64::MAX)).unwrap();
    }
    builder.finish((1, RECORDS)).unwrap()
}

/// A way to make a component.
type Make = fn(&mut Bench) -> ComponentMeta;

/// One of every kind.
const KINDS: [Make; 6] = [
    btree,
    rtree,
    |bench| curve_keyed(bench, "dhb"),
    |bench| curve_keyed(bench, "dhvb"),
    |bench| curve_keyed(bench, "shb"),
    |bench| curve_keyed(bench, "sif"),
];

fn check(bench: &Bench, meta: &ComponentMeta) -> terrane_lsm::Result<()> {
    let file = bench.open(meta)?;
    match meta.kind.as_str() {
        "btree" => BTreeComponent::open(file)?.check(None)?,
        "rtree" => RTreeComponent::open(file)?.check(CoordinateSystem::Planar)?,
        kind => CurveComponent::open(file, curve_of(kind))?.check()?,
    };
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
    for meta in KINDS.map(|make| make(&mut bench)) {
        check(&bench, &meta).unwrap();
        let bytes = bench.bytes(&meta);
        for (offset, byte) in bytes.iter().enumerate() {
            // Every byte of the structures, and a sample of the rest.
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
    for make in KINDS {
        let whole = make(&mut Bench::new()).file_len;
        for length in [0, 1, 40, 47, 48, 1000, whole / 2, whole - 1] {
            let mut bench = Bench::new();
            let meta = make(&mut bench);
            let name = terrane_lsm::disk::component_name(meta.file_id);
            bench.storage.open(&name, terrane_storage::OpenMode::Write).unwrap().set_len(length).unwrap();
            assert_damage(&bench, &meta, &format!("{} cut to {length}", meta.kind));
        }
    }
}

#[test]
fn the_same_page_of_another_file_is_not_believed() {
    let mut bench = Bench::new();
    for make in KINDS {
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

/// A page as it was passed to a writer.
struct RawPage {
    kind: PageKind,
    level: u8,
    flags: u16,
    count: u32,
    payload: Vec<u8>,
}

/// The pages of a component before its description.
fn pages(bytes: &[u8], count: u32) -> Vec<RawPage> {
    let kinds = [PageKind::RTreeLeaf, PageKind::RTreeInner, PageKind::CurveLeaf, PageKind::CurveInner];
    let mut pages = Vec::new();
    let mut rest = bytes;
    for _ in 0..count {
        let word = |offset: usize| u32::from_le_bytes(rest[offset..offset + 4].try_into().unwrap());
        let length = word(4) as usize;
        pages.push(RawPage {
            kind: kinds.into_iter().find(|kind| *kind as u8 == rest[8]).unwrap(),
            level: rest[9],
            flags: u16::from_le_bytes([rest[10], rest[11]]),
            count: word(12),
            payload: rest[16..16 + length].to_vec(),
        });
        rest = &rest[(16 + length).next_multiple_of(8)..];
    }
    pages
}

/// Changes a part of a page and corrects the checksum, as an attacker would.
fn forge(page: &mut RawPage, pages: u32, random: &mut SmallRng) {
    let length = page.payload.len();
    match random.random_range(0..8) {
        0 => page.count = random.random_range(0..300),
        1 => page.flags ^= 1 << random.random_range(0..5),
        2 => page.level ^= 1 << random.random_range(0..8),
        3 => page.count = u32::MAX >> random.random_range(0..32),
        // The heads of keys and columns.
        4 => page.payload[random.random_range(0..length.min(48))] ^= 1 << random.random_range(0..8),
        // Another page as a child, perhaps this one.
        5 if matches!(page.kind, PageKind::RTreeInner | PageKind::CurveInner) => {
            let (from, to) = (random.random_range(0..page.count as usize), random.random_range(0..page.count as usize));
            let place = |child: usize| length - 16 * (page.count as usize - child);
            let other = page.payload[place(from)..place(from) + 16].to_vec();
            page.payload[place(to)..place(to) + 16].copy_from_slice(&other);
            page.payload[place(to) + 8] = random.random_range(0..pages) as u8;
        }
        _ => page.payload[random.random_range(0..length)] = random.random(),
    }
}

/// Reads everything in every way. The test asserts that it ends.
fn read_all<T: SpatialTree>(component: &Arc<T>, order: T::Order) -> terrane_lsm::Result<()> {
    for window in [Rect::new(-1e9, -1e9, 1e9, 1e9), Rect::new(3.0, 3.0, 9.0, 4.5), Rect::new(8.0, 8.0, 8.0, 8.0)] {
        let mut search = WindowSearch::new(&window, 0);
        search.add(0, &**component, &ReadGuard::enter())?;
        while search.next_component().is_some() {
            let _ = search.step(&**component, &ReadGuard::enter(), |leaf, index| {
                assert!(leaf.get(index).key.len() <= 1 << 20);
                ControlFlow::Continue(())
            })?;
        }
    }
    let mut cursor = TreeCursor::first(component.clone(), order)?;
    while cursor.entry().is_some() {
        cursor.advance()?;
    }
    Ok(())
}

#[test]
fn forged_pages_with_right_checksums_are_refused_or_read_and_never_more() {
    let mut random = seeded("forged_pages", 91);
    let rounds = if terrane_testkit::is_soak() { 20_000 } else { 500 };
    for make in &KINDS[1..] {
        let mut refused = 0;
        for _ in 0..rounds {
            let mut bench = Bench::new();
            let meta = make(&mut bench);
            let mut pages = pages(&bench.bytes(&meta), meta.pages);
            let number = random.random_range(0..pages.len());
            forge(&mut pages[number], meta.pages, &mut random);
            let meta = rewrite(&mut bench, meta, &pages);
            let file = bench.open(&meta).unwrap();
            let (read, checked) = if meta.kind == "rtree" {
                let component = Arc::new(RTreeComponent::open(file).unwrap());
                (read_all(&component, CoordinateSystem::Planar), component.check(CoordinateSystem::Planar))
            } else {
                let component = Arc::new(CurveComponent::open(file, curve_of(&meta.kind)).unwrap());
                (read_all(&component, ()), component.check())
            };
            for error in [read.err(), checked.err()].into_iter().flatten() {
                assert!(error.is_damage(), "{error}");
                refused += 1;
            }
        }
        assert!(refused > rounds / 2, "{refused} of {rounds} were noticed");
    }
}

/// Replaces pages of a component by forged ones.
fn rewrite(bench: &mut Bench, meta: ComponentMeta, pages: &[RawPage]) -> ComponentMeta {
    let mut writer = bench.writer();
    for RawPage { kind, level, flags, count, payload } in pages {
        writer.page(*kind, *level, *flags, *count as usize, payload).unwrap();
    }
    writer.finish(meta).unwrap()
}

#[test]
fn positions_that_do_not_ascend_are_refused() {
    for kind in ["dhvb", "shb", "sif"] {
        for inner in [false, true] {
            let mut bench = Bench::new();
            let meta = curve_keyed(&mut bench, kind);
            let mut pages = pages(&bench.bytes(&meta), meta.pages);
            let number = if inner { meta.root.unwrap().number as usize } else { 1 };
            let RawPage { payload, count, .. } = &mut pages[number];
            let width = |payload: &[u8], head: usize| payload[head] as usize;
            // The first position becomes the greatest: of the children's first ones, or of the
            // entries' at the end.
            let first = if inner {
                16
            } else {
                let body = |width: usize| (width * *count as usize + 8).next_multiple_of(8);
                let fits = |wide: &usize| width(payload, payload.len() - body(*wide) - 16) == *wide;
                payload.len() - body((1..8).find(fits).unwrap())
            };
            let wide = width(payload, first - 16);
            payload[first..first + wide].fill(0xff);
            let meta = rewrite(&mut bench, meta, &pages);
            let component = CurveComponent::open(bench.open(&meta).unwrap(), curve_of(kind)).unwrap();
            let reason = read_all(&Arc::new(component), ()).unwrap_err().to_string();
            assert!(reason.contains("out of order"), "{kind}: {reason}");
        }
    }
}

/// A search ends even if a page names itself as its child.
#[test]
fn a_tree_that_leads_to_itself_is_refused() {
    for make in &KINDS[1..] {
        let mut bench = Bench::new();
        let meta = make(&mut bench);
        let mut pages = pages(&bench.bytes(&meta), meta.pages);
        let root = meta.root.unwrap();
        let page = &mut pages[root.number as usize];
        let last = page.payload.len() - 16;
        page.payload[last..last + 8].copy_from_slice(&root.offset.to_le_bytes());
        page.payload[last + 8..last + 12].copy_from_slice(&root.number.to_le_bytes());
        page.payload[last + 12..].copy_from_slice(&root.length.to_le_bytes());
        let meta = rewrite(&mut bench, meta, &pages);
        let file = bench.open(&meta).unwrap();
        let refused = if meta.kind == "rtree" {
            let component = Arc::new(RTreeComponent::open(file).unwrap());
            let _ = RTreeCursor::first(component.clone(), CoordinateSystem::Planar).unwrap_err();
            read_all(&component, CoordinateSystem::Planar)
        } else {
            read_all(&Arc::new(CurveComponent::open(file, curve_of(&meta.kind)).unwrap()), ())
        };
        let reason = refused.unwrap_err().to_string();
        assert!(reason.contains("behind its parent"), "{reason}");
    }
}
