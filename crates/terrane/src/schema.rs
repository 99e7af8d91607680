//! Schemas of datasets: the key, the geometry, the attributes and their versions.
//!
//! S1  The names of key, geometry and attribute columns are distinct and not empty.
//! S2  A later version appends attributes, widens int64 to float64, renames columns or drops
//!     attributes. An attribute has the same number in all versions that have it, and no other
//!     attribute of the dataset gets it. In each version the numbers ascend.
//! S3  Versions are numbered from 1 without gaps. A stored record names its version.
//!
//! Attributes may be null, keys may not. A null geometry is stored and not indexed.

mod arrow;
mod history;
#[cfg(test)]
mod order_tests;

use std::collections::HashSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use terrane_space::CoordinateSystem;

pub use crate::key::KeyType;
pub(crate) use arrow::free_distance_name;
pub use arrow::{DISTANCE_COLUMN, GENERATED_KEY_COLUMN, distance_column_name};
pub(crate) use history::ColumnId;
pub use history::{CHANGES_MAX, Layout, SchemaHistory};

/// Number of the first version of a schema.
pub const FIRST_VERSION: u32 = 1;

/// Maximal number of attributes of a dataset.
pub const COLUMNS_MAX: usize = 2048;

/// Maximal length of a column's name in bytes.
pub const COLUMN_NAME_BYTES_MAX: usize = 255;

/// Type of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ColumnType {
    /// True or false.
    Bool,
    /// Signed 64-bit integers.
    Int64,
    /// 32-bit floats. Numbers are rounded to the nearest.
    Float32,
    /// 64-bit floats.
    Float64,
    /// Text.
    Utf8,
    /// Bytes.
    Binary,
    /// UUIDs, ordered by their bytes.
    Uuid,
    /// Days since 1970-01-01.
    Date,
    /// Microseconds since 1970-01-01T00:00:00.
    Timestamp {
        /// Whether values are instants in UTC. Otherwise they are local times without a zone.
        utc: bool,
    },
}

impl ColumnType {
    /// The type with its article, for messages.
    pub fn description(self) -> &'static str {
        match self {
            Self::Bool => "a bool",
            Self::Int64 => "an int64",
            Self::Float32 => "a float32",
            Self::Float64 => "a float64",
            Self::Utf8 => "a text",
            Self::Binary => "binary data",
            Self::Uuid => "a uuid",
            Self::Date => "a date",
            Self::Timestamp { .. } => "a timestamp",
        }
    }
}

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bool => "bool",
            Self::Int64 => "int64",
            Self::Float32 => "float32",
            Self::Float64 => "float64",
            Self::Utf8 => "utf8",
            Self::Binary => "binary",
            Self::Uuid => "uuid",
            Self::Date => "date",
            Self::Timestamp { utc: false } => "timestamp",
            Self::Timestamp { utc: true } => "timestamp (UTC)",
        })
    }
}

/// An attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub column_type: ColumnType,
}

impl Column {
    /// An attribute of this name and type.
    pub fn new(name: impl Into<String>, column_type: ColumnType) -> Self {
        Self { name: name.into(), column_type }
    }
}

/// The primary key column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyColumn {
    /// Its name.
    pub name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub key_type: KeyType,
    /// Whether the store numbers records without a key itself.
    pub generated: bool,
}

/// SRID of WGS 84 longitude and latitude.
pub(crate) const SRID_WGS84: u32 = 4326;

/// The column or columns that hold the geometry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GeometryColumn {
    /// Points, as two columns of coordinates.
    Point {
        /// Name of the column of longitudes, or of x.
        x: String,
        /// Name of the column of latitudes, or of y.
        y: String,
    },
    /// Any geometry, as one column of WKB.
    Geometry {
        /// Name of the column.
        name: String,
    },
    /// No geometry: records have a key and attributes.
    None,
}

impl GeometryColumn {
    /// The names of the columns.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let names = match self {
            Self::Point { x, y } => [Some(x), Some(y)],
            Self::Geometry { name } => [Some(name), None],
            Self::None => [None, None],
        };
        names.into_iter().flatten().map(String::as_str)
    }
}

/// One version of a dataset's schema. [`Schema::new`] and reading from JSON uphold S1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "UncheckedSchema")]
pub struct Schema {
    /// The primary key.
    pub key: KeyColumn,
    /// The geometry column or columns.
    pub geometry: GeometryColumn,
    /// The coordinate system.
    #[serde(serialize_with = "serialize_system")]
    pub system: CoordinateSystem,
    /// The attributes.
    pub columns: Vec<Column>,
    /// The version's number.
    pub version: u32,
    /// The names of all columns in the order in which they are shown. If it is empty, that is key,
    /// geometry, attributes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    order: Vec<String>,
    /// The number of the reference system of a plane; 0 if it is unknown.
    #[serde(skip_serializing_if = "is_unknown")]
    srid: u32,
}

fn is_unknown(srid: &u32) -> bool {
    *srid == 0
}

/// Why a schema or a change of it is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// A name is used twice.
    #[error("there are two columns named {0:?}; give one another name")]
    DuplicateName(String),
    /// A name is empty.
    #[error("the name of column {position} is empty; use at least one character")]
    EmptyName {
        /// Position among key, geometry and attributes, from 1.
        position: usize,
    },
    /// A name is too long.
    #[error("the column name {start:?}… has {bytes} bytes; at most {COLUMN_NAME_BYTES_MAX} are possible")]
    LongName {
        /// Its first characters.
        start: String,
        /// Its length.
        bytes: usize,
    },
    /// There are too many attributes.
    #[error("{columns} attributes are too many; at most {COLUMNS_MAX} are possible")]
    TooManyColumns {
        /// Their number.
        columns: usize,
    },
    /// A column does not exist.
    #[error("there is no column {name:?}; the columns are {}", known.join(", "))]
    UnknownColumn {
        /// The requested name.
        name: String,
        /// The existing names.
        known: Vec<String>,
    },
    /// A type cannot be changed in place.
    #[error("column {name:?} is {column_type}; only int64 can be widened, to float64")]
    CannotWiden {
        /// The column.
        name: String,
        /// Its type.
        column_type: ColumnType,
    },
    /// A new column name is taken.
    #[error("there is a column {0:?} already; choose another name")]
    TakenName(String),
    /// A column is not an attribute.
    #[error("column {name:?} is {role}, and cannot be dropped; only attributes can")]
    CannotDrop {
        /// The column.
        name: String,
        /// Its role.
        role: &'static str,
    },
    /// The schema was changed too often.
    #[error(
        "the columns were changed {CHANGES_MAX} times, and no more changes are possible; export the records and import them again"
    )]
    TooManyChanges,
    /// An Arrow type has no equivalent attribute type.
    #[error("column {name:?} has the type {found}, which {role} cannot have; cast it or leave it out")]
    UnsupportedType {
        /// The column.
        name: String,
        /// The Arrow type.
        found: String,
        /// The column's role.
        role: &'static str,
    },
    /// A stored schema is invalid.
    #[error("the stored schema is not consistent: {0}")]
    Inconsistent(String),
}

impl Schema {
    /// Whether the dataset has points only.
    pub fn holds_points(&self) -> bool {
        matches!(self.geometry, GeometryColumn::Point { .. })
    }

    /// The first version of a schema.
    pub fn new(
        key: KeyColumn,
        geometry: GeometryColumn,
        system: CoordinateSystem,
        columns: Vec<Column>,
    ) -> Result<Self, SchemaError> {
        let schema = Self { key, geometry, system, columns, version: FIRST_VERSION, order: Vec::new(), srid: 0 };
        schema.validate()?;
        Ok(schema)
    }

    /// The number of the geometries' reference system (EPSG): 4326 for longitude and latitude, and
    /// 0 for a plane without one.
    pub fn srid(&self) -> u32 {
        match self.system {
            CoordinateSystem::LonLat => SRID_WGS84,
            CoordinateSystem::Planar => self.srid,
        }
    }

    /// The schema with a number that says what a plane is. Coordinates are not converted, and
    /// longitudes and latitudes keep theirs.
    #[must_use]
    pub fn with_srid(self, srid: u32) -> Self {
        Self { srid: if self.system == CoordinateSystem::Planar { srid } else { 0 }, ..self }
    }

    /// The schema with its columns shown in another order. Names that are left out come first, and
    /// others have no effect.
    #[must_use]
    pub fn with_order(mut self, names: &[String]) -> Self {
        let all: Vec<String> = self.column_names().map(str::to_owned).collect();
        let (named, others): (Vec<String>, _) = all.into_iter().partition(|name| names.contains(name));
        self.order = others;
        self.order.extend(names.iter().filter(|name| named.contains(name)).cloned());
        self
    }

    /// The first version of a schema with this key and geometry alone.
    #[must_use]
    pub fn without_attributes(&self) -> Self {
        let (key, geometry) = (self.key.clone(), self.geometry.clone());
        Self {
            key,
            geometry,
            system: self.system,
            columns: Vec::new(),
            version: FIRST_VERSION,
            order: Vec::new(),
            srid: self.srid,
        }
    }

    /// The same columns as the first version of another dataset's schema.
    #[must_use]
    pub fn as_first(&self) -> Self {
        Self { version: FIRST_VERSION, ..self.clone() }
    }

    /// Refuses a schema that breaks S1 or a limit.
    pub fn validate(&self) -> Result<(), SchemaError> {
        if self.columns.len() > COLUMNS_MAX {
            return Err(SchemaError::TooManyColumns { columns: self.columns.len() });
        }
        let mut seen = HashSet::new();
        for (index, name) in self.by_role().enumerate() {
            if name.is_empty() {
                return Err(SchemaError::EmptyName { position: index + 1 });
            }
            if name.len() > COLUMN_NAME_BYTES_MAX {
                return Err(SchemaError::LongName { start: name.chars().take(40).collect(), bytes: name.len() });
            }
            if !seen.insert(name) {
                return Err(SchemaError::DuplicateName(name.to_owned()));
            }
        }
        let ordered: HashSet<&str> = self.order.iter().map(String::as_str).collect();
        if !self.order.is_empty() && (ordered != seen || ordered.len() != self.order.len()) {
            return Err(SchemaError::Inconsistent("the order of the columns is not one of all columns".to_owned()));
        }
        Ok(())
    }

    /// The names of all columns: key, geometry, attributes, or in the order of
    /// [`Schema::with_order`].
    pub fn column_names(&self) -> impl Iterator<Item = &str> {
        let has_order = !self.order.is_empty();
        let ordered = self.order.iter().map(String::as_str);
        ordered.chain(self.by_role().filter(move |_| !has_order))
    }

    fn by_role(&self) -> impl Iterator<Item = &str> {
        let attributes = self.columns.iter().map(|column| column.name.as_str());
        std::iter::once(self.key.name.as_str()).chain(self.geometry.names()).chain(attributes)
    }

    /// Position of an attribute among [`Schema::columns`].
    pub fn column_index(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// An attribute by its name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// The error for an unknown column. It names the existing columns.
    pub fn unknown_column(&self, name: &str) -> SchemaError {
        SchemaError::UnknownColumn { name: name.to_owned(), known: self.column_names().map(str::to_owned).collect() }
    }
}

/// A stored schema before its names are checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UncheckedSchema {
    key: KeyColumn,
    geometry: GeometryColumn,
    system: SystemName,
    columns: Vec<Column>,
    version: u32,
    #[serde(default)]
    order: Vec<String>,
    #[serde(default)]
    srid: u32,
}

impl TryFrom<UncheckedSchema> for Schema {
    type Error = SchemaError;

    fn try_from(stored: UncheckedSchema) -> Result<Self, SchemaError> {
        let UncheckedSchema { key, geometry, system, columns, version, order, srid } = stored;
        let system = match system {
            SystemName::LonLat => CoordinateSystem::LonLat,
            SystemName::Planar => CoordinateSystem::Planar,
        };
        let schema = Self { key, geometry, system, columns, version, order, srid };
        schema.validate()?;
        Ok(schema)
    }
}

/// Stored names of the coordinate systems.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SystemName {
    LonLat,
    Planar,
}

fn serialize_system<S: serde::Serializer>(system: &CoordinateSystem, serializer: S) -> Result<S::Ok, S::Error> {
    match system {
        CoordinateSystem::LonLat => SystemName::LonLat,
        CoordinateSystem::Planar => SystemName::Planar,
    }
    .serialize(serializer)
}
