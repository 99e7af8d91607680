//! The tests of readers and writers, by behaviour, in one program.
//!
//! Each test program is linked with the whole crate and its dependencies. There is therefore one
//! program, and the files are its modules.

mod columnar;
mod columnar_values;
mod covering;
mod csv;
mod declared_columns;
mod geojson_columns;
mod hostile;
mod int96;
mod ipc_schema;
mod json;
mod parquet_footer;
mod parquet_pages;
mod reprojection;
mod round_trip;
mod shared_files;
mod support;
mod text_pieces;
mod uuids;
mod write;
