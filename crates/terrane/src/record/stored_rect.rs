//! The box of a stored record.

use terrane_space::{CoordinateSystem, Rect};

use super::{GeometryRef, RowGeometry, stored_geometry};
use crate::{Error, Result};

/// The box of a stored record in the spatial indexes.
pub(crate) fn stored_rect(stored: &[u8], system: CoordinateSystem) -> Result<Option<Rect>> {
    match stored_geometry(stored)? {
        None => Ok(None),
        Some(GeometryRef::Point(point)) => Ok(Some(Rect::from_point(point))),
        wkb => match RowGeometry::of(wkb, system) {
            Ok(geometry) => Ok(geometry.rect()),
            Err(reason) => Err(Error::damaged_record(format!("its geometry: {reason}"))),
        },
    }
}
