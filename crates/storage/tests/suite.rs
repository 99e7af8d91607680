//! The tests of storage, by behaviour, in one program.
//!
//! Each program is linked with the whole crate and what it depends on; so there is one, and the files are its modules.

mod read_only;
mod real_and_memory;
