//! The tests of the engine, by behaviour, in one program.
//!
//! Each program is linked with the whole crate and what it depends on; so there is one, and the files are its modules.

mod atomic_batch;
mod attribute_queries;
mod closing;
mod concurrency;
mod conditions;
mod crash_directed;
mod crash_everywhere;
mod damage;
mod delete_where;
mod faults;
mod foreign_files;
mod generated_keys;
mod import;
mod locks_frame;
mod locks_table;
mod log_entries;
mod log_growth;
mod many_datasets;
mod merges;
mod nearest_filters;
mod nearest_points;
mod opening;
mod places;
mod query_chunks;
mod query_explain;
mod query_filters;
mod query_lonlat;
mod readme;
mod record_batch_builder;
mod record_batch_rows;
mod record_damage;
mod record_errors;
mod record_key;
mod record_round_trip;
mod record_schema;
mod record_support;
mod record_value;
mod replay;
mod schema_evolution;
mod secondary_indexes;
mod spatial_indexes;
mod store_model;
mod strays;
mod support;
