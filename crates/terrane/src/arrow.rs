//! The Arrow types of this crate's interface, in the version that the crate uses. The names are
//! those of the crate `arrow`.
//!
//! A record batch of points:
//!
//! ```
//! use std::sync::Arc;
//! use terrane::arrow::array::{Float64Array, Int64Array, RecordBatch};
//! use terrane::arrow::datatypes::{DataType, Field, Schema};
//!
//! let field = |name: &str, data_type| Field::new(name, data_type, false);
//! let fields = vec![
//!     field("id", DataType::Int64),
//!     field("lon", DataType::Float64),
//!     field("lat", DataType::Float64),
//! ];
//! let columns: Vec<Arc<dyn terrane::arrow::array::Array>> = vec![
//!     Arc::new(Int64Array::from(vec![1])),
//!     Arc::new(Float64Array::from(vec![-122.4])),
//!     Arc::new(Float64Array::from(vec![37.8])),
//! ];
//! let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?;
//! assert_eq!(batch.num_rows(), 1);
//! # Ok::<(), terrane::arrow::error::ArrowError>(())
//! ```

/// Arrays, their builders, and record batches.
pub mod array {
    #[doc(no_inline)]
    pub use arrow_array::builder::*;
    #[doc(no_inline)]
    pub use arrow_array::cast::*;
    #[doc(no_inline)]
    pub use arrow_array::*;
}

/// Buffers under arrays.
pub mod buffer {
    #[doc(no_inline)]
    pub use arrow_buffer::*;
}

/// Types of columns, fields and schemas.
pub mod datatypes {
    #[doc(no_inline)]
    pub use arrow_array::types::*;
    #[doc(no_inline)]
    pub use arrow_schema::*;
}

/// Errors.
pub mod error {
    #[doc(no_inline)]
    pub use arrow_schema::ArrowError;
}
