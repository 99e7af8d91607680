//! Great-circle arcs: the shorter way between two points.

use super::angle::{add, cross, dot, longitude_difference, norm, subtract, unit_vector};
use super::{EARTH_RADIUS_M, distance_m};
use crate::{Point, Rect};

/// Far above the float error of the latitudes below, a tenth of a micrometre.
const MARGIN_DEGREES: f64 = 1e-12;

/// An arc whose ends are this close to half a turn of longitude apart counts as crossing a pole.
const OVER_POLE_DEGREES: f64 = 1e-6;

/// A box that holds both the straight longitude/latitude segment and the
/// great-circle arc from `a` to `b`.
///
/// The arc bulges towards the pole. If the arc goes the other way round than the segment, the box
/// has all longitudes. If it crosses a pole, the box also reaches that pole, and for antipodal
/// points both.
pub fn arc_rect(a: Point, b: Point) -> Rect {
    let mut rect = Rect::from_corners(a, b);
    if a.x == b.x {
        return rect;
    }
    let straight = (a.x - b.x).abs();
    let difference = longitude_difference(a.x, b.x);
    if straight > 180.0 - OVER_POLE_DEGREES {
        rect.x0 = -180.0;
        rect.x1 = 180.0;
    }
    if difference == 0.0 {
        return rect;
    }
    if difference > 180.0 - OVER_POLE_DEGREES {
        if a.y + b.y >= -OVER_POLE_DEGREES {
            rect.y1 = 90.0;
        }
        if a.y + b.y <= OVER_POLE_DEGREES {
            rect.y0 = -90.0;
        }
        return rect;
    }
    if rect.y1 > 0.0 {
        rect.y1 = rect.y1.max(northernmost_latitude(a.y, b.y, difference));
    }
    if rect.y0 < 0.0 {
        rect.y0 = rect.y0.min(-northernmost_latitude(-a.y, -b.y, difference));
    }
    rect
}

/// The northernmost latitude of an arc between two latitudes, in degrees, if it lies between the
/// ends; otherwise a lower latitude.
///
/// The tangent of the latitude along a great circle is a sinusoid in the
/// longitude: `t1 cos(l) + slope sin(l)`, measured from the first end.
///
/// Boxes are stored, and computed again for searches, so they must have the same bits on every
/// machine. Functions of `std` depend on the C library and the processor, hence `libm`.
fn northernmost_latitude(latitude_1: f64, latitude_2: f64, difference: f64) -> f64 {
    let tangent = |latitude: f64| {
        if latitude.abs() <= 45.0 {
            return libm::tan(latitude.to_radians());
        }
        // 90 - |latitude| is exact here.
        let colatitude = 90.0 - latitude.abs();
        (1.0 / libm::tan(colatitude.to_radians())).copysign(latitude)
    };
    let (t1, t2) = (tangent(latitude_1), tangent(latitude_2));
    if !t1.is_finite() || !t2.is_finite() {
        // From a pole the arc is a meridian.
        return f64::NEG_INFINITY;
    }
    let difference = difference.to_radians();
    let slope = (t2 - t1) / libm::sin(difference) + t1 * libm::tan(difference * 0.5);
    let longitude = libm::atan2(slope, t1);
    if longitude <= 0.0 || longitude >= difference {
        return f64::NEG_INFINITY;
    }
    (libm::atan(libm::hypot(t1, slope)).to_degrees() + MARGIN_DEGREES).min(90.0)
}

/// Distance in metres from `point` to the great-circle arc from `a` to `b`.
///
/// Between antipodal points no arc is shortest. The distance is then that to the nearer end.
pub fn distance_to_arc_m(point: Point, a: Point, b: Point) -> f64 {
    let ends_m = distance_m(point, a).min(distance_m(point, b));
    let (p, from, to) = (unit_vector(point), unit_vector(a), unit_vector(b));
    // Twice the cross product, whose direction is accurate for close ends too.
    let normal = cross(add(from, to), subtract(to, from));
    let length = norm(normal);
    if length == 0.0 {
        return ends_m;
    }
    let is_beside_arc = dot(p, cross(normal, from)) > 0.0 && dot(p, cross(normal, to)) < 0.0;
    if !is_beside_arc {
        return ends_m;
    }
    // From the nearer end, so that small offsets keep their digits.
    let near =
        if dot(subtract(p, from), subtract(p, from)) < dot(subtract(p, to), subtract(p, to)) { from } else { to };
    let off = dot(subtract(p, near), normal).abs() / length;
    let along = norm(cross(p, normal)) / length;
    ends_m.min(off.atan2(along) * EARTH_RADIUS_M)
}

/// Whether two great-circle arcs cross in a point inside both. Arcs that merely touch do not, and
/// neither does an arc with an end practically on the other's circle. For those, use the distances
/// of their ends by [`distance_to_arc_m`].
pub fn arcs_cross(a: Point, b: Point, c: Point, d: Point) -> bool {
    /// Far above the rounding errors of computations on unit vectors.
    const NOTHING: f64 = 4e-15;
    let [a, b, c, d] = [a, b, c, d].map(unit_vector);
    // Twice the cross products, whose directions are accurate for close ends too.
    let ab = cross(add(a, b), subtract(b, a));
    let cd = cross(add(c, d), subtract(d, c));
    // The ends of each lie on different sides of the other, in the same half of the sphere.
    let (c_side, d_side) = (dot(ab, c), dot(ab, d));
    let (a_side, b_side) = (dot(cd, a), dot(cd, b));
    [a_side, b_side, c_side, d_side].iter().all(|side| side.abs() > NOTHING)
        && (c_side > 0.0) != (d_side > 0.0)
        && (a_side > 0.0) != (b_side > 0.0)
        && (c_side > 0.0) == (b_side > 0.0)
}
