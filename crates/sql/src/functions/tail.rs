//! Functions that are called row by row and decide no push-down. A null argument gives null.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, BooleanBuilder, Float64Builder, Int64Builder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue, exec_datafusion_err, internal_datafusion_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use terrane_space::geometry::{GeometryKind, Tree, parse_wkb, to_geo};

use super::arguments::Geometries;
use super::elements::{Element, Lists};
use super::relation::unreadable;
use super::{Kind, Returns, coerced, return_field};

/// A function of the long tail.
#[derive(Debug)]
pub(super) struct Tail {
    /// In lower case. Messages show the first.
    pub names: &'static [&'static str],
    pub kinds: &'static [Kind],
    /// Number of arguments that must be given.
    pub required: usize,
    pub returns: Returns,
    pub call: fn(&[Arg<'_>]) -> Result<Value>,
}

/// A function.
pub(super) const fn of(
    names: &'static [&'static str],
    kinds: &'static [super::Kind],
    required: usize,
    returns: Returns,
    call: fn(&[Arg<'_>]) -> Result<Value>,
) -> Tail {
    Tail { names, kinds, required, returns, call }
}

/// A function that returns a geometry.
pub(super) const fn shape(
    names: &'static [&'static str],
    kinds: &'static [Kind],
    required: usize,
    call: fn(&[Arg<'_>]) -> Result<Value>,
) -> Tail {
    of(names, kinds, required, Returns::Geometry, call)
}

/// An argument that is not null.
pub(super) enum Arg<'a> {
    Geometry { wkb: std::borrow::Cow<'a, [u8]>, srid: i64 },
    Number(f64),
    Int(i64),
    Text(&'a str),
    Bool(bool),
    Bytes(&'a [u8]),
}

/// The value of a function.
pub(super) enum Value {
    Null,
    Geometry(Vec<u8>),
    Number(f64),
    Int(i64),
    Text(String),
    Bool(bool),
    Bytes(Vec<u8>),
    List(Vec<Element>),
}

impl From<Option<Value>> for Value {
    fn from(value: Option<Value>) -> Self {
        value.unwrap_or(Self::Null)
    }
}

impl From<Tree> for Value {
    fn from(tree: Tree) -> Self {
        Self::Geometry(tree.to_wkb())
    }
}

impl Arg<'_> {
    pub fn wkb(&self) -> Result<&[u8]> {
        match self {
            Self::Geometry { wkb, .. } => Ok(wkb),
            _ => Err(internal_datafusion_err!("an argument is not a geometry")),
        }
    }

    pub fn tree(&self) -> Result<Tree> {
        Tree::parse(self.wkb()?).map_err(unreadable)
    }

    pub fn geo(&self) -> Result<geo_types::Geometry<f64>> {
        to_geo(self.wkb()?).map_err(unreadable)
    }

    /// The number of the reference system; 0 if it is not known.
    pub fn srid(&self) -> i64 {
        match self {
            Self::Geometry { srid, .. } => *srid,
            _ => 0,
        }
    }

    /// A geometry of one kind; `None` for the others.
    pub fn tree_of(&self, kind: GeometryKind) -> Result<Option<Tree>> {
        Ok(Some(self.tree()?).filter(|tree| tree.kind == kind))
    }

    pub fn number(&self) -> Result<f64> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Int(number) => Ok(*number as f64),
            _ => Err(internal_datafusion_err!("an argument is not a number")),
        }
    }

    pub fn int(&self) -> Result<i64> {
        match self {
            Self::Int(number) => Ok(*number),
            _ => Err(internal_datafusion_err!("an argument is not an integer")),
        }
    }

    pub fn text(&self) -> Result<&str> {
        match self {
            Self::Text(text) => Ok(text),
            _ => Err(internal_datafusion_err!("an argument is not a text")),
        }
    }

    pub fn bool(&self) -> Result<bool> {
        match self {
            Self::Bool(value) => Ok(*value),
            _ => Err(internal_datafusion_err!("an argument is not a boolean")),
        }
    }

    pub fn bytes(&self) -> Result<&[u8]> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(internal_datafusion_err!("an argument is not binary")),
        }
    }
}

/// The function as DataFusion calls it.
#[derive(Debug)]
pub(crate) struct TailFunction {
    tail: &'static Tail,
    signature: Signature,
    aliases: Vec<String>,
}

impl PartialEq for TailFunction {
    fn eq(&self, other: &Self) -> bool {
        self.tail.names == other.tail.names
    }
}

impl Eq for TailFunction {}

impl std::hash::Hash for TailFunction {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.tail.names.hash(state);
    }
}

/// The function as an expression's callee.
pub(super) fn udf(tail: &'static Tail) -> Arc<ScalarUDF> {
    let aliases = tail.names[1..].iter().map(ToString::to_string).collect();
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(TailFunction { tail, signature, aliases }))
}

impl ScalarUDFImpl for TailFunction {
    fn name(&self) -> &str {
        self.tail.names[0]
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.tail.returns.data_type())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        return_field(self.name(), self.tail.kinds, self.tail.returns, &args)
    }

    fn coerce_types(&self, found: &[DataType]) -> Result<Vec<DataType>> {
        coerced(self.name(), self.tail.kinds, self.tail.required, found)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_constant = args.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { args.number_rows };
        let columns = columns_of(&args, self.tail.kinds, rows)?;
        let mut out = Output::new(self.tail.returns, args.return_field.data_type());
        for row in 0..rows {
            let found = columns.iter().map(|column| column.get(row)).collect::<Result<Option<Vec<Arg<'_>>>>>()?;
            out.append(match found {
                Some(found) => self.call(&found)?,
                None => Value::Null,
            })?;
        }
        let array = out.finish()?;
        match is_constant {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?)),
            false => Ok(ColumnarValue::Array(array)),
        }
    }
}

impl TailFunction {
    /// Calls the function. Libraries of geometry panic on some degenerate input.
    fn call(&self, args: &[Arg<'_>]) -> Result<Value> {
        let call = || (self.tail.call)(args);
        match catch_unwind(AssertUnwindSafe(call)) {
            Ok(Ok(Value::Geometry(wkb))) => match parse_wkb(&wkb) {
                Ok(_) => Ok(Value::Geometry(wkb)),
                Err(error) => Err(exec_datafusion_err!("the result of {} is not a geometry: {error}", self.name())),
            },
            Ok(value) => value,
            Err(_) => Err(exec_datafusion_err!("{} cannot handle this geometry", self.name())),
        }
    }
}

/// A column of arguments.
enum Arguments {
    Geometries(Geometries, i64),
    Other(ArrayRef, bool),
}

fn columns_of(args: &ScalarFunctionArgs, kinds: &[Kind], rows: usize) -> Result<Vec<Arguments>> {
    let fields: &[Arc<Field>] = &args.arg_fields;
    let column = |((value, kind), field): ((&ColumnarValue, &Kind), &Arc<Field>)| match kind {
        Kind::Geometry => {
            Ok(Arguments::Geometries(Geometries::new(value, field)?, crate::geometry::srid_of(field).unwrap_or(0)))
        }
        _ => match value {
            ColumnarValue::Scalar(scalar) => Ok(Arguments::Other(scalar.to_array()?, true)),
            ColumnarValue::Array(_) => Ok(Arguments::Other(value.to_array(rows)?, false)),
        },
    };
    args.args.iter().zip(kinds).zip(fields).map(column).collect()
}

impl Arguments {
    fn get(&self, row: usize) -> Result<Option<Arg<'_>>> {
        match self {
            Self::Geometries(geometries, srid) => {
                Ok(geometries.get(row)?.map(|wkb| Arg::Geometry { wkb, srid: *srid }))
            }
            Self::Other(array, is_constant) => {
                let row = if *is_constant { 0 } else { row };
                if array.is_null(row) || *array.data_type() == DataType::Null {
                    return Ok(None);
                }
                Ok(Some(if let Some(numbers) = array.as_primitive_opt::<Float64Type>() {
                    Arg::Number(numbers.value(row))
                } else if let Some(numbers) = array.as_primitive_opt::<Int64Type>() {
                    Arg::Int(numbers.value(row))
                } else if let Some(texts) = array.as_string_opt::<i32>() {
                    Arg::Text(texts.value(row))
                } else if let Some(values) = array.as_boolean_opt() {
                    Arg::Bool(values.value(row))
                } else if let Some(bytes) = array.as_binary_opt::<i32>() {
                    Arg::Bytes(bytes.value(row))
                } else {
                    return Err(internal_datafusion_err!("an argument has the type {}", array.data_type()));
                }))
            }
        }
    }
}

enum Output {
    Bytes(BinaryBuilder),
    Number(Float64Builder),
    Int(Int64Builder),
    Text(StringBuilder),
    Bool(BooleanBuilder),
    Lists(Lists),
}

impl Output {
    fn new(returns: Returns, data_type: &DataType) -> Self {
        match returns {
            Returns::Geometry | Returns::GeometryIn(_) | Returns::Geography | Returns::Bytes => {
                Self::Bytes(BinaryBuilder::new())
            }
            Returns::Number => Self::Number(Float64Builder::new()),
            Returns::Int => Self::Int(Int64Builder::new()),
            Returns::Text => Self::Text(StringBuilder::new()),
            Returns::Bool => Self::Bool(BooleanBuilder::new()),
            Returns::Dump | Returns::Cells => Self::Lists(Lists::new(data_type.clone())),
        }
    }

    fn append(&mut self, value: Value) -> Result<()> {
        match (self, value) {
            (Self::Bytes(builder), Value::Geometry(bytes) | Value::Bytes(bytes)) => builder.append_value(bytes),
            (Self::Bytes(builder), Value::Null) => builder.append_null(),
            (Self::Number(builder), Value::Number(number)) => builder.append_value(number),
            (Self::Number(builder), Value::Null) => builder.append_null(),
            (Self::Int(builder), Value::Int(number)) => builder.append_value(number),
            (Self::Int(builder), Value::Null) => builder.append_null(),
            (Self::Text(builder), Value::Text(text)) => builder.append_value(text),
            (Self::Text(builder), Value::Null) => builder.append_null(),
            (Self::Bool(builder), Value::Bool(value)) => builder.append_value(value),
            (Self::Bool(builder), Value::Null) => builder.append_null(),
            (Self::Lists(lists), Value::List(list)) => lists.push(Some(list))?,
            (Self::Lists(lists), Value::Null) => lists.push(None)?,
            _ => return Err(internal_datafusion_err!("a function gave a value of another type")),
        }
        Ok(())
    }

    fn finish(self) -> Result<ArrayRef> {
        Ok(match self {
            Self::Bytes(mut builder) => Arc::new(builder.finish()),
            Self::Number(mut builder) => Arc::new(builder.finish()),
            Self::Int(mut builder) => Arc::new(builder.finish()),
            Self::Text(mut builder) => Arc::new(builder.finish()),
            Self::Bool(mut builder) => Arc::new(builder.finish()),
            Self::Lists(lists) => lists.finish()?,
        })
    }
}
