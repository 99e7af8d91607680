//! Changing the coordinates of a geometry.

use terrane_space::Point;
use terrane_space::geometry::replace_positions;

use crate::reprojection::{Converted, Reprojection};

/// The geometry with the longitude and latitude of each position in place of its coordinates, and whether a path crosses
/// the antimeridian: along it, longitudes go on beyond 180 degrees. Z and M stay.
///
/// # Errors
/// Positions and paths that cannot be converted, bytes that are not WKB.
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
            return Err("a ring goes round a pole, so that it bounds no area of longitudes and latitudes".to_string());
        }
        crosses |= turns != 0.0;
        before = Some(Step { converted, turns });
        Ok(Point::new(converted.longitude + 360.0 * turns, converted.latitude))
    })?;
    Ok((transformed, crosses))
}

/// Where a path has come to.
#[derive(Clone, Copy)]
struct Step {
    converted: Converted,
    /// How often it has gone round the earth eastwards, from antimeridian to antimeridian.
    turns: f64,
}
