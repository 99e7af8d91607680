//! The log of a store that is open for writing.

use std::sync::Arc;

use terrane_storage::Storage;

use super::commit::CommitKernel;
use super::layout::{DIRECTORY, GroupSeal, Previous, size_for, unfinished_name};
use super::recovery::{Directory, OnEntry, Replay, replay};
use super::segment::{Segment, SegmentFile, sync_names};
use super::table::{HoldGuard, SegmentTable};
use super::{Appended, LogOptions, LogPosition, Lsn, RecoveryReport};
use crate::stamp::draw_stamp;
use crate::{Error, Result};
use terrane_storage::sync::Mutex;

/// Decides whether the log may grow by a file of this many bytes.
pub type MayGrow<'a> = dyn FnMut(u64) -> bool + 'a;

const REWRITE_CHUNK_LENGTH: u64 = 1 << 20;

/// The write-ahead log of one store, open for writing. Dropping it without [`Log::close`] has the
/// effect of a crash: entries that were not synced are lost.
#[derive(Debug)]
pub struct Log {
    storage: Arc<dyn Storage>,
    options: LogOptions,
    kernel: CommitKernel,
    table: Arc<Mutex<SegmentTable>>,
    /// Held during the I/O of preparing and retiring files, never by `append` and `sync_to`.
    maintenance: Mutex<Maintenance>,
}

/// Files that are not part of the log now.
#[derive(Debug)]
struct Maintenance {
    storage: Arc<dyn Storage>,
    options: LogOptions,
    /// Retired files for reuse, all exclusively locked.
    pool: Vec<SegmentFile>,
    number_next: u64,
}

impl Log {
    /// Replays the log from the low-water mark `from`, then begins a new segment behind its end.
    ///
    /// `on_entry` gets every entry from `from` on, with its LSN, in the order of appending. If this
    /// returns an error, discard those entries. On damage no file was changed.
    ///
    /// # Errors
    /// [`Error::Damaged`] if bytes that were proven durable cannot be read, [`Error::Full`] if
    /// there is no space for a new segment, errors of `on_entry`, and failures of the storage.
    pub fn open(
        storage: Arc<dyn Storage>,
        options: LogOptions,
        store_id: [u8; 16],
        from: LogPosition,
        on_entry: &mut OnEntry<'_>,
    ) -> Result<(Self, RecoveryReport)> {
        options.check()?;
        let directory = Directory::open(storage.as_ref(), store_id, from)?;
        let seal = GroupSeal::new(store_id);
        let replayed = replay(&directory.begun, seal, from, on_entry)?;

        // From here on files change, in an order that leaves the same log after a crash (I3, I6,
        // I8, I9).
        let session = draw_stamp(storage.as_ref());
        storage.create_directory(DIRECTORY)?;
        storage.sync_directory("")?;
        if let Some(last) = directory.begun.last() {
            secure_tail(last, &replayed)?;
            last.note_successor(seal, session)?;
        }
        for number in directory.unfinished {
            storage.remove(&unfinished_name(number))?;
        }
        let mut maintenance = Maintenance {
            storage: storage.clone(),
            options,
            pool: Vec::new(),
            number_next: directory
                .number_max
                .checked_add(1)
                .ok_or_else(|| Error::damaged(DIRECTORY, 0, "a file has the highest possible number"))?,
        };
        for spare in directory.spares {
            maintenance.retire(spare)?;
        }
        let file = match maintenance.prepare(options.first_segment_size) {
            // Deletes that make room on a full disk begin here, too.
            Err(Error::Full { .. }) if options.smallest_size(0) < options.first_segment_size => {
                maintenance.prepare(options.smallest_size(0))?
            }
            file => file?,
        };
        sync_names(storage.as_ref())?;
        let previous = directory.begun.last().map_or(Previous::default(), |segment| segment.header.as_previous());
        let segment = Arc::new(Segment::new(file, store_id, session, replayed.end_lsn, previous));
        segment.begin()?;

        let table = Arc::new(Mutex::new(SegmentTable::new(directory.begun, segment.clone())));
        let kernel = CommitKernel::new(store_id, segment, table.clone());
        let log = Self { storage, options, kernel, table, maintenance: Mutex::new(maintenance) };
        Ok((log, replayed.report))
    }

    /// Makes room for an entry of `length` bytes, creating a segment if needed. Call it before
    /// taking the commit latch. The entry may be appended once this has returned, unless another
    /// thread has used the room meanwhile; [`Log::append`] reports that.
    ///
    /// # Errors
    /// [`Error::Full`] if the disk has no space. Nothing was changed, and a later call may succeed.
    pub fn reserve(&self, length: usize) -> Result<()> {
        self.reserve_if(length, &mut |_| true)
    }

    /// Like [`Log::reserve`], but the caller limits the growth of the log. `may_grow` is asked
    /// before each file, with the file's bytes. If it refuses the usual size, spare files are
    /// removed, and it is asked for smaller sizes. Of the log's methods, it may call only
    /// [`Log::room`].
    ///
    /// # Errors
    /// As for [`Log::reserve`]; also [`Error::Full`] if `may_grow` refuses.
    pub fn reserve_if(&self, length: usize, may_grow: &mut MayGrow<'_>) -> Result<()> {
        if self.kernel.has_room(length)? {
            return Ok(());
        }
        let mut maintenance = self.maintenance.lock();
        while !self.kernel.has_room(length)? {
            self.prepare(&mut maintenance, length, may_grow)?;
        }
        Ok(())
    }

    /// Bytes that entries with their groups may still take before the log needs another file.
    pub fn room(&self) -> u64 {
        self.kernel.room()
    }

    /// Whether an entry of `length` bytes fits without another segment.
    ///
    /// # Errors
    /// [`Error::Poisoned`] after a failure; also if the entry is too long for any segment.
    pub fn has_room(&self, length: usize) -> Result<bool> {
        self.kernel.has_room(length)
    }

    /// Appends an entry in memory, without I/O. [`Log::sync_to`] with the returned
    /// [`Appended::end_lsn`] makes it durable.
    ///
    /// # Errors
    /// [`Error::Full`] if no prepared segment takes the entry. Nothing was appended; call
    /// [`Log::reserve`] without the commit latch and append again. [`Error::Poisoned`] after a
    /// failure.
    pub fn append(&self, entry: &[u8]) -> Result<Appended> {
        self.append_with(entry.len(), |bytes| bytes.copy_from_slice(entry))
    }

    /// Like [`Log::append`] for an entry of `length` bytes that `fill` writes over zeros. `fill` is
    /// called only if the entry is accepted, and under the log's mutex.
    pub fn append_with(&self, length: usize, fill: impl FnOnce(&mut [u8])) -> Result<Appended> {
        self.kernel.append(length, fill)
    }

    /// Returns when everything below `lsn` is durable. The calling thread may write the groups of
    /// others too.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if this or an earlier write or sync failed before `lsn` was durable. The
    /// entry may or may not be found when the store is opened again.
    pub fn sync_to(&self, lsn: Lsn) -> Result<()> {
        self.kernel.sync_to(lsn)
    }

    /// Everything below is durable.
    pub fn durable_lsn(&self) -> Lsn {
        self.kernel.durable_lsn()
    }

    /// LSN after the last appended entry; every later entry starts behind it.
    pub fn end_lsn(&self) -> Lsn {
        self.kernel.end_lsn()
    }

    /// Position of the durable end of the log.
    pub fn position(&self) -> LogPosition {
        let lsn = self.durable_lsn();
        self.table.lock().position_of(lsn).expect("the log's first segment lies below its durable end")
    }

    /// Position of a durable LSN, for a manifest that names it as the low-water mark.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `lsn` is not durable, or before the existing segments.
    pub fn position_of(&self, lsn: Lsn) -> Result<LogPosition> {
        let durable_lsn = self.durable_lsn();
        let position = if lsn <= durable_lsn { self.table.lock().position_of(lsn) } else { None };
        position
            .ok_or_else(|| Error::Invalid(format!("LSN {lsn} is not in the log, which is durable up to {durable_lsn}")))
    }

    /// Retires the segments before a position from [`Log::position_of`]. Nothing before it will be
    /// replayed again. Call it after the manifest that names this position is durable (I6).
    pub fn set_low_water(&self, position: LogPosition) -> Result<()> {
        let mut maintenance = self.maintenance.lock();
        self.kernel.check_usable()?;
        if position.lsn > self.durable_lsn() || position.segment > self.table.lock().last().file.number {
            return Err(Error::Invalid(format!("{position:?} is behind the durable end of the log")));
        }
        let retired = self.table.lock().take_before(position.segment);
        let mut outcome = Ok(());
        for segment in retired {
            outcome = outcome.and(maintenance.retire((*segment).clone().into_spare()));
        }
        outcome
    }

    /// Keeps the log from `lsn` on, whatever the low-water mark, for a follower.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the log does not reach back to `lsn`.
    pub fn hold(&self, lsn: Lsn) -> Result<HoldGuard> {
        HoldGuard::new(&self.table, lsn)
            .ok_or_else(|| Error::Invalid(format!("the log no longer reaches back to LSN {lsn}")))
    }

    /// Whether [`Log::prepare_next`] should be called soon, so that no commit waits for a new
    /// segment.
    pub fn needs_preparation(&self) -> bool {
        self.kernel.needs_preparation()
    }

    /// Prepares the next segment if none is prepared. For a background thread.
    ///
    /// # Errors
    /// As for [`Log::reserve_if`].
    pub fn prepare_next(&self, may_grow: &mut MayGrow<'_>) -> Result<()> {
        let mut maintenance = self.maintenance.lock();
        self.kernel.check_usable()?;
        if self.kernel.lacks_prepared() { self.prepare(&mut maintenance, 0, may_grow) } else { Ok(()) }
    }

    /// Removes the files that are kept for reuse, to free their space; returns whether there were
    /// any.
    ///
    /// # Errors
    /// Failures of the storage.
    pub fn remove_spares(&self) -> Result<bool> {
        self.maintenance.lock().remove_spares()
    }

    /// Makes everything durable and marks the log as cleanly closed. Later appends are refused.
    pub fn close(&self) -> Result<()> {
        let _maintenance = self.maintenance.lock();
        self.kernel.close()
    }

    /// Prepares a file that takes an entry of `length` bytes.
    fn prepare(&self, maintenance: &mut Maintenance, length: usize, may_grow: &mut MayGrow<'_>) -> Result<()> {
        let needed = size_for(length);
        let (size, size_min) = (self.options.segment_size.max(needed), self.options.first_segment_size.max(needed));
        let mut file = maintenance.prepare_if(size, may_grow);
        if matches!(file, Err(Error::Full { .. })) && maintenance.remove_spares()? {
            file = maintenance.prepare_if(size, may_grow);
        }
        // A disk that is nearly full has space for a smaller one.
        if matches!(file, Err(Error::Full { .. })) && size_min < size {
            file = maintenance.prepare_if(size_min, may_grow);
        }
        let size_least = self.options.smallest_size(length);
        if matches!(file, Err(Error::Full { .. })) && size_least < size_min {
            file = maintenance.prepare_if(size_least, may_grow);
        }
        let file = file?;
        if let Err(error) = sync_names(self.storage.as_ref()) {
            match &error {
                // No sync was attempted, for example because descriptors are short and the
                // directory cannot be opened.
                Error::Storage(storage) if !storage.operation().is_sync() => {
                    let _ = self.storage.remove(&file.name());
                }
                // A failed sync never counts as a success later, so nothing may follow it.
                _ => self.kernel.poison(error.to_string()),
            }
            return Err(error);
        }
        for skipped in self.kernel.add_prepared(file) {
            maintenance.retire(skipped)?;
        }
        Ok(())
    }
}

impl Maintenance {
    /// Like [`Self::prepare`], if the log may grow by that size.
    fn prepare_if(&mut self, size: u64, may_grow: &mut MayGrow<'_>) -> Result<SegmentFile> {
        if !may_grow(size) {
            return Err(Error::Full { what: "another file of the log and the flush of its entries".into() });
        }
        self.prepare(size)
    }

    fn remove_spares(&mut self) -> Result<bool> {
        let any = !self.pool.is_empty();
        while let Some(spare) = self.pool.pop() {
            self.storage.remove(&spare.name())?;
        }
        Ok(any)
    }

    /// A file of at least `size` bytes under the next number. Its name is not durable yet.
    fn prepare(&mut self, size: u64) -> Result<SegmentFile> {
        let number = self.number_next;
        self.number_next += 1;
        while size <= self.options.segment_size
            && let Some(spare) = self.pool.pop()
        {
            let name = spare.name();
            if let Some(file) = spare.recycle(self.storage.as_ref(), number)? {
                return Ok(file);
            }
            self.storage.remove(&name)?;
        }
        SegmentFile::create(self.storage.as_ref(), number, size)
    }

    /// Keeps a file for reuse. Removes its name instead if its size differs, enough files are kept,
    /// or a reader of another process holds it (which can continue to read).
    fn retire(&mut self, mut spare: SegmentFile) -> Result<()> {
        let wanted = spare.size == self.options.segment_size && self.pool.len() < self.options.spare_segments;
        if wanted && spare.lock_exclusively()? {
            self.pool.push(spare);
        } else {
            self.storage.remove(&spare.name())?;
        }
        Ok(())
    }
}

/// Makes the end of the last writer's segment durable (I8).
fn secure_tail(last: &Segment, replayed: &Replay) -> Result<()> {
    let file = &last.file.file;
    if !replayed.report.clean_close {
        file.write_all_at(&last.header.encode(), 0)?;
        let mut offset = last.header.offset_of(replayed.proven_lsn);
        let end = last.header.offset_of(replayed.end_lsn);
        let mut buffer = Vec::new();
        while offset < end {
            buffer.resize((end - offset).min(REWRITE_CHUNK_LENGTH) as usize, 0);
            file.read_exact_at(&mut buffer, offset)?;
            file.write_all_at(&buffer, offset)?;
            offset += buffer.len() as u64;
        }
    }
    Ok(file.sync_data()?)
}
