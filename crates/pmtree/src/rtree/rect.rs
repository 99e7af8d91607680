//! Boxes of any number of dimensions.

use crate::{Error, Result};

/// A closed box with edges along the axes, in finite coordinates. A point is a box without extent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rect<const D: usize> {
    min: [f64; D],
    max: [f64; D],
}

impl<const D: usize> Rect<D> {
    /// The box between two corners. It is an error if a coordinate is not finite, or `min` lies
    /// above `max`.
    pub fn new(min: [f64; D], max: [f64; D]) -> Result<Self> {
        for (axis, (min, max)) in min.into_iter().zip(max).enumerate() {
            if let Some(value) = [min, max].into_iter().find(|coordinate| !coordinate.is_finite()) {
                return Err(Error::NotFinite { axis, value });
            }
            if min > max {
                return Err(Error::InvalidRect { axis, min, max });
            }
        }
        Ok(Self { min, max })
    }

    /// A point.
    pub fn point(position: [f64; D]) -> Result<Self> {
        Self::new(position, position)
    }

    /// A box as it was stored, with any coordinates.
    pub(crate) fn raw(min: [f64; D], max: [f64; D]) -> Self {
        Self { min, max }
    }

    /// The lower corner.
    pub fn min(&self) -> &[f64; D] {
        &self.min
    }

    /// The upper corner.
    pub fn max(&self) -> &[f64; D] {
        &self.max
    }

    /// Whether the two have a point in common.
    #[inline]
    pub fn overlaps(&self, other: &Self) -> bool {
        hold::<D>(|axis| (self.min[axis] <= other.max[axis], self.max[axis] >= other.min[axis]))
    }

    /// Whether the other box lies within this one.
    #[inline]
    pub fn contains(&self, other: &Self) -> bool {
        hold::<D>(|axis| (self.min[axis] <= other.min[axis], self.max[axis] >= other.max[axis]))
    }

    /// The smallest box that contains both.
    #[inline]
    pub fn union(&self, other: &Self) -> Self {
        let mut union = *self;
        for axis in 0..D {
            // The methods of numbers take four instructions each, as they ignore what is no number.
            if other.min[axis] < self.min[axis] {
                union.min[axis] = other.min[axis];
            }
            if other.max[axis] > self.max[axis] {
                union.max[axis] = other.max[axis];
            }
        }
        union
    }

    /// The common part of both; `None` if there is none.
    pub(crate) fn intersection(&self, other: &Self) -> Option<Self> {
        let common = Self {
            min: std::array::from_fn(|axis| self.min[axis].max(other.min[axis])),
            max: std::array::from_fn(|axis| self.max[axis].min(other.max[axis])),
        };
        self.overlaps(other).then_some(common)
    }

    /// Product of the extents. It is infinite beyond the largest number, and not a number if
    /// another extent is zero then.
    #[inline]
    pub fn area(&self) -> f64 {
        (0..D).map(|axis| self.max[axis] - self.min[axis]).product()
    }

    /// Area of the common part.
    pub(crate) fn overlap(&self, other: &Self) -> f64 {
        (0..D)
            .map(|axis| (self.max[axis].min(other.max[axis]) - self.min[axis].max(other.min[axis])).max(0.0))
            .product()
    }

    /// Sum of the extents.
    #[inline]
    pub fn margin(&self) -> f64 {
        (0..D).map(|axis| self.max[axis] - self.min[axis]).sum()
    }

    /// Square of the distance from a point to the box; 0 inside.
    #[inline]
    pub fn distance_squared(&self, point: &[f64; D]) -> f64 {
        let gap = |axis: usize| (self.min[axis] - point[axis]).max(point[axis] - self.max[axis]).max(0.0);
        (0..D).map(|axis| gap(axis) * gap(axis)).sum()
    }
}

/// A compile-time error for trees with other than two to four dimensions. Nodes of others have not
/// been tried, and an entry would take three lines.
pub(crate) const fn check_dimensions<const D: usize>() {
    assert!(D >= 2 && D <= 4, "trees have two to four dimensions");
}

/// Whether both relations hold on each axis. All are evaluated, since the deciding one cannot be
/// predicted. They are counted, since for `&` the compiler makes branches.
#[inline]
fn hold<const D: usize>(relations: impl Fn(usize) -> (bool, bool)) -> bool {
    let holding = |axis| {
        let (one, other) = relations(axis);
        u32::from(one) + u32::from(other)
    };
    (0..D).map(holding).sum::<u32>() == 2 * D as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_that_are_none_are_refused() {
        assert!(matches!(Rect::new([0.0, 1.0], [1.0, 0.0]), Err(Error::InvalidRect { axis: 1, min: 1.0, max: 0.0 })));
        let not_finite = [
            (Rect::new([f64::NAN, 0.0], [1.0, 1.0]), 0),
            (Rect::new([0.0, 0.0], [1.0, f64::INFINITY]), 1),
            (Rect::point([f64::NEG_INFINITY, 0.0]), 0),
        ];
        for (refused, expected) in not_finite {
            assert!(matches!(refused, Err(Error::NotFinite { axis, .. }) if axis == expected), "{refused:?}");
        }
        assert!(Rect::new([-0.0, f64::MIN], [0.0, f64::MAX]).is_ok());
    }

    #[test]
    fn relations_hold_on_borders() {
        let unit = Rect::new([0.0, 0.0], [1.0, 1.0]).unwrap();
        let corner = Rect::point([1.0, 1.0]).unwrap();
        let outside = Rect::new([1.5, 0.0], [2.0, 1.0]).unwrap();
        assert!(unit.overlaps(&corner) && unit.contains(&corner) && !corner.contains(&unit));
        assert!(!unit.overlaps(&outside));
        assert_eq!(unit.union(&outside), Rect::new([0.0, 0.0], [2.0, 1.0]).unwrap());
        assert_eq!(unit.intersection(&corner), Some(corner));
        assert_eq!(unit.intersection(&outside), None);
        assert_eq!((unit.area(), outside.margin(), corner.area()), (1.0, 1.5, 0.0));
        assert_eq!(unit.distance_squared(&[4.0, 5.0]), 25.0);
        assert_eq!(unit.distance_squared(&[0.5, 0.5]), 0.0);
    }
}
