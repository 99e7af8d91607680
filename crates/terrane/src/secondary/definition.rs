//! What the catalog says of an index.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::options::{IndexOptions, check_options};
use crate::name::check_name;
use crate::schema::{Column, ColumnType, GeometryColumn, Schema};
use crate::{Error, Result};

/// Number of the primary index in every dataset, and its place among the indexes.
pub(crate) const PRIMARY: u32 = 0;
/// Number of the spatial index that every dataset has, and its place.
pub(crate) const SPATIAL: u32 = 1;

/// Most columns of an index.
const COLUMNS_MAX: usize = 8;

/// A kind of index that can be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum IndexKind {
    /// The values of one or several attributes, in order.
    BTree,
    /// The words of a text (UAX 29, in lower case).
    Inverted,
    /// The boxes of the geometries, in an R-tree.
    RTree,
    /// Points in the order of a Hilbert curve.
    Dhb,
    /// Points with their values on a Hilbert curve.
    Dhvb,
    /// Geometries under the cells of a grid that their boxes meet.
    Shb,
    /// Points under the cells of a grid that hold them, one of every level.
    Sif,
}

impl IndexKind {
    const ALL: [Self; 7] = [Self::BTree, Self::Inverted, Self::RTree, Self::Dhb, Self::Dhvb, Self::Shb, Self::Sif];

    /// Its name on the command line and in the catalog.
    pub fn name(self) -> &'static str {
        match self {
            Self::BTree => "btree",
            Self::Inverted => "inverted",
            Self::RTree => "rtree",
            Self::Dhb => "dhb",
            Self::Dhvb => "dhvb",
            Self::Shb => "shb",
            Self::Sif => "sif",
        }
    }
}

impl fmt::Display for IndexKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for IndexKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|kind| kind.name()).collect();
            Error::usage(format!("{text:?} is no kind of index; there are {}", names.join(", ")))
        })
    }
}

/// An index of a dataset, as the catalog describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct IndexDefinition {
    /// Number within the dataset, which no other index gets, also when this one is gone.
    pub id: u32,
    /// Name.
    pub name: String,
    /// `btree`, `inverted`, `rtree`, …
    pub kind: String,
    /// What it indexes.
    pub columns: Vec<String>,
    /// The options of a curve-keyed kind, as [`terrane_lsm::curve::CurveOptions`] reads them, or
    /// the words that one of kind `inverted` leaves out. Kept as they are, so that what a newer
    /// version wrote of a kind of its own is not taken for damage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<serde_json::Value>,
}

impl IndexDefinition {
    /// Describes an index that is to be created.
    pub fn new(
        id: u32,
        name: &str,
        kind: IndexKind,
        columns: &[String],
        options: &IndexOptions,
        schema: &Schema,
    ) -> Result<Self> {
        check_name("an index", name)?;
        let columns = match kind {
            IndexKind::BTree => attributes(columns, schema, COLUMNS_MAX, kind)?,
            IndexKind::Inverted => texts(columns, schema)?,
            IndexKind::RTree | IndexKind::Dhb | IndexKind::Dhvb | IndexKind::Shb | IndexKind::Sif => {
                geometry(columns, schema)?
            }
        };
        let options = options.resolve(kind, schema)?;
        Ok(Self { id, name: name.to_owned(), kind: kind.name().to_owned(), columns, options })
    }

    /// Describes an index that every dataset has.
    pub fn of_every_dataset(id: u32, name: &str, kind: IndexKind, columns: Vec<String>) -> Self {
        Self { id, name: name.to_owned(), kind: kind.name().to_owned(), columns, options: None }
    }

    /// The same index on the columns of another schema.
    ///
    /// # Errors
    /// A column that the schema does not have, or has of a type that the kind does not take;
    /// options that do not fit the geometries.
    pub fn carried_to(&self, schema: &Schema) -> Result<Self> {
        let kind: IndexKind = self.kind.parse()?;
        let columns = match kind {
            IndexKind::BTree | IndexKind::Inverted => {
                if let Some(missing) = self.columns.iter().find(|name| schema.column_index(name).is_none()) {
                    return Err(Error::usage(format!(
                        "it is on column {missing:?}, which is no attribute of the new records"
                    )));
                }
                if kind == IndexKind::BTree { self.columns.clone() } else { texts(&self.columns, schema)? }
            }
            IndexKind::RTree | IndexKind::Dhb | IndexKind::Dhvb | IndexKind::Shb | IndexKind::Sif => {
                geometry(&[], schema)?
            }
        };
        check_options(kind, self.options.as_ref(), schema)?;
        Ok(Self { columns, ..self.clone() })
    }

    /// Whether an index that is to be created would be the same.
    pub fn is_like(&self, other: &Self) -> bool {
        (&self.kind, &self.columns, &self.options) == (&other.kind, &other.columns, &other.options)
    }
}

/// The attributes that an index is asked for.
fn attributes(columns: &[String], schema: &Schema, columns_max: usize, kind: IndexKind) -> Result<Vec<String>> {
    if columns.is_empty() || columns.len() > columns_max {
        let wanted = if columns_max == 1 { "1 attribute".to_owned() } else { format!("1 to {columns_max} attributes") };
        return Err(Error::usage(format!("an index of kind {kind} is on {wanted}, not on {}", columns.len())));
    }
    for (place, name) in columns.iter().enumerate() {
        if *name == schema.key.name {
            return Err(Error::usage(format!("{name:?} is the key, by which the primary index finds records already")));
        }
        if schema.geometry.names().any(|column| column == name) {
            return Err(Error::usage(format!(
                "{name:?} is the geometry; spatial kinds of index, such as rtree, hold it"
            )));
        }
        if schema.column_index(name).is_none() {
            return Err(schema.unknown_column(name).into());
        }
        if columns[..place].contains(name) {
            return Err(Error::usage(format!("the index is on {name:?} twice")));
        }
    }
    Ok(columns.to_vec())
}

/// The text that an index is asked for.
fn texts(columns: &[String], schema: &Schema) -> Result<Vec<String>> {
    let columns = attributes(columns, schema, 1, IndexKind::Inverted)?;
    match columns.iter().filter_map(|name| schema.column(name)).find(|column| column.column_type != ColumnType::Utf8) {
        Some(Column { name, column_type }) => Err(Error::usage(format!(
            "an index of kind inverted holds the words of a text, and {name:?} is {}; use btree",
            column_type.description()
        ))),
        None => Ok(columns),
    }
}

/// Names the geometry of every dataset, whatever columns it is in.
const GEOMETRY: &str = "geometry";

/// The geometry's columns, which need not be named.
fn geometry(columns: &[String], schema: &Schema) -> Result<Vec<String>> {
    if schema.geometry == GeometryColumn::None {
        return Err(Error::usage("a spatial index is on the geometry, and the dataset has none"));
    }
    let own: Vec<String> = schema.geometry.names().map(str::to_owned).collect();
    if columns.is_empty() || columns == own || columns == [GEOMETRY] {
        return Ok(own);
    }
    Err(Error::usage(format!(
        "a spatial index is on the geometry, which is {}; not on {}",
        own.join(", "),
        columns.join(", ")
    )))
}
