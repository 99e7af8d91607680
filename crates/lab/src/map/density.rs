//! Points gathered into dots, each with the number of points it stands for.
//!
//! A dot lies at the mean of its points, not at a grid position, so that streets and coasts keep
//! their shape.

use std::collections::HashMap;

use super::Position;
use super::frame::Frame;

/// One dot on the map.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dot {
    /// Pixels from the frame's upper left corner.
    pub place: [f64; 2],
    /// Points it stands for.
    pub count: u64,
}

/// The dots of a set of points.
#[derive(Clone, Debug)]
pub struct Dots {
    /// From the fewest points to the most, so that dense dots are drawn last.
    pub dots: Vec<Dot>,
    /// Diameter of a dot in pixels.
    pub diameter: f64,
    /// Points that lie outside the frame.
    pub outside: u64,
}

impl Dots {
    /// Gathers the points inside the frame into cells a dot wide.
    pub fn gather(points: &[Position], frame: &Frame, diameter: f64) -> Self {
        // Dots overlap a little, or rows of neighbouring cells would show as a grid.
        let cell = diameter * 0.8;
        let mut outside = 0;
        let mut cells: HashMap<(i64, i64), ([f64; 2], u64)> = HashMap::new();
        for &position in points {
            let Some([x, y]) = frame.place(position) else {
                outside += 1;
                continue;
            };
            let (sum, count) = cells.entry(((x / cell) as i64, (y / cell) as i64)).or_default();
            sum[0] += x;
            sum[1] += y;
            *count += 1;
        }
        let mut dots: Vec<Dot> = cells
            .into_values()
            .map(|([x, y], count)| Dot { place: [x / count as f64, y / count as f64], count })
            .collect();
        // Ties by place make the drawing the same every time.
        dots.sort_unstable_by(|a, b| {
            a.count.cmp(&b.count).then(a.place[0].total_cmp(&b.place[0])).then(a.place[1].total_cmp(&b.place[1]))
        });
        Self { dots, diameter, outside }
    }

    /// Points of the densest dot.
    pub fn count_max(&self) -> u64 {
        self.dots.last().map_or(1, |dot| dot.count)
    }
}

/// A dot's diameter in pixels for that many points.
pub fn diameter(points: usize) -> f64 {
    match points {
        0..100 => 9.0,
        100..1_000 => 6.0,
        1_000..5_000 => 4.0,
        5_000..30_000 => 3.0,
        _ => 2.2,
    }
}

/// The position of a count between one point and the densest dot, from 0 to 1, on a logarithmic
/// scale.
pub fn level(count: u64, count_max: u64) -> f64 {
    if count_max <= 1 {
        return 1.0;
    }
    ((count.max(1) as f64).ln() / (count_max as f64).ln()).clamp(0.0, 1.0)
}
