//! Great-circle distances on a sphere, and the longitude/latitude boxes that
//! enclose caps and arcs.
//!
//! Points are in degrees, longitude first; distances are in metres. Boxes enclose and box distances
//! bound from below, including rounding errors. An index that prunes with them therefore never
//! loses a result.

mod angle;
mod arc;
mod cap;
mod distance;
mod rect;

#[cfg(test)]
mod tests;

pub use angle::sin_cos_latitude;
pub use arc::{arc_rect, arcs_cross, distance_to_arc_m};
pub use cap::{cap_windows, reach_windows};
pub use distance::{PreparedPoint, chord_squared_from_distance_m, distance_m, distance_m_from_chord};
pub use rect::{RECT_SLACK_M, chord_squared_to_rect, distance_between_rects_m, distance_to_rect_m};

/// Mean radius of the Earth (IUGG), in metres.
pub const EARTH_RADIUS_M: f64 = 6_371_008.8;
