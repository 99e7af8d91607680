//! Inserts are refused, and room is made for deletes, on a full disk. R1 and R2 are in
//! [`crate::engine::disk_space`].

use terrane_lsm::log::Log;

use super::Maintenance;
use crate::engine::disk_space::full_or;
use crate::options::AUTOMATIC_RESERVE_BYTES;
use crate::{Error, Result};

impl Maintenance {
    /// Refuses inserts, imports and new indexes while the reserve is released (R2).
    pub fn check_disk(&self) -> Result<()> {
        let reserve = self.disk.reserve();
        let mut is_flushed = false;
        while reserve.is_released() {
            // Work that uses the space may free some.
            reserve.wait_until_unused();
            if self.disk.restore()? {
                return Ok(());
            }
            if !is_flushed && self.datasets.memory_noted() as u64 > AUTOMATIC_RESERVE_BYTES {
                is_flushed = true;
                self.make_room()?;
            } else if !self.disk.wait_for_merge() {
                let free = self.disk.bytes_to_reserve(self.disk.log_room()).saturating_sub(reserve.length());
                let what =
                    format!("more records: the disk is full, and its reserve is released until {free} bytes are free");
                tracing::debug!(what, "refused");
                return Err(Error::Full { what });
            }
        }
        Ok(())
    }

    /// Makes room in the log for an entry of `length` bytes. If the log may not grow, a flush frees
    /// its files. If that is not enough, an entry of deletes has the reserve.
    pub(in crate::engine) fn reserve_log(&self, log: &Log, length: usize, has_inserts: bool) -> Result<()> {
        if log.has_room(length)? {
            return Ok(());
        }
        let mut is_flushed = false;
        loop {
            match self.disk.grow_log(|may_grow| log.reserve_if(length, may_grow)) {
                Err(Error::Full { .. }) => {}
                grown => return grown,
            }
            if is_flushed && !has_inserts {
                return self.disk.grow_log_for_deletes(log, length);
            }
            if is_flushed && !self.disk.wait_for_merge() {
                return Err(self.disk.refused_growth(length));
            }
            self.make_room()?;
            self.disk.reserve().wait_until_unused();
            is_flushed = true;
        }
    }

    /// Flushes everything, so that the log frees its files and the reserve needs less.
    fn make_room(&self) -> Result<()> {
        let flushed = self.flush_all().map_err(|error| {
            let free = self.datasets.memory_noted() as u64 + self.disk.bytes_of_small_file(0);
            full_or(error, || format!("the flush of what is in memory, until {free} bytes are free"))
        });
        if flushed? {
            self.after_flush();
        }
        // Another thread may have flushed, and not have come to this yet.
        self.datasets.load().values().for_each(|dataset| self.datasets.note_memory(dataset));
        self.reclaim_log(self.environment().context.manifest.current().low_water);
        self.disk.shrink_reserve()
    }
}
