//! Transactions of several statements, and atomic statements of several parts.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use terrane::{AtomicBatch, Error};

use super::target::Target;
use crate::error::SqlError;
use crate::runner::Memory;

/// Changes of one table that wait for their commit. Dropped without one, they never happen.
pub(crate) struct Transaction(Mutex<State>);

struct State {
    memory: Memory,
    /// The table that is changed, and its changes.
    changes: Option<(String, AtomicBatch)>,
    has_failed: bool,
}

impl Transaction {
    pub fn new(memory: Memory) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State { memory, changes: None, has_failed: false })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The table that the transaction has changed.
    pub fn changed_table(&self) -> Option<String> {
        self.state().changes.as_ref().map(|(name, _)| name.clone())
    }

    /// Has all that follows fail, up to the end of the transaction.
    pub fn fail(&self) {
        self.state().has_failed = true;
    }

    /// Refuses a statement after one that has failed.
    ///
    /// # Errors
    /// An earlier statement has failed.
    pub fn check(&self) -> Result<(), SqlError> {
        match self.state().has_failed {
            true => Err(SqlError::refused("a statement of the transaction has failed; ROLLBACK ends it")),
            false => Ok(()),
        }
    }

    /// Adds changes, which take some bytes. If they depend on what the target's state has, it must
    /// not have changed at the commit.
    ///
    /// # Errors
    /// Another table was changed before; memory; those of `add`.
    pub(super) fn add<T>(
        &self,
        target: &Target,
        bytes: usize,
        depends: bool,
        add: impl FnOnce(&mut AtomicBatch) -> Result<T, SqlError>,
    ) -> Result<T, SqlError> {
        let mut state = self.state();
        state.memory.take(bytes)?;
        let name = target.dataset.name();
        let mut batch = match state.changes.take() {
            None => target.dataset.atomic_batch(),
            Some((known, batch)) if known == name => batch,
            Some((known, batch)) => {
                let error =
                    format!("a transaction changes one table, and has changed {known:?}; COMMIT before {name:?}");
                state.changes = Some((known, batch));
                return Err(SqlError::refused(error));
            }
        };
        if depends {
            batch = batch.unchanged_since(&target.snapshot)?;
        }
        let added = add(&mut batch);
        state.changes = Some((name.to_owned(), batch));
        added
    }

    /// Makes all changes, or none.
    ///
    /// # Errors
    /// A statement has failed. A record was changed meanwhile, or an inserted key exists. Storage.
    pub fn commit(&self) -> Result<(), SqlError> {
        let mut state = self.state();
        let (changes, has_failed) = (state.changes.take(), state.has_failed);
        drop(state);
        if has_failed {
            return Err(SqlError::Execution(
                "a statement of the transaction had failed, so nothing was changed".to_owned(),
            ));
        }
        match changes.map_or(Ok(()), |(_, batch)| batch.commit()) {
            Err(Error::Changed { key }) => Err(SqlError::Execution(format!(
                "the record with the key {key} was changed by another writer after the transaction had read it, so \
                 nothing was changed; run the transaction again"
            ))),
            done => Ok(done?),
        }
    }
}
