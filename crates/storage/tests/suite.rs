//! The tests of storage and of the crash controller, by behaviour, in one program.
//!
//! Each test program is linked with the whole crate and its dependencies. There is therefore one
//! program, and the files are its modules.

mod crash_branches;
mod crash_data;
mod crash_names;
mod crash_protocols;
mod crash_replay;
mod crash_stores;
mod faults;
mod memory;
mod real_and_memory;
