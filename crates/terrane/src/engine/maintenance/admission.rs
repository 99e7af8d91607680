//! Writers wait at the memory limit, and are slowed if merges fall behind.
//!
//! The bytes of a write count from its admission on: as a claim first, and as memory components
//! once it is applied. Small writes claim nothing; an eighth of the share is left for them. Writes
//! wait one after the other for the admission ticket, so that neither large nor small ones are
//! passed over for ever. A writer with a claim waits only for the locks that it holds already.

use std::time::{Duration, Instant};

use terrane_storage::sync::Ordering;

use super::Maintenance;
use crate::engine::commit_core::closed;
use crate::{Error, Result};

/// How long a slowed write waits, unless merges have caught up before.
const SLOWED: Duration = Duration::from_millis(2);
/// Writes of more than this part of the share of memory components claim their bytes.
const SMALL_PART: usize = 512;

/// Admits a write until it is applied, or abandoned.
#[derive(Debug)]
#[must_use = "the claim ends when this is dropped"]
pub(crate) struct Admitted<'e> {
    maintenance: &'e Maintenance,
    claimed: usize,
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        if self.claimed > 0 {
            let maintenance = self.maintenance;
            // Under the lock, so that nobody begins to wait between this and being woken.
            let _state = maintenance.state.lock();
            maintenance.claimed.fetch_sub(self.claimed, Ordering::Relaxed);
            maintenance.changed.notify_all();
        }
    }
}

impl Maintenance {
    /// Admits a write of about `bytes`, or has it wait until memory components have room again. One
    /// that is larger than their whole share passes alone. The caller holds all locks of keys that
    /// it needs.
    pub fn admit_write(&self, bytes: usize) -> Result<Admitted<'_>> {
        self.slow_down();
        if bytes > self.environment().shares.components / SMALL_PART {
            return self.admit_with_ticket(bytes.min(self.environment().shares.components));
        }
        if self.fits(self.datasets.memory_noted() + self.claimed(), 0) {
            Ok(Admitted { maintenance: self, claimed: 0 })
        } else {
            self.admit_with_ticket(0)
        }
    }

    /// Bytes for large writes that are not applied yet.
    pub(super) fn claimed(&self) -> usize {
        self.claimed.load(Ordering::Relaxed)
    }

    /// Has a write wait a little while merges are far behind, so that they gain on the writers. A
    /// long merge never stops a writer.
    fn slow_down(&self) {
        if !self.is_in_background() || !self.crowded.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.state.lock();
        if !state.stopping {
            self.counters.slowed.fetch_add(1, Ordering::Relaxed);
            self.changed.wait_for(&mut state, SLOWED);
        }
    }

    /// Whether memory components with all claims, `claim` of them by the caller, stay within their
    /// share.
    fn has_room(&self, claim: usize) -> bool {
        self.fits(self.datasets.memory_used() + self.claimed(), claim)
    }

    /// An eighth of the share is left for the small writes that pass at the same time, which claim
    /// nothing, as memory is taken in chunks.
    fn fits(&self, bytes: usize, claim: usize) -> bool {
        let share = self.environment().shares.components;
        if claim > 0 { bytes <= share } else { bytes < share / 8 * 7 }
    }

    /// Claims memory for a write when it has the ticket, and waits until there is as much.
    fn admit_with_ticket(&self, claim: usize) -> Result<Admitted<'_>> {
        let first_round = self.state.lock().rounds;
        let ticket = self.ticket.lock();
        self.wait_for_writers(|| self.claimed() + claim <= self.environment().shares.components);
        self.claimed.fetch_add(claim, Ordering::Relaxed);
        // From here on small writes leave room for this one too, so that what is flushed stays
        // free.
        let admitted = Admitted { maintenance: self, claimed: claim };
        let stalled = (!self.has_room(claim)).then(Instant::now);
        if stalled.is_some() {
            self.counters.stalls.fetch_add(1, Ordering::Relaxed);
        }
        let mut flushed = false;
        while !self.has_room(claim) {
            if self.datasets.is_memory_empty() {
                self.check_fits(claim)?;
                self.wait_for_writers(|| self.has_room(claim) || !self.datasets.is_memory_empty());
            } else if self.is_in_background() {
                self.wait_for_flush(first_round)?;
            } else {
                flushed |= self.flush_full()?;
            }
        }
        drop(ticket);
        if let Some(stalled) = stalled {
            tracing::debug!(bytes = claim, waited_ms = stalled.elapsed().as_millis(), "a write waited for a flush");
        }
        if flushed {
            self.after_flush();
        }
        Ok(admitted)
    }

    /// Waits for writers that have claimed memory, which wait for nobody.
    fn wait_for_writers(&self, is_done: impl Fn() -> bool) {
        let mut state = self.state.lock();
        while !is_done() {
            self.changed.wait(&mut state);
        }
    }

    /// Asks for a flush and waits until something has happened.
    fn wait_for_flush(&self, first_round: u64) -> Result<()> {
        let mut state = self.state.lock();
        if state.stopping {
            return Err(closed());
        }
        self.core.check_writable()?;
        if let Some(error) = state.flush_failed.as_ref().filter(|_| state.rounds > first_round) {
            return Err(error.clone());
        }
        state.flush_wanted = true;
        self.changed.notify_all();
        self.changed.wait(&mut state);
        Ok(())
    }

    /// Refuses a write that would have no room in empty memory components.
    fn check_fits(&self, claim: usize) -> Result<()> {
        if self.fits(claim, claim) {
            return Ok(());
        }
        Err(Error::Memory {
            what: "a write".into(),
            needed_bytes: (claim as u64).max(1),
            available_bytes: (self.environment().shares.components / 8 * 7) as u64,
        })
    }
}
