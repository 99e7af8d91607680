//! Boxes around spherical caps (circles on the globe), and around the neighbourhood of a box.

use super::EARTH_RADIUS_M;
use super::angle::sin_cos_latitude;
use crate::system::longitude_windows;
use crate::{Point, Rect, Windows};

/// Margin on every side, about a millimetre: far above the rounding errors of the bounds and of the
/// distances compared with them.
const MARGIN_DEGREES: f64 = 1e-8;

/// One or two boxes that hold every point within `radius_m` metres of `center`, even if a pole or
/// the antimeridian lies inside. There is none if the radius is negative or not a number.
pub fn cap_windows(center: Point, radius_m: f64) -> Windows {
    reach_windows(&Rect::from_point(center), radius_m)
}

/// Like [`cap_windows`], around every point of a box.
pub fn reach_windows(rect: &Rect, radius_m: f64) -> Windows {
    if radius_m.is_nan() || radius_m < 0.0 || rect.is_empty() {
        return Windows::NONE;
    }
    let radius = radius_m / EARTH_RADIUS_M;
    let radius_degrees = radius.to_degrees() + MARGIN_DEGREES;
    if radius_degrees >= 180.0 {
        return Windows::one(Rect::new(-180.0, -90.0, 180.0, 90.0));
    }
    let y0 = (rect.y0 - radius_degrees).max(-90.0);
    let y1 = (rect.y1 + radius_degrees).min(90.0);
    if y0 == -90.0 || y1 == 90.0 {
        return Windows::one(Rect::new(-180.0, y0, 180.0, y1));
    }
    // Where a meridian touches the cap nearest to a pole, which is the widest. Near 1 the arcsine
    // loses digits; the cap holds no pole, so a quarter turn is a bound then.
    let highest = if rect.y1.abs() > rect.y0.abs() { rect.y1 } else { rect.y0 };
    let ratio = radius_degrees.to_radians().sin() / sin_cos_latitude(highest).1;
    let half_width = if ratio < 1.0 - 1e-10 { ratio.asin().to_degrees() } else { 90.0 };
    let half_width = half_width + MARGIN_DEGREES;
    let (x0, x1) = (rect.x0 - half_width, rect.x1 + half_width);
    if x1 - x0 >= 360.0 {
        return Windows::one(Rect::new(-180.0, y0, 180.0, y1));
    }
    match (x0 < -180.0, x1 > 180.0) {
        (true, _) => longitude_windows(x0 + 360.0, y0, x1, y1),
        (false, true) => longitude_windows(x0, y0, x1 - 360.0, y1),
        (false, false) => longitude_windows(x0, y0, x1, y1),
    }
}
