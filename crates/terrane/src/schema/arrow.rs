//! Schemas as Arrow schemas and back.

use std::collections::HashMap;

use arrow_schema::{DataType, Field, Schema as ArrowSchema, TimeUnit};
use terrane_literal::{UUID_STORAGE, decimal, is_uuid, marked_uuid};
use terrane_space::CoordinateSystem;

use super::{Column, ColumnType, GeometryColumn, KeyColumn, KeyType, Schema, SchemaError};

/// Name of the key column of a dataset whose records the store numbers itself.
pub const GENERATED_KEY_COLUMN: &str = "key";

/// Name of the column of distances in the answer of a nearest-neighbour query.
pub const DISTANCE_COLUMN: &str = "distance";

const DISTANCE_COLUMN_IF_TAKEN: &str = "distance_m";
const EXTENSION_NAME: &str = "ARROW:extension:name";
const EXTENSION_METADATA: &str = "ARROW:extension:metadata";
const UTC: &str = "UTC";

/// Name of the distance column for this dataset: `distance`. If the dataset has such a column, it
/// is `distance_m`, or the first free one of `distance_m_2`, `distance_m_3`, ….
pub fn distance_column_name(schema: &Schema) -> String {
    free_distance_name(|name| schema.column_names().any(|taken| taken == name))
}

/// Like [`distance_column_name`], beside any columns.
pub(crate) fn free_distance_name(is_taken: impl Fn(&str) -> bool) -> String {
    if is_taken(DISTANCE_COLUMN) { free_name(DISTANCE_COLUMN_IF_TAKEN, is_taken) } else { DISTANCE_COLUMN.to_owned() }
}

/// `base`, or the first free one of `base_2`, `base_3`, ….
fn free_name(base: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let mut name = base.to_owned();
    let mut number = 2;
    while is_taken(&name) {
        name = format!("{base}_{number}");
        number += 1;
    }
    name
}

impl KeyType {
    /// The Arrow type of key columns.
    pub fn to_arrow(self) -> DataType {
        match self {
            Self::Int64 => DataType::Int64,
            Self::UInt64 => DataType::UInt64,
            Self::Utf8 => DataType::Utf8,
            Self::Binary => DataType::Binary,
            Self::Uuid => UUID_STORAGE,
        }
    }

    /// The key type for all values of a column, if there is one. A UUID column is recognised by its
    /// extension type.
    pub fn from_field(field: &Field) -> Option<Self> {
        if is_uuid(field) { Some(Self::Uuid) } else { Self::from_arrow(field.data_type()) }
    }

    /// The key type for all values of an Arrow type, if there is one.
    pub fn from_arrow(data_type: &DataType) -> Option<Self> {
        match data_type {
            DataType::UInt64 => Some(Self::UInt64),
            _ => match ColumnType::from_arrow(data_type)? {
                ColumnType::Int64 => Some(Self::Int64),
                ColumnType::Utf8 if *data_type != DataType::Null => Some(Self::Utf8),
                ColumnType::Binary => Some(Self::Binary),
                _ => None,
            },
        }
    }
}

impl ColumnType {
    /// The Arrow type of columns of this type.
    pub fn to_arrow(self) -> DataType {
        match self {
            Self::Bool => DataType::Boolean,
            Self::Int64 => DataType::Int64,
            Self::Float32 => DataType::Float32,
            Self::Float64 => DataType::Float64,
            Self::Utf8 => DataType::Utf8,
            Self::Binary => DataType::Binary,
            Self::Uuid => UUID_STORAGE,
            Self::Date => DataType::Date32,
            Self::Timestamp { utc } => DataType::Timestamp(TimeUnit::Microsecond, utc.then(|| UTC.into())),
        }
    }

    /// The attribute type for a column, if there is one: uuid for the extension type `arrow.uuid`,
    /// else by its type.
    pub fn from_field(field: &Field) -> Option<Self> {
        if is_uuid(field) { Some(Self::Uuid) } else { Self::from_arrow(field.data_type()) }
    }

    /// The attribute type for an Arrow type, if there is one.
    ///
    /// - Integers become int64. A uint64 beyond it is refused row by row.
    /// - Decimals without a fraction and with at most 18 digits become int64. Other decimals become
    ///   float64.
    /// - Floats of at most 32 bits become float32. Other floats become float64.
    /// - Timestamps become microseconds, in UTC if they have a zone.
    /// - Binary data of any length becomes binary; see [`ColumnType::from_field`] for UUIDs.
    /// - Dictionaries become their values. A column of nulls only becomes text.
    pub fn from_arrow(data_type: &DataType) -> Option<Self> {
        use DataType as D;
        match data_type {
            D::Boolean => Some(Self::Bool),
            D::Int8 | D::Int16 | D::Int32 | D::Int64 | D::UInt8 | D::UInt16 | D::UInt32 | D::UInt64 => {
                Some(Self::Int64)
            }
            D::Float16 | D::Float32 => Some(Self::Float32),
            D::Float64 => Some(Self::Float64),
            whole if decimal::is_int64(whole) => Some(Self::Int64),
            D::Decimal32(..) | D::Decimal64(..) | D::Decimal128(..) | D::Decimal256(..) => Some(Self::Float64),
            D::Utf8 | D::LargeUtf8 | D::Utf8View | D::Null => Some(Self::Utf8),
            D::Binary | D::LargeBinary | D::BinaryView | D::FixedSizeBinary(_) => Some(Self::Binary),
            D::Date32 | D::Date64 => Some(Self::Date),
            D::Timestamp(_, zone) => Some(Self::Timestamp { utc: zone.is_some() }),
            D::Dictionary(_, values) => Self::from_arrow(values),
            _ => None,
        }
    }
}

impl Schema {
    /// The Arrow schema of the dataset's rows: key, x and y or the geometry, attributes, or in the
    /// order of [`Schema::with_order`]. Only the key is not nullable. Geometry columns have the
    /// extension type `geoarrow.wkb`, UUID columns `arrow.uuid`.
    pub fn to_arrow(&self) -> ArrowSchema {
        ArrowSchema::new(self.column_names().filter_map(|name| self.arrow_field(name)).collect::<Vec<_>>())
    }

    /// The Arrow field of one column.
    pub(crate) fn arrow_field(&self, name: &str) -> Option<Field> {
        if name == self.key.name {
            let field = Field::new(name, self.key.key_type.to_arrow(), false);
            return Some(if self.key.key_type == KeyType::Uuid { marked_uuid(field) } else { field });
        }
        match &self.geometry {
            GeometryColumn::Point { x, y } if name == x || name == y => {
                return Some(Field::new(name, DataType::Float64, true));
            }
            GeometryColumn::Geometry { name: geometry } if name == geometry => {
                return Some(Field::new(name, DataType::Binary, true).with_metadata(self.geometry_metadata()));
            }
            _ => {}
        }
        self.column(name).map(|column| {
            match (column.column_type, Field::new(name, column.column_type.to_arrow(), true)) {
                (ColumnType::Uuid, field) => marked_uuid(field),
                (_, field) => field,
            }
        })
    }

    fn geometry_metadata(&self) -> HashMap<String, String> {
        let metadata = match self.system {
            CoordinateSystem::LonLat => r#"{"crs":"OGC:CRS84","crs_type":"authority_code"}"#.to_owned(),
            CoordinateSystem::Planar if self.srid() != 0 => {
                format!(r#"{{"crs":"EPSG:{}","crs_type":"authority_code"}}"#, self.srid())
            }
            CoordinateSystem::Planar => "{}".to_owned(),
        };
        HashMap::from([
            (EXTENSION_NAME.to_owned(), "geoarrow.wkb".to_owned()),
            (EXTENSION_METADATA.to_owned(), metadata),
        ])
    }

    /// The schema of a dataset created from rows with an Arrow schema.
    ///
    /// `key` names the key column; without one, the store numbers the records. The geometry columns
    /// must exist and have a suitable type: numbers for coordinates, binary for WKB. All other
    /// columns become attributes.
    pub fn from_arrow(
        arrow: &ArrowSchema,
        key: Option<&str>,
        geometry: GeometryColumn,
        system: CoordinateSystem,
    ) -> Result<Self, SchemaError> {
        let find = |name: &str| {
            arrow.fields().iter().find(|field| field.name() == name).ok_or_else(|| SchemaError::UnknownColumn {
                name: name.to_owned(),
                known: arrow.fields().iter().map(|field| field.name().clone()).collect(),
            })
        };
        for name in geometry.names() {
            check_geometry_type(find(name)?, &geometry)?;
        }
        let key = match key {
            Some(name) => {
                let field = find(name)?;
                let key_type = KeyType::from_field(field).ok_or_else(|| unsupported(field, "a key"))?;
                KeyColumn { name: name.to_owned(), key_type, generated: false }
            }
            None => KeyColumn {
                name: free_name(GENERATED_KEY_COLUMN, |name| arrow.fields().iter().any(|field| field.name() == name)),
                key_type: KeyType::Int64,
                generated: true,
            },
        };
        let columns = arrow
            .fields()
            .iter()
            .filter(|field| *field.name() != key.name && geometry.names().all(|name| name != field.name()))
            .map(|field| match ColumnType::from_field(field) {
                Some(column_type) => Ok(Column::new(field.name(), column_type)),
                None => Err(unsupported(field, "an attribute")),
            })
            .collect::<Result<_, _>>()?;
        Self::new(key, geometry, system, columns)
    }
}

fn check_geometry_type(field: &Field, geometry: &GeometryColumn) -> Result<(), SchemaError> {
    let found = ColumnType::from_field(field);
    let (fits, role) = match geometry {
        GeometryColumn::Point { .. } => {
            (matches!(found, Some(ColumnType::Int64 | ColumnType::Float32 | ColumnType::Float64)), "a coordinate")
        }
        GeometryColumn::Geometry { .. } => (found == Some(ColumnType::Binary), "a geometry (WKB)"),
        GeometryColumn::None => (false, "a geometry"),
    };
    if fits || *field.data_type() == DataType::Null { Ok(()) } else { Err(unsupported(field, role)) }
}

fn unsupported(field: &Field, role: &'static str) -> SchemaError {
    SchemaError::UnsupportedType { name: field.name().clone(), found: field.data_type().to_string(), role }
}
