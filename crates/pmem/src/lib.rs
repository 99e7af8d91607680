//! Persistent memory for structures that survive crashes without a log.
//!
//! - A [`Backend`] gives aligned 8-byte words of a mapped file by their offset. Flushes and fences
//!   make the words durable, and each of them has a name ([`Site`]). [`Native`] runs on files of
//!   the operating system, with real persistent memory or on the page cache.
//! - A [`Pool`] is such a file with a header, a root word, and blocks. The header says whether the
//!   contents can be trusted. An [`Intent`] acquires and releases blocks.
//! - [`pmwcas`] changes several words at once.
//! - An [`Arena`] has nodes in memory, for the parts of a structure that recovery rebuilds.
//! - [`Counted`] counts the costs of operations. [`probe`] finds out what a file's medium promises.
//!
//! The feature `explorer` adds the module of that name, which looks for crashes that a structure
//! does not survive. There, `Traced` runs in memory and reports every step to the crash controller
//! of `testkit`. `Dropping` leaves out flushes and fences by name.
//!
//! This crate knows nothing of the structures that are kept in the words.
#![deny(unsafe_code)]

mod allocator;
mod arena;
mod backend;
mod counters;
mod epoch;
mod error;
#[cfg(feature = "explorer")]
pub mod explorer;
mod flush;
mod mapping;
pub mod pmwcas;
mod pool;
pub mod probe;

pub use allocator::{INTENT_BLOCKS, Intent};
pub use arena::Arena;
pub use backend::{Backend, Loads, Native, Rehearsed, Site, View, WORD_LENGTH, Words};
#[cfg(feature = "explorer")]
pub use backend::{Dropping, Executing, Instruction, Traced, interrupting};
pub use counters::{COMBINED_BLOCKS, CPU_CACHE_LENGTH, Counted, Counters, Eviction, MEDIA_BLOCK_LENGTH};
pub use epoch::Guard;
pub use error::{Error, Result};
pub use flush::{FlushInstruction, prefetch_word};
pub use pool::{Found, OPENINGS_MAX, Options, Pool, ROOT};
pub use terrane_storage::event::{LINE_LENGTH, PersistenceDomain};
