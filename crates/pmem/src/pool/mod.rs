//! Pools: files of words with a header, a root word and chunks.
//!
//! Layout: the first page holds the header and the root word, the second one the allocator's
//! intents. Then chunks of equal length follow. All places are offsets, so a pool opens at any
//! address.
//!
//! The contents are trusted in three cases; otherwise later pages may rely on lost ones, and
//! opening fails:
//! 1. The pool was closed.
//! 2. It was open, on a medium whose stores survive a power loss as its structure expects.
//! 3. It was open on the page cache, and the machine has not restarted since.
//!
//! For that, the mark "open" is durable before the first store, and all stores are durable before
//! the mark "closed". After opening, all words of the pool are durable, even after a kill. So
//! recovery need not flush the words that it finds.

mod header;

use std::sync::Arc;

use terrane_storage::sync::{AtomicU64, Mutex, Ordering};
use terrane_storage::{File, LockKind, OpenMode, Operation, Storage, StorageError};

pub(crate) use header::METADATA_LENGTH;
use header::{CHUNK_LENGTH_MAX, Header, PAGE_LENGTH, State, is_chunk_length};

use crate::allocator::Allocator;
use crate::epoch::Epochs;
use crate::{Backend, Error, LINE_LENGTH, PersistenceDomain, Rehearsed, Result, WORD_LENGTH};

/// Byte offset of the root word, by which a structure is found. It is 0 in a new pool and has a
/// line to itself.
pub const ROOT: u64 = 1024;

/// The most times that a pool can be opened. Words that carry the number of an opening have 31 bits
/// for it. Of these numbers, 65,536 are left for [`Pool::skip_openings`] in the last opening.
pub const OPENINGS_MAX: u64 = (1 << 31) - (1 << 16);

/// Byte offset of the word that leads to further pages of intents. It has a line to itself.
pub(crate) const SLOT_PAGES: u64 = ROOT + LINE_LENGTH;

/// Byte offset of the word that leads to pages of descriptors. It has a line to itself.
pub(crate) const DESCRIPTOR_PAGES: u64 = SLOT_PAGES + LINE_LENGTH;

/// Byte offset of the intents of the allocator.
pub(crate) const INTENTS: u64 = PAGE_LENGTH;

/// How a pool is created or opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Names the structure in the pool and the version of its layout.
    pub layout_id: u64,
    /// How far a store has to get to be durable: what the caller knows of the medium, or wants of
    /// it. A medium that does not promise this is refused. Where the kernel does not say whether
    /// caches survive a power loss
    /// ([`probe::persistence_domain`](crate::probe::persistence_domain)), the caller is believed.
    pub domain: PersistenceDomain,
    /// Bytes by which a new pool grows: a multiple of 4096, at most 1 GiB. An existing pool keeps
    /// its own. The blocks of a chunk have one length, so a structure with two lengths of blocks
    /// takes at least two chunks.
    pub chunk_length: u64,
    /// Bytes of address space to reserve. The pool can grow up to this until it is opened again.
    pub address_space: u64,
}

impl Options {
    /// Chunks of 2 MiB, and 256 GiB of addresses.
    pub fn new(layout_id: u64, domain: PersistenceDomain) -> Self {
        Self { layout_id, domain, chunk_length: 2 << 20, address_space: 1 << 38 }
    }
}

/// An open pool, which no other process or handle has open. Dropping it without [`Pool::close`] has
/// the effect of a kill: retired blocks are left to the next opening.
#[derive(Debug)]
pub struct Pool<B> {
    backend: B,
    /// Also holds the lock. A rehearsal has no file.
    file: Option<Arc<dyn File>>,
    name: String,
    header: Mutex<Header>,
    /// As the header says.
    length: AtomicU64,
    chunk_length: u64,
    allocator: Allocator,
    pub(crate) epochs: Epochs,
}

/// A pool that can be trusted and is locked. Nothing in its file has changed yet.
#[derive(Debug)]
#[must_use = "a pool that was found is not in use before it is taken"]
pub struct Found<B> {
    pool: Pool<B>,
    boot_id: u128,
}

impl<B: Backend> Found<B> {
    /// The pool, for reading only. It is not marked as in use yet, so it must not be changed.
    pub fn pool(&self) -> &Pool<B> {
        &self.pool
    }

    /// Whether the last user closed it.
    pub fn was_closed(&self) -> bool {
        self.pool.header.lock().state == State::Closed
    }

    /// The pool as [`Found::take`] would give it. All changes are kept in memory, and the file is
    /// unchanged. A structure runs its recovery here first, so that a recovery that fails leaves
    /// the file as it is.
    pub fn rehearse(&self) -> Result<Pool<Rehearsed<'_, B>>> {
        let mut header = *self.pool.header.lock();
        header.open_counter += 1;
        let pool = Pool::new(Rehearsed::new(self.pool.backend()), None, self.pool.name.clone(), header);
        pool.recover_intents()?;
        Ok(pool)
    }

    /// Checks that no block would be acquired after recovery, in time linear in the pool's length.
    /// A structure calls it if the root word is 0. A crash before the root was linked leaves no
    /// block, so an acquired block shows a damaged root word.
    pub fn check_vacant(&self) -> Result<()> {
        let mut acquired = None;
        self.rehearse()?.visit_blocks(|block, _| acquired = acquired.or(Some(block)))?;
        acquired.map_or(Ok(()), |block| {
            let reason = format!("the root word is 0, but blocks are acquired, such as the one at {block}");
            Err(Error::Damaged { pool: self.pool.name.clone(), offset: ROOT, reason })
        })
    }

    /// Marks the pool as in use, and settles the intents and descriptors that a crash has left.
    pub fn take(self) -> Result<Pool<B>> {
        let Self { pool, boot_id } = self;
        let mut header = *pool.header.lock();
        pool.mark_open(&mut header, boot_id)?;
        *pool.header.lock() = header;
        pool.recover_intents()?;
        Ok(pool)
    }
}

impl<B: Backend> Pool<B> {
    /// Creates a pool without chunks under a free name.
    ///
    /// The pool is made as `name` with `.new` appended, made durable, and then renamed. So a crash
    /// leaves no pool or a whole one.
    pub fn create(storage: &dyn Storage, name: &str, options: &Options) -> Result<Self> {
        let pool = location(storage, name);
        if name.is_empty() {
            return Err(Error::Unsuitable { pool, reason: "its name is empty; name a file".to_owned() });
        }
        if !is_chunk_length(options.chunk_length) {
            let reason = format!(
                "chunks cannot have {} bytes; use a multiple of {PAGE_LENGTH} up to {CHUNK_LENGTH_MAX}",
                options.chunk_length
            );
            return Err(Error::Unsuitable { pool, reason });
        }
        check_free(storage, name)?;
        let draft = format!("{name}.new");
        let file = create_draft(storage, &draft)?;
        let created = Self::initialise(storage, file.clone(), name, &draft, pool, options);
        // The lock is held until the name is removed, since another creation may use the name
        // afterwards. A draft that stays is harmless: the next creation replaces it.
        if created.is_err() && file.has_name().unwrap_or(false) {
            let _ = storage.remove(&draft);
        }
        created
    }

    fn initialise(
        storage: &dyn Storage,
        file: Arc<dyn File>,
        name: &str,
        draft: &str,
        pool: String,
        options: &Options,
    ) -> Result<Self> {
        // Another creation may have finished meanwhile.
        check_free(storage, name)?;
        file.allocate(0..METADATA_LENGTH)?;
        let backend: B = map(&file, &pool, options, METADATA_LENGTH)?;
        let mut header = Header {
            layout_id: options.layout_id,
            length: METADATA_LENGTH,
            chunk_length: options.chunk_length,
            sequence: 0,
            open_counter: 1,
            state: State::Open,
            domain: backend.domain(),
            boot_id: storage.boot_id().unwrap_or(0),
            counting: 0,
        };
        header.write(&backend);
        file.sync_data()?;
        // Another program may have taken the name meanwhile.
        storage.rename_new(draft, name)?;
        let directory = name.rsplit_once('/').map_or("", |(directory, _)| directory);
        if let Err(error) = storage.sync_directory(directory) {
            // The name may or may not survive a power loss, so there is no pool.
            let _ = storage.remove(name);
            return Err(error.into());
        }
        Ok(Self::new(backend, Some(file), pool, header))
    }

    fn new(backend: B, file: Option<Arc<dyn File>>, name: String, header: Header) -> Self {
        let (length, chunk_length) = (AtomicU64::new(header.length), header.chunk_length);
        Self {
            backend,
            file,
            name,
            header: Mutex::new(header),
            length,
            chunk_length,
            allocator: Allocator::new(),
            epochs: Epochs::new(),
        }
    }

    /// Opens a pool, whatever its structure. If it cannot be opened or trusted, its file is
    /// unchanged, with one exception: when words are damaged, holes of the file may have been
    /// filled already.
    pub fn open(storage: &dyn Storage, name: &str, options: &Options) -> Result<Self> {
        Self::find(storage, name, options)?.take()
    }

    /// The first half of opening a pool, which changes no contents. The structure checks whether
    /// the contents are its own and sound, and then takes or refuses the pool. Until then a closed
    /// pool stays closed. Holes of the file are allocated before the first word is read, and after
    /// the header and the options were checked.
    ///
    /// The following damage is not found here. Finding it would take checksums of the contents, or
    /// reading the whole pool.
    /// - A chunk's head has lost blocks, because their bits or its length became 0. Such blocks are
    ///   given out again and overwritten. So a structure can be checked as a whole
    ///   ([`Pool::visit_blocks`]) before anything is acquired.
    /// - One of the two words of the metadata that lead to further intents and descriptors became
    ///   0. Blocks that only these name then stay acquired, and so do the pages. A word that such a
    ///   descriptor was changing is reported as damage later.
    /// - A crash left an intent or a descriptor, and it now names another block of the structure.
    /// - A part of the file has an earlier state. (A header of before the pool grew is found.)
    /// - The device or file system went away without writing its caches, and came back before the
    ///   machine restarted. That looks like a killed user.
    pub fn find(storage: &dyn Storage, name: &str, options: &Options) -> Result<Found<B>> {
        let pool = location(storage, name);
        let file = storage.open(name, OpenMode::Write)?;
        if !file.try_lock(LockKind::Exclusive)? {
            return Err(Error::Locked { pool });
        }
        let header = Header::read(&*file, &pool)?;
        if header.layout_id != options.layout_id {
            return Err(Error::OtherLayout { pool, found: header.layout_id, expected: options.layout_id });
        }
        let boot_id = storage.boot_id().unwrap_or(0);
        if let Some(reason) = distrust(&header, boot_id) {
            return Err(Error::Untrusted { pool, reason });
        }
        header.check_end(&*file, &pool)?;
        let backend = map(&file, &pool, options, header.length)?;
        let found = Found { pool: Self::new(backend, Some(file.clone()), pool, header), boot_id };
        found.pool.check_openings(header.open_counter)?;
        // A copy of the file may have holes in place of zeros. On a full disk, a store to a hole
        // ends in a signal, and in some file systems a load does too. So space is allocated before
        // the first word is read, and after every check that needs no words.
        file.allocate(0..header.length)?;
        found.pool.check_intents(header.state == State::Closed)?;
        Ok(found)
    }

    /// Marks the pool as open in the header, durably.
    ///
    /// The header says `Opening` before the sync and `Open` after it. So a later opening that finds
    /// `Open` knows that `Closed` is not on the disk any more, and needs no sync. After a kill
    /// there may be much to sync.
    fn mark_open(&self, header: &mut Header, boot_id: u128) -> Result<()> {
        let domain = self.backend.domain();
        header.settle(&self.backend);
        let was_killed = header.state != State::Closed;
        let medium_changes = was_killed && header.domain != domain;
        // In this boot: a pool that was open on the page cache in another boot has been refused.
        let is_marked = header.state == State::Open && !medium_changes;
        // A killed user may have stored words without flushing them. They are read now, so they
        // must not vanish later. On another medium, they are as durable as that one made them.
        if medium_changes || was_killed && domain == PersistenceDomain::Adr {
            self.sync(header)?;
        }
        header.open_counter += 1;
        header.boot_id = boot_id;
        header.domain = domain;
        if !is_marked && domain == PersistenceDomain::PageCache {
            header.state = State::Opening;
            header.write(&self.backend);
            self.sync(header)?;
        }
        header.state = State::Open;
        header.write(&self.backend);
        Ok(())
    }

    /// Settles retired blocks, makes everything durable and marks the pool as closed.
    ///
    /// If that fails, the pool stays marked as open. After a failed sync it cannot be opened again.
    pub fn close(self) -> Result<()> {
        self.settle_everything()?;
        let mut header = self.header.lock();
        self.check_synced(&header)?;
        let domain = self.backend.domain();
        // The next opening reads stores that were not flushed, and takes them for durable.
        if domain != PersistenceDomain::Eadr {
            self.sync(&mut header)?;
        }
        header.state = State::Closed;
        header.write(&self.backend);
        if domain == PersistenceDomain::PageCache {
            self.sync(&mut header)?;
        }
        Ok(())
    }

    /// Settles every retired intent. The caller has the pool to itself, so there are no guards.
    pub fn reclaim_all(&mut self) -> Result<()> {
        self.epochs.expire_all();
        self.settle_all_expired().map(drop)
    }

    /// Returns an error after a failed sync: a later sync that succeeds proves nothing.
    fn check_synced(&self, header: &Header) -> Result<()> {
        match header.state {
            State::SyncFailed => Err(Error::Untrusted { pool: self.name.clone(), reason: SYNC_FAILED }),
            State::Closed | State::Opening | State::Open => Ok(()),
        }
    }

    /// Syncs the file, and marks the pool if that fails: the system may drop pages that it could
    /// not write.
    fn sync(&self, header: &mut Header) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        file.sync_data().map_err(|error| {
            header.state = State::SyncFailed;
            header.write(&self.backend);
            error.moved_to(&self.name).into()
        })
    }

    /// Makes the pool longer by a chunk of zeros.
    ///
    /// Space is allocated before it is used, so a full disk is an error here and no signal later. A
    /// crash leaves the pool as it was, perhaps in a longer file, or with the chunk.
    pub(crate) fn grow(&self) -> Result<()> {
        let mut header = self.header.lock();
        self.check_synced(&header)?;
        let length = header.length + self.chunk_length;
        if let Some(file) = &self.file {
            file.allocate(header.length..length).map_err(|error| error.moved_to(&self.name))?;
        }
        // Where stores survive a power loss, the length has to survive first.
        if self.backend.domain() != PersistenceDomain::PageCache {
            self.sync(&mut header)?;
        }
        self.backend.extend(length)?;
        header.length = length;
        header.write(&self.backend);
        self.length.store(length, Ordering::Release);
        Ok(())
    }

    /// The words.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// The pool's name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes of the pool.
    pub fn length(&self) -> u64 {
        self.length.load(Ordering::Acquire)
    }

    /// Bytes by which it grows.
    pub fn chunk_length(&self) -> u64 {
        self.chunk_length
    }

    pub(crate) fn allocator(&self) -> &Allocator {
        &self.allocator
    }

    /// How often the pool has been opened, including its creation and skipped openings. Volatile
    /// state in the pool, such as a lock, belongs to this session if it carries this number.
    pub fn open_counter(&self) -> u64 {
        self.header.lock().open_counter
    }

    /// Raises the number of openings to at least `to`, durably. A structure that numbers things by
    /// the opening gets the numbers of the skipped openings. With [`OPENINGS_MAX`] or more, the
    /// pool cannot be opened again.
    pub fn skip_openings(&self, to: u64) {
        let mut header = self.header.lock();
        if header.open_counter < to {
            header.open_counter = to;
            header.write(&self.backend);
        }
    }

    /// Checks that a pool with this number of openings can be opened again: fewer than
    /// [`OPENINGS_MAX`].
    pub fn check_openings(&self, openings: u64) -> Result<()> {
        match openings < OPENINGS_MAX {
            true => Ok(()),
            false => Err(Error::Untrusted { pool: self.name.clone(), reason: OPENED_TOO_OFTEN }),
        }
    }

    /// Checks that a range which the pool's words refer to lies within it.
    #[inline]
    pub fn check_range(&self, offset: u64, length: u64) -> Result<()> {
        if self.backend.holds(offset, length) && offset >= ROOT {
            return Ok(());
        }
        Err(self.outside(offset, length))
    }

    #[cold]
    fn outside(&self, offset: u64, length: u64) -> Error {
        let reason = format!(
            "the pool or the program refers to {length} bytes there, which are outside of the pool's {} bytes or not \
             aligned to {WORD_LENGTH}",
            self.backend.length()
        );
        Error::Damaged { pool: self.name.clone(), offset, reason }
    }
}

const OPENED_TOO_OFTEN: &str = "it was opened too often: no numbers are left for further openings";
const SYNC_FAILED: &str = "a sync failed, so the system may have dropped stores";

/// Why the contents cannot be trusted; `None` if they can.
fn distrust(header: &Header, boot_id: u128) -> Option<&'static str> {
    let boot_is_known = boot_id != 0 && header.boot_id != 0;
    match header.state {
        State::Closed => None,
        State::SyncFailed => Some(SYNC_FAILED),
        State::Opening | State::Open if header.domain != PersistenceDomain::PageCache => None,
        State::Opening | State::Open if !boot_is_known => {
            Some("it was not closed, and it is unknown whether the machine has restarted since")
        }
        State::Opening | State::Open if header.boot_id != boot_id => {
            Some("it was open on the page cache when the machine restarted, so stores may be lost")
        }
        State::Opening | State::Open => None,
    }
}

/// Maps the first `length` bytes of a file.
fn map<B: Backend>(file: &Arc<dyn File>, pool: &str, options: &Options, length: u64) -> Result<B> {
    let (wanted, reserved) = (length, options.address_space);
    if wanted > reserved {
        return Err(Error::AddressSpace { pool: pool.to_owned(), wanted, reserved });
    }
    let backend = B::map(file.clone(), pool, options.domain, reserved)?;
    backend.extend(length)?;
    Ok(backend)
}

/// Returns an error if the name is taken.
fn check_free(storage: &dyn Storage, name: &str) -> Result<()> {
    if !storage.exists(name)? {
        return Ok(());
    }
    let reason = "it exists; open it, or take another name";
    let taken = std::io::Error::new(std::io::ErrorKind::AlreadyExists, reason);
    Err(StorageError::new(Operation::Create, location(storage, name), None, taken).into())
}

/// A new, locked file to make a pool in. Replaces the draft of a killed creation, and nothing else.
///
/// Between opening a file and locking it, another creation may have removed the name or given it to
/// its own file. So after locking, each creation checks whether the name still leads to its file.
/// If not, it leaves the name alone. If so, it may continue, since nobody touches the name of a
/// locked file.
fn create_draft(storage: &dyn Storage, draft: &str) -> Result<Arc<dyn File>> {
    let locked = || Error::Locked { pool: location(storage, draft) };
    match storage.open(draft, OpenMode::Write) {
        Ok(left) if !left.try_lock(LockKind::Exclusive)? || !left.has_name()? => return Err(locked()),
        Ok(left) if !header::is_unfinished(&*left)? => {
            let reason = "the draft of a new pool needs this name, and another file has it; move that file away";
            return Err(Error::Unsuitable { pool: location(storage, draft), reason: reason.to_owned() });
        }
        Ok(_) => storage.remove(draft)?,
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error.into()),
    }
    let file = match storage.open(draft, OpenMode::CreateNew) {
        // Another creation has made it meanwhile, or it is a dangling link.
        Err(error) if error.is_already_exists() && storage.exists(draft)? => return Err(locked()),
        opened => opened?,
    };
    if file.try_lock(LockKind::Exclusive)? && file.has_name()? { Ok(file) } else { Err(locked()) }
}

fn location(storage: &dyn Storage, name: &str) -> String {
    format!("{}/{name}", storage.describe())
}
