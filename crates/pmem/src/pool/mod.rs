//! Pools: files of words with a header, a root word and chunks.
//!
//! Layout: the first page holds the header and the root word, the second one what the allocator is
//! about to change, then follow chunks of equal length. All places are offsets, so that a pool
//! opens at any address.
//!
//! When its contents are trusted: if it was closed; if it was open on a medium whose stores survive
//! a power loss as the structures in it expect; or if it was open on the page cache and the machine
//! has not been started since. Else pages may be missing that other pages rely on, and opening
//! refuses. For that, the mark "open" is durable before anything is stored, and everything is
//! durable before the mark "closed" is. What is read of a pool that was just opened is as durable
//! as if it had been flushed, also after a kill: recovery needs not flush what it finds.

mod header;

use std::sync::Arc;

use terrane_storage::sync::{AtomicU64, Mutex, Ordering};
use terrane_storage::{File, LockKind, OpenMode, Operation, Storage, StorageError};

pub(crate) use header::METADATA_LENGTH;
use header::{CHUNK_LENGTH_MAX, Header, PAGE_LENGTH, State, is_chunk_length};

use crate::allocator::Allocator;
use crate::epoch::Epochs;
use crate::{Backend, Error, LINE_LENGTH, PersistenceDomain, Rehearsed, Result, WORD_LENGTH};

/// Byte offset of the root word: the one word that a structure is found by. It is 0 in a new pool
/// and has its line to itself.
pub const ROOT: u64 = 1024;

/// A pool that has been opened so often is not opened again: what carries the number of an opening
/// has 31 bits for it. Of these numbers, 65,536 are left for [`Pool::skip_openings`] in the last
/// opening.
pub const OPENINGS_MAX: u64 = (1 << 31) - (1 << 16);

/// Byte offset of the word that leads to further pages of intents; it has its line to itself.
pub(crate) const SLOT_PAGES: u64 = ROOT + LINE_LENGTH;

/// Byte offset of the word that leads to pages of descriptors; it has its line to itself.
pub(crate) const DESCRIPTOR_PAGES: u64 = SLOT_PAGES + LINE_LENGTH;

/// Byte offset of the intents of the allocator.
pub(crate) const INTENTS: u64 = PAGE_LENGTH;

/// How a pool is created or opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Names the structure in the pool and the version of its layout.
    pub layout_id: u64,
    /// How far a store has to get to be durable: what the caller has found out of the medium, or
    /// wants of it. A medium that does not promise it is refused; that caches survive a power loss
    /// is taken from the caller where the kernel does not say
    /// ([`probe::persistence_domain`](crate::probe::persistence_domain)).
    pub domain: PersistenceDomain,
    /// Bytes by which a new pool grows: a multiple of 4096, at most 1 GiB. An existing one keeps
    /// its own. The blocks of a chunk have one length, so a structure whose blocks have two takes
    /// two chunks at least.
    pub chunk_length: u64,
    /// Bytes of address space that are set aside, up to which the pool can grow until it is opened
    /// again.
    pub address_space: u64,
}

impl Options {
    /// Chunks of 2 MiB, and 256 GiB of addresses.
    pub fn new(layout_id: u64, domain: PersistenceDomain) -> Self {
        Self { layout_id, domain, chunk_length: 2 << 20, address_space: 1 << 38 }
    }
}

/// An open pool, which no other process or handle has open. Dropping it without [`Pool::close`] is
/// as if the process had been killed: what was retired is left to the next opening.
#[derive(Debug)]
pub struct Pool<B> {
    backend: B,
    /// Also holds the lock. A rehearsal has none.
    file: Option<Arc<dyn File>>,
    name: String,
    header: Mutex<Header>,
    /// As the header says.
    length: AtomicU64,
    chunk_length: u64,
    allocator: Allocator,
    pub(crate) epochs: Epochs,
}

/// A pool that can be trusted and is nobody else's now, and in whose file nothing has changed yet.
#[derive(Debug)]
#[must_use = "a pool that was found is not in use before it is taken"]
pub struct Found<B> {
    pool: Pool<B>,
    boot_id: u128,
}

impl<B: Backend> Found<B> {
    /// The pool, to be read and not to be changed: what is stored now is not known to be in use.
    pub fn pool(&self) -> &Pool<B> {
        &self.pool
    }

    /// The pool as [`Found::take`] would give it, with all changes kept beside it, in memory: what
    /// a structure does to it in its recovery goes wrong here first, if it does, and leaves the
    /// file as it is.
    pub fn rehearse(&self) -> Result<Pool<Rehearsed<'_, B>>> {
        let mut header = *self.pool.header.lock();
        header.open_counter += 1;
        let pool = Pool::new(Rehearsed::new(self.pool.backend()), None, self.pool.name.clone(), header);
        pool.recover_intents()?;
        Ok(pool)
    }

    /// Checks that no block is acquired once what a crash has left is settled, in a time that grows
    /// with the pool. For a structure that finds the root word to be 0: a crash before it was made
    /// leaves no block, so where there is one the root word is damaged.
    pub fn check_vacant(&self) -> Result<()> {
        let mut acquired = None;
        self.rehearse()?.visit_blocks(|block, _| acquired = acquired.or(Some(block)))?;
        acquired.map_or(Ok(()), |block| {
            let reason = format!("the root word names nothing, and blocks are acquired, such as the one at {block}");
            Err(Error::Damaged { pool: self.pool.name.clone(), offset: ROOT, reason })
        })
    }

    /// Says in the file that the pool is in use, and settles what a crash has left of acquisitions
    /// and releases.
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
    /// Creates a pool without chunks under a name that is free.
    ///
    /// It is made under another name (`name` and `.new`), made durable and then renamed: a crash
    /// leaves no pool or a whole one.
    pub fn create(storage: &dyn Storage, name: &str, options: &Options) -> Result<Self> {
        let pool = place(storage, name);
        if name.is_empty() {
            return Err(Error::Unsuitable { pool, reason: "its name is empty; name a file".to_owned() });
        }
        if !is_chunk_length(options.chunk_length) {
            let reason = format!(
                "chunks of {} bytes are not possible; take a multiple of {PAGE_LENGTH} up to {CHUNK_LENGTH_MAX}",
                options.chunk_length
            );
            return Err(Error::Unsuitable { pool, reason });
        }
        check_free(storage, name)?;
        let draft = format!("{name}.new");
        let file = create_draft(storage, &draft)?;
        let created = Self::initialise(storage, file.clone(), name, &draft, pool, options);
        // The lock is held until the name has gone: after that, another creation's draft may have
        // it. What stays is in the way of nobody: the next creation replaces it.
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
        // Another creation may have ended meanwhile.
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
            // The name may or may not survive a power loss: there is no pool, then.
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

    /// Opens a pool, whatever is in it. Where it cannot be opened or not be trusted, its file is
    /// left as it is, but for space that holes of it get where what its words say is what is
    /// refused.
    pub fn open(storage: &dyn Storage, name: &str, options: &Options) -> Result<Self> {
        Self::find(storage, name, options)?.take()
    }

    /// The first half of opening a pool, which changes nothing that is in it: a structure looks
    /// whether what it finds there is its own and sound, and takes the pool or refuses it. Until
    /// then a pool that was closed stays so. Where the file has holes they get space, before a word
    /// is read of it and after its header and the options were found to be in order.
    ///
    /// Not found is, since it would take a reading of the whole pool or checksums of all that is in
    /// it:
    /// - that a chunk's head has lost blocks: their bits have become 0, or its length. They are
    ///   given out again, and what is in them is overwritten. So a structure can be checked as a
    ///   whole ([`Pool::visit_blocks`]) before anything is acquired.
    /// - that one of the two words of the metadata that lead to further intents and descriptors has
    ///   become 0. What only these name stays acquired then, as they do themselves, and a word that
    ///   a descriptor is in the middle of changing is damage.
    /// - that what a crash has left of an intent or a descriptor names another block of the
    ///   structure than it did.
    /// - that a part of the file is as it was at an earlier time, but for a header of before the
    ///   pool grew.
    ///
    /// Nor that the file's device or file system went away without what it had in memory and came
    /// back before the machine restarted: that looks like what a killed user has left.
    pub fn find(storage: &dyn Storage, name: &str, options: &Options) -> Result<Found<B>> {
        let pool = place(storage, name);
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
        // Copying may have made holes of zeros, where a store on a full disk would end in a signal;
        // in some file systems a load too. So space comes before the first word is read, and after
        // all that can be refused without.
        file.allocate(0..header.length)?;
        found.pool.check_intents(header.state == State::Closed)?;
        Ok(found)
    }

    /// Says in the header that the pool is in use, so that a power loss finds it said.
    ///
    /// The header says `Opening` before the sync and `Open` after it. So who finds `Open` knows
    /// that `Closed` is no longer on the disk, and needs no sync: after a kill, there may be much
    /// to sync.
    fn mark_open(&self, header: &mut Header, boot_id: u128) -> Result<()> {
        let domain = self.backend.domain();
        header.settle(&self.backend);
        let was_killed = header.state != State::Closed;
        let medium_changes = was_killed && header.domain != domain;
        // In this boot: what was open on the page cache in another one has been refused.
        let is_marked = header.state == State::Open && !medium_changes;
        // What a killed user has stored and not flushed is read now, and must not go away later. On
        // another medium, it is as durable as that one made it.
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

    /// Ends what was retired, makes everything durable and says that the pool is closed.
    ///
    /// If that fails, the pool stays marked as open; after a failed sync it is not opened again.
    pub fn close(self) -> Result<()> {
        self.settle_what_is_left()?;
        let mut header = self.header.lock();
        self.check_synced(&header)?;
        let domain = self.backend.domain();
        // What was stored and not flushed is read by the next opening, which takes it for durable.
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

    /// Ends every intent that was retired: with the pool to itself, the caller knows that there are
    /// no guards.
    pub fn reclaim_all(&mut self) -> Result<()> {
        self.epochs.expire_all();
        self.settle_all_expired().map(drop)
    }

    /// Refuses to go on after a failed sync: a later one that succeeds proves nothing.
    fn check_synced(&self, header: &Header) -> Result<()> {
        match header.state {
            State::SyncFailed => Err(Error::Untrusted { pool: self.name.clone(), reason: SYNC_FAILED }),
            State::Closed | State::Opening | State::Open => Ok(()),
        }
    }

    /// Syncs the file, and marks the pool if that fails: the system may drop what it could not
    /// write.
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
    /// Space is allocated before it is used: a full disk is an error here and no signal later. A
    /// crash leaves the pool as it was, perhaps with a longer file, or with the chunk.
    pub(crate) fn grow(&self) -> Result<()> {
        let mut header = self.header.lock();
        self.check_synced(&header)?;
        let length = header.length + self.chunk_length;
        if let Some(file) = &self.file {
            file.allocate(header.length..length).map_err(|error| error.moved_to(&self.name))?;
        }
        // Where stores survive a power loss, the length has to do so first.
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

    /// What messages call the pool.
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

    /// How often the pool has been opened, its creation and openings that were skipped included.
    /// Volatile state that lies in the pool, such as locks, is of this session if it carries this
    /// number.
    pub fn open_counter(&self) -> u64 {
        self.header.lock().open_counter
    }

    /// Makes the number of openings, durably, at least this one: a structure that numbers things by
    /// the opening has the numbers of openings that never were. With [`OPENINGS_MAX`] or more the
    /// pool cannot be opened again.
    pub fn skip_openings(&self, to: u64) {
        let mut header = self.header.lock();
        if header.open_counter < to {
            header.open_counter = to;
            header.write(&self.backend);
        }
    }

    /// Whether a pool that has been opened so often can be opened again: less than [`OPENINGS_MAX`]
    /// times.
    pub fn check_openings(&self, openings: u64) -> Result<()> {
        match openings < OPENINGS_MAX {
            true => Ok(()),
            false => Err(Error::Untrusted { pool: self.name.clone(), reason: OPENED_TOO_OFTEN }),
        }
    }

    /// Checks that words which the pool says to be somewhere lie within it.
    pub fn check_range(&self, offset: u64, length: u64) -> Result<()> {
        if self.backend.holds(offset, length) && offset >= ROOT {
            return Ok(());
        }
        let reason = format!(
            "{length} bytes are said to be there, by a word of the pool or by the program, outside of the pool's {} or \
             at no multiple of {WORD_LENGTH}",
            self.backend.length()
        );
        Err(Error::Damaged { pool: self.name.clone(), offset, reason })
    }
}

const OPENED_TOO_OFTEN: &str = "it has been opened so often that its openings can no longer be told apart";
const SYNC_FAILED: &str = "a sync of it failed, so that the system may have dropped stores to it";

/// Why the contents cannot be trusted, if they cannot.
fn distrust(header: &Header, boot_id: u128) -> Option<&'static str> {
    let boot_is_known = boot_id != 0 && header.boot_id != 0;
    match header.state {
        State::Closed => None,
        State::SyncFailed => Some(SYNC_FAILED),
        State::Opening | State::Open if header.domain != PersistenceDomain::PageCache => None,
        State::Opening | State::Open if !boot_is_known => {
            Some("it was not closed, and whether the machine has gone down since cannot be told")
        }
        State::Opening | State::Open if header.boot_id != boot_id => {
            Some("it was open on the page cache when the machine went down, so that stores to it may be lost")
        }
        State::Opening | State::Open => None,
    }
}

/// Maps so many bytes of a file.
fn map<B: Backend>(file: &Arc<dyn File>, pool: &str, options: &Options, length: u64) -> Result<B> {
    let (wanted, reserved) = (length, options.address_space);
    if wanted > reserved {
        return Err(Error::AddressSpace { pool: pool.to_owned(), wanted, reserved });
    }
    let backend = B::map(file.clone(), pool, options.domain, reserved)?;
    backend.extend(length)?;
    Ok(backend)
}

/// Refuses a name that something has.
fn check_free(storage: &dyn Storage, name: &str) -> Result<()> {
    if !storage.exists(name)? {
        return Ok(());
    }
    let reason = "it exists; open it, or take another name";
    let taken = std::io::Error::new(std::io::ErrorKind::AlreadyExists, reason);
    Err(StorageError::new(Operation::Create, place(storage, name), None, taken).into())
}

/// A new, locked file for a pool to be made in; what a creation that was killed has left is
/// removed, and nothing else.
///
/// Between opening a file and locking it, another creation may have removed the name or given it to
/// a file of its own. So whoever has a lock looks whether the name still leads to the file, and
/// does nothing to the name if it does not; who finds that it does may go on, since nobody touches
/// the name of a file that is locked.
fn create_draft(storage: &dyn Storage, draft: &str) -> Result<Arc<dyn File>> {
    let locked = || Error::Locked { pool: place(storage, draft) };
    match storage.open(draft, OpenMode::Write) {
        Ok(left) if !left.try_lock(LockKind::Exclusive)? || !left.has_name()? => return Err(locked()),
        Ok(left) if !header::is_unfinished(&*left)? => {
            let reason =
                "a pool is made under this name first, and what is there is not left by that; move it elsewhere";
            return Err(Error::Unsuitable { pool: place(storage, draft), reason: reason.to_owned() });
        }
        Ok(_) => storage.remove(draft)?,
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error.into()),
    }
    let file = match storage.open(draft, OpenMode::CreateNew) {
        // Another creation has made it meanwhile, or a link leads nowhere.
        Err(error) if error.is_already_exists() && storage.exists(draft)? => return Err(locked()),
        opened => opened?,
    };
    if file.try_lock(LockKind::Exclusive)? && file.has_name()? { Ok(file) } else { Err(locked()) }
}

fn place(storage: &dyn Storage, name: &str) -> String {
    format!("{}/{name}", storage.describe())
}
