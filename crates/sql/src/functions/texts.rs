//! Functions of texts whose value may be much larger than their arguments. They are DataFusion's,
//! which know no limit of memory.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, FieldRef};
use datafusion::common::{Result, exec_err};
use datafusion::functions::{string, unicode};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};

/// Most bytes of a value, and of all values of a batch.
const VALUE_BYTES_MAX: u64 = 64 << 20;
const BATCH_BYTES_MAX: u64 = 256 << 20;

/// The functions.
pub(super) fn all() -> impl Iterator<Item = Arc<ScalarUDF>> {
    [string::repeat(), unicode::lpad(), unicode::rpad()]
        .into_iter()
        .map(|inner| Arc::new(ScalarUDF::new_from_impl(Bounded { inner })))
}

/// A function that refuses large values.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Bounded {
    inner: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for Bounded {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_constant = args.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let columns = args.args.iter().map(Column::of).collect::<Result<Vec<Column>>>()?;
        let mut total = 0_u64;
        for row in 0..if is_constant { 1 } else { args.number_rows } {
            let bytes = self.bytes(&columns, row);
            total = total.saturating_add(bytes);
            if bytes > VALUE_BYTES_MAX {
                return exec_err!("{} would give a text of more than {} MiB", self.name(), VALUE_BYTES_MAX >> 20);
            }
            if total > BATCH_BYTES_MAX {
                return exec_err!(
                    "{} would give texts of more than {} MiB at once",
                    self.name(),
                    BATCH_BYTES_MAX >> 20
                );
            }
        }
        self.inner.invoke_with_args(args)
    }
}

impl Bounded {
    /// The bytes of a value, or a few more.
    fn bytes(&self, columns: &[Column], row: usize) -> u64 {
        let Some(count) = columns.get(1).and_then(|count| count.count(row)) else { return 0 };
        let Some(text) = columns.first().and_then(|text| text.text(row)) else { return 0 };
        match self.name() {
            "repeat" => count.saturating_mul(text.len() as u64),
            _ => {
                let fill = columns.get(2).map_or(Some(" "), |fill| fill.text(row)).unwrap_or("");
                let widest = fill.chars().map(char::len_utf8).max().unwrap_or(0) as u64;
                count.saturating_mul(widest).saturating_add(text.len() as u64)
            }
        }
    }
}

/// An argument: one value for all rows, or one for each.
struct Column {
    array: ArrayRef,
    is_constant: bool,
}

impl Column {
    fn of(value: &ColumnarValue) -> Result<Self> {
        Ok(match value {
            ColumnarValue::Scalar(scalar) => Self { array: scalar.to_array()?, is_constant: true },
            ColumnarValue::Array(array) => Self { array: array.clone(), is_constant: false },
        })
    }

    fn row(&self, row: usize) -> Option<usize> {
        Some(if self.is_constant { 0 } else { row }).filter(|row| self.array.is_valid(*row))
    }

    fn count(&self, row: usize) -> Option<u64> {
        let numbers = self.array.as_primitive_opt::<Int64Type>()?;
        Some(u64::try_from(numbers.value(self.row(row)?)).unwrap_or(0))
    }

    fn text(&self, row: usize) -> Option<&str> {
        let row = self.row(row)?;
        let small = self.array.as_string_opt::<i32>().map(|texts| texts.value(row));
        let large = || self.array.as_string_opt::<i64>().map(|texts| texts.value(row));
        small.or_else(large).or_else(|| self.array.as_string_view_opt().map(|texts| texts.value(row)))
    }
}
