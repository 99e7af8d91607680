//! The columns of a dataset that is created from several files: the union of theirs.

use std::path::PathBuf;

use arrow_schema::{DataType, Field, FieldRef, Schema as ArrowSchema};
use terrane::schema::Schema;
use terrane_formats::{ColumnType, Source};

/// Most files that stay open until they are read, so that text need not be analysed again.
const KEPT_OPEN_MAX: usize = 32;

/// The union of the columns of several files.
#[derive(Debug, Default)]
pub struct Union {
    columns: Vec<UnionColumn>,
    /// The files that stay open, in their order.
    kept: Vec<Option<Source>>,
    /// Notices on columns that differ.
    pub warnings: Vec<String>,
}

#[derive(Debug)]
struct UnionColumn {
    field: FieldRef,
    /// Whether no file so far has a value in it.
    is_empty: bool,
    /// The file that its type comes from.
    path: PathBuf,
}

impl Union {
    /// Adds the columns of a file.
    pub fn add(&mut self, file: Source) {
        for field in file.schema.fields() {
            let is_empty = file.is_empty_column(field.name());
            let path = file.path.clone();
            let Some(known) = self.columns.iter_mut().find(|column| column.field.name() == field.name()) else {
                self.columns.push(UnionColumn { field: field.clone(), is_empty, path });
                continue;
            };
            if known.is_empty && !is_empty {
                (known.field, known.is_empty, known.path) = (field.clone(), false, path);
            } else if !is_empty && known.field.data_type() != field.data_type() {
                known.meet(field, path, &mut self.warnings);
            }
        }
        let keeps = self.kept.len() < KEPT_OPEN_MAX;
        self.kept.push(keeps.then_some(file));
    }

    /// The columns of all files, in order of appearance.
    pub fn schema(&self) -> ArrowSchema {
        ArrowSchema::new(self.columns.iter().map(|column| column.field.clone()).collect::<Vec<_>>())
    }

    /// An open file, if its columns have the types of the dataset.
    pub fn take(&mut self, number: usize, schema: &Schema) -> Option<Source> {
        let wanted = schema.to_arrow();
        let fits = |file: &Source| {
            file.schema.fields().iter().all(|field| {
                wanted.column_with_name(field.name()).is_some_and(|(_, column)| {
                    // While reading, floats and unsigned integers are converted to integers, and
                    // columns without values to anything.
                    column.data_type() == field.data_type()
                        || matches!(
                            (column.data_type(), field.data_type()),
                            (DataType::Int64, DataType::Float64 | DataType::UInt64)
                        )
                        || file.is_empty_column(field.name())
                })
            })
        };
        self.kept.get_mut(number)?.take().filter(fits)
    }
}

impl UnionColumn {
    /// Adds a column of another type. A timestamp also holds dates; otherwise the first file
    /// decides.
    fn meet(&mut self, field: &Field, path: PathBuf, warnings: &mut Vec<String>) {
        let types = [self.field.data_type(), field.data_type()].map(ColumnType::from_data_type);
        let [Some(known), Some(other)] = types else { return };
        let is_timestamp = |column_type| matches!(column_type, ColumnType::Timestamp | ColumnType::TimestampUtc);
        match (known, other) {
            (ColumnType::Date32, other) if is_timestamp(other) => {
                (self.field, self.path) = (field.clone().into(), path);
            }
            (known, ColumnType::Date32) if is_timestamp(known) => {}
            // The reader converts numbers.
            (ColumnType::Int64, ColumnType::Float64) | (ColumnType::Float64, ColumnType::Int64) => {}
            (known, other) => warnings.push(format!(
                "column {name:?} is {known} in {} and {other} in {}; it is read as {known}; choose another type with \
                 --type {name}=TYPE",
                self.path.display(),
                path.display(),
                name = field.name(),
                known = known.name(),
                other = other.name(),
            )),
        }
    }
}
