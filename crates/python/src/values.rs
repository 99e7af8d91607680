//! Values of the database as Python objects, and back.

use arrow_schema::Field;
use pyo3::IntoPyObjectExt;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyString};
use terrane::schema::KeyType;
use terrane::{Key, Value};

use crate::error::{Result, usage};

/// Microseconds of a second.
pub const MICROSECONDS: i64 = 1_000_000;
/// Microseconds of a day.
pub const DAY: i64 = 86_400 * MICROSECONDS;

/// Classes and constants of Python's standard library that values need.
pub struct Types<'py> {
    timedelta: Bound<'py, PyAny>,
    epoch: Bound<'py, PyAny>,
    epoch_utc: Bound<'py, PyAny>,
    epoch_date: Bound<'py, PyAny>,
    datetime: Bound<'py, PyAny>,
    date: Bound<'py, PyAny>,
    uuid: Bound<'py, PyAny>,
    decimal: Bound<'py, PyAny>,
}

impl<'py> Types<'py> {
    /// Imports them.
    pub fn new(py: Python<'py>) -> PyResult<Self> {
        let module = py.import(intern!(py, "datetime"))?;
        let datetime = module.getattr("datetime")?;
        let date = module.getattr("date")?;
        let utc = module.getattr("timezone")?.getattr("utc")?;
        let epoch = datetime.call1((1970, 1, 1))?;
        let kwargs = PyDict::new(py);
        kwargs.set_item("tzinfo", utc)?;
        Ok(Self {
            timedelta: module.getattr("timedelta")?,
            epoch_utc: epoch.call_method("replace", (), Some(&kwargs))?,
            epoch_date: date.call1((1970, 1, 1))?,
            epoch,
            datetime,
            date,
            uuid: py.import(intern!(py, "uuid"))?.getattr("UUID")?,
            decimal: py.import(intern!(py, "decimal"))?.getattr("Decimal")?,
        })
    }

    /// The interpreter.
    pub fn py(&self) -> Python<'py> {
        self.uuid.py()
    }

    /// A `datetime`, aware if it is an instant. Times that `datetime` cannot hold are an error.
    pub fn timestamp(&self, microseconds: i64, utc: bool) -> PyResult<Bound<'py, PyAny>> {
        let (days, rest) = (microseconds.div_euclid(DAY), microseconds.rem_euclid(DAY));
        let since = self.timedelta.call1((days, rest / MICROSECONDS, rest % MICROSECONDS))?;
        let epoch = if utc { &self.epoch_utc } else { &self.epoch };
        epoch.add(since)
    }

    /// A `timedelta`.
    pub fn duration(&self, days: i64, microseconds: i64) -> PyResult<Bound<'py, PyAny>> {
        let (more, rest) = (microseconds.div_euclid(DAY), microseconds.rem_euclid(DAY));
        self.timedelta.call1((days.saturating_add(more), rest / MICROSECONDS, rest % MICROSECONDS))
    }

    /// A `date`.
    pub fn day(&self, days: i32) -> PyResult<Bound<'py, PyAny>> {
        self.epoch_date.add(self.timedelta.call1((days,))?)
    }

    /// A UUID.
    pub fn uuid_of(&self, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        let kwargs = PyDict::new(self.uuid.py());
        kwargs.set_item("bytes", PyBytes::new(self.uuid.py(), bytes))?;
        self.uuid.call((), Some(&kwargs))
    }

    /// Whether a value is a `datetime`.
    pub fn is_datetime(&self, value: &Bound<'py, PyAny>) -> PyResult<bool> {
        value.is_instance(&self.datetime)
    }

    /// Whether a value is a `date`, and no `datetime`.
    pub fn is_date(&self, value: &Bound<'py, PyAny>) -> PyResult<bool> {
        Ok(value.is_instance(&self.date)? && !self.is_datetime(value)?)
    }

    /// Whether a value is a UUID.
    pub fn is_uuid(&self, value: &Bound<'py, PyAny>) -> PyResult<bool> {
        value.is_instance(&self.uuid)
    }

    /// Whether a value is a `Decimal`.
    pub fn is_decimal(&self, value: &Bound<'py, PyAny>) -> PyResult<bool> {
        value.is_instance(&self.decimal)
    }

    /// The `Decimal` of a text.
    pub fn decimal_of(&self, text: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.decimal.call1((text,))
    }

    /// Microseconds of a `datetime` since 1970, and whether it is aware.
    pub fn microseconds(&self, value: &Bound<'py, PyAny>) -> PyResult<(i64, bool)> {
        let aware = !value.call_method0("utcoffset")?.is_none();
        let since = value.sub(if aware { &self.epoch_utc } else { &self.epoch })?;
        let part = |name: &str| since.getattr(name)?.extract::<i64>();
        Ok((part("days")? * DAY + part("seconds")? * MICROSECONDS + part("microseconds")?, aware))
    }

    /// Days of a `date` since 1970.
    pub fn days(&self, value: &Bound<'py, PyAny>) -> PyResult<i32> {
        value.sub(&self.epoch_date)?.getattr("days")?.extract()
    }

    /// The bytes of a UUID.
    pub fn uuid_bytes(&self, value: &Bound<'py, PyAny>) -> PyResult<Vec<u8>> {
        value.getattr("bytes")?.extract()
    }

    /// A key of a dataset.
    pub fn key(&self, value: &Bound<'py, PyAny>, wanted: KeyType) -> Result<Key> {
        let refuse = || usage(format!("the keys are {wanted}, this one is {}", type_name(value)));
        match wanted {
            KeyType::Int64 => Ok(Key::Int(integer(value).ok_or_else(refuse)?)),
            KeyType::UInt64 => Ok(Key::UInt(integer(value).ok_or_else(refuse)?)),
            KeyType::Utf8 => Ok(Key::Utf8(value.extract().map_err(|_| refuse())?)),
            KeyType::Binary => Ok(Key::Binary(value.cast::<PyBytes>().map_err(|_| refuse())?.as_bytes().to_vec())),
            KeyType::Uuid if self.is_uuid(value)? => {
                let bytes = self.uuid_bytes(value)?;
                Ok(Key::Uuid(bytes.try_into().map_err(|_| refuse())?))
            }
            KeyType::Uuid => {
                let text: String = value.extract().map_err(|_| refuse())?;
                Key::parse(wanted, &text).map_err(usage)
            }
        }
    }

    /// A key as Python has it.
    pub fn of_key(&self, key: &Key) -> PyResult<Bound<'py, PyAny>> {
        let py = self.epoch.py();
        match key {
            Key::Int(key) => key.into_bound_py_any(py),
            Key::UInt(key) => key.into_bound_py_any(py),
            Key::Utf8(key) => key.into_bound_py_any(py),
            Key::Binary(key) => Ok(PyBytes::new(py, key).into_any()),
            Key::Uuid(key) => self.uuid_of(key.as_slice()),
        }
    }

    /// An attribute as Python has it; `utc` if its times are instants.
    pub fn of_value(&self, value: &Value, utc: bool) -> PyResult<Bound<'py, PyAny>> {
        let py = self.epoch.py();
        match value {
            Value::Null => Ok(py.None().into_bound(py)),
            Value::Bool(value) => value.into_bound_py_any(py),
            Value::Int(value) => value.into_bound_py_any(py),
            Value::Float32(value) => value.into_bound_py_any(py),
            Value::Float64(value) => value.into_bound_py_any(py),
            Value::Utf8(value) => value.into_bound_py_any(py),
            Value::Binary(value) => Ok(PyBytes::new(py, value).into_any()),
            Value::Uuid(value) => self.uuid_of(value.as_slice()),
            Value::Date(days) => self.day(*days),
            Value::Timestamp(time) => self.timestamp(*time, utc),
        }
    }
}

/// An integer, also of NumPy; no bool.
fn integer<'py, T: FromPyObjectOwned<'py>>(value: &Bound<'py, PyAny>) -> Option<T> {
    if value.is_instance_of::<PyBool>() || value.is_instance_of::<PyFloat>() {
        return None;
    }
    value.extract::<T>().ok()
}

/// Whether a column of an answer holds geometries.
pub fn is_geometry(field: &Field) -> bool {
    field.metadata().get("ARROW:extension:name").is_some_and(|name| name == "geoarrow.wkb")
}

/// The name of a value's type, for messages.
pub fn type_name(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or_else(|_| "an object".to_owned(), |name| name.to_string())
}

/// The kind of a plain value; `None` for other objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plain {
    Bool,
    Int,
    Float,
    Text,
    Bytes,
}

/// The kind of a value, if it is of a built-in type.
pub fn plain(value: &Bound<'_, PyAny>) -> Option<Plain> {
    if value.is_instance_of::<PyBool>() {
        Some(Plain::Bool)
    } else if value.is_instance_of::<PyInt>() {
        Some(Plain::Int)
    } else if value.is_instance_of::<PyFloat>() {
        Some(Plain::Float)
    } else if value.is_instance_of::<PyString>() {
        Some(Plain::Text)
    } else if value.is_instance_of::<PyBytes>() {
        Some(Plain::Bytes)
    } else {
        None
    }
}
