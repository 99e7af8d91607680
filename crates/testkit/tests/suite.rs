//! The tests of what tests run on, by behaviour, in one program.
//!
//! Each program is linked with the whole crate and what it depends on; so there is one, and the
//! files are its modules.

mod crash_branches;
mod crash_data;
mod crash_names;
mod crash_protocols;
mod crash_replay;
mod crash_stores;
mod faults;
mod memory;
