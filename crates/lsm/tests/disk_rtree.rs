//! The R-tree on disk against a linear scan.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::disk_support::Bench;
use proptest::prelude::*;
use terrane_lsm::disk::rtree::{
    DistanceBounds, Hits, Leaf, Node, Origin, RTreeBuilder, RTreeComponent, RTreeCursor, Surface, WindowSearch,
};
use terrane_lsm::disk::{ComponentMeta, ReadGuard};
use terrane_space::sphere::PreparedPoint;
use terrane_space::{CoordinateSystem, Point, Rect, hilbert};

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    rect: Rect,
    key: Vec<u8>,
    antimatter: bool,
    life: (u64, u64),
}

fn position(rect: &Rect) -> u64 {
    hilbert::position(CoordinateSystem::Planar, rect.center())
}

fn ordered(mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.sort_by_key(|entry| (position(&entry.rect), entry.key.clone()));
    entries
}

fn build(bench: &mut Bench, entries: &[Entry], points: bool, has_sequences: bool) -> ComponentMeta {
    let mut builder = RTreeBuilder::new(bench.writer(), points, has_sequences);
    for entry in entries {
        builder.push(position(&entry.rect), entry.rect, &entry.key, entry.antimatter, entry.life).unwrap();
    }
    builder.finish((1, 9)).unwrap()
}

fn search(component: &RTreeComponent, window: &Rect, snapshot: u64) -> Vec<(Rect, Vec<u8>, bool)> {
    let mut found = Vec::new();
    let mut search = WindowSearch::new(window, snapshot);
    search.add(0, component, &ReadGuard::enter()).unwrap();
    while search.next_component().is_some() {
        let visit = |leaf: &Leaf<'_>, index| {
            let entry = leaf.get(index);
            found.push((entry.rect, entry.key.to_vec(), entry.antimatter));
            ControlFlow::Continue(())
        };
        assert!(search.step(component, &ReadGuard::enter(), visit).unwrap().is_continue());
    }
    found
}

fn coordinate() -> impl Strategy<Value = f64> {
    prop_oneof![
        (-50i32..50).prop_map(|value| f64::from(value) / 4.0),
        -1e3..1e3f64,
        prop::sample::select(vec![0.0, -0.0, 1e-300, -1e-300, 1e300, -1e300, f64::MAX, f64::MIN, f64::MIN_POSITIVE]),
    ]
}

fn entry(points: bool) -> impl Strategy<Value = Entry> {
    let key = prop_oneof![
        (0u64..5000).prop_map(|number| number.to_be_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..20)
    ];
    (coordinate(), coordinate(), coordinate(), coordinate(), key, any::<bool>(), 0u64..10, 1u64..10).prop_map(
        move |(x, y, x1, y1, key, antimatter, begin, length)| {
            let (x1, y1) = if points { (x, y) } else { (x1, y1) };
            let rect = Rect { x0: x.min(x1), y0: y.min(y1), x1: x.max(x1), y1: y.max(y1) };
            Entry { rect, key, antimatter, life: (begin, begin + length) }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn windows_find_what_a_scan_finds(
        points: bool,
        has_sequences: bool,
        entries in any::<bool>().prop_flat_map(|_| prop::collection::vec(entry(false), 0..900)),
        windows in prop::collection::vec((coordinate(), coordinate(), coordinate(), coordinate()), 1..12),
        snapshot in 0u64..20,
    ) {
        let entries = entries.into_iter().map(|mut entry| {
            if points {
                entry.rect.x1 = entry.rect.x0;
                entry.rect.y1 = entry.rect.y0;
            }
            entry
        });
        let entries = ordered(entries.collect());
        let mut bench = Bench::new();
        let meta = build(&mut bench, &entries, points, has_sequences);
        let component = Arc::new(RTreeComponent::open(bench.open(&meta).unwrap()).unwrap());
        component.check(CoordinateSystem::Planar).unwrap();
        for (a, b, c, d) in windows {
            let window = Rect { x0: a.min(c), y0: b.min(d), x1: a.max(c), y1: b.max(d) };
            let seen = |entry: &&Entry| !has_sequences || (entry.life.0 <= snapshot && snapshot < entry.life.1);
            let mut wanted: Vec<_> = entries
                .iter()
                .filter(|entry| entry.rect.intersects(&window))
                .filter(seen)
                .map(|entry| (entry.rect, entry.key.clone(), entry.antimatter))
                .collect();
            let mut found = search(&component, &window, snapshot);
            let order = |a: &(Rect, Vec<u8>, bool), b: &(Rect, Vec<u8>, bool)| format!("{a:?}").cmp(&format!("{b:?}"));
            // -0.0 is stored as 0.0.
            let normal = |list: &mut Vec<(Rect, Vec<u8>, bool)>| {
                for (rect, ..) in list.iter_mut() {
                    *rect = Rect { x0: rect.x0 + 0.0, y0: rect.y0 + 0.0, x1: rect.x1 + 0.0, y1: rect.y1 + 0.0 };
                }
            };
            normal(&mut wanted);
            normal(&mut found);
            wanted.sort_by(order);
            found.sort_by(order);
            prop_assert_eq!(found, wanted);
        }
        let mut cursor = RTreeCursor::first(component, CoordinateSystem::Planar).unwrap();
        for entry in &entries {
            prop_assert_eq!(cursor.entry().map(|found| found.key.to_vec()), Some(entry.key.clone()));
            cursor.advance().unwrap();
        }
        prop_assert!(cursor.entry().is_none());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn distance_bounds_enclose_the_distances(
        center in (-180.0..180.0f64, -90.0..90.0f64),
        spread in prop::sample::select(vec![1e-9, 1e-3, 0.1, 5.0, 300.0, 1e30]),
        narrower in prop::sample::select(vec![1.0, 0.3, 1e-6, 1e-9, 1e-25]),
        steps in prop::collection::vec((-1.0..1.0f64, -1.0..1.0f64), 1..128),
        from in (-3.0..3.0f64, -3.0..3.0f64),
        count in 1usize..40,
    ) {
        let entries = steps.iter().enumerate().map(|(number, (dx, dy))| {
            // A narrow axis lies at 0; elsewhere near numbers could not be distinguished.
            let (x, y) = (center.0.mul_add(f64::from(narrower == 1.0), dx * spread * narrower), center.1 + dy * spread);
            let rect = Rect { x0: x, y0: y, x1: x, y1: y };
            Entry { rect, key: (number as u64).to_be_bytes().to_vec(), antimatter: false, life: (0, 1) }
        });
        let entries = ordered(entries.collect());
        let x = center.0.mul_add(f64::from(narrower == 1.0), from.0 * spread * narrower);
        let from = Point { x, y: center.1 + from.1 * spread };
        with_leaf(&entries, |leaf| check_bounds(leaf, Surface::Plane(from), count, |point| {
            (point.x - from.x).powi(2) + (point.y - from.y).powi(2)
        }))?;
    }

    #[test]
    fn distance_bounds_enclose_the_chords(
        center in (-180.0..180.0f64, prop_oneof![-90.0..90.0f64, -90.0..-89.9f64, Just(90.0)]),
        spread in prop::sample::select(vec![1e-9, 1e-3, 0.1, 5.0, 100.0]),
        steps in prop::collection::vec((-1.0..1.0f64, -1.0..1.0f64), 1..128),
        from in (-3.0..3.0f64, -3.0..3.0f64),
        turns in -1..=1i32,
        count in 1usize..40,
    ) {
        let at = |(dx, dy): (f64, f64)| Point {
            x: (center.0 + dx * spread).clamp(-180.0, 180.0),
            y: (center.1 + dy * spread).clamp(-90.0, 90.0),
        };
        let entries = steps.iter().enumerate().map(|(number, step)| {
            let Point { x, y } = at(*step);
            let rect = Rect { x0: x, y0: y, x1: x, y1: y };
            Entry { rect, key: (number as u64).to_be_bytes().to_vec(), antimatter: false, life: (0, 1) }
        });
        let entries = ordered(entries.collect());
        // As near on the other side of the antimeridian.
        let x = center.0 + from.0 * spread + 360.0 * f64::from(turns);
        let x = if (-180.0..=180.0).contains(&x) { x } else { at(from).x };
        let from = Point { x, y: at(from).y };
        let prepared = PreparedPoint::new(from);
        with_leaf(&entries, |leaf| {
            check_bounds(leaf, Surface::Sphere(from), count, |point| prepared.chord_squared(point))
        })?;
    }
}

/// Within micrometres of a pole, where the cosine of the latitude has few digits unless it is
/// computed from the colatitude.
#[test]
fn distance_bounds_enclose_the_chords_next_to_the_poles() {
    let least = 2f64.powi(-46);
    for pole in [-90.0, 90.0f64] {
        for steps in [6, 7, 13, 306, 1000, 1017, 3000, 30_000, 3_000_000].map(f64::from) {
            let y = |steps: f64| pole - pole.signum() * steps * least;
            let entries = (0..100u32).map(|number| {
                // The last one elsewhere, so that the leaf has steps in latitude too.
                let (x, y) = (65.0 + f64::from(number) * 0.0399, y(steps + if number == 99 { 2.0 } else { 0.0 }));
                let rect = Rect { x0: x, y0: y, x1: x, y1: y };
                Entry { rect, key: number.to_be_bytes().to_vec(), antimatter: false, life: (0, 1) }
            });
            let from = Point { x: 65.0, y: y(steps) };
            let prepared = PreparedPoint::new(from);
            with_leaf(&ordered(entries.collect()), |leaf| {
                check_bounds(leaf, Surface::Sphere(from), 10, |point| prepared.chord_squared(point))
            })
            .unwrap();
        }
    }
}

/// Passes the only leaf of a component of few points to a function.
fn with_leaf<R>(entries: &[Entry], check: impl FnOnce(&Leaf<'_>) -> R) -> R {
    let mut bench = Bench::new();
    let meta = build(&mut bench, entries, true, false);
    let component = RTreeComponent::open(bench.open(&meta).unwrap()).unwrap();
    let (guard, root) = (ReadGuard::enter(), component.root().unwrap());
    let top = component.page(root, &guard).unwrap();
    let Node::Inner(inner) = component.node(&top, root).unwrap() else { panic!("the root is a parent") };
    let page = component.page(inner.children[0], &guard).unwrap();
    let Node::Leaf(leaf) = component.node(&page, inner.children[0]).unwrap() else { panic!("a leaf") };
    check(&leaf)
}

/// Bounds, if there are any, lie on both sides of the measure.
fn check_bounds(
    leaf: &Leaf<'_>,
    surface: Surface,
    count: usize,
    measure: impl Fn(Point) -> f64,
) -> Result<(), TestCaseError> {
    let mut bounds = DistanceBounds::default();
    if !leaf.distance_bounds(&Origin::new(surface), &mut bounds) {
        return Ok(());
    }
    for index in 0..leaf.count {
        let measure = measure(leaf.point(index));
        let (lower, upper) = (bounds.lower(index), bounds.upper(index));
        prop_assert!(lower <= measure && measure <= upper, "{lower} {measure} {upper}");
        let mut hits = Hits::new();
        bounds.mark(-1.0, bounds.count_of(measure), &mut hits);
        prop_assert!(hits.iter(leaf.count).any(|hit| hit == index));
    }
    let mut hits = Hits::new();
    bounds.mark(-1.0, bounds.threshold(count), &mut hits);
    prop_assert!(hits.iter(leaf.count).count() >= count.min(leaf.count));
    Ok(())
}

/// The bounds are useful for points as they lie on maps.
#[test]
fn distance_bounds_are_there_for_points_on_maps() {
    for (x, y) in [(-100.0, 40.3), (13.37, 52.5), (144.9, -37.8), (-0.4, 51.3)] {
        let entries = (0..100_u32).map(|number| {
            let (x, y) = (x + f64::from(number % 10) * 0.013, y + f64::from(number / 10) * 0.007);
            let rect = Rect { x0: x, y0: y, x1: x, y1: y };
            Entry { rect, key: number.to_be_bytes().to_vec(), antimatter: false, life: (0, 1) }
        });
        let entries = ordered(entries.collect());
        let from = Point { x: x + 0.05, y: y + 0.02 };
        for surface in [Surface::Plane(from), Surface::Sphere(from)] {
            let mut bounds = DistanceBounds::default();
            assert!(
                with_leaf(&entries, |leaf| leaf.distance_bounds(&Origin::new(surface), &mut bounds)),
                "{surface:?}"
            );
        }
    }
}

#[test]
fn dense_integer_keys_and_clustered_points_take_few_bytes() {
    let mut bench = Bench::new();
    let mut state = 1u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    let mut entries = Vec::new();
    for key in 0..50_000u64 {
        let (x, y) = (-100.0 + random(), 40.0 + random());
        let rect = Rect { x0: x, y0: y, x1: x, y1: y };
        entries.push(Entry {
            rect,
            key: (key ^ (1 << 63)).to_be_bytes().to_vec(),
            antimatter: false,
            life: (0, u64::MAX),
        });
    }
    let meta = build(&mut bench, &ordered(entries), true, false);
    assert!(meta.file_len < 50_000 * 16, "{} bytes for 50,000 points", meta.file_len);
}
