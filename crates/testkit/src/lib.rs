//! The substitutes for a disk and a machine on which tests run the store.
//!
//! - [`MemoryStorage`]: files in memory.
//! - [`FaultyStorage`]: storage that fails at a chosen call.
//! - [`crash`]: a controller that cuts the power after any event, and enumerates the possible
//!   states of the disk.
//! - [`hook`] and [`gate`]: storage that reports uses of files, and storage whose syncs wait.
//! - [`killed`]: a test that runs itself as another process, and kills it.
//! - [`linearizability`]: a check that the results of threads are possible in one order.
//! - [`turns`]: threads that work one after the other. With `--cfg shuttle`, `orders` draws orders
//!   of threads.
//! - [`pool_directory`]: a directory that can hold pools.
//!
//! For tests and the laboratory. It depends only on `storage`.
#![forbid(unsafe_code)]

pub mod crash;
mod faulty;
pub mod gate;
pub mod hook;
pub mod killed;
pub mod linearizability;
mod memory;
#[cfg(shuttle)]
pub mod orders;
mod places;
pub mod turns;

/// Whether the searches of tests try everything, however long it takes: `make soak` sets
/// TERRANE_SOAK. Each merge tries a sample.
pub fn is_soak() -> bool {
    std::env::var_os("TERRANE_SOAK").is_some()
}

pub use faulty::{Call, Fault, FaultPlan, FaultyStorage};
pub use memory::{MemoryStorage, Reads, Touched, WordsRead};
pub use places::pool_directory;
