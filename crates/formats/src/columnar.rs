//! Formats that store Arrow data or its equivalent: Parquet, GeoParquet, Arrow IPC.
//!
//! Batches are cut to a bounded size, columns are converted to the types of [`crate::ColumnType`],
//! and the geometry column is converted to checked WKB.

mod demanded;
mod footer_check;
mod gathered;
pub(crate) mod geo_metadata;
mod guard;
mod int96;
pub(crate) mod ipc;
mod ipc_check;
mod native;
pub(crate) mod normalise;
mod page_check;
pub(crate) mod parquet;
mod plain;
mod reader;
pub(crate) mod table;
mod thrift;
mod unfit;
