//! Reading the stored form, without copies and without trusting it.

use terrane_space::{CoordinateSystem, Point};

use super::{
    DamagedRecord, FORMAT, GEOMETRY_NONE, GEOMETRY_POINT, GEOMETRY_WKB, Geometry, GeometryRef, HEADER_BYTES,
    POINT_BYTES, RECORD_BYTES_MAX, Record, RowGeometry,
};
use crate::key::Key;
use crate::schema::{ColumnId, ColumnType, GeometryColumn, Layout, Schema, SchemaHistory};
use crate::value::ValueRef;

/// The geometry of a stored record. Needs no schema.
#[inline]
pub fn stored_geometry(bytes: &[u8]) -> Result<Option<GeometryRef<'_>>, DamagedRecord> {
    split(bytes).map(|(geometry, _)| geometry)
}

/// The geometry, and the offset of the bytes after it.
#[inline]
fn split(bytes: &[u8]) -> Result<(Option<GeometryRef<'_>>, usize), DamagedRecord> {
    let Some(([format, kind, _, _], rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Err(DamagedRecord::at(0, "the header is cut off"));
    };
    if *format != FORMAT {
        return Err(DamagedRecord::at(0, "its format is unknown"));
    }
    match *kind {
        GEOMETRY_NONE => Ok((None, HEADER_BYTES)),
        GEOMETRY_POINT => match rest.as_chunks::<8>().0 {
            [x, y, ..] => {
                let point = Point::new(f64::from_le_bytes(*x), f64::from_le_bytes(*y));
                Ok((Some(GeometryRef::Point(point)), HEADER_BYTES + POINT_BYTES))
            }
            _ => Err(DamagedRecord::at(HEADER_BYTES, "the point is cut off")),
        },
        GEOMETRY_WKB => {
            let Some((length, rest)) = rest.split_first_chunk::<4>() else {
                return Err(DamagedRecord::at(HEADER_BYTES, "the length of the geometry is cut off"));
            };
            let length = u32::from_le_bytes(*length) as usize;
            match rest.get(..length) {
                Some(wkb) => Ok((Some(GeometryRef::Wkb(wkb)), HEADER_BYTES + 4 + length)),
                None => Err(DamagedRecord::at(HEADER_BYTES, "the geometry is longer than the record")),
            }
        }
        _ => Err(DamagedRecord::at(1, "the kind of the geometry is unknown")),
    }
}

/// A stored record under the newest schema of its dataset. Attributes missing in its version are
/// null, dropped ones are hidden, and integers of widened columns are floats.
#[derive(Clone, Copy, Debug)]
pub struct RecordView<'a> {
    geometry: Option<GeometryRef<'a>>,
    /// Everything after the geometry.
    attributes: &'a [u8],
    attributes_offset: usize,
    stored: &'a Layout,
    newest: &'a Layout,
    schema: &'a Schema,
}

impl<'a> RecordView<'a> {
    /// Checks the header, the bounds of the geometry, and the size of a stored record. Attributes
    /// are checked when they are read.
    pub fn parse(bytes: &'a [u8], history: &'a SchemaHistory) -> Result<Self, DamagedRecord> {
        if bytes.len() > RECORD_BYTES_MAX {
            return Err(DamagedRecord::at(0, "it is larger than a record can be"));
        }
        let (geometry, attributes_offset) = split(bytes)?;
        // `split` has found the header complete.
        let version = u16::from_le_bytes([bytes[2], bytes[3]]);
        let Some(stored) = history.layout(u32::from(version)) else {
            return Err(DamagedRecord::at(2, "its schema version is unknown"));
        };
        let view = Self {
            geometry,
            attributes: &bytes[attributes_offset..],
            attributes_offset,
            stored,
            newest: history.newest_layout(),
            schema: history.newest(),
        };
        view.check_size()?;
        Ok(view)
    }

    fn check_size(&self) -> Result<(), DamagedRecord> {
        let Some(variable) = self.attributes.len().checked_sub(self.stored.bytes_offset()) else {
            return Err(self.damage(0, "the attributes are cut off"));
        };
        let expected = if self.stored.has_variables() { self.end(self.stored.bytes_offset() - 4)? } else { 0 };
        if variable == expected {
            Ok(())
        } else {
            Err(self.damage(self.stored.ends_offset(), "its size is not what its attributes say"))
        }
    }

    /// The geometry in stored form.
    #[inline]
    pub fn geometry(&self) -> Option<GeometryRef<'a>> {
        self.geometry
    }

    /// The parts of the record that spatial indexes hold.
    pub fn row_geometry(&self, system: CoordinateSystem) -> Result<RowGeometry, DamagedRecord> {
        RowGeometry::of(self.geometry, system).map_err(|_| DamagedRecord::at(HEADER_BYTES, "the geometry is not valid"))
    }

    /// Attribute `index` of the newest schema; null if the record has none.
    pub fn value(&self, index: usize) -> Result<ValueRef<'a>, DamagedRecord> {
        let Some(newest) = self.newest.column(index) else {
            return Ok(ValueRef::Null);
        };
        let value = match self.stored.position(newest.id, index) {
            Some(position) => self.stored_value(position)?,
            None => return Ok(ValueRef::Null),
        };
        match (value, newest.column_type) {
            (ValueRef::Int(value), ColumnType::Float64) => Ok(ValueRef::Float64(value as f64)),
            _ => Ok(value),
        }
    }

    /// The attribute with a number, in the type that it had when the record was written; null if
    /// the record has none. It may be missing from the newest schema, because an index may be older
    /// or newer.
    pub(crate) fn value_of(&self, id: ColumnId) -> Result<ValueRef<'a>, DamagedRecord> {
        match self.stored.position(id, id.likely_position()) {
            Some(position) => self.stored_value(position),
            None => Ok(ValueRef::Null),
        }
    }

    /// Attribute `index` of the record's own schema version.
    fn stored_value(&self, index: usize) -> Result<ValueRef<'a>, DamagedRecord> {
        let Some(column) = self.stored.column(index) else {
            return Ok(ValueRef::Null);
        };
        if self.attributes.get(index / 8).is_some_and(|byte| byte >> (index % 8) & 1 == 1) {
            return Ok(ValueRef::Null);
        }
        let place = column.place as usize;
        let value = match column.column_type {
            ColumnType::Bool => match self.slot::<1>(place)? {
                [0] => ValueRef::Bool(false),
                [1] => ValueRef::Bool(true),
                _ => {
                    return Err(self.damage(self.stored.slots_offset() + place, "a bool is neither 0 nor 1"));
                }
            },
            ColumnType::Int64 => ValueRef::Int(i64::from_le_bytes(self.slot(place)?)),
            ColumnType::Float32 => ValueRef::Float32(f32::from_le_bytes(self.slot(place)?)),
            ColumnType::Float64 => ValueRef::Float64(f64::from_le_bytes(self.slot(place)?)),
            ColumnType::Date => ValueRef::Date(i32::from_le_bytes(self.slot(place)?)),
            ColumnType::Timestamp { .. } => ValueRef::Timestamp(i64::from_le_bytes(self.slot(place)?)),
            ColumnType::Binary => ValueRef::Binary(self.variable(place)?),
            ColumnType::Uuid => ValueRef::Uuid(self.slot(place)?),
            ColumnType::Utf8 => match std::str::from_utf8(self.variable(place)?) {
                Ok(text) => ValueRef::Utf8(text),
                Err(_) => {
                    return Err(self.damage(self.stored.ends_offset() + 4 * place, "a text is not UTF-8"));
                }
            },
        };
        Ok(value)
    }

    /// Copies the record. The geometry is in the dataset's form.
    pub fn to_record(&self, key: Key) -> Result<Record, DamagedRecord> {
        let values = (0..self.newest.columns())
            .map(|index| self.value(index).map(ValueRef::to_owned))
            .collect::<Result<_, _>>()?;
        let geometry = match (&self.schema.geometry, self.geometry) {
            (_, None) => None,
            (GeometryColumn::Point { .. }, Some(GeometryRef::Point(point))) => Some(Geometry::Point(point)),
            (_, Some(geometry)) => Some(Geometry::Wkb(geometry.to_wkb())),
        };
        Ok(Record { key, geometry, values })
    }

    fn slot<const N: usize>(&self, place: usize) -> Result<[u8; N], DamagedRecord> {
        let at = self.stored.slots_offset() + place;
        match self.attributes.get(at..).and_then(<[u8]>::first_chunk::<N>) {
            Some(bytes) => Ok(*bytes),
            None => Err(self.damage(at, "a value is cut off")),
        }
    }

    fn variable(&self, place: usize) -> Result<&'a [u8], DamagedRecord> {
        let at = self.stored.ends_offset() + 4 * place;
        let end = self.end(at)?;
        let start = if place == 0 { 0 } else { self.end(at - 4)? };
        match self.attributes.get(self.stored.bytes_offset()..).and_then(|bytes| bytes.get(start..end)) {
            Some(bytes) => Ok(bytes),
            None => Err(self.damage(at, "a value ends outside of the record")),
        }
    }

    fn end(&self, at: usize) -> Result<usize, DamagedRecord> {
        match self.attributes.get(at..).and_then(<[u8]>::first_chunk::<4>) {
            Some(bytes) => Ok(u32::from_le_bytes(*bytes) as usize),
            None => Err(self.damage(at, "an end offset is cut off")),
        }
    }

    #[cold]
    fn damage(&self, offset: usize, reason: &'static str) -> DamagedRecord {
        DamagedRecord::at(self.attributes_offset + offset, reason)
    }
}
