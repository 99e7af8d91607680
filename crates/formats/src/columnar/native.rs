//! Geometries in GeoArrow's native encodings: nested lists around coordinates
//! that are either structs of x, y, z, m or lists of fixed length.

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef, Float64Array};
use arrow_schema::DataType;

use super::geo_metadata::Encoding;

/// One level of lists.
struct Level {
    offsets: Vec<usize>,
}

/// A geometry column of one batch.
pub(crate) struct NativeColumn {
    array: ArrayRef,
    levels: Vec<Level>,
    coordinates: Coordinates,
    encoding: Encoding,
}

enum Coordinates {
    Separated(Vec<Float64Array>),
    Interleaved { values: Float64Array, width: usize },
}

/// The coordinates and their axes beyond x and y.
struct Dimensions {
    coordinates: Coordinates,
    has_z: bool,
    has_m: bool,
}

fn list_depth(encoding: Encoding) -> usize {
    match encoding {
        Encoding::Point | Encoding::Wkb | Encoding::Wkt => 0,
        Encoding::LineString | Encoding::MultiPoint => 1,
        Encoding::Polygon | Encoding::MultiLineString => 2,
        Encoding::MultiPolygon => 3,
    }
}

impl NativeColumn {
    /// Takes a column apart, or tells how its type differs from its encoding.
    pub(crate) fn new(array: &ArrayRef, encoding: Encoding) -> Result<(NativeColumn, u32), String> {
        let mut levels = Vec::new();
        let mut inner = array.clone();
        for _ in 0..list_depth(encoding) {
            let (offsets, values): (Vec<usize>, ArrayRef) = match inner.data_type() {
                DataType::List(_) => {
                    let list = inner.as_list::<i32>();
                    let offsets = list.offsets().iter().map(|&offset| offset as usize).collect();
                    (offsets, list.values().clone())
                }
                DataType::LargeList(_) => {
                    let list = inner.as_list::<i64>();
                    let offsets = list.offsets().iter().map(|&offset| offset as usize).collect();
                    (offsets, list.values().clone())
                }
                other => return Err(format!("a list was expected, found {other}")),
            };
            levels.push(Level { offsets });
            inner = values;
        }
        let Dimensions { coordinates, has_z, has_m } = coordinates_of(&inner)?;
        let column = NativeColumn { array: array.clone(), levels, coordinates, encoding };
        Ok((column, 1000 * u32::from(has_z) + 2000 * u32::from(has_m)))
    }

    /// The geometry of a row as WKB; `None` if it is null.
    pub(crate) fn wkb(&self, row: usize, code_offset: u32) -> Result<Option<Vec<u8>>, String> {
        if self.array.is_null(row) {
            return Ok(None);
        }
        let mut wkb = Vec::new();
        match self.encoding {
            Encoding::Point => self.point(&mut wkb, code_offset, row)?,
            Encoding::LineString => self.lines(&mut wkb, code_offset + 2, 0, row)?,
            Encoding::Polygon => self.polygon(&mut wkb, code_offset, 0, row)?,
            Encoding::MultiPoint => {
                self.multi(&mut wkb, code_offset + 4, row, |wkb, child| self.point(wkb, code_offset, child))?;
            }
            Encoding::MultiLineString => {
                self.multi(&mut wkb, code_offset + 5, row, |wkb, child| self.lines(wkb, code_offset + 2, 1, child))?;
            }
            Encoding::MultiPolygon => {
                self.multi(&mut wkb, code_offset + 6, row, |wkb, child| self.polygon(wkb, code_offset, 1, child))?;
            }
            Encoding::Wkb | Encoding::Wkt => {
                return Err("the column is not in a native encoding".to_string());
            }
        }
        Ok(Some(wkb))
    }

    fn range(&self, level: usize, index: usize) -> Result<std::ops::Range<usize>, String> {
        let offsets = self.levels.get(level).map(|level| &level.offsets);
        offsets
            .and_then(|offsets| Some(*offsets.get(index)?..*offsets.get(index + 1)?))
            .filter(|range| range.start <= range.end)
            .ok_or_else(|| "a list points outside of its values".to_string())
    }

    fn multi(
        &self,
        wkb: &mut Vec<u8>,
        code: u32,
        row: usize,
        mut part: impl FnMut(&mut Vec<u8>, usize) -> Result<(), String>,
    ) -> Result<(), String> {
        let range = self.range(0, row)?;
        header(wkb, code);
        count(wkb, range.len())?;
        range.into_iter().try_for_each(|child| part(wkb, child))
    }

    fn polygon(&self, wkb: &mut Vec<u8>, code_offset: u32, level: usize, index: usize) -> Result<(), String> {
        let rings = self.range(level, index)?;
        header(wkb, code_offset + 3);
        count(wkb, rings.len())?;
        for ring in rings {
            self.positions(wkb, level + 1, ring)?;
        }
        Ok(())
    }

    fn lines(&self, wkb: &mut Vec<u8>, code: u32, level: usize, index: usize) -> Result<(), String> {
        header(wkb, code);
        self.positions(wkb, level, index)
    }

    fn positions(&self, wkb: &mut Vec<u8>, level: usize, index: usize) -> Result<(), String> {
        let range = self.range(level, index)?;
        count(wkb, range.len())?;
        range.into_iter().try_for_each(|position| self.position(wkb, position))
    }

    fn point(&self, wkb: &mut Vec<u8>, code_offset: u32, index: usize) -> Result<(), String> {
        header(wkb, code_offset + 1);
        self.position(wkb, index)
    }

    fn position(&self, wkb: &mut Vec<u8>, index: usize) -> Result<(), String> {
        let mut push = |values: &Float64Array, index: usize| {
            if index >= values.len() || values.is_null(index) {
                return Err("a coordinate is missing".to_string());
            }
            wkb.extend_from_slice(&values.value(index).to_le_bytes());
            Ok(())
        };
        match &self.coordinates {
            Coordinates::Separated(axes) => axes.iter().try_for_each(|axis| push(axis, index)),
            Coordinates::Interleaved { values, width } => {
                (index * width..(index + 1) * width).try_for_each(|index| push(values, index))
            }
        }
    }
}

fn header(wkb: &mut Vec<u8>, code: u32) {
    wkb.push(1);
    wkb.extend_from_slice(&code.to_le_bytes());
}

fn count(wkb: &mut Vec<u8>, count: usize) -> Result<(), String> {
    let count = u32::try_from(count).map_err(|_| "the geometry has too many parts".to_string())?;
    wkb.extend_from_slice(&count.to_le_bytes());
    Ok(())
}

fn coordinates_of(array: &ArrayRef) -> Result<Dimensions, String> {
    match array.data_type() {
        DataType::Struct(fields) => {
            let names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
            let (has_z, has_m) = axes_of(&names.join(""))?;
            let columns = array.as_struct().columns();
            let axes = columns
                .iter()
                .map(|column| column.as_primitive_opt::<Float64Type>().cloned())
                .collect::<Option<Vec<_>>>()
                .ok_or_else(|| "coordinates must be float64".to_string())?;
            Ok(Dimensions { coordinates: Coordinates::Separated(axes), has_z, has_m })
        }
        DataType::FixedSizeList(field, width) => {
            let width = usize::try_from(*width).unwrap_or(0);
            let names = match (field.name().as_str(), width) {
                (name @ ("xy" | "xyz" | "xym" | "xyzm"), _) if name.len() == width => name,
                (_, 2) => "xy",
                (_, 3) => "xyz",
                (_, 4) => "xyzm",
                _ => return Err(format!("a position of {width} numbers is not known")),
            };
            let (has_z, has_m) = axes_of(names)?;
            let list = array.as_fixed_size_list();
            let values = list
                .values()
                .as_primitive_opt::<Float64Type>()
                .ok_or_else(|| "coordinates must be float64".to_string())?;
            Ok(Dimensions { coordinates: Coordinates::Interleaved { values: values.clone(), width }, has_z, has_m })
        }
        other => Err(format!("coordinates were expected, found {other}")),
    }
}

/// Whether there are a Z and an M among the axes.
fn axes_of(names: &str) -> Result<(bool, bool), String> {
    match names {
        "xy" => Ok((false, false)),
        "xyz" => Ok((true, false)),
        "xym" => Ok((false, true)),
        "xyzm" => Ok((true, true)),
        other => Err(format!("coordinates named {other:?} are not known")),
    }
}
