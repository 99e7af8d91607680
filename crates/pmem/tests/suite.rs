//! The tests of pools, back-ends, allocator, epochs and multi-word compare-and-swap, by behaviour,
//! in one program.
//!
//! Each program is linked with the whole crate and its dependencies. So there is one, and the files
//! are its modules. Tests that end their process, or that other builds run, are programs of their
//! own.

mod allocator;
mod allocator_crash;
mod backends;
mod counters;
mod explorer;
mod pmwcas;
mod pmwcas_crash;
mod pmwcas_late;
mod pool;
mod pool_crash;
mod pool_faults;
mod pool_races;
mod retire;
mod support;
