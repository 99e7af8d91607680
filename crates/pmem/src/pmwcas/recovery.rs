//! Recovery of descriptors after a crash, and of the blocks that they name.

use super::kernel::Memory;
use super::layout::{CONDITIONAL, FLAGS, WORDS};
use super::layout::{Entry, State, Status, decode_conditional, installed, stamp_offset};
use super::{ACQUIRED, RELEASED};
use crate::{Backend, Error, LINE_LENGTH, Pool, Result, Site, WORD_LENGTH};

const ROLL: Site = Site::new("pmwcas.roll");
const RECYCLE: Site = Site::new("pmwcas.recycle");

/// Offsets of the block entries of a descriptor.
pub(super) fn block_offsets(descriptor: u64) -> impl Iterator<Item = u64> {
    (descriptor + WORD_LENGTH..descriptor + LINE_LENGTH).step_by(WORD_LENGTH as usize)
}

/// The block that is named at an offset; 0 if none is.
pub(super) fn block_at<B: Backend>(backend: &B, offset: u64) -> u64 {
    backend.load(offset) & !(LINE_LENGTH - 1)
}

impl<B: Backend> Memory for Pool<B> {
    type Backend = B;

    fn backend(&self) -> &B {
        self.backend()
    }

    fn is_descriptor(&self, offset: u64) -> Result<bool> {
        self.is_descriptor(offset)
    }

    fn damaged(&self, offset: u64, reason: String) -> Error {
        Error::Damaged { pool: self.name().to_owned(), offset, reason }
    }
}

impl<B: Backend> Pool<B> {
    /// Checks that the contents of a descriptor make sense.
    pub(crate) fn check_descriptor(&self, descriptor: u64) -> Result<()> {
        let backend = self.backend();
        let status = self.status(descriptor)?;
        if status.state == State::Free {
            return Ok(());
        }
        for (_, entry) in Entry::load_all(backend, descriptor, status.stamp) {
            self.check_range(entry.address, WORD_LENGTH)?;
            if (entry.old | entry.new) & FLAGS != 0 {
                return Err(self.damaged(descriptor, "a descriptor has a value with flags".to_owned()));
            }
        }
        self.blocks_to_free(descriptor)?.into_iter().try_for_each(|block| self.check_block(block).map(drop))
    }

    /// Invalidates entries that were written for a use that the descriptor's status does not know
    /// yet.
    ///
    /// If the power fails before the first fence of an operation, its later lines can be left
    /// without the first one. The next use has the same stamp, and would take entries behind its
    /// own for its own. This clearing need not be durable. After another crash the entries name
    /// words that the descriptor does not have (M3), or are cleared here again.
    pub(crate) fn clear_later_entries(&self, descriptor: u64) -> Result<()> {
        let stamp = self.status(descriptor)?.stamp;
        (0..WORDS).map(|index| stamp_offset(descriptor, index)).for_each(|offset| {
            if self.backend().load(offset) > stamp {
                self.backend().store(offset, 0);
            }
        });
        Ok(())
    }

    pub(crate) fn is_free(&self, descriptor: u64) -> Result<bool> {
        Ok(self.status(descriptor)?.state == State::Free)
    }

    /// Gives words that descriptors have, or are asked for, their right value, durably.
    ///
    /// A crash in between leaves the descriptors unchanged, and recovery does the rest again.
    pub(crate) fn roll_descriptors(&self, descriptors: &[u64]) -> Result<()> {
        let backend = self.backend();
        for &descriptor in descriptors {
            let status = self.status(descriptor)?;
            if status.state == State::Filling {
                continue;
            }
            for (index, entry) in Entry::load_all(backend, descriptor, status.stamp) {
                let found = backend.load(entry.address);
                let value = if found == installed(descriptor) {
                    if status.state == State::Succeeded { entry.new } else { entry.old }
                } else if found & FLAGS == CONDITIONAL && decode_conditional(found) == (descriptor, index) {
                    // Asked in vain, before the decision or after it.
                    entry.old
                } else {
                    continue;
                };
                backend.store(entry.address, value);
                backend.flush(entry.address..entry.address + WORD_LENGTH, ROLL);
            }
        }
        if !descriptors.is_empty() {
            backend.fence(ROLL);
        }
        Ok(())
    }

    /// The blocks named by a descriptor that are free as it has ended (M8).
    pub(crate) fn blocks_to_free(&self, descriptor: u64) -> Result<Vec<u64>> {
        let wanted = match self.status(descriptor)?.state {
            State::Free => return Ok(Vec::new()),
            State::Succeeded => RELEASED,
            State::Filling | State::Undecided | State::Failed => ACQUIRED,
        };
        let named = block_offsets(descriptor).map(|offset| self.backend().load(offset)).filter(|block| *block != 0);
        Ok(named.filter(|block| block % LINE_LENGTH == wanted).map(|block| block - wanted).collect())
    }

    /// Makes a descriptor name nothing, durably after the next fence.
    pub(crate) fn clear_descriptor(&self, descriptor: u64) -> Result<()> {
        let backend = self.backend();
        let status = self.status(descriptor)?;
        backend.store(descriptor, Status { state: State::Free, ..status }.encode());
        // Stores to one line keep their order, so a descriptor that is not free names all of its
        // blocks. One that is free names none, even if its state is damaged.
        for offset in block_offsets(descriptor).filter(|offset| backend.load(*offset) != 0) {
            backend.store(offset, 0);
        }
        backend.flush(descriptor..descriptor + LINE_LENGTH, RECYCLE);
        Ok(())
    }
}
