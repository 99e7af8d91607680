//! Changing the coordinates of a geometry in place.
//!
//! The input is little-endian ISO WKB that the parser of `terrane-space` has
//! accepted; anything else is reported, not trusted.

/// How deep collections may be nested.
const DEPTH_MAX: u32 = 64;

/// Replaces each `(x, y)` by what `transform` makes of it. Z and M stay.
///
/// # Errors
/// What `transform` reports, or that the bytes are not WKB.
pub(crate) fn transform_coordinates(
    wkb: &mut [u8],
    transform: &mut dyn FnMut(f64, f64) -> Result<(f64, f64), String>,
) -> Result<(), String> {
    let mut walk = Walk { bytes: wkb, position: 0, transform };
    walk.geometry(0)
}

struct Walk<'a> {
    bytes: &'a mut [u8],
    position: usize,
    transform: &'a mut dyn FnMut(f64, f64) -> Result<(f64, f64), String>,
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
            1 => self.position(dimensions),
            2 => self.positions(dimensions),
            3 => {
                for _ in 0..self.count()? {
                    self.positions(dimensions)?;
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

    fn positions(&mut self, dimensions: usize) -> Result<(), String> {
        for _ in 0..self.count()? {
            self.position(dimensions)?;
        }
        Ok(())
    }

    fn position(&mut self, dimensions: usize) -> Result<(), String> {
        let start = self.position;
        let x = f64::from_le_bytes(self.take()?);
        let y = f64::from_le_bytes(self.take()?);
        for _ in 2..dimensions {
            self.take::<8>()?;
        }
        // An empty point is written as NaN and stays so.
        if x.is_nan() && y.is_nan() {
            return Ok(());
        }
        let (x, y) = (self.transform)(x, y)?;
        self.bytes[start..start + 8].copy_from_slice(&x.to_le_bytes());
        self.bytes[start + 8..start + 16].copy_from_slice(&y.to_le_bytes());
        Ok(())
    }
}
