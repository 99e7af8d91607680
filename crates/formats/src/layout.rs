//! Plans the columns of a text file after all of its values have been seen: the role and type of
//! each, and the location of the geometry.

use std::path::Path;

use crate::demand::DemandedType;
use crate::error::{FormatError, Location};
use crate::guess::GeometryColumns;
use crate::guess::{detect_coordinates_by_name, detect_key};
use crate::rows::{ColumnPlan, Role, schema_of};
use crate::source::ReadOptions;
use crate::types::{ColumnType, Observed};

/// A column of the file and its values.
pub(crate) struct ColumnSeen<'a> {
    pub name: &'a str,
    pub observed: &'a Observed,
}

/// Names of the columns without a value.
pub(crate) fn empty_columns(seen: &[ColumnSeen<'_>]) -> Vec<String> {
    seen.iter().filter(|column| !column.observed.has_values()).map(|column| column.name.to_string()).collect()
}

/// The columns of the result.
#[derive(Debug)]
pub(crate) struct Layout {
    pub columns: Vec<ColumnPlan>,
    pub geometry: GeometryColumns,
    pub warnings: Vec<String>,
}

impl Layout {
    /// Plans the columns. `has_own_geometry` is for files whose records have a geometry beside
    /// their columns.
    ///
    /// # Errors
    /// When the options name columns that are not there.
    pub(crate) fn new(
        path: &Path,
        seen: &[ColumnSeen<'_>],
        options: &ReadOptions,
        has_own_geometry: bool,
    ) -> Result<Layout, FormatError> {
        let mut geometry = find_geometry(path, seen, options, has_own_geometry)?;
        let mut warnings = Vec::new();
        if geometry == GeometryColumns::None && !has_own_geometry && !options.no_geometry {
            geometry = coordinates_with_bad_values(seen);
        }
        if geometry == GeometryColumns::None && !has_own_geometry && !options.no_geometry {
            warnings.extend(seen.iter().filter_map(|column| column.observed.geometry_warning(column.name)));
        }
        let columns = seen
            .iter()
            .map(|column| {
                let role = match &geometry {
                    GeometryColumns::Column { name } if name == column.name => Role::Geometry,
                    GeometryColumns::Coordinates { x, y } if x == column.name || y == column.name => Role::Coordinate,
                    _ => match options.column_type_for(column.name, column.observed) {
                        Some(column_type) => {
                            warnings.extend(column.observed.timestamp_warnings(column.name, column_type));
                            Role::Value(column_type)
                        }
                        // A key is never a time, and as text it loses nothing.
                        None if options.key.as_deref() == Some(column.name) && column.observed.are_times() => {
                            Role::Value(ColumnType::Utf8)
                        }
                        None => {
                            let column_type = column.observed.column_type();
                            warnings.extend(column.observed.warnings(column.name, column_type));
                            Role::found(column_type)
                        }
                    },
                };
                let pattern = match role {
                    Role::Value(_) => options.demanded_type(column.name).and_then(DemandedType::pattern).cloned(),
                    _ => None,
                };
                ColumnPlan { name: column.name.to_string(), role, pattern }
            })
            .collect();
        Ok(Layout { columns, geometry, warnings })
    }

    /// Turns columns of integers that only uint64 holds into text, which loses nothing: attributes
    /// have no such type. The columns are complete by now.
    pub(crate) fn settle_integers(&mut self, options: &ReadOptions) {
        let key = options.key.clone().or_else(|| detect_key(&schema_of(&self.columns)));
        for ColumnPlan { name, role, .. } in &mut self.columns {
            let is_found = *role == Role::Value(ColumnType::UInt64) && options.column_type(name).is_none();
            if is_found && key.as_ref() != Some(name) {
                *role = Role::Text;
                self.warnings.push(format!(
                    "column {name:?} is text because it has integers beyond int64; only a key column holds those as \
                     numbers"
                ));
            }
        }
    }
}

/// The order of preference: the geometry that the options name, then one that the records carry,
/// then a column of WKT or WKB, then a pair of coordinates.
pub(crate) fn find_geometry(
    path: &Path,
    seen: &[ColumnSeen<'_>],
    options: &ReadOptions,
    has_own_geometry: bool,
) -> Result<GeometryColumns, FormatError> {
    let names: Vec<&str> = seen.iter().map(|column| column.name).collect();
    if let Some(named) = named_geometry(path, &names, options, has_own_geometry)? {
        return Ok(named);
    }
    if has_own_geometry || options.no_geometry {
        return Ok(GeometryColumns::None);
    }
    if let Some(column) = seen.iter().find(|column| column.observed.looks_like_geometry()) {
        return Ok(GeometryColumns::Column { name: column.name.to_string() });
    }
    let candidates: Vec<&str> =
        seen.iter().filter(|column| column.observed.looks_like_coordinate()).map(|column| column.name).collect();
    Ok(match detect_coordinates_by_name(&candidates) {
        Some((x, y)) => GeometryColumns::Coordinates { x: x.to_string(), y: y.to_string() },
        None => GeometryColumns::None,
    })
}

/// Columns named like coordinates, if there is no other geometry. Values in them that are no
/// numbers are refused.
fn coordinates_with_bad_values(seen: &[ColumnSeen<'_>]) -> GeometryColumns {
    let with_values = seen.iter().filter(|column| column.observed.has_values());
    let names: Vec<&str> = with_values.map(|column| column.name).collect();
    match detect_coordinates_by_name(&names) {
        Some((x, y)) => GeometryColumns::Coordinates { x: x.to_string(), y: y.to_string() },
        None => GeometryColumns::None,
    }
}

/// The geometry that the options name, checked against the column names.
pub(crate) fn named_geometry(
    path: &Path,
    names: &[&str],
    options: &ReadOptions,
    has_own_geometry: bool,
) -> Result<Option<GeometryColumns>, FormatError> {
    let check = |name: &String| {
        if names.contains(&name.as_str()) {
            return Ok(name.clone());
        }
        const NAMES_SHOWN_MAX: usize = 40;
        let shown: Vec<&str> = names.iter().take(NAMES_SHOWN_MAX).copied().collect();
        let shown = shown.join(", ");
        Err(match options.of_dataset {
            true => FormatError::refused(
                path,
                Location::File,
                format!("there is no column {name:?}, in which the dataset has its geometry; the columns are {shown}"),
                "give the file a column of that name",
            ),
            false => FormatError::usage(path, format!("there is no column {name:?}; the columns are {shown}")),
        })
    };
    if let Some(pair) = &options.pair {
        return Ok(Some(pair.geometry()));
    }
    match (&options.geometry, &options.x, &options.y) {
        (Some(name), None, None) => {
            let is_own_name = options.own_geometry_name.as_ref() == Some(name) && !names.contains(&name.as_str());
            if has_own_geometry && (name == "geometry" || is_own_name) {
                return Ok(None);
            }
            Ok(Some(GeometryColumns::Column { name: check(name)? }))
        }
        (None, Some(x), Some(y))
            if has_own_geometry && options.own_points && ![x, y].iter().any(|name| names.contains(&name.as_str())) =>
        {
            Ok(Some(GeometryColumns::Coordinates { x: x.clone(), y: y.clone() }))
        }
        (None, Some(x), Some(y)) => Ok(Some(GeometryColumns::Coordinates { x: check(x)?, y: check(y)? })),
        (None, None, None) => Ok(None),
        (Some(_), _, _) => {
            Err(FormatError::usage(path, "name either a geometry column or two coordinate columns, not both"))
        }
        (None, _, _) => Err(FormatError::usage(path, "name both coordinate columns, or none")),
    }
}

/// `name`, or `name` with a number that makes it unique.
pub fn unique_name(name: &str, is_taken: impl Fn(&String) -> bool) -> String {
    let mut candidate = name.to_string();
    let mut number = 2_u32;
    while is_taken(&candidate) {
        candidate = format!("{name}_{number}");
        number += 1;
    }
    candidate
}
