//! The common interface of all trees of this crate, whatever their keys are.

use std::fmt::Debug;

use terrane_pmem::{Backend, PersistenceDomain, Pool};
use terrane_storage::Storage;

use crate::Result;

/// A tree in a pool of its own. Any number of threads share it.
///
/// A tree's [`Durability`] states which crashes a completed operation survives. After such a crash,
/// an operation in progress is complete or absent. Dropping a tree without
/// [`close`](PersistentTree::close) has the effect of a kill.
pub trait PersistentTree: Debug + Send + Sync {
    /// The back-end of the pool's words.
    type Backend: Backend;

    /// Options for creating and opening such a tree.
    type Options
    where
        Self: Sized;

    /// Statistics of such a tree, as a check finds them.
    type Census: Debug
    where
        Self: Sized;

    /// Creates a tree in a new pool under a free name.
    fn create(storage: &dyn Storage, name: &str, options: &Self::Options) -> Result<Self>
    where
        Self: Sized;

    /// Opens a tree. It completes or undoes the changes that a crash has interrupted, or leaves
    /// that to the operations that meet them.
    fn open(storage: &dyn Storage, name: &str, options: &Self::Options) -> Result<Self>
    where
        Self: Sized;

    /// The crashes that a completed operation survives.
    fn durability(&self) -> Durability;

    /// The pool, to count the costs of operations.
    fn pool(&self) -> &Pool<Self::Backend>;

    /// Checks every invariant of the structure, and gives its statistics. It reads the whole tree.
    fn check(&mut self) -> Result<Self::Census>
    where
        Self: Sized;

    /// Makes everything durable, also on the page cache, and marks the pool as closed.
    fn close(self: Box<Self>) -> Result<()>;
}

/// The crashes that a completed operation survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// None. Only a close makes the contents durable.
    CleanClose,
    /// The end of the process, for whatever reason. A power loss only if the tree was closed
    /// before.
    ProcessKill,
    /// A power loss too.
    PowerLoss,
}

impl Durability {
    /// The durability of trees that make each operation as durable as their medium can.
    pub fn of_medium(domain: PersistenceDomain) -> Self {
        match domain {
            PersistenceDomain::PageCache => Self::ProcessKill,
            PersistenceDomain::Adr | PersistenceDomain::Eadr => Self::PowerLoss,
        }
    }
}
