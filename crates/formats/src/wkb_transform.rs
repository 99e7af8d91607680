//! Changing the coordinates of a geometry.

use terrane_space::Point;
use terrane_space::geometry::replace_positions;

use crate::reprojection::{Converted, Reprojection};

/// The geometry with longitude and latitude instead of its coordinates, and whether a path crosses
/// the antimeridian. Along such a path, longitudes continue beyond 180 degrees. Z and M stay.
///
/// # Errors
/// When a position or path cannot be converted, or the bytes are not WKB.
pub(crate) fn transform_coordinates(wkb: &[u8], reprojection: &Reprojection) -> Result<(Vec<u8>, bool), String> {
    let mut crosses = false;
    let mut before: Option<Step> = None;
    let transformed = replace_positions(wkb, &mut |place, position| {
        let converted = reprojection.convert(position.x, position.y)?;
        let turns = match before.filter(|_| !place.is_first) {
            None => 0.0,
            Some(Step { converted: last, turns }) => {
                let change = reprojection.longitude_change(&last, &converted)?;
                turns + ((last.longitude + change - converted.longitude) / 360.0).round()
            }
        };
        if place.is_ring && place.is_last && turns != 0.0 {
            return Err("a ring surrounds a pole, so it bounds no area of longitudes and latitudes".to_string());
        }
        crosses |= turns != 0.0;
        before = Some(Step { converted, turns });
        Ok(Point::new(converted.longitude + 360.0 * turns, converted.latitude))
    })?;
    Ok((transformed, crosses))
}

/// The current end of a path.
#[derive(Clone, Copy)]
struct Step {
    converted: Converted,
    /// The number of eastward turns around the earth so far, from antimeridian to antimeridian.
    turns: f64,
}
