//! Converts projected coordinates to longitude and latitude.
//!
//! Every position is projected back and compared. An inverse projection also returns a result for
//! places that are not on the earth, and projecting that result gives other coordinates.

use std::fmt;
use std::sync::Arc;

use proj4rs::Proj;
use proj4rs::transform::transform;

use crate::crs::DeclaredCrs;
use crate::datum::{Tie, tie};

/// How many degrees of longitude a map may extend beyond the end of the world, in a cylindrical
/// projection: a map of the Pacific reaches the other side. Coordinates further off are more likely
/// wrong.
const OVERLAP_DEGREES: f64 = 75.0;

/// Allowed deviation of a round trip: this length, or this share of the coordinates.
const DEVIATION_METRES: f64 = 1.0;
const DEVIATION_SHARE: f64 = 1e-6;

const METRES_PER_DEGREE: f64 = 111_319.5;

/// A shorter edge spans less than half of the earth, except near a pole, which no cylindrical
/// projection reaches.
const LONG_EDGE_METRES: f64 = 1e6;

/// Nearer to a pole, a longitude is meaningless.
const POLE_DEGREES: f64 = 1e-6;

/// The conversion from a system to longitude and latitude on WGS 84, `None` if no conversion is
/// needed; or why there is none.
pub(crate) type Conversion = Result<Option<Arc<Reprojection>>, String>;

pub(crate) fn conversion_from(crs: &DeclaredCrs) -> Conversion {
    match crs {
        DeclaredCrs::Wgs84 | DeclaredCrs::Undeclared => Ok(None),
        DeclaredCrs::Epsg(code) => Ok(Some(Arc::new(Reprojection::from_epsg(*code)?))),
        DeclaredCrs::Other(_) => Err("it has no EPSG code, which the conversion needs".to_string()),
    }
}

/// A reference system that coordinates can be converted from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crs(DeclaredCrs);

impl Crs {
    /// From `EPSG:3857`, an OGC address or URN, PROJJSON, or WKT that names a code.
    ///
    /// # Errors
    /// When the text names no system, or one that cannot be converted.
    pub fn parse(text: &str) -> Result<Crs, String> {
        let declared = DeclaredCrs::from_text(text);
        if declared == DeclaredCrs::Undeclared {
            return Err("it is empty; write for example EPSG:2154".to_string());
        }
        let crs = Crs(declared);
        conversion_from(&crs.0).map_err(|reason| format!("{crs} cannot be converted: {reason}"))?;
        Ok(crs)
    }

    pub(crate) fn declared(&self) -> &DeclaredCrs {
        &self.0
    }
}

impl fmt::Display for Crs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Converts coordinates to longitude and latitude in degrees on WGS 84.
pub(crate) struct Reprojection {
    source: Proj,
    target: Proj,
    tie: Tie,
    metres_per_unit: f64,
    world: Option<World>,
}

/// The equator of a cylindrical projection: x of its middle, and its length.
struct World {
    middle: f64,
    width: f64,
}

impl fmt::Debug for Reprojection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reprojection").finish_non_exhaustive()
    }
}

/// A position before and after its conversion.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Converted {
    pub x: f64,
    pub y: f64,
    pub longitude: f64,
    pub latitude: f64,
}

impl Reprojection {
    /// The conversion from an EPSG code, or why there is none.
    pub(crate) fn from_epsg(code: u32) -> Result<Reprojection, String> {
        let definition = u16::try_from(code)
            .ok()
            .and_then(crs_definitions::from_code)
            .map(|definition| definition.proj4)
            .ok_or_else(|| "the EPSG code is unknown".to_string())?;
        let tie = tie(code, definition)?;
        let source =
            Proj::from_proj_string(definition).map_err(|error| format!("the projection is not supported ({error})"))?;
        if !source.has_inverse() || !source.has_forward() {
            return Err("the projection cannot be inverted and checked here".to_string());
        }
        let target = Proj::from_proj_string("+proj=longlat +datum=WGS84 +no_defs")
            .map_err(|error| format!("WGS 84 cannot be set up ({error})"))?;
        let metres_per_unit = if source.is_latlong() { METRES_PER_DEGREE } else { source.to_meter() };
        let mut reprojection = Reprojection { source, target, tie, metres_per_unit, world: None };
        reprojection.world = reprojection.find_world();
        Ok(reprojection)
    }

    /// The notice on the accuracy, if there is one.
    pub(crate) fn caveat(&self) -> Option<&'static str> {
        match self.tie {
            Tie::Same => None,
            Tie::Approximate => Some(
                "its datum is converted to WGS 84 by one approximate shift: positions may be off by several metres, \
                 in parts of its area by tens of metres; where that matters, convert the file with PROJ and its grid \
                 files first",
            ),
        }
    }

    /// Longitude and latitude of a position.
    pub(crate) fn convert(&self, x: f64, y: f64) -> Result<Converted, String> {
        let converted = self.inverse(x, y)?;
        if self.comes_back(&converted) {
            return Ok(converted);
        }
        Err(format!(
            "position ({x}, {y}) cannot be converted: no place on the earth has these coordinates in the file's reference system"
        ))
    }

    /// By how many degrees the longitude changes on the straight way from `a` to `b` in the source.
    /// Over 180 on long ways.
    ///
    /// # Errors
    /// When the way crosses a pole or leaves the projection.
    pub(crate) fn longitude_change(&self, a: &Converted, b: &Converted) -> Result<f64, String> {
        let is_long = (b.x - a.x).hypot(b.y - a.y) * self.metres_per_unit > LONG_EDGE_METRES
            || (b.longitude - a.longitude).abs() > 90.0;
        let halvings_min = if is_long { 3 } else { 0 };
        self.change_in_halves(a, b, halvings_min, 16)
            .map_err(|why| format!("the edge from ({}, {}) to ({}, {}) cannot be converted: {why}", a.x, a.y, b.x, b.y))
    }

    fn change_in_halves(&self, a: &Converted, b: &Converted, min: u32, max: u32) -> Result<f64, String> {
        let over_pole = || "it leads over a pole".to_string();
        if self.is_pole(a) || self.is_pole(b) {
            return Err(over_pole());
        }
        let difference = b.longitude - a.longitude;
        let change = difference - 360.0 * (difference / 360.0).round();
        if min == 0 && change.abs() <= 90.0 {
            return Ok(change);
        }
        let max = max.checked_sub(1).ok_or_else(over_pole)?;
        let min = min.saturating_sub(1);
        let middle = self.inverse(a.x.midpoint(b.x), a.y.midpoint(b.y))?;
        Ok(self.change_in_halves(a, &middle, min, max)? + self.change_in_halves(&middle, b, min, max)?)
    }

    /// Whether a position has no longitude. If the map shows a pole as a line, its positions have
    /// one.
    fn is_pole(&self, place: &Converted) -> bool {
        let has_line = self.world.is_some() || self.source.is_latlong();
        !has_line && place.latitude.abs() > 90.0 - POLE_DEGREES
    }

    fn inverse(&self, x: f64, y: f64) -> Result<Converted, String> {
        let failed = |why: &str| format!("position ({x}, {y}) cannot be converted: {why}");
        let mut position = if self.source.is_latlong() { (x.to_radians(), y.to_radians(), 0.0) } else { (x, y, 0.0) };
        transform(&self.source, &self.target, &mut position).map_err(|error| failed(&error.to_string()))?;
        let longitude = onto_bound(position.0.to_degrees(), 180.0);
        let latitude = onto_bound(position.1.to_degrees(), 90.0);
        if longitude.is_finite() && latitude.is_finite() {
            Ok(Converted { x, y, longitude, latitude })
        } else {
            Err(failed("it lies outside the projection's area"))
        }
    }

    pub(crate) fn forward(&self, longitude: f64, latitude: f64) -> Option<(f64, f64)> {
        let mut position = (longitude.to_radians(), latitude.to_radians(), 0.0);
        transform(&self.target, &self.source, &mut position).ok()?;
        let (x, y, _) = position;
        let place = if self.source.is_latlong() { (x.to_degrees(), y.to_degrees()) } else { (x, y) };
        (place.0.is_finite() && place.1.is_finite()).then_some(place)
    }

    fn comes_back(&self, converted: &Converted) -> bool {
        let Converted { x, y, longitude, latitude } = *converted;
        let tolerance = (DEVIATION_METRES / self.metres_per_unit).max(DEVIATION_SHARE * x.abs().max(y.abs()));
        let is_near = |(back_x, back_y): (f64, f64)| {
            let mut difference = back_x - x;
            if let Some(World { middle, width }) = self.world
                && (x - middle).abs() <= width * (0.5 + OVERLAP_DEGREES / 360.0)
            {
                difference -= width * (difference / width).round();
            }
            difference.abs() <= tolerance && (back_y - y).abs() <= tolerance
        };
        // Positions beside it count too: at the edge of a map, one place appears on two sides.
        [0.0, -1e-8, 1e-8].iter().any(|beside| self.forward(longitude + beside, latitude).is_some_and(is_near))
    }

    /// The equator, if x depends on the longitude alone and is proportional to it.
    fn find_world(&self) -> Option<World> {
        if self.source.is_latlong() {
            return None;
        }
        let middle = (self.source.longitude_of_origin() + self.source.from_greenwich()).to_degrees();
        let (west, _) = self.forward(middle - 90.0, 0.0)?;
        let (east, _) = self.forward(middle + 90.0, 0.0)?;
        let (between, _) = self.forward(middle + 45.0, 0.0)?;
        let (north, _) = self.forward(middle + 90.0, 45.0)?;
        let world = World { middle: west.midpoint(east), width: 2.0 * (east - west) };
        let is_near = |x: f64, share: f64| (x - world.middle - share * world.width).abs() <= 1e-6 * world.width.abs();
        (is_near(between, 0.125) && is_near(north, 0.25)).then_some(world)
    }
}

/// Corrects rounding beyond the bound.
fn onto_bound(degrees: f64, bound: f64) -> f64 {
    const ROUNDING_DEGREES: f64 = 1e-9;
    if degrees.abs() > bound && degrees.abs() <= bound + ROUNDING_DEGREES { bound.copysign(degrees) } else { degrees }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn web_mercator_and_utm_are_converted() {
        let near = |place: Converted, (u, v): (f64, f64)| {
            (place.longitude - u).abs() < 1e-6 && (place.latitude - v).abs() < 1e-6
        };
        let web = Reprojection::from_epsg(3857).expect("known");
        let converted = web.convert(-8_237_642.318_702_2, 4_970_071.579_142_4).expect("inside");
        assert!(near(converted, (-74.0, 40.712_8)), "{converted:?}");
        let utm = Reprojection::from_epsg(32618).expect("known");
        let converted = utm.convert(500_000.0, 0.0).expect("inside");
        assert!(near(converted, (-75.0, 0.0)), "{converted:?}");
    }

    #[test]
    fn systems_without_a_known_shift_are_refused() {
        for code in [4267, 26718, 4978, 3973, 4807, 5513, 1, 70_000] {
            assert!(Reprojection::from_epsg(code).is_err(), "EPSG:{code}");
        }
    }

    /// Code, x, y, and the place on WGS 84 by PROJ 9.5, its best operation without grid files.
    const PLACES: [(u32, f64, f64, f64, f64, f64); 17] = [
        // The last number: the allowed error in metres.
        (2154, 652_301.56, 6_861_302.73, 2.35, 48.85, 0.1),
        (2056, 2_600_104.11, 1_199_879.63, 7.44, 46.95, 0.1),
        (2193, 1_749_045.8, 5_427_521.38, 174.78, -41.29, 0.1),
        (3067, 389_130.04, 6_675_364.5, 25.0, 60.2, 0.1),
        (26918, 500_000.0, 4_505_455.08, -75.0, 40.7, 0.1),
        (3765, 461_132.94, 5_073_470.25, 16.0, 45.8, 0.1),
        (27700, 433_653.3, 344_858.88, -1.5, 53.0, 1.0),
        (31370, 148_679.45, 171_066.81, 4.35, 50.85, 1.0),
        (28992, 155_191.35, 463_537.14, 5.39, 52.16, 1.0),
        (21781, 600_104.11, 199_879.63, 7.44, 46.95, 1.0),
        (31467, 3_500_074.53, 5_540_407.11, 9.0, 50.0, 1.0),
        (31256, 2_814.77, 340_177.44, 16.37, 48.2, 5.0),
        (29193, 684_668.29, 7_466_467.03, -43.2, -22.9, 5.0),
        (23030, 440_707.18, 4_472_597.43, -3.7, 40.4, 10.0),
        (5514, -742_890.41, -1_042_941.73, 14.42, 50.088, 20.0),
        (3003, 1_514_881.54, 5_034_534.59, 9.19, 45.464, 5.0),
        // Sardinia: the shift is the mainland's.
        (3003, 1_491_494.39, 4_427_768.68, 8.9, 40.0, 90.0),
    ];

    #[test]
    fn places_are_where_proj_has_them() {
        for (code, x, y, longitude, latitude, tolerance_metres) in PLACES {
            let reprojection = Reprojection::from_epsg(code).expect("known");
            let found = reprojection.convert(x, y).expect("on the earth");
            let east = (found.longitude - longitude) * METRES_PER_DEGREE * latitude.to_radians().cos();
            let off = east.hypot((found.latitude - latitude) * METRES_PER_DEGREE);
            assert!(off <= tolerance_metres, "EPSG:{code}: {off} metres off at {found:?}");
            assert!(tolerance_metres <= 0.1 || reprojection.caveat().is_some(), "EPSG:{code} has no caveat");
        }
    }

    #[test]
    fn what_does_not_come_back_is_refused() {
        for (code, x, y) in [
            (3857, 3e7, 0.0),
            (3857, -3e7, 0.0),
            (3857, 1e30, 1e30),
            (3857, 0.0, 1e12),
            (3832, 3.5e7, 0.0),
            (32633, 5e6, 5e7),
            (32633, 1e9, 0.0),
            (3035, 5e7, 5e7),
            (2154, 1e8, 1e8),
        ] {
            let reprojection = Reprojection::from_epsg(code).expect("known");
            assert!(reprojection.convert(x, y).is_err(), "EPSG:{code} {x} {y}: {:?}", reprojection.convert(x, y));
        }
    }

    #[test]
    fn maps_may_go_on_beyond_the_antimeridian() {
        let web = Reprojection::from_epsg(3857).expect("known");
        for (x, longitude) in [(20_037_508.342_789_244, 180.0), (20_100_000.0, -179.438), (-2.6e7, 126.438)] {
            let converted = web.convert(x, 0.0).expect("near");
            let off = (converted.longitude - longitude).abs();
            assert!(off < 0.001 || (off - 360.0).abs() < 0.001, "{converted:?}");
        }
    }

    /// Each code with its area of use in longitudes and latitudes.
    const AREAS: [(u32, [f64; 4]); 14] = [
        (3857, [-180.0, -85.0, 180.0, 85.0]),
        (3395, [-180.0, -80.0, 180.0, 84.0]),
        (3832, [-180.0, -60.0, 180.0, 66.0]),
        (32633, [6.0, 0.0, 24.0, 84.0]),
        (32760, [171.0, -80.0, 180.0, 0.0]),
        (2193, [166.0, -48.0, 180.0, -34.0]),
        (3035, [-35.0, 25.0, 45.0, 84.0]),
        (2154, [-10.0, 41.0, 11.0, 52.0]),
        (27700, [-9.0, 49.5, 2.5, 61.5]),
        (5070, [-125.0, 24.0, -66.0, 50.0]),
        (2263, [-74.5, 40.4, -71.8, 41.4]),
        (3413, [-180.0, 60.0, 180.0, 89.9]),
        (3031, [-180.0, -89.9, 180.0, -60.0]),
        (4269, [-180.0, -80.0, 180.0, 80.0]),
    ];

    #[test]
    fn places_of_every_system_are_accepted() {
        for (code, [west, south, east, north]) in AREAS {
            let reprojection = Reprojection::from_epsg(code).expect("known");
            for step in 0..=400 {
                let (column, row) = (f64::from(step % 21) / 20.0, f64::from(step / 21) / 19.1);
                let (longitude, latitude) = (west + column * (east - west), south + row.min(1.0) * (north - south));
                let (x, y) = reprojection.forward(longitude, latitude).expect("on the map");
                let converted = reprojection.convert(x, y);
                let near = converted.as_ref().is_ok_and(|place| {
                    let off = (place.longitude - longitude).abs();
                    (off < 1e-4 || (off - 360.0).abs() < 1e-4) && (place.latitude - latitude).abs() < 1e-4
                });
                assert!(near, "EPSG:{code} {longitude} {latitude} at {x} {y}: {converted:?}");
            }
        }
    }
}
