//! The tests of storage, by behaviour, in one program.
//!
//! Each test program is linked with the whole crate and its dependencies. There is therefore one
//! program, and the files are its modules.

mod read_only;
mod real_and_memory;
