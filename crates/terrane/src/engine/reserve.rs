//! The reserve of disk space: a file without a meaning, whose space is given up when the disk is full.
//!
//! What makes room, and what a store cannot do without, has it then: deletes, flushes with their manifest steps, merges,
//! and opening. The last of it is for opening and for merges by front parts alone, so that deletes cannot take the way back.
//! What brings more is refused until the reserve is whole again, so that it does not eat what was kept for the others. Nor
//! does the log get a file for more before the reserve has, beside that, space for the flush of what is in memory and of
//! what the file can bring; nor for deletes, before the disk has as much beside the last of the reserve. A reserve that was
//! given up is a file of those last bytes, or of as many of them as there are, which the next process finds: a number of
//! blocks less a little, a length that no other reserve has. Nothing of the file is ever synced: a power loss may bring back any of its lengths, and each is a
//! reserve in one of its states. A failed sync is not a full disk ([`Error::Storage`]), so nothing is repeated after one.

mod size;

use std::sync::Arc;

use terrane_lsm::disk::ComponentMeta;
use terrane_lsm::log::Log;
use terrane_lsm::policy::MergePolicy;
use terrane_storage::sync::{AtomicBool, AtomicU64, Condvar, Mutex, MutexGuard, Ordering};
use terrane_storage::{OpenMode, Storage};

pub use size::DiskReserve;
pub(crate) use size::is_given_up;
use size::{AUTOMATIC_MIN, LAST_BLOCKS, Needs, blocks_of, last_of, with_flush};

use super::{DatasetHandle, Engine};
use crate::{Error, Result};

/// The file's name.
pub(crate) const RESERVE_NAME: &str = "RESERVE";

/// No merges of smaller components are tried where larger ones have no room.
const SMALLEST_MERGED: u64 = 4 << 10;
/// How often a write makes room before it is refused.
const GROWTH_ATTEMPTS: usize = 4;

/// What may take how much of a reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    /// All but the last bytes.
    Most,
    All,
}

/// Counted in a reserve's `users` while it lives.
struct Using<'a>(&'a Reserve);

impl Drop for Using<'_> {
    fn drop(&mut self) {
        // Under the lock, so that nobody begins to wait between this and being woken.
        let _length = self.0.length.lock();
        self.0.users.fetch_sub(1, Ordering::Release);
        self.0.unused.notify_all();
    }
}

/// Bytes of the reserve in a store's place, 0 if it was given up; `None` where there is none.
pub(crate) fn reserve_bytes(storage: &dyn Storage) -> Result<Option<u64>> {
    match storage.open(RESERVE_NAME, OpenMode::Read) {
        Ok(file) => Ok(Some(file.len()?)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The reserve of an open store.
#[derive(Debug)]
pub(crate) struct Reserve {
    storage: Arc<dyn Storage>,
    wanted: DiskReserve,
    /// Length of the file; `None` where there is none. Held while the file is changed.
    length: Mutex<Option<u64>>,
    /// Whether the reserve was given up and is not whole again.
    is_spent: AtomicBool,
    /// How much is being done at the moment with what was given up: nothing of it is taken back meanwhile.
    users: AtomicU64,
    /// Told when a user has ended.
    unused: Condvar,
    /// How often it was given up.
    releases: AtomicU64,
    /// Bytes that it had before it was given up.
    given_up: AtomicU64,
    /// What other than the disk's space stood in the way when its size was to be changed last. Taken with the length held.
    obstacle: Mutex<Option<Error>>,
}

impl Reserve {
    /// The reserve that earlier processes have left. A copy of a store may have its length and none of its space, which
    /// it gets again; where the disk has no room for that, there is as little in reserve as after it was given up.
    pub fn open(storage: Arc<dyn Storage>, wanted: DiskReserve) -> Result<Self> {
        let mut length = reserve_bytes(&*storage)?;
        if let Some(found @ 1..) = length {
            let file = storage.open(RESERVE_NAME, OpenMode::Write)?;
            if file.allocate(0..found).is_err_and(|error| error.is_storage_full()) {
                file.set_len(0)?;
                length = Some(0);
            }
        }
        Ok(Self::new(storage, wanted, length))
    }

    /// Of a store that is only read.
    pub fn none(storage: Arc<dyn Storage>) -> Self {
        Self::new(storage, DiskReserve::Bytes(0), None)
    }

    fn new(storage: Arc<dyn Storage>, wanted: DiskReserve, length: Option<u64>) -> Self {
        let is_spent = AtomicBool::new(length.is_some_and(is_given_up) && wanted != DiskReserve::Bytes(0));
        Self {
            storage,
            wanted,
            length: Mutex::new(length),
            is_spent,
            users: AtomicU64::new(0),
            unused: Condvar::new(),
            releases: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
            obstacle: Mutex::new(None),
        }
    }

    /// Whether it was given up and is not whole again.
    pub fn is_spent(&self) -> bool {
        self.is_spent.load(Ordering::Acquire)
    }

    /// Does what leads out of a full disk, once more with all of the reserve's space if there was none. What has no room even
    /// so leaves the reserve to the next.
    pub fn on_full<T>(&self, work: impl FnMut() -> Result<T>) -> Result<T> {
        self.on_full_after(Share::All, work, || Ok(()))
    }

    /// As [`Self::on_full`] with a share of the reserve, and with something to be done before that is given up.
    fn on_full_after<T>(
        &self,
        share: Share,
        mut work: impl FnMut() -> Result<T>,
        before: impl FnOnce() -> Result<()>,
    ) -> Result<T> {
        let releases = self.releases.load(Ordering::Acquire);
        match work() {
            Err(error @ Error::Full { .. }) => {
                before()?;
                if !self.release(share, releases) {
                    return Err(error);
                }
            }
            outcome => return outcome,
        }
        let using = Using(self);
        let outcome = work();
        drop(using);
        outcome.inspect_err(|error| {
            if matches!(error, Error::Full { .. }) {
                self.take_back();
            }
        })
    }

    /// Gives up the space, and counts who has it; false if there was none to give up since it had been given up so many times.
    fn release(&self, share: Share, releases: u64) -> bool {
        let left = if share == Share::All { 0 } else { self.wanted.last() };
        let mut length = self.length.lock();
        let before = length.unwrap_or(0);
        if before > left {
            let cut = self.storage.open(RESERVE_NAME, OpenMode::Write).and_then(|file| file.set_len(left));
            if cut.is_ok() {
                if !self.is_spent() {
                    self.given_up.store(before, Ordering::Relaxed);
                }
                *length = Some(left);
                self.is_spent.store(self.wanted != DiskReserve::Bytes(0), Ordering::Release);
                self.releases.fetch_add(1, Ordering::Release);
            }
        }
        let is_released = self.releases.load(Ordering::Acquire) != releases;
        // Under the lock, so that nobody takes it back before.
        self.users.fetch_add(u64::from(is_released), Ordering::Relaxed);
        is_released
    }

    fn is_used(&self) -> bool {
        self.users.load(Ordering::Acquire) > 0
    }

    /// Waits for flushes and merges that have what was given up: they wait for no writer.
    fn wait_until_unused(&self) -> MutexGuard<'_, Option<u64>> {
        let mut length = self.length.lock();
        while self.is_used() {
            self.unused.wait(&mut length);
        }
        length
    }

    /// Makes the reserve what it was before it was given up, if the space is still there.
    fn take_back(&self) {
        let mut length = self.length.lock();
        if !length.is_some_and(is_given_up) || self.is_used() {
            return;
        }
        let given_up = self.given_up.load(Ordering::Relaxed);
        if given_up > 0 && self.try_resize(&mut length, given_up) {
            self.is_spent.store(false, Ordering::Release);
        } else {
            self.keep_last(&mut length);
        }
    }

    /// Whether the last bytes of a reserve that was given up are there, or could be had again. If not, as many of them as
    /// there are: the next session has no others, if somebody else takes what is free.
    fn keep_last(&self, length: &mut Option<u64>) -> bool {
        let last = self.wanted.last();
        let Some(before) = length.filter(|length| *length < last) else { return true };
        if self.try_resize(length, last) {
            return true;
        }
        let (mut kept, mut too_many) = (blocks_of(before), LAST_BLOCKS);
        while kept + 1 < too_many {
            let blocks = (kept + too_many) / 2;
            if self.try_resize(length, last_of(blocks)) {
                kept = blocks;
            } else {
                too_many = blocks;
            }
        }
        false
    }

    /// Whether opening the store and merging by front parts have what they need, and others so many bytes beside that.
    fn has_last(&self, beside: u64) -> bool {
        let mut length = self.wait_until_unused();
        let last = self.wanted.last();
        if !self.keep_last(&mut length) {
            return false;
        }
        let Some(kept) = length.filter(|length| last > 0 && *length < last + beside) else { return true };
        let has_room = self.try_resize(&mut length, last + beside);
        has_room && self.try_resize(&mut length, kept)
    }

    /// Whether so much of what is kept for opening the store has been taken that it may be too little the next time.
    fn is_short(&self) -> bool {
        let least = self.wanted.last() / 2;
        let is_less = |length: Option<u64>| length.is_some_and(|length| length < least);
        if !self.is_spent() || !is_less(*self.length.lock()) {
            return false;
        }
        let mut length = self.wait_until_unused();
        self.keep_last(&mut length);
        is_less(*length)
    }

    /// Bytes that the last of the reserve lacks.
    pub fn missing_last(&self) -> u64 {
        self.wanted.last().saturating_sub(self.length.lock().unwrap_or(0))
    }

    /// Brings the reserve to the size that a store with these needs has, if there is space for it. One that cannot be
    /// made is none, or the smaller one that there was; false then.
    fn restore(&self, needs: Needs) -> bool {
        let length = self.length.lock();
        !self.is_used() && self.restore_unused(length, needs)
    }

    /// The same where nobody has it, with the length held.
    fn restore_unused(&self, mut length: MutexGuard<'_, Option<u64>>, needs: Needs) -> bool {
        if self.wanted.is_off(*length, needs)
            && !self.try_resize(&mut length, self.wanted.bytes(needs))
            && length.is_some_and(is_given_up)
        {
            self.keep_last(&mut length);
        }
        let is_whole = !self.wanted.is_off(*length, needs);
        if is_whole {
            self.is_spent.store(false, Ordering::Release);
        }
        is_whole
    }

    /// Bytes that the file lacks of the size that [`Self::restore`] gives it.
    fn missing(&self, needs: Needs) -> u64 {
        self.wanted.bytes(needs).saturating_sub(self.length.lock().unwrap_or(0))
    }

    /// Gives up what such needs do not take.
    fn shrink(&self, needs: Needs) {
        let mut length = self.length.lock();
        let wanted = self.wanted.bytes(needs);
        if length.is_some_and(|length| length > wanted) {
            self.try_resize(&mut length, wanted);
        }
    }

    /// As [`Self::restore`]; then whether there is space for what is to be flushed beside what is kept. Where there was
    /// never room for that, the flush is enough.
    fn covers(&self, needs: Needs) -> bool {
        if self.wanted == DiskReserve::Bytes(0) {
            return true;
        }
        let had_room = self.length.lock().is_some_and(|length| self.wanted.is_enough(length, needs, 0));
        self.restore(needs);
        let to_flush = needs.to_flush();
        let mut length = self.length.lock();
        if self.is_spent() || self.is_used() {
            return false;
        }
        if had_room {
            return length.is_some_and(|length| self.wanted.is_enough(length, needs, to_flush));
        }
        if length.unwrap_or(0) < to_flush {
            self.try_resize(&mut length, to_flush + u64::from(is_given_up(to_flush)));
        }
        length.unwrap_or(0) >= to_flush
    }

    /// Whether the file has the wanted length now. What stood in the way is noted, unless it was the want of space.
    fn try_resize(&self, length: &mut Option<u64>, wanted: u64) -> bool {
        let (resized, obstacle) = match self.resize(*length, wanted) {
            Ok(found) => (Some(found), None),
            Err(Error::Full { .. }) => (None, None),
            Err(error) => (None, Some(error)),
        };
        *self.obstacle.lock() = obstacle;
        *length = resized.unwrap_or(*length);
        resized.is_some()
    }

    /// What is to be said of a failure: where the disk seems full as the reserve could not be made, why it could not be.
    fn explain(&self, error: Error) -> Error {
        match error {
            Error::Full { .. } => self.obstacle.lock().take().unwrap_or(error),
            other => other,
        }
    }

    /// The file's length after it was made so long, or as long as it was where there is no space.
    fn resize(&self, before: Option<u64>, wanted: u64) -> Result<Option<u64>> {
        if wanted == 0 {
            match self.storage.remove(RESERVE_NAME) {
                Err(error) if !error.is_not_found() => return Err(error.into()),
                _ => return Ok(None),
            }
        }
        let file = match self.storage.open(RESERVE_NAME, OpenMode::Write) {
            Err(error) if error.is_not_found() => self.storage.open(RESERVE_NAME, OpenMode::CreateNew)?,
            file => file?,
        };
        let before = before.unwrap_or(0);
        if before > wanted {
            file.set_len(wanted)?;
        } else if let Err(error) = file.allocate(0..wanted) {
            // Some file systems keep what they found before they had no more.
            file.set_len(before)?;
            if before == 0 && !self.is_spent() {
                // There never was a reserve, so there is nothing to be kept for it.
                self.storage.remove(RESERVE_NAME)?;
            }
            return Err(error.into());
        }
        Ok(Some(wanted))
    }
}

impl Engine {
    /// Does what makes room, or what the store cannot do without: if the disk is full once more without the log's spare
    /// files, then with the reserve, and then whenever a merge has ended that was under way. A merge in the background
    /// takes what is free until it fails. Not for merges.
    pub fn on_full<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            match self.reserve.on_full_after(Share::Most, || self.without_spares(&mut work), || Ok(())) {
                Err(Error::Full { .. }) if self.workshop.merges.wait_for_one() => {}
                outcome => return outcome,
            }
        }
    }

    fn without_spares<T>(&self, work: &mut impl FnMut() -> Result<T>) -> Result<T> {
        match work() {
            Err(Error::Full { .. }) if self.give_up_spares() => work(),
            outcome => outcome,
        }
    }

    /// As [`Self::on_full`] for a merge: what is in memory is flushed before the reserve is given up, and so keeps its place.
    pub fn on_full_flushed<T>(&self, mut merge: impl FnMut() -> Result<T>) -> Result<T> {
        self.reserve.on_full_after(Share::Most, || self.without_spares(&mut merge), || self.flush_all().map(drop))
    }

    /// As [`Self::on_full`] for a merge that goes before all else, with the last of the reserve as well.
    pub fn on_full_at_once<T>(&self, mut merge: impl FnMut() -> Result<T>) -> Result<T> {
        self.reserve.on_full(|| self.without_spares(&mut merge))
    }

    /// Brings the disk reserve to its size, if there is space.
    pub fn restore_reserve(&self) {
        if self.writable {
            self.restore_reserve_for(|| self.disk_needs(0));
        }
    }

    fn restore_reserve_for(&self, needs: impl Fn() -> Needs) {
        if !self.reserve.restore(needs()) && self.give_up_spares() {
            self.reserve.restore(needs());
        }
    }

    /// As [`Self::restore_reserve`] when those have ended who have it, of whom there may be others behind them.
    fn restore_unused_reserve(&self) {
        drop(self.reserve.wait_until_unused());
        let needs = self.disk_needs(0);
        let restore = || self.reserve.restore_unused(self.reserve.wait_until_unused(), needs);
        if !restore() && self.give_up_spares() {
            restore();
        }
    }

    /// As [`Self::restore_reserve`] for a store that takes no more writes until it is opened anew: nothing comes into its log.
    pub fn leave_reserve(&self) {
        let needs = || Needs { logged: 0, ..self.disk_needs(0) };
        if self.reserve.is_spent() {
            self.restore_reserve_for(needs);
        }
        self.reserve.shrink(needs());
    }

    /// Has the log remove its spare files; whether there were any.
    fn give_up_spares(&self) -> bool {
        self.log.as_ref().is_some_and(|log| matches!(log.give_up_spares(), Ok(true)))
    }

    /// What needs space on disk if the log gets another file of so many bytes.
    fn disk_needs(&self, file: u64) -> Needs {
        Needs {
            stored: self.workshop.manifest.current().components().map(ComponentMeta::bytes).sum(),
            in_memory: self.memory_noted() as u64,
            logged: file + self.log.as_ref().map_or(0, Log::room),
        }
    }

    /// Whether what the log brings with another file of so many bytes could be flushed, if nothing was flushed before.
    /// The smallest files are for deletes, as each may mean a flush.
    fn may_grow(&self, file: u64) -> bool {
        file >= self.options.log.first_segment_size && self.reserve.covers(self.disk_needs(file))
    }

    /// Has a file ready for when the log's last one is full, if the log may grow. If not, it is for the write that has
    /// no room in the log to make some.
    pub fn prepare_log(&self) -> Result<()> {
        let Some(log) = &self.log else {
            self.restore_reserve();
            return Ok(());
        };
        // What the reserve had is for flushes.
        if self.reserve.is_spent() {
            return Ok(());
        }
        match log.prepare_next(&mut |file| self.may_grow(file)) {
            Err(terrane_lsm::Error::Full { .. }) => Ok(()),
            prepared => Ok(prepared?),
        }
    }

    /// Makes room in the log for an entry. Where the log may not grow, a flush frees what it has; if that is not
    /// enough, what only deletes has the reserve. The log does not grow while that is in use, as flushes need it.
    pub fn reserve_log(&self, log: &Log, length: usize, brings: bool) -> Result<()> {
        if log.has_room(length)? {
            return if brings { Ok(()) } else { self.keep_way() };
        }
        let grow = || log.reserve_if(length, &mut |file| self.may_grow(file)).map_err(Error::from);
        if !self.reserve.is_spent() {
            match grow() {
                Err(Error::Full { .. }) => {}
                grown => return grown,
            }
        }
        for attempt in 1.. {
            self.make_room().map_err(|error| self.explain_flush(error))?;
            match grow() {
                Err(Error::Full { .. }) if !brings => break,
                // Others may have had the reserve, or have flushed, in between.
                Err(Error::Full { .. }) if attempt < GROWTH_ATTEMPTS => {
                    drop(self.reserve.wait_until_unused());
                    self.workshop.merges.wait_for_one();
                }
                grown => return grown.map_err(|error| self.explain_growth(error, length)),
            }
        }
        match self.grow_for_deletes(log, length) {
            Err(Error::Full { .. }) if !brings && self.make_way() => self.grow_for_deletes(log, length),
            grown => grown,
        }
    }

    /// Gives the log a small file, for which, and for the flush of what it brings, there is space beside the last of the reserve.
    fn grow_for_deletes(&self, log: &Log, length: usize) -> Result<()> {
        let options = &self.options.log;
        let smallest = options.smallest_size(length);
        let mut sizes = [options.first_segment_size.max(smallest), smallest].into_iter();
        let Some(size) = sizes.find(|&size| self.reserve.has_last(with_flush(size))) else {
            return Err(self.refused_deletes(with_flush(smallest)));
        };
        self.on_full(|| Ok(log.reserve_if(length, &mut |file| file <= size)?))
    }

    /// Refuses deletes where opening the store had to take what it has left, so that there is something for the next time.
    fn keep_way(&self) -> Result<()> {
        if self.reserve.is_short() && (!self.make_way() || self.reserve.is_short()) {
            return Err(self.refused_deletes(0));
        }
        Ok(())
    }

    fn refused_deletes(&self, beside: u64) -> Error {
        let free = self.reserve.missing_last() + beside;
        let what = format!(
            "more deletes, until {free} bytes are free: what the disk has left is for opening the store and for merges"
        );
        self.reserve.explain(Error::Full { what })
    }

    /// What is to be said where the log cannot grow for an entry: of a full disk, how much has to be free.
    fn explain_growth(&self, error: Error, length: usize) -> Error {
        let file = self.options.log.first_segment_size.max(length as u64);
        let free = file + self.reserve.missing(self.disk_needs(file));
        match self.reserve.explain(error) {
            Error::Full { .. } => Error::Full {
                what: format!(
                    "another file of the log and the flush of what it brings, until {free} bytes are free for them"
                ),
            },
            other => other,
        }
    }

    /// What is to be said where what is in memory cannot be flushed.
    fn explain_flush(&self, error: Error) -> Error {
        match self.reserve.explain(error) {
            Error::Full { what } => {
                let next = with_flush(self.options.log.smallest_size(0));
                let free = self.memory_noted() as u64 + self.reserve.missing_last() + next;
                Error::Full {
                    what: format!("{what}, until {free} bytes are free for what is in memory and comes next"),
                }
            }
            other => other,
        }
    }

    /// Makes a merge of small components where there was no room for the one that the policy wants, so that
    /// what is flushed on a full disk does not become many components, or, where nothing is small enough, of what deletes have left to be
    /// freed; the error of the other one where nothing is.
    pub fn merge_what_fits(&self, dataset: &DatasetHandle, error: Error) -> Result<bool> {
        let manifest = self.workshop.manifest.current();
        let mut largest = manifest.components().map(ComponentMeta::bytes).max().unwrap_or(0);
        while largest > SMALLEST_MERGED {
            largest /= 4;
            let smaller = MergePolicy::Prefix { mergeable_bytes_max: largest, components_max: 4 };
            match self.merge_by(dataset, &smaller) {
                Ok(false) | Err(Error::Full { .. }) => {}
                merged => return merged,
            }
        }
        if self.merge_fronts(dataset)? { Ok(true) } else { Err(error) }
    }

    /// Flushes everything, and has it merged.
    fn make_room(&self) -> Result<()> {
        if self.flush_all()? {
            self.after_flush();
        }
        // Another thread may have flushed, and not have come to this yet.
        self.datasets.load().values().for_each(|dataset| self.note_memory(dataset));
        self.reclaim_log(self.workshop.manifest.current().low_water);
        self.restore_reserve();
        Ok(())
    }

    /// Flushes what is sealed, and waits for the flushes that others have begun.
    fn flush_sealed(&self) -> Result<()> {
        let datasets: Vec<_> = self.datasets.load().values().cloned().collect();
        datasets.iter().try_for_each(|dataset| {
            while self.flush_oldest(dataset)? {}
            Ok(())
        })
    }

    /// Refuses what brings more into the store while its disk reserve is in use.
    pub fn check_disk(&self) -> Result<()> {
        let is_spent = || {
            self.restore_unused_reserve();
            self.reserve.is_spent()
        };
        if !self.reserve.is_spent() || !is_spent() {
            return Ok(());
        }
        // A flush that has the reserve gives it back, and with less in memory it is whole with less.
        self.flush_sealed()?;
        if !is_spent() {
            return Ok(());
        }
        if self.memory_noted() as u64 > AUTOMATIC_MIN {
            self.make_room()?;
            if !is_spent() {
                return Ok(());
            }
        }
        self.give_up_kept();
        if !is_spent() {
            return Ok(());
        }
        // A merge takes what is free until it ends, or fails and gives back what it has taken. One may just have.
        let mut may_come = true;
        while may_come {
            may_come = self.workshop.merges.wait_for_one();
            if !is_spent() {
                return Ok(());
            }
        }
        let missing = self.reserve.missing(self.disk_needs(0));
        Err(Error::Full {
            what: format!(
                "more records: the disk is full, and what its reserve had is for deletes and merges \
                 until {missing} bytes are free for it again"
            ),
        })
    }
}

#[cfg(test)]
mod tests;
