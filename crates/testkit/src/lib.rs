//! What tests run the store on, in place of a disk and a machine.
//!
//! - [`MemoryStorage`]: files in memory.
//! - [`FaultyStorage`]: storage that fails at a chosen call.
//! - [`crash`]: a controller that cuts the power after any event, and enumerates what the disk may
//!   then hold.
//! - [`hook`] and [`gate`]: storage that tells of files, and storage whose syncs wait.
//! - [`killed`]: a test that runs itself as another process, and kills it.
//! - [`linearizability`]: whether what threads saw can have happened in one order.
//! - [`turns`]: threads that work one after the other. With `--cfg shuttle`, `orders` draws orders
//!   of threads.
//! - [`pool_directory`]: a directory that can hold pools.
//!
//! For tests and the laboratory. It depends on `storage` alone.
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

pub use faulty::{Call, Fault, FaultPlan, FaultyStorage};
pub use memory::{MemoryStorage, Reads, Touched, WordsRead};
pub use places::pool_directory;
