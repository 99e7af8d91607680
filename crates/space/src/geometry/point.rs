//! The fast path for points, the only kind in most datasets.

use crate::Point;

/// The well-known binary of `point`.
#[inline]
pub fn point_wkb(point: Point) -> [u8; 21] {
    let mut bytes = [0; 21];
    bytes[..5].copy_from_slice(&[1, 1, 0, 0, 0]);
    bytes[5..13].copy_from_slice(&point.x.to_le_bytes());
    bytes[13..].copy_from_slice(&point.y.to_le_bytes());
    bytes
}

/// The position of a point that has neither Z nor M.
#[inline]
pub fn as_flat_point(bytes: &[u8]) -> Option<Point> {
    as_point(bytes).filter(|point| point_wkb(*point).len() == bytes.len())
}

/// The position of a stored point, with or without Z and M. All of its numbers are finite. `None`
/// for an empty point and for any other geometry.
#[inline]
pub fn as_point(bytes: &[u8]) -> Option<Point> {
    let (header, rest) = bytes.split_first_chunk::<5>()?;
    let [1, code @ ..] = *header else {
        return None;
    };
    let size = match u32::from_le_bytes(code) {
        1 => 16,
        1001 | 2001 => 24,
        3001 => 32,
        _ => return None,
    };
    if rest.len() != size {
        return None;
    }
    let (numbers, _) = rest.as_chunks::<8>();
    // Z and M are checked as well: no other geometry is stored with a number that is not finite.
    if !numbers.iter().all(|number| f64::from_le_bytes(*number).is_finite()) {
        return None;
    }
    match numbers {
        [x, y, ..] => Some(Point::new(f64::from_le_bytes(*x), f64::from_le_bytes(*y))),
        _ => None,
    }
}
