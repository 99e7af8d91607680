//! The tests of the test kit, by behaviour, in one program.
//!
//! Each program is linked with the whole crate and its dependencies. So there is one, and the files
//! are its modules.

mod crash_branches;
mod crash_data;
mod crash_names;
mod crash_protocols;
mod crash_replay;
mod crash_stores;
mod faults;
mod memory;
