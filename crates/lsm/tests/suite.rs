//! The tests of log, components, partitions and manifest, by behaviour, in one program.
//!
//! Each test program is linked with the whole crate and its dependencies. There is therefore one
//! program, and the files are its modules.

mod curve_disk;
mod curve_model;
mod curve_objects;
mod disk_btree;
mod disk_damage;
mod disk_rtree;
mod disk_support;
mod log_copies;
mod log_crash;
mod log_damage;
mod log_faults;
mod log_group_commit;
mod log_read_only;
mod log_recycling;
mod log_round_trip;
mod log_support;
mod log_torn_tail;
mod manifest_faults;
mod memory_btree_model;
mod memory_concurrency;
mod memory_limits;
mod memory_rtree_model;
mod partition_indexes;
