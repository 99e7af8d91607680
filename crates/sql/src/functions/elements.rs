//! Columns of lists of geometries.

use std::sync::Arc;

use arrow_array::builder::BinaryBuilder;
use arrow_array::{ArrayRef, Int64Array, ListArray, StructArray};
use arrow_schema::{DataType, Field, Fields};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use datafusion::common::{Result, exec_err, internal_datafusion_err};

use super::Returns;
use crate::geometry::geometry_field;

/// An element of a list: its path, or its column and row, and its geometry.
pub(super) struct Element {
    pub numbers: Vec<i64>,
    pub wkb: Vec<u8>,
}

/// The type of a list of geometries in a reference system.
pub(super) fn list_type(returns: Returns, srid: i64) -> DataType {
    let int = |name: &str| Field::new(name, DataType::Int64, true);
    let geometry = geometry_field("geom", srid);
    let fields = match returns {
        Returns::Cells => vec![geometry, int("i"), int("j")],
        _ => vec![Field::new_list("path", Field::new_list_field(DataType::Int64, true), true), geometry],
    };
    DataType::List(Arc::new(Field::new_list_field(DataType::Struct(Fields::from(fields)), true)))
}

/// Lists. Each is null or has elements.
pub(super) struct Lists {
    data_type: DataType,
    ends: Vec<i32>,
    is_valid: Vec<bool>,
    elements: Vec<Element>,
}

impl Lists {
    pub fn new(data_type: DataType) -> Self {
        Self { data_type, ends: vec![0], is_valid: Vec::new(), elements: Vec::new() }
    }

    pub fn push(&mut self, list: Option<Vec<Element>>) -> Result<()> {
        self.is_valid.push(list.is_some());
        self.elements.extend(list.into_iter().flatten());
        match i32::try_from(self.elements.len()) {
            Ok(end) => self.ends.push(end),
            Err(_) => return exec_err!("the lists have too many elements"),
        }
        Ok(())
    }

    pub fn finish(self) -> Result<ArrayRef> {
        let unfit = || internal_datafusion_err!("{} is not the type of a list", self.data_type);
        let DataType::List(element) = &self.data_type else { return Err(unfit()) };
        let DataType::Struct(fields) = element.data_type() else { return Err(unfit()) };
        let number = |place: usize| self.elements.iter().map(move |element| element.numbers.get(place).copied());
        let column = |field: &Arc<Field>| -> Result<ArrayRef> {
            Ok(match (field.name().as_str(), field.data_type()) {
                ("path", DataType::List(item)) => {
                    let lengths = self.elements.iter().map(|element| element.numbers.len());
                    let all = self.elements.iter().flat_map(|element| element.numbers.iter().copied());
                    let all = Arc::new(Int64Array::from_iter_values(all));
                    Arc::new(ListArray::try_new(item.clone(), OffsetBuffer::from_lengths(lengths), all, None)?)
                }
                ("i", _) => Arc::new(Int64Array::from_iter(number(0))),
                ("j", _) => Arc::new(Int64Array::from_iter(number(1))),
                _ => {
                    let mut builder = BinaryBuilder::new();
                    self.elements.iter().for_each(|element| builder.append_value(&element.wkb));
                    Arc::new(builder.finish())
                }
            })
        };
        let columns = fields.iter().map(column).collect::<Result<Vec<ArrayRef>>>()?;
        let elements = StructArray::try_new(fields.clone(), columns, None)?;
        let offsets = OffsetBuffer::new(ScalarBuffer::from(self.ends));
        let nulls = NullBuffer::from(self.is_valid);
        Ok(Arc::new(ListArray::try_new(element.clone(), offsets, Arc::new(elements), Some(nulls))?))
    }
}
