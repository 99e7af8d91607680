//! The built `terrane` binary, by behaviour: standard output, standard error, exit codes, and what
//! is in the store afterwards.

#![forbid(unsafe_code)]

mod backup;
mod broken_pipe;
mod check_repair;
mod columns;
mod delete_keys;
mod environment;
mod events;
mod feeds;
mod feeds_replaced;
mod file_size;
mod follower;
mod gauges;
mod hostile_input;
mod import_columnar;
mod import_csv;
mod import_inputs;
mod import_invalid;
mod import_modes;
mod import_rejects;
mod indexes;
mod insert_atomic;
mod insert_records;
mod insert_schema;
mod insert_signals;
mod insert_stream;
mod joins;
mod json_times;
mod kill9;
mod locked;
mod lost_files;
mod messages;
mod open_files;
mod policies;
mod query_formats;
mod query_spatial;
mod query_where;
mod readers_beside;
mod reading_flags;
mod readme;
mod same_values;
#[cfg(feature = "sql")]
mod sql;
mod support;
mod unmerged;
mod usage_errors;
mod uuids;
