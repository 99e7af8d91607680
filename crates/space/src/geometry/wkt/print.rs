//! Writes well-known text.

use std::fmt::Write;

use crate::geometry::error::GeometryError;
use crate::geometry::kind::{Dimensions, GeometryKind, Position};
use crate::geometry::walk::{Visitor, walk};

/// The geometry as well-known text with the shortest numbers that read back the same.
///
/// # Errors
/// When the bytes are not a geometry.
pub fn to_wkt(bytes: &[u8]) -> Result<String, GeometryError> {
    let mut writer = TextWriter::default();
    walk(bytes, &mut writer)?;
    Ok(writer.text)
}

#[derive(Default)]
struct TextWriter {
    text: String,
    frames: Vec<Frame>,
}

struct Frame {
    kind: GeometryKind,
    is_empty: bool,
    /// Members or rings written.
    parts: u32,
    /// Positions written since the geometry or its ring began.
    positions: u32,
    /// Positions left in the ring.
    ring_left: u32,
}

impl Visitor for TextWriter {
    fn begin(&mut self, kind: GeometryKind, dimensions: Dimensions, count: u32) {
        let mut is_tagged = true;
        if let Some(parent) = self.frames.last_mut() {
            is_tagged = parent.kind == GeometryKind::GeometryCollection;
            if parent.parts > 0 {
                self.text.push_str(", ");
            }
            parent.parts += 1;
        }
        if is_tagged {
            self.text.push_str(&kind.name().to_ascii_uppercase());
            self.text.push_str(match (dimensions.has_z, dimensions.has_m) {
                (false, false) => " ",
                (true, false) => " Z ",
                (false, true) => " M ",
                (true, true) => " ZM ",
            });
        }
        self.text.push_str(if count == 0 { "EMPTY" } else { "(" });
        let is_empty = count == 0;
        self.frames.push(Frame { kind, is_empty, parts: 0, positions: 0, ring_left: 0 });
    }

    fn ring(&mut self, count: u32) {
        if let Some(frame) = self.frames.last_mut() {
            self.text.push_str(if frame.parts > 0 { ", (" } else { "(" });
            frame.parts += 1;
            frame.positions = 0;
            frame.ring_left = count;
        }
    }

    fn position(&mut self, position: Position) -> Result<(), GeometryError> {
        let Some(frame) = self.frames.last_mut() else {
            return Ok(());
        };
        if frame.positions > 0 {
            self.text.push_str(", ");
        }
        frame.positions += 1;
        for (index, number) in position.numbers().iter().enumerate() {
            let separator = if index > 0 { " " } else { "" };
            // Writing to a string cannot fail.
            let _ = write!(self.text, "{separator}{number}");
        }
        if frame.ring_left > 0 {
            frame.ring_left -= 1;
            if frame.ring_left == 0 {
                self.text.push(')');
            }
        }
        Ok(())
    }

    fn end(&mut self) {
        if self.frames.pop().is_some_and(|frame| !frame.is_empty) {
            self.text.push(')');
        }
    }
}
