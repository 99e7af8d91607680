//! The slowing of writers at the memory limit, and where merges fall behind.
//!
//! What writes bring counts from their admission on: what is applied as memory components, what is
//! on its way as claims. Small writes claim nothing; an eighth of the share is left for them.
//! Whoever has to wait does so in turn, so that neither large nor small writes are passed over for
//! ever. A writer that has claimed waits for nothing but what it has the locks of already.

use std::time::Duration;

use terrane_storage::sync::Ordering;

use super::super::Engine;
use super::super::commit::closed;
use crate::{Error, Result};

/// How long a slowed write waits, unless merges have caught up before.
const SLOWED: Duration = Duration::from_millis(2);
/// Writes of more than this part of the share of memory components claim what they bring.
const SMALL_PART: usize = 512;

/// Lets a write go on until it is applied, or given up.
#[derive(Debug)]
#[must_use = "what was claimed is free again when this is dropped"]
pub(crate) struct Admitted<'e> {
    engine: &'e Engine,
    claimed: usize,
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        if self.claimed > 0 {
            let maintenance = &self.engine.maintenance;
            // Under the lock, so that nobody begins to wait between this and being woken.
            let _state = maintenance.state.lock();
            maintenance.claimed.fetch_sub(self.claimed, Ordering::Relaxed);
            maintenance.changed.notify_all();
        }
    }
}

impl Engine {
    /// Lets a write pass that brings about so many bytes, or has it wait until memory components have
    /// room again. One that is larger than their whole share passes alone. The caller holds all
    /// locks of keys that it needs.
    pub fn admit_write(&self, bytes: usize) -> Result<Admitted<'_>> {
        self.slow_down();
        if bytes > self.shares.components / SMALL_PART {
            return self.admit_in_turn(bytes.min(self.shares.components));
        }
        if self.fits(self.memory_noted() + self.claimed(), 0) {
            Ok(Admitted { engine: self, claimed: 0 })
        } else {
            self.admit_in_turn(0)
        }
    }

    /// Bytes for large writes that are not applied yet.
    pub(super) fn claimed(&self) -> usize {
        self.maintenance.claimed.load(Ordering::Relaxed)
    }

    /// Has a write wait a little while merges are far behind, so that they gain on the writers, whom a
    /// long merge never stops.
    fn slow_down(&self) {
        if !self.options.background || !self.maintenance.crowded.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.maintenance.state.lock();
        if !state.stopping {
            self.maintenance.slowed.fetch_add(1, Ordering::Relaxed);
            self.maintenance.changed.wait_for(&mut state, SLOWED);
        }
    }

    /// Whether memory components with what is claimed, `claim` of it by who asks, stay within their share.
    fn has_room(&self, claim: usize) -> bool {
        self.fits(self.memory_used() + self.claimed(), claim)
    }

    /// An eighth of the share is left for the small writes that pass at the same time, which claim
    /// nothing, as memory is taken in chunks.
    fn fits(&self, bytes: usize, claim: usize) -> bool {
        let share = self.shares.components;
        if claim > 0 { bytes <= share } else { bytes < share / 8 * 7 }
    }

    /// Claims memory for a write when it is its turn, and waits until there is as much.
    fn admit_in_turn(&self, claim: usize) -> Result<Admitted<'_>> {
        let maintenance = &self.maintenance;
        let first_round = maintenance.state.lock().rounds;
        let turn = maintenance.turn.lock();
        self.wait_for_writers(|| self.claimed() + claim <= self.shares.components);
        maintenance.claimed.fetch_add(claim, Ordering::Relaxed);
        // From here on small writes leave room for this one too, so that what is flushed stays free.
        let admitted = Admitted { engine: self, claimed: claim };
        if !self.has_room(claim) {
            maintenance.stalls.fetch_add(1, Ordering::Relaxed);
        }
        let mut flushed = false;
        while !self.has_room(claim) {
            if self.is_memory_empty() {
                self.check_fits(claim)?;
                self.wait_for_writers(|| self.has_room(claim) || !self.is_memory_empty());
            } else if self.options.background {
                self.wait_for_flush(first_round)?;
            } else {
                flushed |= self.flush_full()?;
            }
        }
        drop(turn);
        if flushed {
            self.after_flush();
        }
        Ok(admitted)
    }

    /// Waits for writers that have claimed memory, who wait for nobody.
    fn wait_for_writers(&self, is_done: impl Fn() -> bool) {
        let mut state = self.maintenance.state.lock();
        while !is_done() {
            self.maintenance.changed.wait(&mut state);
        }
    }

    /// Asks for a flush and waits until something has happened.
    fn wait_for_flush(&self, first_round: u64) -> Result<()> {
        let mut state = self.maintenance.state.lock();
        if state.stopping {
            return Err(closed());
        }
        self.check_writable()?;
        if let Some(error) = state.flush_failed.as_ref().filter(|_| state.rounds > first_round) {
            return Err(error.clone());
        }
        state.flush_wanted = true;
        self.maintenance.changed.notify_all();
        self.maintenance.changed.wait(&mut state);
        Ok(())
    }

    fn is_memory_empty(&self) -> bool {
        self.datasets.load().values().all(|dataset| dataset.partitions.is_memory_empty())
    }

    /// Refuses what would have no room in empty memory components.
    fn check_fits(&self, claim: usize) -> Result<()> {
        if self.fits(claim, claim) {
            return Ok(());
        }
        Err(Error::Memory {
            what: "a write".into(),
            needed_bytes: (claim as u64).max(1),
            available_bytes: (self.shares.components / 8 * 7) as u64,
        })
    }
}
