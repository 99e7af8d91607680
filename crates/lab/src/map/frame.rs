//! The part of the world that a map shows, and the place of a position on the page.
//!
//! Degrees are drawn equirectangular: a degree of longitude is scaled by cos(latitude) of the map's
//! middle.

use anyhow::{Result, bail, ensure};

use super::Position;
use super::input::Line;

/// Page area of the map itself, in square pixels.
const AREA_PX: f64 = 640_000.0;
const ASPECT_MIN: f64 = 0.72;
const ASPECT_MAX: f64 = 2.0;
/// Share of points beyond each side that may be left out, so that a few stray ones do not shrink
/// the rest.
const TAIL: f64 = 0.005;
const TAIL_POINTS_MIN: usize = 1_000;
const MARGIN: f64 = 0.04;
/// Desired distance of grid lines.
const GRID_PX: f64 = 200.0;
/// Length of a degree of latitude on a sphere of radius 6,371,008.8 m.
const DEGREE_M: f64 = 111_195.08;

/// A closed rectangle of positions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Extent {
    /// Smallest x and y.
    pub low: Position,
    /// Largest x and y.
    pub high: Position,
}

impl Extent {
    /// From `x0,y0,x1,y1`.
    pub fn from_corners(corners: &[f64]) -> Result<Self> {
        let &[x0, y0, x1, y1] = corners else {
            bail!("--extent takes four numbers x0,y0,x1,y1, not {}", corners.len());
        };
        ensure!(
            [x0, y0, x1, y1].iter().all(|value| value.is_finite()) && x0 < x1 && y0 < y1,
            "--extent {x0},{y0},{x1},{y1}: x0 must be less than x1 and y0 less than y1"
        );
        Ok(Self { low: [x0, y0], high: [x1, y1] })
    }

    /// Whether the corners can be longitudes and latitudes.
    pub fn is_on_earth(&self) -> bool {
        self.low[0] >= -180.0 && self.high[0] <= 180.0 && self.low[1] >= -90.0 && self.high[1] <= 90.0
    }

    /// The extent with a margin: half a degree or unit around a single place, otherwise a share of
    /// the sides.
    pub fn padded(&self, planar: bool) -> Self {
        let limits = match planar {
            true => [f64::INFINITY; 2],
            false => [180.0, 90.0],
        };
        let mut padded = *self;
        for (axis, limit) in limits.into_iter().enumerate() {
            let side = self.high[axis] - self.low[axis];
            let margin = if side > 0.0 { side * MARGIN } else { 0.5 };
            padded.low[axis] = (self.low[axis] - margin).max(-limit);
            padded.high[axis] = (self.high[axis] + margin).min(limit);
        }
        padded
    }

    fn include(&mut self, position: Position) {
        self.low = [self.low[0].min(position[0]), self.low[1].min(position[1])];
        self.high = [self.high[0].max(position[0]), self.high[1].max(position[1])];
    }
}

/// The bulk of the points and everything of the answer and the outline; `None` when there is
/// nothing.
pub fn choose_extent(points: &[Position], highlight: &[Position], outline: &[Line]) -> Option<Extent> {
    let corners = outline.iter().flat_map(|line| &line.positions);
    let mut extent = bulk(points);
    for &position in highlight.iter().chain(corners) {
        match &mut extent {
            Some(extent) => extent.include(position),
            None => {
                extent = Some(Extent { low: position, high: position });
            }
        }
    }
    extent
}

fn bulk(points: &[Position]) -> Option<Extent> {
    let cut = if points.len() >= TAIL_POINTS_MIN { (points.len() as f64 * TAIL) as usize } else { 0 };
    let range = |axis: usize| {
        let mut values: Vec<f64> = points.iter().map(|position| position[axis]).collect();
        values.sort_unstable_by(f64::total_cmp);
        let last = values.len().checked_sub(1 + cut)?;
        Some((*values.get(cut)?, *values.get(last)?))
    };
    let ((x0, x1), (y0, y1)) = (range(0)?, range(1)?);
    Some(Extent { low: [x0, y0], high: [x1, y1] })
}

/// The extent, grown to a pleasant shape, and its place on the page.
#[derive(Clone, Debug)]
pub struct Frame {
    /// What is shown.
    pub extent: Extent,
    /// Width of the map in pixels.
    pub width: f64,
    /// Height of the map in pixels.
    pub height: f64,
    /// Whether coordinates are plain numbers.
    pub planar: bool,
    shrink_x: f64,
}

impl Frame {
    /// Fits a frame around the extent.
    pub fn new(mut extent: Extent, planar: bool) -> Self {
        let middle = (extent.low[1] + extent.high[1]) / 2.0;
        let shrink_x = if planar {
            1.0
        } else {
            // Near the poles a map cannot show how short a degree of longitude is.
            middle.to_radians().cos().max(0.05)
        };
        let width = (extent.high[0] - extent.low[0]) * shrink_x;
        let height = extent.high[1] - extent.low[1];
        let aspect = (width / height).clamp(ASPECT_MIN, ASPECT_MAX);
        // The short side is widened until the shape is right.
        grow(&mut extent, 0, (height * aspect / shrink_x).max(width / shrink_x));
        grow(&mut extent, 1, (width / aspect).max(height));
        let height_px = (AREA_PX / aspect).sqrt().round();
        Self { extent, width: (height_px * aspect).round(), height: height_px, planar, shrink_x }
    }

    /// Pixels from the frame's upper left corner; `None` outside the frame.
    pub fn place(&self, position: Position) -> Option<[f64; 2]> {
        let [x, y] = self.place_unclipped(position);
        ((0.0..=self.width).contains(&x) && (0.0..=self.height).contains(&y)).then_some([x, y])
    }

    /// As [`Frame::place`], for lines that leave the frame.
    pub fn place_unclipped(&self, position: Position) -> [f64; 2] {
        let Extent { low, high } = self.extent;
        [
            (position[0] - low[0]) / (high[0] - low[0]) * self.width,
            (high[1] - position[1]) / (high[1] - low[1]) * self.height,
        ]
    }

    /// Coordinates of the grid lines across an axis (0 for x, 1 for y): round numbers.
    pub fn grid(&self, axis: usize) -> Vec<f64> {
        let (mut low, mut high) = (self.extent.low[axis], self.extent.high[axis]);
        let step = self.grid_step(axis);
        if !self.planar {
            // A frame grown to a pleasant shape can reach beyond the poles or the antimeridian.
            let limit = if axis == 0 { 180.0 } else { 90.0 };
            (low, high) = (low.max(-limit), high.min(limit));
        }
        let (first, last) = ((low / step).ceil() as i64, (high / step).floor() as i64);
        (first..=last).map(|index| index as f64 * step).collect()
    }

    fn grid_step(&self, axis: usize) -> f64 {
        let side = self.extent.high[axis] - self.extent.low[axis];
        let side_px = if axis == 0 { self.width } else { self.height };
        // The factor makes rounding down find the step nearest to the desired distance.
        round_down(side / side_px * GRID_PX * 1.5)
    }

    /// A grid line's label.
    pub fn label(&self, axis: usize, value: f64) -> String {
        let decimals = (-self.grid_step(axis).log10().floor()).clamp(0.0, 9.0) as usize;
        if self.planar {
            return format!("{value:.decimals$}");
        }
        let shown = format!("{:.decimals$}", value.abs());
        let hemisphere = match (axis, value) {
            (_, 0.0) => "",
            (0, value) if value < 0.0 => " W",
            (0, _) => " E",
            (_, value) if value < 0.0 => " S",
            _ => " N",
        };
        format!("{shown}°{hemisphere}")
    }

    /// A round length that fits in a fifth of the frame: its label and its pixels.
    pub fn scale_bar(&self) -> (String, f64) {
        let unit_px = self.width / (self.extent.high[0] - self.extent.low[0]);
        if self.planar {
            let length = round_down(self.width / 5.0 / unit_px);
            return (format!("{length}"), length * unit_px);
        }
        let metre_px = unit_px / (DEGREE_M * self.shrink_x);
        let length_m = round_down(self.width / 5.0 / metre_px);
        let label = if length_m >= 1000.0 { format!("{} km", length_m / 1000.0) } else { format!("{length_m} m") };
        (label, length_m * metre_px)
    }
}

fn grow(extent: &mut Extent, axis: usize, side: f64) {
    let more = (side - (extent.high[axis] - extent.low[axis])).max(0.0) / 2.0;
    extent.low[axis] -= more;
    extent.high[axis] += more;
}

/// The largest of 1, 2 or 5 times a power of ten that does not exceed the value.
pub fn round_down(value: f64) -> f64 {
    let exponent = value.log10().floor() as i32;
    let leading = value / 10f64.powi(exponent);
    let factor = match leading {
        leading if leading >= 5.0 => 5.0,
        leading if leading >= 2.0 => 2.0,
        _ => 1.0,
    };
    // Dividing by a whole power keeps 0.05 what a reader would type.
    if exponent < 0 { factor / 10f64.powi(-exponent) } else { factor * 10f64.powi(exponent) }
}
