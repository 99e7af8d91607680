//! Converts coordinates from one reference system to another, through longitude and latitude.

use crate::reprojection::Reprojection;

/// The code of longitude and latitude on WGS 84.
const WGS84: u32 = 4326;
/// Greatest difference after a conversion there and back.
const DEVIATION_DEGREES: f64 = 1e-6;

/// A conversion between the systems of two EPSG codes. Longitude comes before latitude.
#[derive(Debug)]
pub struct Transformation {
    from: Option<Reprojection>,
    to: Option<Reprojection>,
}

impl Transformation {
    /// The conversion between two codes.
    ///
    /// # Errors
    /// Why there is none.
    pub fn between(from: u32, to: u32) -> Result<Self, String> {
        let side = |code: u32| match code {
            WGS84 => Ok(None),
            other => Reprojection::from_epsg(other).map(Some).map_err(|error| format!("EPSG:{other}: {error}")),
        };
        Ok(Self { from: side(from)?, to: side(to)? })
    }

    /// The coordinates of a position in the other system.
    ///
    /// # Errors
    /// When the position is not a place of both systems.
    pub fn convert(&self, x: f64, y: f64) -> Result<(f64, f64), String> {
        let (longitude, latitude) = match &self.from {
            Some(from) => from.convert(x, y).map(|place| (place.longitude, place.latitude))?,
            None if x.abs() <= 180.0 && y.abs() <= 90.0 => (x, y),
            None => return Err(format!("position ({x}, {y}) is no longitude and latitude")),
        };
        let Some(to) = &self.to else { return Ok((longitude, latitude)) };
        let outside = || format!("position ({x}, {y}) lies outside of the other system's area");
        let (x, y) = to.forward(longitude, latitude).ok_or_else(outside)?;
        let back = to.convert(x, y).map_err(|_| outside())?;
        let turn = (back.longitude - longitude) / 360.0;
        let is_near = (turn - turn.round()).abs() * 360.0 <= DEVIATION_DEGREES
            && (back.latitude - latitude).abs() <= DEVIATION_DEGREES;
        is_near.then_some((x, y)).ok_or_else(outside)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_converted_there_and_back() {
        let utm = Transformation::between(3857, 32633).expect("known");
        let back = Transformation::between(32633, 3857).expect("known");
        let (x, y) = utm.convert(1_669_792.361_9, 6_446_275.841_0).expect("inside");
        assert!((x - 500_000.0).abs() < 0.01, "{x} {y}");
        let (x, y) = back.convert(x, y).expect("inside");
        assert!((x - 1_669_792.361_9).abs() < 1e-3 && (y - 6_446_275.841_0).abs() < 1e-3, "{x} {y}");
    }

    #[test]
    fn places_outside_of_a_system_are_refused() {
        let mercator = Transformation::between(4326, 3857).expect("known");
        assert!(mercator.convert(10.0, 90.0).is_err());
        assert!(mercator.convert(190.0, 0.0).is_err());
        assert!(Transformation::between(4326, 1).is_err());
    }
}
