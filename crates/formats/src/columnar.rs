//! Files that hold Arrow data already: Parquet, GeoParquet, Arrow IPC.
//!
//! Batches are cut to a bounded size, column types brought to those of
//! [`crate::ColumnType`], and the geometry column to checked WKB.

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
mod thrift;
mod unfit;
