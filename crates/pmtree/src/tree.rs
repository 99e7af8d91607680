//! What all trees of this crate have in common, whatever they are keyed by.

use std::fmt::Debug;

use terrane_pmem::{Backend, PersistenceDomain, Pool};
use terrane_storage::Storage;

use crate::Result;

/// A tree in a pool of its own. Any number of threads share it.
///
/// A tree states by its [`Durability`] what an operation that has returned survives. After such a
/// crash, an operation that was under way is there whole or not at all. Dropping a tree without
/// [`close`](PersistentTree::close) is as if the process had been killed.
pub trait PersistentTree: Debug + Send + Sync {
    /// What the pool's words are reached by.
    type Backend: Backend;

    /// How such a tree is created or opened.
    type Options
    where
        Self: Sized;

    /// What a check finds such a tree to be made of.
    type Census: Debug
    where
        Self: Sized;

    /// Creates a tree in a new pool under a name that is free.
    fn create(storage: &dyn Storage, name: &str, options: &Self::Options) -> Result<Self>
    where
        Self: Sized;

    /// Opens a tree. It completes or undoes what a crash has left half done, or leaves that to the
    /// operations that meet it.
    fn open(storage: &dyn Storage, name: &str, options: &Self::Options) -> Result<Self>
    where
        Self: Sized;

    /// What an operation that has returned survives.
    fn durability(&self) -> Durability;

    /// The pool, to count what operations cost.
    fn pool(&self) -> &Pool<Self::Backend>;

    /// Checks every invariant of the structure, and tells what the tree is made of. It reads all of
    /// it.
    fn check(&mut self) -> Result<Self::Census>
    where
        Self: Sized;

    /// Makes all of it durable, also on the page cache, and marks the pool as closed.
    fn close(self: Box<Self>) -> Result<()>;
}

/// What an operation that has returned survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// The end of the process, whatever ends it. A loss of power only if the tree was closed
    /// before.
    ProcessKill,
    /// A loss of power too.
    PowerLoss,
}

impl Durability {
    /// That of trees which make each operation as durable as their medium can.
    pub fn of_medium(domain: PersistenceDomain) -> Self {
        match domain {
            PersistenceDomain::PageCache => Self::ProcessKill,
            PersistenceDomain::Adr | PersistenceDomain::Eadr => Self::PowerLoss,
        }
    }
}
