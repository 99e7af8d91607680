//! Writing the stored form.

use terrane_space::Point;

use super::geometry::compact;
use super::{
    FORMAT, GEOMETRY_NONE, GEOMETRY_POINT, GEOMETRY_WKB, Geometry, GeometryRef, HEADER_BYTES, RECORD_BYTES_MAX, Record,
    RowError, RowGeometry, check_point, check_wkb,
};
use crate::schema::{ColumnType, GeometryColumn, Layout, Schema, SchemaHistory};
use crate::value::{INEXACT, ValueRef, exact_float};

impl Record {
    /// Appends the record's stored form under the newest schema to `out`. Returns the parts that
    /// spatial indexes hold.
    ///
    /// Everything is checked: the key's type and length, the number and types of the values, the
    /// geometry and its coordinates. Integers are accepted as floats. After an error `out` is
    /// unchanged.
    pub fn encode(&self, history: &SchemaHistory, out: &mut Vec<u8>) -> Result<RowGeometry, RowError> {
        let schema = history.newest();
        self.check_shape(schema)?;
        check_geometry_kind(schema, self.geometry.as_ref())?;
        let (mut normal, column) = (Vec::new(), geometry_column(schema));
        let (row, geometry) = match &self.geometry {
            None => (RowGeometry::None, None),
            Some(Geometry::Point(point)) => (check_point(*point, schema)?, Some(GeometryRef::Point(*point))),
            Some(Geometry::Wkb(wkb)) => {
                let row = check_wkb(wkb, schema.system, &mut normal).map_err(|reason| RowError::new(column, reason))?;
                let geometry = compact(&normal, row);
                require_point(schema, geometry, column)?;
                (row, Some(geometry))
            }
        };
        let mut encoder = Encoder::begin(out, schema, history.newest_layout(), geometry)?;
        for value in &self.values {
            encoder.push(value.as_ref())?;
        }
        encoder.finish()?;
        Ok(row)
    }

    fn check_shape(&self, schema: &Schema) -> Result<(), RowError> {
        let key_column = &schema.key;
        if self.key.key_type() != key_column.key_type {
            let (wanted, found) = (key_column.key_type, self.key.key_type());
            return Err(RowError::new(&key_column.name, format_args!("the keys are {wanted}, this one is {found}")));
        }
        self.key.check_length().map_err(|error| RowError::key(&key_column.name, &error))?;
        if self.values.len() != schema.columns.len() {
            let (found, wanted) = (self.values.len(), schema.columns.len());
            return Err(RowError {
                column: None,
                reason: format!("the record has {found} attributes, the dataset has {wanted}"),
            });
        }
        Ok(())
    }
}

/// The column that messages about the geometry name.
pub(crate) fn geometry_column(schema: &Schema) -> &str {
    match &schema.geometry {
        GeometryColumn::Point { x, .. } => x,
        GeometryColumn::Geometry { name } => name,
        GeometryColumn::None => "geometry",
    }
}

/// Refuses a geometry where the dataset has none.
fn check_geometry_kind(schema: &Schema, geometry: Option<&Geometry>) -> Result<(), RowError> {
    match (&schema.geometry, geometry) {
        (GeometryColumn::None, Some(_)) => {
            Err(RowError { column: None, reason: "the dataset has no geometry, and the record has one".to_owned() })
        }
        _ => Ok(()),
    }
}

/// Refuses everything except two-dimensional points for a point dataset.
fn require_point(schema: &Schema, geometry: GeometryRef<'_>, column: &str) -> Result<(), RowError> {
    match (&schema.geometry, geometry) {
        (GeometryColumn::Point { .. }, GeometryRef::Wkb(_)) => Err(RowError::new(
            column,
            "the dataset holds two-dimensional points; other geometries need a dataset with a geometry column",
        )),
        _ => Ok(()),
    }
}

/// Writes one stored record: begin with the geometry, push every attribute in order, finish. If it
/// is dropped or fails earlier, the buffer is unchanged.
///
/// Geometries are assumed valid; [`Record::encode`] checks them.
pub struct Encoder<'a> {
    out: &'a mut Vec<u8>,
    schema: &'a Schema,
    layout: &'a Layout,
    /// Offset of the record in `out`.
    start: usize,
    /// Offset of the null bitmap in `out`.
    attributes: usize,
    /// Number of attributes pushed.
    pushed: usize,
    finished: bool,
}

impl<'a> Encoder<'a> {
    /// Appends header and geometry, and reserves space for all values of fixed size. `layout` must
    /// be that of the schema's columns.
    pub fn begin(
        out: &'a mut Vec<u8>,
        schema: &'a Schema,
        layout: &'a Layout,
        geometry: Option<GeometryRef<'_>>,
    ) -> Result<Self, RowError> {
        let Ok(version) = u16::try_from(schema.version) else {
            return Err(RowError { column: None, reason: format!("schema version {} is too high", schema.version) });
        };
        let geometry_bytes = match geometry {
            Some(GeometryRef::Wkb(wkb)) => wkb.len(),
            _ => 0,
        };
        if geometry_bytes > RECORD_BYTES_MAX {
            return Err(RowError::too_large(geometry_bytes));
        }
        let start = out.len();
        let [version_low, version_high] = version.to_le_bytes();
        match geometry {
            None => out.extend_from_slice(&[FORMAT, GEOMETRY_NONE, version_low, version_high]),
            Some(GeometryRef::Point(Point { x, y })) => {
                out.extend_from_slice(&[FORMAT, GEOMETRY_POINT, version_low, version_high]);
                out.extend_from_slice(&x.to_le_bytes());
                out.extend_from_slice(&y.to_le_bytes());
            }
            Some(GeometryRef::Wkb(wkb)) => {
                out.extend_from_slice(&[FORMAT, GEOMETRY_WKB, version_low, version_high]);
                out.extend_from_slice(&(wkb.len() as u32).to_le_bytes());
                out.extend_from_slice(wkb);
            }
        }
        debug_assert!(out.len() >= start + HEADER_BYTES);
        let attributes = out.len();
        out.resize(attributes + layout.bytes_offset(), 0);
        Ok(Self { out, schema, layout, start, attributes, pushed: 0, finished: false })
    }

    /// Writes the next attribute.
    #[inline]
    pub fn push(&mut self, value: ValueRef<'_>) -> Result<(), RowError> {
        let index = self.pushed;
        let Some(column) = self.layout.column(index) else {
            return Err(RowError { column: None, reason: "the record has more attributes than its dataset".into() });
        };
        self.pushed += 1;
        let place = column.place as usize;
        match (column.column_type, value) {
            (column_type, ValueRef::Null) => {
                self.out[self.attributes + index / 8] |= 1 << (index % 8);
                if matches!(column_type, ColumnType::Utf8 | ColumnType::Binary) {
                    self.put_end(place);
                }
            }
            (ColumnType::Bool, ValueRef::Bool(value)) => self.put(place, [u8::from(value)]),
            (ColumnType::Int64, ValueRef::Int(value)) => self.put(place, value.to_le_bytes()),
            (ColumnType::Float32, ValueRef::Float32(value)) => self.put(place, value.to_le_bytes()),
            (ColumnType::Float64, ValueRef::Float64(value)) => self.put(place, value.to_le_bytes()),
            (ColumnType::Float64, ValueRef::Int(value)) => match exact_float(value) {
                Some(float) => self.put(place, float.to_le_bytes()),
                None => return Err(self.inexact(index, value)),
            },
            (ColumnType::Date, ValueRef::Date(value)) => self.put(place, value.to_le_bytes()),
            (ColumnType::Timestamp { .. }, ValueRef::Timestamp(value)) => self.put(place, value.to_le_bytes()),
            (ColumnType::Utf8, ValueRef::Utf8(value)) => self.put_bytes(place, value.as_bytes())?,
            (ColumnType::Binary, ValueRef::Binary(value)) => self.put_bytes(place, value)?,
            (ColumnType::Uuid, ValueRef::Uuid(value)) => self.put(place, value),
            (wanted, found) => return Err(self.mismatch(index, wanted, found)),
        }
        Ok(())
    }

    /// Ends the record; refuses one that is too large or lacks attributes.
    pub fn finish(mut self) -> Result<(), RowError> {
        if self.pushed != self.layout.columns() {
            let (found, wanted) = (self.pushed, self.layout.columns());
            let reason = format!("the record has {found} attributes, the dataset has {wanted}");
            return Err(RowError { column: None, reason });
        }
        let bytes = self.out.len() - self.start;
        if bytes > RECORD_BYTES_MAX {
            return Err(RowError::too_large(bytes));
        }
        self.finished = true;
        Ok(())
    }

    #[inline]
    fn put<const N: usize>(&mut self, place: usize, bytes: [u8; N]) {
        let at = self.attributes + self.layout.slots_offset() + place;
        self.out[at..at + N].copy_from_slice(&bytes);
    }

    #[inline]
    fn put_bytes(&mut self, place: usize, bytes: &[u8]) -> Result<(), RowError> {
        let total = self.out.len() - self.start + bytes.len();
        if total > RECORD_BYTES_MAX {
            return Err(RowError::too_large(total));
        }
        self.out.extend_from_slice(bytes);
        self.put_end(place);
        Ok(())
    }

    #[inline]
    fn put_end(&mut self, place: usize) {
        let end = self.out.len() - self.attributes - self.layout.bytes_offset();
        let at = self.attributes + self.layout.ends_offset() + 4 * place;
        self.out[at..at + 4].copy_from_slice(&(end as u32).to_le_bytes());
    }

    #[cold]
    fn inexact(&self, index: usize, value: i64) -> RowError {
        let column = self.schema.columns.get(index).map(|column| column.name.clone());
        RowError { column, reason: format!("{value}: {INEXACT}") }
    }

    #[cold]
    fn mismatch(&self, index: usize, wanted: ColumnType, found: ValueRef<'_>) -> RowError {
        let column = self.schema.columns.get(index).map(|column| column.name.clone());
        RowError { column, reason: format!("the column is {wanted}, the value is {}", found.kind()) }
    }
}

impl Drop for Encoder<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.out.truncate(self.start);
        }
    }
}
