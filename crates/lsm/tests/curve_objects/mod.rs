//! Curve-keyed kinds with options, and difficult objects and windows for them, for tests.
#![allow(dead_code, reason = "each test file uses a part")]

use rand::Rng;
use rand::rngs::SmallRng;
use terrane_lsm::curve::CurveOptions;
use terrane_space::{CoordinateSystem, Rect};

/// The area that the grids of planar tests divide; objects lie outside of it too.
pub const DOMAIN: Rect = Rect::new(-64.0, -32.0, 64.0, 96.0);

/// A kind with its objects and coordinate system.
#[derive(Clone, Debug)]
pub struct Setting {
    pub options: CurveOptions,
    pub system: CoordinateSystem,
    pub points: bool,
}

/// The paper's options of a kind.
pub fn setting(kind: &str, system: CoordinateSystem, points: bool) -> Setting {
    let domain = (system == CoordinateSystem::Planar).then_some(DOMAIN);
    Setting { options: CurveOptions::of(kind, points, domain).unwrap(), system, points }
}

/// All kinds, of points and rectangles, with the paper's options and others.
pub fn settings() -> Vec<Setting> {
    let mut settings = Vec::new();
    for system in [CoordinateSystem::LonLat, CoordinateSystem::Planar] {
        for kind in ["dhb", "dhvb", "shb", "sif"] {
            settings.push(setting(kind, system, true));
        }
        settings.push(setting("shb", system, false));
        for (levels, cells) in [("l,l", 1), ("m,l,l", 40), ("h", 4)] {
            let mut coarse = setting("shb", system, false);
            if let CurveOptions::Shb { grid, cells_per_object_max } = &mut coarse.options {
                (grid.levels, *cells_per_object_max) = (levels.parse().unwrap(), cells);
            }
            settings.push(coarse);
        }
        let mut coarse = setting("sif", system, true);
        if let CurveOptions::Sif { grid } = &mut coarse.options {
            grid.levels = "l,m".parse().unwrap();
        }
        settings.push(coarse);
    }
    settings
}

/// A coordinate between two ends, on the borders of cells, equal to others, or next to one that is.
fn coordinate(random: &mut SmallRng, low: f64, high: f64) -> f64 {
    let cells = f64::from(1u32 << random.random_range(0..13));
    let border = low + (high - low) * (random.random_range(0.0..=cells).floor() / cells);
    match random.random_range(0..8) {
        0 | 1 => border,
        2 => border.next_down().max(low),
        3 => border.next_up().min(high),
        4 => low + (high - low) * (0.31 + f64::from(random.random_range(0..4)) * 1e-9),
        5 => low + (high - low) * (0.62 + random.random_range(0.0..0.01)),
        _ => random.random_range(low..=high),
    }
}

/// Numbers that are far away, or close to zero.
const EXTREMES: [f64; 9] = [
    0.0,
    -0.0,
    1e300,
    -1e300,
    f64::MAX,
    f64::MIN,
    f64::MIN_POSITIVE,
    // The last cell of a Hilbert curve before another one begins.
    f64::from_bits(0xffff_ffff),
    -f64::from_bits(1),
];

fn x(random: &mut SmallRng, system: CoordinateSystem) -> f64 {
    match system {
        CoordinateSystem::LonLat => coordinate(random, -180.0, 180.0),
        CoordinateSystem::Planar if random.random_ratio(1, 12) => EXTREMES[random.random_range(0..EXTREMES.len())],
        CoordinateSystem::Planar => coordinate(random, DOMAIN.x0 - 16.0, DOMAIN.x1 + 16.0),
    }
}

fn y(random: &mut SmallRng, system: CoordinateSystem) -> f64 {
    match system {
        CoordinateSystem::LonLat => coordinate(random, -90.0, 90.0),
        CoordinateSystem::Planar if random.random_ratio(1, 12) => EXTREMES[random.random_range(0..EXTREMES.len())],
        CoordinateSystem::Planar => coordinate(random, DOMAIN.y0 - 16.0, DOMAIN.y1 + 16.0),
    }
}

/// The position of a side at a distance from another, no farther than the world.
fn side(random: &mut SmallRng, from: f64, system: CoordinateSystem, limit: f64) -> f64 {
    let length = match random.random_range(0..6) {
        0 => 0.0,
        1 => random.random_range(0.0..100.0),
        2 => random.random_range(0.0..5.0),
        3 => 0.5f64.powi(random.random_range(0..12)),
        _ => random.random_range(0.0..0.02),
    };
    if system == CoordinateSystem::LonLat { (from + length).min(limit) } else { from + length }
}

/// An object: a point, or a rectangle that may be one, a line, or large.
pub fn object(random: &mut SmallRng, setting: &Setting) -> Rect {
    let system = setting.system;
    let (x0, y0) = (x(random, system), y(random, system));
    if setting.points {
        return Rect::new(x0, y0, x0, y0);
    }
    let (x1, y1) = (side(random, x0, system, 180.0), side(random, y0, system, 90.0));
    Rect::new(x0, y0, x1, y1)
}

/// A window: any, a point, a line, everything, or one with the sides of an object.
pub fn window(random: &mut SmallRng, setting: &Setting, known: Option<Rect>) -> Rect {
    let system = setting.system;
    let everything = Rect::new(f64::NEG_INFINITY, f64::NEG_INFINITY, f64::INFINITY, f64::INFINITY);
    match (random.random_range(0..10), known) {
        (0, _) => everything,
        (1 | 2, Some(known)) => known,
        (3, Some(known)) => Rect::new(known.x1, known.y1, known.x1, known.y1),
        (4, Some(known)) => Rect { x0: known.x0, ..everything },
        (5, _) => object(random, &Setting { points: false, ..setting.clone() }),
        _ => {
            let (a, b, c, d) = (x(random, system), x(random, system), y(random, system), y(random, system));
            Rect::new(a.min(b), c.min(d), a.max(b), c.max(d))
        }
    }
}

/// The rectangle as it is returned: without the sign of zeros.
pub fn stored(rect: &Rect) -> [u64; 4] {
    [rect.x0, rect.y0, rect.x1, rect.y1].map(|corner| (corner + 0.0).to_bits())
}
