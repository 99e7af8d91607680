//! The fast path for points, which most datasets hold alone.

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

/// The position of a point without Z and M, which is all that there is of it.
#[inline]
pub fn as_flat_point(bytes: &[u8]) -> Option<Point> {
    as_point(bytes).filter(|point| point_wkb(*point).len() == bytes.len())
}

/// The position of a stored point, with or without Z and M, all of them finite;
/// `None` for an empty point and for every other geometry.
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
    // Also Z and M: no other geometry is stored with one that is not finite.
    if !numbers.iter().all(|number| f64::from_le_bytes(*number).is_finite()) {
        return None;
    }
    match numbers {
        [x, y, ..] => Some(Point::new(f64::from_le_bytes(*x), f64::from_le_bytes(*y))),
        _ => None,
    }
}
