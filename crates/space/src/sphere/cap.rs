//! Boxes around spherical caps (circles on the globe).

use super::EARTH_RADIUS_M;
use super::angle::sin_cos_latitude;
use crate::system::longitude_windows;
use crate::{Point, Rect, Windows};

/// Added on every side, about a millimetre: far above the float error of the
/// bounds and of the distances they are compared with.
const MARGIN_DEGREES: f64 = 1e-8;

/// One or two boxes that hold every point within `radius_m` metres of
/// `center`, whatever pole or antimeridian lies inside; none for a radius
/// that is negative or not a number.
pub fn cap_windows(center: Point, radius_m: f64) -> Windows {
    if radius_m.is_nan() || radius_m < 0.0 {
        return Windows::NONE;
    }
    let radius = radius_m / EARTH_RADIUS_M;
    let radius_degrees = radius.to_degrees() + MARGIN_DEGREES;
    if radius_degrees >= 180.0 {
        return Windows::one(Rect::new(-180.0, -90.0, 180.0, 90.0));
    }
    let y0 = (center.y - radius_degrees).max(-90.0);
    let y1 = (center.y + radius_degrees).min(90.0);
    if y0 == -90.0 || y1 == 90.0 {
        return Windows::one(Rect::new(-180.0, y0, 180.0, y1));
    }
    // Where a meridian touches the cap. Near 1 the arcsine loses digits; the
    // cap has no pole, so a quarter turn is then a bound.
    let ratio = radius_degrees.to_radians().sin() / sin_cos_latitude(center.y).1;
    let half_width = if ratio < 1.0 - 1e-10 { ratio.asin().to_degrees() } else { 90.0 };
    let half_width = half_width + MARGIN_DEGREES;
    let (x0, x1) = (center.x - half_width, center.x + half_width);
    if x0 < -180.0 {
        longitude_windows(x0 + 360.0, y0, x1, y1)
    } else if x1 > 180.0 {
        longitude_windows(x0, y0, x1 - 360.0, y1)
    } else {
        longitude_windows(x0, y0, x1, y1)
    }
}
