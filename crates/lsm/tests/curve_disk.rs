//! Components of the curve-keyed kinds: windows, jumps over pages, bytes, and errors of builders
//! and checks.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::curve_objects::{Setting, object, setting, settings, stored, window};
use crate::disk_support::{Bench, seeded};
use rand::Rng;
use rand::rngs::SmallRng;
use terrane_lsm::curve::Curve;
use terrane_lsm::disk::curve::{CurveBuilder, CurveComponent, CurveCursor};
use terrane_lsm::disk::rtree::{Leaf, RTreeBuilder, RTreeComponent, WindowSearch};
use terrane_lsm::disk::spatial::SpatialTree;
use terrane_lsm::disk::{ComponentMeta, ReadGuard};
use terrane_space::{CoordinateSystem, Point, Rect, hilbert};

/// A box with its key, whether it is anti-matter, and its begin and end number.
type Object = (Rect, Vec<u8>, bool, (u64, u64));

fn curve(setting: &Setting) -> Curve {
    Curve::new(&setting.options, setting.system, setting.points).unwrap()
}

/// The entries of all objects in the order of a builder: position and number of the object.
fn entries(curve: &Curve, objects: &[Object]) -> Vec<(u64, usize)> {
    let positions = |(number, object): (usize, &Object)| {
        curve.positions(&object.0).into_iter().map(move |position| (position, number)).collect::<Vec<_>>()
    };
    let mut entries: Vec<(u64, usize)> = objects.iter().enumerate().flat_map(positions).collect();
    entries.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| objects[a.1].1.cmp(&objects[b.1].1)));
    entries
}

fn build(bench: &mut Bench, curve: &Curve, objects: &[Object], has_sequences: bool) -> ComponentMeta {
    let mut builder = CurveBuilder::new(bench.writer(), curve, has_sequences);
    for (position, number) in entries(curve, objects) {
        let (rect, key, antimatter, life) = &objects[number];
        builder.push(position, *rect, key, *antimatter, *life).unwrap();
    }
    builder.finish((1, 9)).unwrap()
}

fn open(bench: &Bench, meta: &ComponentMeta, curve: &Curve) -> Arc<CurveComponent> {
    Arc::new(CurveComponent::open(bench.open(meta).unwrap(), curve.clone()).unwrap())
}

type Found = Vec<([u64; 4], Vec<u8>, bool)>;

/// The results of a search, and the pages it visits.
fn search<T: SpatialTree>(component: &T, window: &Rect, snapshot: u64) -> (Found, u64) {
    let mut found = Vec::new();
    let mut search = WindowSearch::new(window, snapshot);
    search.add(0, component, &ReadGuard::enter()).unwrap();
    while search.next_component().is_some() {
        let visit = |leaf: &Leaf<'_>, index| {
            let entry = leaf.get(index);
            found.push((stored(&entry.rect), entry.key.to_vec(), entry.antimatter));
            ControlFlow::Continue(())
        };
        assert!(search.step(component, &ReadGuard::enter(), visit).unwrap().is_continue());
    }
    found.sort();
    (found, search.pages)
}

fn expected(objects: &[Object], window: &Rect, sees: impl Fn(&Object) -> bool) -> Found {
    let meets = |object: &&Object| object.0.intersects(window) && sees(object);
    let mut found: Found = objects
        .iter()
        .filter(meets)
        .map(|(rect, key, antimatter, _)| (stored(rect), key.clone(), *antimatter))
        .collect();
    found.sort();
    found
}

fn objects(random: &mut SmallRng, setting: &Setting, count: usize) -> Vec<Object> {
    let numbers = random.random_bool(0.7);
    let mut objects = Vec::new();
    for number in 0..count as u64 {
        let key = number.to_be_bytes();
        let key = if numbers { key.to_vec() } else { [&key[6..], b" of some length"].concat() };
        let begin = random.random_range(0..10);
        let life = (begin, begin + random.random_range(1..10));
        objects.push((object(random, setting), key, random.random_ratio(1, 5), life));
    }
    objects
}

#[test]
fn windows_find_what_a_scan_finds_in_one_component() {
    let mut random = seeded("windows_find_what_a_scan_finds_in_one", 81);
    for setting in settings() {
        let curve = curve(&setting);
        for has_sequences in [false, true] {
            for count in [0, 1, 900, 40_000] {
                if count > 1_000 && (has_sequences || !setting.points) {
                    continue;
                }
                let objects = objects(&mut random, &setting, count);
                let mut bench = Bench::new();
                let meta = build(&mut bench, &curve, &objects, has_sequences);
                let component = open(&bench, &meta, &curve);
                component.check().unwrap();
                for _ in 0..30 {
                    let known = objects.get(random.random_range(0..=count)).map(|object| object.0);
                    let (window, snapshot) = (window(&mut random, &setting, known), random.random_range(0..20));
                    let sees = |object: &Object| !has_sequences || (object.3.0 <= snapshot && snapshot < object.3.1);
                    let (found, _) = search(&*component, &window, snapshot);
                    assert_eq!(found, expected(&objects, &window, sees), "{setting:?} {window:?} of {count}");
                }
                let mut cursor = CurveCursor::first(component, ()).unwrap();
                for (position, number) in entries(&curve, &objects) {
                    let found = cursor.entry().map(|found| (cursor.position(), found.key.to_vec()));
                    assert_eq!(found, Some((position, objects[number].1.clone())));
                    cursor.advance().unwrap();
                }
                assert!(cursor.entry().is_none());
            }
        }
    }
}

#[test]
fn equal_points_of_many_keys_are_all_found() {
    for kind in ["dhb", "dhvb", "shb", "sif"] {
        let setting = setting(kind, CoordinateSystem::LonLat, true);
        let curve = curve(&setting);
        let place = |x: f64| Rect::new(x, 45.0, x, 45.0);
        // Many leaves of one position, and neighbours on both sides.
        let objects: Vec<Object> = (0..3_000u64)
            .map(|number| {
                let x = if number < 50 {
                    11.25
                } else if number < 2_900 {
                    22.5
                } else {
                    33.75
                };
                (place(x), number.to_be_bytes().to_vec(), false, (0, u64::MAX))
            })
            .collect();
        let mut bench = Bench::new();
        let meta = build(&mut bench, &curve, &objects, false);
        let component = open(&bench, &meta, &curve);
        for x in [11.25, 22.5, 33.75, 22.500000001] {
            let found = search(&*component, &place(x), 0).0;
            assert_eq!(found, expected(&objects, &place(x), |_| true), "{kind} at {x}");
        }
    }
}

#[test]
fn a_window_between_two_leaves_is_looked_for_in_neither() {
    let mut random = seeded("a_window_between_two_leaves", 87);
    let mut objects = Vec::new();
    // A leaf takes less than two of these groups, and is cut where the curve leaves the first.
    for (x, y) in [(-90.0, -40.0), (-90.0, 40.0), (90.0, 40.0), (90.0, -40.0)] {
        for _ in 0..100 {
            let (x, y) = (x + random.random_range(0.0..1.0), y + random.random_range(0.0..1.0));
            let key = (objects.len() as u64).to_be_bytes().to_vec();
            objects.push((Rect::new(x, y, x, y), key, false, (0, u64::MAX)));
        }
    }
    for kind in ["dhb", "dhvb", "shb"] {
        let curve = curve(&setting(kind, CoordinateSystem::LonLat, true));
        let mut bench = Bench::new();
        let meta = build(&mut bench, &curve, &objects, false);
        let component = open(&bench, &meta, &curve);
        for (x, y) in [(-89.5, -1.0), (-45.5, 20.5), (0.5, 40.5), (45.5, 1.5), (80.5, -20.5)] {
            let (found, pages) = search(&*component, &Rect::new(x, y, x + 0.2, y + 0.1), 0);
            assert!(found.is_empty());
            assert_eq!(pages, u64::from(meta.height) - 1, "{kind} at {x} {y}");
        }
    }
}

/// Points around a few hundred centres, as on maps, with dense keys.
fn clustered(random: &mut SmallRng, count: u64) -> Vec<Object> {
    let centres: Vec<(f64, f64)> =
        (0..200).map(|_| (random.random_range(-125.0..-66.5), random.random_range(24.5..49.5))).collect();
    let mut objects = Vec::new();
    for number in 0..count {
        let (x, y) = centres[random.random_range(0..centres.len())];
        // Around a bell, with a fifth spread everywhere.
        let spread = if random.random_ratio(1, 5) { 10.0 } else { 0.4 };
        let mut step = || (0..4).map(|_| random.random_range(-0.5..0.5)).sum::<f64>() * spread;
        let (x, y) = ((x + step()).clamp(-125.0, -66.5), (y + step()).clamp(24.5, 49.5));
        objects.push((Rect::new(x, y, x, y), (number ^ (1 << 63)).to_be_bytes().to_vec(), false, (0, u64::MAX)));
    }
    objects
}

#[test]
fn a_search_jumps_over_the_leaves_between_the_ranges_of_a_window() {
    let mut random = seeded("a_search_jumps_over", 82);
    let objects = clustered(&mut random, 60_000);
    for kind in ["dhb", "dhvb", "shb", "sif"] {
        let setting = setting(kind, CoordinateSystem::LonLat, true);
        let curve = curve(&setting);
        let mut bench = Bench::new();
        let meta = build(&mut bench, &curve, &objects, false);
        let component = open(&bench, &meta, &curve);
        // Across the middle of the curve's first order, so that its first and last point are far
        // apart on the curve.
        let window = Rect::new(-90.2, 30.0, -89.8, 45.5);
        let positions: Vec<u64> = objects
            .iter()
            .filter(|object| object.0.intersects(&window))
            .map(|object| curve.positions(&object.0)[curve.positions(&object.0).len() - 1])
            .collect();
        let (first, last) = (*positions.iter().min().unwrap(), *positions.iter().max().unwrap());
        let between = objects.iter().filter(|object| {
            let positions = curve.positions(&object.0);
            (first..=last).contains(&positions[positions.len() - 1])
        });
        // A leaf has 128 entries at most.
        let leaves_between = between.count() as u64 / 128;
        let (found, pages) = search(&*component, &window, 0);
        assert_eq!(found, expected(&objects, &window, |_| true));
        println!("{kind}: {pages} pages of at least {leaves_between} leaves between, {} found", found.len());
        assert!(pages * 3 < leaves_between, "{kind}: {pages} pages, at least {leaves_between} leaves between the ends");
        // A search of an empty window reads no leaf.
        let (x, y) = (objects[0].0.x0, objects[0].0.y0);
        let point = Rect::new(x, y, x, y);
        let (found, pages) = search(&*component, &point, 0);
        assert_eq!(found.len(), 1);
        let height = u64::from(meta.height);
        assert!(pages <= height, "{kind}: {pages} pages for one point in a tree of {height} levels");
    }
}

fn bytes_each(meta: &ComponentMeta, objects: u64) -> f64 {
    meta.file_len as f64 / objects as f64
}

#[test]
fn entries_of_clustered_points_with_dense_keys_take_few_bytes() {
    let mut random = seeded("entries_of_clustered_points", 83);
    // More points lie nearer to each other, and take less space.
    let count = if terrane_testkit::is_soak() { 1_000_000 } else { 200_000 };
    let objects = clustered(&mut random, count);
    let mut bench = Bench::new();
    for (kind, most) in [("dhb", 17.0), ("dhvb", 23.0), ("shb", 23.0), ("sif", 115.0)] {
        let curve = curve(&setting(kind, CoordinateSystem::LonLat, true));
        let meta = build(&mut bench, &curve, &objects, false);
        let bytes = bytes_each(&meta, count);
        println!("{kind}: {bytes:.2} bytes a point, {} entries", meta.statistics.entries);
        assert!(bytes <= most, "{kind}: {bytes:.2} bytes a point");
        bench.storage.remove(&terrane_lsm::disk::component_name(meta.file_id)).unwrap();
    }
}

#[test]
fn few_cells_are_enough_for_most_rectangles() {
    let mut random = seeded("few_cells_are_enough", 84);
    let setting = setting("shb", CoordinateSystem::LonLat, false);
    let curve = curve(&setting);
    let mut cells = [0usize; 3];
    for (sum, size) in cells.iter_mut().zip([1e-4, 1e-2, 1.0]) {
        for _ in 0..2_000 {
            let (x, y) = (random.random_range(-170.0..170.0), random.random_range(-80.0..80.0));
            let (width, height) = (random.random_range(0.0..size), random.random_range(0.0..size));
            let positions = curve.positions(&Rect::new(x, y, x + width, y + height));
            assert!(positions.is_sorted() && (1..=4).contains(&positions.len()));
            *sum += positions.len();
        }
    }
    println!("cells of 2,000 rectangles: {cells:?}");
    assert!(cells.iter().all(|sum| *sum < 2_000 * 5 / 2), "{cells:?}");
    // Everything, in cells of the coarsest level.
    assert_eq!(curve.positions(&Rect::new(-180.0, -90.0, 180.0, 90.0)).len(), 16);
}

#[test]
fn entries_out_of_order_and_of_another_shape_are_refused() {
    let mut bench = Bench::new();
    let point = |x: f64| Rect::new(x, 0.0, x, 0.0);
    let life = (0, u64::MAX);
    let curve = curve(&setting("dhvb", CoordinateSystem::LonLat, true));
    let mut builder = CurveBuilder::new(bench.writer(), &curve, false);
    builder.push(5, point(1.0), b"b", false, life).unwrap();
    for (position, rect, key) in
        [(4, point(1.0), b"c"), (5, point(1.0), b"a"), (6, Rect::new(0.0, 0.0, 1.0, 1.0), b"c")]
    {
        let refused = builder.push(position, rect, key, false, life);
        assert!(matches!(refused, Err(terrane_lsm::Error::Invalid(_))), "{refused:?}");
    }
    builder.push(5, point(2.0), b"b", true, life).unwrap();
    builder.finish((1, 1)).unwrap();
}

#[test]
fn a_check_finds_entries_at_wrong_positions_and_objects_that_lack_some() {
    let mut random = seeded("a_check_finds_entries", 85);
    let mut bench = Bench::new();
    for setting in settings() {
        let curve = curve(&setting);
        let objects = objects(&mut random, &setting, 300);
        let all = entries(&curve, &objects);
        let several = all.len() > objects.len();
        let mut load = |entries: &[(u64, usize)]| {
            let mut builder = CurveBuilder::new(bench.writer(), &curve, false);
            for (position, number) in entries {
                let (rect, key, antimatter, life) = &objects[*number];
                builder.push(*position, *rect, key, *antimatter, *life).unwrap();
            }
            let meta = builder.finish((1, 9)).unwrap();
            open(&bench, &meta, &curve).check()
        };
        load(&all).unwrap();
        let refused = |result: terrane_lsm::Result<_>| {
            result.map(|_: terrane_lsm::index::ComponentCheck| ()).unwrap_err().to_string()
        };
        if curve.stores_positions() {
            // An entry moves on by one, and stays before the next.
            let mut moved = all.clone();
            let place = (1..all.len()).find(|place| all[*place].0 - all[place - 1].0 > 1).unwrap() - 1;
            moved[place].0 += 1;
            let reason = refused(load(&moved));
            assert!(reason.contains("not at a position of its object"), "{setting:?}: {reason}");
        } else {
            // In an order that the positions of the loaded entries do not give.
            let turned: Vec<_> = (0..).zip(all.iter().rev()).map(|(position, entry)| (position, entry.1)).collect();
            let reason = refused(load(&turned));
            assert!(reason.contains("order of the curve") || reason.contains("positions are not those"), "{reason}");
        }
        if several {
            let count = |number: usize| all.iter().filter(|entry| entry.1 == number).count();
            let number = (0..objects.len()).find(|number| count(*number) > 1).unwrap();
            for missing in 0..2 {
                let mut fewer = all.clone();
                let place = all.iter().enumerate().filter(|(_, entry)| entry.1 == number).nth(missing).unwrap().0;
                fewer.remove(place);
                let reason = refused(load(&fewer));
                assert!(reason.contains("lacks entries"), "{setting:?}: {reason}");
            }
        }
    }
}

#[test]
fn a_component_of_another_kind_is_refused() {
    let mut bench = Bench::new();
    let (dhb, dhvb) = (setting("dhb", CoordinateSystem::LonLat, true), setting("dhvb", CoordinateSystem::LonLat, true));
    let meta = build(&mut bench, &curve(&dhb), &[], false);
    let refused = CurveComponent::open(bench.open(&meta).unwrap(), curve(&dhvb)).unwrap_err();
    assert!(refused.is_damage() && refused.to_string().contains("kind dhb where dhvb"), "{refused}");
    let refused = RTreeComponent::open(bench.open(&meta).unwrap()).unwrap_err();
    assert!(refused.is_damage(), "{refused}");
    let builder = RTreeBuilder::new(bench.writer(), true, false);
    let meta = builder.finish((1, 1)).unwrap();
    assert!(CurveComponent::open(bench.open(&meta).unwrap(), curve(&dhb)).unwrap_err().is_damage());
}

/// The curve's own order is the R-tree's of points, so both read about the same leaves.
#[test]
fn hilbert_kinds_visit_few_more_pages_than_an_r_tree() {
    let mut random = seeded("hilbert_kinds_visit", 86);
    let objects = clustered(&mut random, 100_000);
    let mut bench = Bench::new();
    let position = |rect: &Rect| hilbert::position(CoordinateSystem::LonLat, Point::new(rect.x0, rect.y0));
    let mut order: Vec<&Object> = objects.iter().collect();
    order.sort_by_key(|object| (position(&object.0), object.1.clone()));
    let mut builder = RTreeBuilder::new(bench.writer(), true, false);
    for (rect, key, antimatter, life) in order {
        builder.push(position(rect), *rect, key, *antimatter, *life).unwrap();
    }
    let meta = builder.finish((1, 9)).unwrap();
    let rtree = RTreeComponent::open(bench.open(&meta).unwrap()).unwrap();
    let kinds: Vec<_> = ["dhb", "dhvb", "shb", "sif"]
        .into_iter()
        .map(|kind| {
            let curve = curve(&setting(kind, CoordinateSystem::LonLat, true));
            let meta = build(&mut bench, &curve, &objects, false);
            open(&bench, &meta, &curve)
        })
        .collect();
    for size in [0.01, 0.1, 1.0] {
        let mut pages = [0; 5];
        for _ in 0..200 {
            let Rect { x0: x, y0: y, .. } = objects[random.random_range(0..objects.len())].0;
            let window = Rect::new(x - size, y - size, x + size, y + size);
            let (wanted, visited) = search(&rtree, &window, 0);
            pages[4] += visited;
            for (component, sum) in kinds.iter().zip(&mut pages) {
                let (found, visited) = search(&**component, &window, 0);
                assert_eq!(found, wanted);
                *sum += visited;
            }
        }
        println!("half a side of {size}: pages of dhb, dhvb, shb, sif, rtree {pages:?}");
        for hilbert in &pages[..2] {
            assert!(hilbert * 10 <= pages[4] * 13, "{pages:?}");
        }
        assert!(pages[2] * 10 <= pages[4] * 20, "{pages:?}");
    }
}
