//! Converts well-known binary of any flavour to the stored form.

use super::error::GeometryError;
use super::kind::{Dimensions, GeometryKind};
use super::walk::walk;
use super::write::Writer;

/// A geometry that passed all checks.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedWkb {
    /// Its kind.
    pub kind: GeometryKind,
    /// The values of its positions.
    pub dimensions: Dimensions,
    /// The SRID from an extended header. The stored form drops it.
    pub srid: Option<u32>,
    /// The stored form: ISO, little-endian, without SRID.
    pub bytes: Vec<u8>,
}

/// Checks well-known binary of any flavour and normalises it.
///
/// # Errors
/// Names the byte or the vertex at which the bytes are not a geometry.
pub fn parse_wkb(bytes: &[u8]) -> Result<ParsedWkb, GeometryError> {
    // The stored form is never larger: it only lacks SRIDs.
    let mut writer = Writer { bytes: Vec::with_capacity(bytes.len()) };
    let header = walk(bytes, &mut writer)?;
    Ok(ParsedWkb { kind: header.kind, dimensions: header.dimensions, srid: header.srid, bytes: writer.bytes })
}

/// The stored form of well-known binary of any flavour.
///
/// # Errors
/// Those of [`parse_wkb`].
pub fn normalise(bytes: &[u8]) -> Result<Vec<u8>, GeometryError> {
    parse_wkb(bytes).map(|parsed| parsed.bytes)
}
