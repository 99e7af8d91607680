//! What tests run the store on, in place of a disk and a machine.
//!
//! - [`MemoryStorage`]: files in memory.
//! - [`FaultyStorage`]: storage that fails at a chosen call.
//! - [`crash`]: a controller that cuts the power after any event, and enumerates what the disk may then hold.
//!
//! For tests and the laboratory. It depends on `storage` alone.
#![forbid(unsafe_code)]

pub mod crash;
mod faulty;
mod memory;

pub use faulty::{Call, Fault, FaultPlan, FaultyStorage};
pub use memory::{MemoryStorage, Reads, Touched, WordsRead};
