//! Coordinate systems: which coordinates a dataset accepts, and which rectangles a query window
//! stands for.
//!
//! In `lonlat`, -180 and 180 are one meridian. Stored coordinates keep their sign. A window that
//! touches the meridian is widened, so that it matches points on it under both signs.

use std::ops::Deref;

use crate::{Point, Rect};

/// The meaning of the coordinates of a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CoordinateSystem {
    /// WGS 84 degrees, longitude first; distances are great-circle metres.
    LonLat,
    /// A plane of any units; distances are Euclidean.
    Planar,
}

/// Coordinates of lines, areas and collections lie between this and its negative, so that the
/// products of the exact predicates do not overflow. Single points may lie beyond: they are only
/// compared.
pub const EXACT_COORDINATE_MAX: f64 = 1e150;

/// Why a position was refused.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum CoordinateError {
    /// A coordinate is NaN or infinite.
    #[error("coordinate {axis} is {value}: coordinates must be finite numbers")]
    NotFinite {
        /// The coordinate, `x` or `y`.
        axis: char,
        /// Its value.
        value: f64,
    },
    /// The coordinate is beyond the range in which predicates are exact.
    #[error(
        "coordinate {axis} is {value:e}: beyond -{EXACT_COORDINATE_MAX:e} to {EXACT_COORDINATE_MAX:e} only single points can be compared exactly, so scale the data"
    )]
    TooLarge {
        /// The coordinate, `x` or `y`.
        axis: char,
        /// Its value.
        value: f64,
    },
    /// The longitude is outside of -180 to 180.
    #[error(
        "longitude {longitude} (latitude {latitude}) is outside of -180 to 180 degrees: {}", longitude_hint(*longitude)
    )]
    LongitudeOutOfRange {
        /// The refused longitude.
        longitude: f64,
        /// The latitude beside it.
        latitude: f64,
    },
    /// The latitude is outside of -90 to 90.
    #[error("latitude {latitude} (longitude {longitude}) is outside of -90 to 90 degrees: {}", swap_hint(*.likely_swapped))]
    LatitudeOutOfRange {
        /// The longitude beside it.
        longitude: f64,
        /// The refused latitude.
        latitude: f64,
        /// Whether the two would be in range if they were swapped.
        likely_swapped: bool,
    },
}

fn longitude_hint(longitude: f64) -> &'static str {
    match (180.0..=360.0).contains(&longitude) {
        true => "if longitudes are counted from 0 to 360, use --wrap-longitudes; planar data needs a planar dataset",
        false => "longitude comes first, and planar data needs a planar dataset",
    }
}

fn swap_hint(likely_swapped: bool) -> &'static str {
    if likely_swapped { "did you swap latitude and longitude?" } else { "planar data needs a planar dataset" }
}

/// Accepts finite positions; in `lonlat`, only those on the globe.
///
/// # Errors
/// Names the coordinate, its value and the remedy.
#[inline]
pub fn check_coordinates(system: CoordinateSystem, x: f64, y: f64) -> Result<(), CoordinateError> {
    let accepted = match system {
        CoordinateSystem::LonLat => (-180.0..=180.0).contains(&x) && (-90.0..=90.0).contains(&y),
        CoordinateSystem::Planar => x.is_finite() && y.is_finite(),
    };
    if accepted { Ok(()) } else { Err(refusal(x, y)) }
}

/// Like [`check_coordinates`], but also within [`EXACT_COORDINATE_MAX`].
///
/// # Errors
/// Names the coordinate, its value and the remedy.
#[inline]
pub fn check_exact_coordinates(system: CoordinateSystem, x: f64, y: f64) -> Result<(), CoordinateError> {
    check_coordinates(system, x, y)?;
    for (axis, value) in [('x', x), ('y', y)] {
        if value.abs() > EXACT_COORDINATE_MAX {
            return Err(CoordinateError::TooLarge { axis, value });
        }
    }
    Ok(())
}

#[cold]
fn refusal(x: f64, y: f64) -> CoordinateError {
    if !x.is_finite() {
        CoordinateError::NotFinite { axis: 'x', value: x }
    } else if !y.is_finite() {
        CoordinateError::NotFinite { axis: 'y', value: y }
    } else if y.abs() > 90.0 {
        CoordinateError::LatitudeOutOfRange {
            longitude: x,
            latitude: y,
            likely_swapped: y.abs() <= 180.0 && x.abs() <= 90.0,
        }
    } else {
        CoordinateError::LongitudeOutOfRange { longitude: x, latitude: y }
    }
}

/// Why a query window was refused.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum WindowError {
    /// A side is NaN.
    #[error("side {side} of the window is not a number")]
    NotANumber {
        /// The side: `x0`, `y0`, `x1` or `y1`.
        side: &'static str,
    },
    /// The lower side is above the upper one.
    #[error(
        "the window is upside down: y0 = {y0} is above y1 = {y1}; give x0,y0,x1,y1 with the lower left corner first"
    )]
    UpsideDown {
        /// Lower side.
        y0: f64,
        /// Upper side.
        y1: f64,
    },
    /// In a planar dataset the left side is right of the right one.
    #[error(
        "the window is reversed: x0 = {x0} is above x1 = {x1}; only windows of a lonlat dataset may cross the antimeridian"
    )]
    Reversed {
        /// Left side.
        x0: f64,
        /// Right side.
        x1: f64,
    },
    /// A corner of a `lonlat` window is not on the globe.
    #[error(
        "corner of the window: {0}; a window across the antimeridian is written with x0 > x1, such as 170,-10,-170,10"
    )]
    Corner(#[from] CoordinateError),
}

/// Up to two rectangles that together stand for one window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Windows {
    rects: [Rect; 2],
    count: u8,
}

impl Windows {
    /// No rectangle: matches nothing.
    pub const NONE: Windows = Windows { rects: [Rect::EMPTY; 2], count: 0 };

    /// The single rectangle `rect`.
    pub fn one(rect: Rect) -> Self {
        Self { rects: [rect, Rect::EMPTY], count: 1 }
    }

    /// The two rectangles `first` and `second`.
    pub fn two(first: Rect, second: Rect) -> Self {
        Self { rects: [first, second], count: 2 }
    }

    /// Whether one of the rectangles holds `point`.
    #[inline]
    pub fn contains_point(&self, point: Point) -> bool {
        // Unused rectangles are empty and hold nothing.
        self.rects[0].contains_point(point) || self.rects[1].contains_point(point)
    }

    /// Whether one of the rectangles intersects `rect`.
    #[inline]
    pub fn intersects(&self, rect: &Rect) -> bool {
        self.rects[0].intersects(rect) || self.rects[1].intersects(rect)
    }
}

impl Deref for Windows {
    type Target = [Rect];

    fn deref(&self) -> &[Rect] {
        &self.rects[..usize::from(self.count)]
    }
}

/// The rectangles of the window from (`x0`, `y0`) to (`x1`, `y1`).
///
/// In `lonlat`, `x0 > x1` crosses the antimeridian and gives two rectangles. A window that touches
/// one of -180 and 180 gets a sliver at the other. Planar windows may be infinite.
///
/// # Errors
/// When a side is NaN, the window is upside down, a planar window is reversed, or a corner is off
/// the globe.
pub fn windows(system: CoordinateSystem, x0: f64, y0: f64, x1: f64, y1: f64) -> Result<Windows, WindowError> {
    for (side, value) in [("x0", x0), ("y0", y0), ("x1", x1), ("y1", y1)] {
        if value.is_nan() {
            return Err(WindowError::NotANumber { side });
        }
    }
    if system == CoordinateSystem::LonLat {
        check_coordinates(system, x0, y0)?;
        check_coordinates(system, x1, y1)?;
    }
    if y0 > y1 {
        return Err(WindowError::UpsideDown { y0, y1 });
    }
    match system {
        CoordinateSystem::Planar if x0 > x1 => Err(WindowError::Reversed { x0, x1 }),
        CoordinateSystem::Planar => Ok(Windows::one(Rect::new(x0, y0, x1, y1))),
        CoordinateSystem::LonLat => Ok(longitude_windows(x0, y0, x1, y1)),
    }
}

/// The rectangles of a `lonlat` window whose corners are on the globe.
pub(crate) fn longitude_windows(x0: f64, y0: f64, x1: f64, y1: f64) -> Windows {
    if x0 > x1 {
        return Windows::two(Rect::new(x0, y0, 180.0, y1), Rect::new(-180.0, y0, x1, y1));
    }
    let rect = Rect::new(x0, y0, x1, y1);
    match (x0 == -180.0, x1 == 180.0) {
        (true, false) => Windows::two(rect, Rect::new(180.0, y0, 180.0, y1)),
        (false, true) => Windows::two(rect, Rect::new(-180.0, y0, -180.0, y1)),
        _ => Windows::one(rect),
    }
}
