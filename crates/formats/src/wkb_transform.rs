//! Changing the coordinates of a geometry in place.
//!
//! The input is little-endian ISO WKB that the parser of `terrane-space` has
//! accepted; anything else is reported, not trusted.

use crate::reprojection::{Converted, Reprojection};

/// How deep collections may be nested.
const DEPTH_MAX: u32 = 64;

/// Replaces each position by its longitude and latitude. Z and M stay.
///
/// Along a path, longitudes go on beyond 180 degrees where the path crosses
/// the antimeridian. Returns whether any does.
///
/// # Errors
/// Positions and paths that cannot be converted, bytes that are not WKB.
pub(crate) fn transform_coordinates(wkb: &mut [u8], reprojection: &Reprojection) -> Result<bool, String> {
    let mut walk = Walk { bytes: wkb, position: 0, reprojection, crosses: false };
    walk.geometry(0)?;
    Ok(walk.crosses)
}

struct Walk<'a> {
    bytes: &'a mut [u8],
    position: usize,
    reprojection: &'a Reprojection,
    crosses: bool,
}

/// Where a path has come to.
#[derive(Clone, Copy)]
struct Step {
    converted: Converted,
    /// How often it has gone round the earth eastwards, from antimeridian to antimeridian.
    turns: f64,
}

impl Walk<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let end = self.position + N;
        let bytes = self
            .bytes
            .get(self.position..end)
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or_else(|| "the geometry is cut short".to_string())?;
        self.position = end;
        Ok(bytes)
    }

    fn count(&mut self) -> Result<u32, String> {
        self.take().map(u32::from_le_bytes)
    }

    fn geometry(&mut self, depth: u32) -> Result<(), String> {
        if depth > DEPTH_MAX {
            return Err("the geometry is nested too deeply".to_string());
        }
        let [byte_order] = self.take()?;
        let code = self.count()?;
        if byte_order != 1 {
            return Err("the geometry is not little-endian".to_string());
        }
        let dimensions = match code / 1000 {
            0 => 2,
            1 | 2 => 3,
            3 => 4,
            _ => return Err(format!("unknown geometry type {code}")),
        };
        match code % 1000 {
            1 => self.position(dimensions, None).map(drop),
            2 => self.path(dimensions).map(drop),
            3 => {
                for _ in 0..self.count()? {
                    self.ring(dimensions)?;
                }
                Ok(())
            }
            4..=7 => {
                for _ in 0..self.count()? {
                    self.geometry(depth + 1)?;
                }
                Ok(())
            }
            _ => Err(format!("unknown geometry type {code}")),
        }
    }

    fn ring(&mut self, dimensions: usize) -> Result<(), String> {
        match self.path(dimensions)? {
            Some(end) if end.turns != 0.0 => {
                Err("a ring goes round a pole, so that it bounds no area of longitudes and latitudes".to_string())
            }
            _ => Ok(()),
        }
    }

    /// Converts a path, which ends where it says.
    fn path(&mut self, dimensions: usize) -> Result<Option<Step>, String> {
        let mut step = None;
        for _ in 0..self.count()? {
            step = self.position(dimensions, step)?;
        }
        Ok(step)
    }

    /// Converts a position that comes after `before`; `None` if it is empty.
    fn position(&mut self, dimensions: usize, before: Option<Step>) -> Result<Option<Step>, String> {
        let start = self.position;
        let x = f64::from_le_bytes(self.take()?);
        let y = f64::from_le_bytes(self.take()?);
        for _ in 2..dimensions {
            self.take::<8>()?;
        }
        // An empty point is written as NaN and stays so.
        if x.is_nan() && y.is_nan() {
            return Ok(None);
        }
        let converted = self.reprojection.convert(x, y)?;
        let turns = match before {
            None => 0.0,
            Some(Step { converted: last, turns }) => {
                let change = self.reprojection.longitude_change(&last, &converted)?;
                turns + ((last.longitude + change - converted.longitude) / 360.0).round()
            }
        };
        self.crosses |= turns != 0.0;
        let longitude = converted.longitude + 360.0 * turns;
        self.bytes[start..start + 8].copy_from_slice(&longitude.to_le_bytes());
        self.bytes[start + 8..start + 16].copy_from_slice(&converted.latitude.to_le_bytes());
        Ok(Some(Step { converted, turns }))
    }
}
