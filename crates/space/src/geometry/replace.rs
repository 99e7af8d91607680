//! Replaces the positions of a geometry.

use super::error::GeometryError;
use super::kind::{Dimensions, GeometryKind, Position};
use super::walk::{Visitor, walk};
use super::write::Writer;
use crate::Point;

/// The place of a position in its path. A path is a point, a line or a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathPlace {
    /// Whether the path is a ring.
    pub is_ring: bool,
    /// Whether the position is the first.
    pub is_first: bool,
    /// Whether the position is the last.
    pub is_last: bool,
}

/// The geometry with each position replaced by the result of `replace`, called in the order of the
/// bytes. Z and M stay. Empty geometries have no positions.
///
/// # Errors
/// When the bytes are not a geometry, or `replace` fails.
pub fn replace_positions(
    bytes: &[u8],
    replace: &mut impl FnMut(PathPlace, Point) -> Result<Point, String>,
) -> Result<Vec<u8>, String> {
    let writer = Writer { bytes: Vec::with_capacity(bytes.len()) };
    let mut replacer = Replacer { writer, replace, is_ring: false, count: 0, left: 0, refused: None };
    let walked = walk(bytes, &mut replacer);
    match (replacer.refused, walked) {
        (Some(reason), _) => Err(reason),
        (None, Err(error)) => Err(error.to_string()),
        (None, Ok(_)) => Ok(replacer.writer.bytes),
    }
}

struct Replacer<'r, R> {
    writer: Writer,
    replace: &'r mut R,
    is_ring: bool,
    /// Number of positions of the path, and of those still to come.
    count: u32,
    left: u32,
    refused: Option<String>,
}

impl<R: FnMut(PathPlace, Point) -> Result<Point, String>> Visitor for Replacer<'_, R> {
    fn begin(&mut self, kind: GeometryKind, dimensions: Dimensions, count: u32) {
        self.writer.begin(kind, dimensions, count);
        (self.is_ring, self.count, self.left) = (false, count, count);
    }

    fn ring(&mut self, count: u32) {
        self.writer.ring(count);
        (self.is_ring, self.count, self.left) = (true, count, count);
    }

    fn position(&mut self, mut position: Position) -> Result<(), GeometryError> {
        // After an error the rest is skipped.
        if self.refused.is_some() {
            return Ok(());
        }
        let place = PathPlace { is_ring: self.is_ring, is_first: self.left == self.count, is_last: self.left == 1 };
        self.left = self.left.saturating_sub(1);
        match (self.replace)(place, position.point()) {
            Ok(point) => {
                position.values[..2].copy_from_slice(&[point.x, point.y]);
                self.writer.position(position)
            }
            Err(reason) => {
                self.refused = Some(reason);
                Ok(())
            }
        }
    }

    fn end(&mut self) {
        self.writer.end();
    }
}
