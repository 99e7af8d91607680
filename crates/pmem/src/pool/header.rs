//! The header of a pool: two copies of sixteen words, each in sectors and lines of its own.
//!
//! Invariants:
//! - H1: a copy with a valid checksum was written whole. The checksum covers the copy's offset.
//! - H2: of two valid copies, the one with the higher sequence number counts.
//! - H3: an update writes the copy that does not count, makes it durable, then writes the other
//!   one. So one copy is whole at any instant, even where a crash has torn the other one. When the
//!   update returns, both copies are equal. So damage to one of them cannot bring back an earlier
//!   header, above all not the state "closed".
//!
//! An update that a crash interrupts leaves the state before (no whole copy of the new one) or
//! after. A single copy with a checksum would not do: it is two lines long, and a crash between
//! them loses it.
//!
//! Later versions keep the place of magic, version and checksum, and the checksum's rule. So a
//! whole copy of a later version is distinguishable from a damaged one of this version.

use std::ops::Range;

use terrane_storage::{File, StorageError};

use crate::{Backend, Error, PersistenceDomain, Result, Site, WORD_LENGTH};

/// Byte offsets of the copies.
const COPIES: [u64; 2] = [0, 512];

/// Words of a copy.
const WORDS: usize = 16;

const COPY_LENGTH: u64 = WORDS as u64 * WORD_LENGTH;

/// Bytes at the start of a pool that belong to no chunk: header and root in the first page, intents
/// in the second.
pub(crate) const METADATA_LENGTH: u64 = 8192;

/// Mappings grow by a multiple of this.
pub(super) const PAGE_LENGTH: u64 = 4096;

/// Longest chunk.
pub(super) const CHUNK_LENGTH_MAX: u64 = 1 << 30;

const MAGIC: u64 = u64::from_le_bytes(*b"TERRPOOL");

/// The version of the format that is written, and the newest that is read. Before version 2, all
/// blocks were aligned to lines.
const VERSION: u64 = 2;

/// The oldest version that is read. Such a pool has the present version once it is in use.
const VERSION_MIN: u64 = 1;

const HEADER: Site = Site::new("pool.header");
const SECOND: Site = Site::new("pool.header.second");
const FOUND: Site = Site::new("pool.header.found");

/// The state of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nobody uses it, and all of it is durable.
    Closed,
    /// In use, or its user was killed, but nothing has been stored yet. A power loss may bring
    /// `Closed` back.
    Opening,
    /// In use, or its user was killed. No power loss brings `Closed` back.
    Open,
    /// A sync has failed: the system's copy of the file may differ from the stores.
    SyncFailed,
}

/// What the header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) layout_id: u64,
    /// Bytes of the pool, all chunks included.
    pub(super) length: u64,
    pub(super) chunk_length: u64,
    /// Number of updates of the header.
    pub(super) sequence: u64,
    /// How often the pool has been opened.
    pub(super) open_counter: u64,
    pub(super) state: State,
    /// Medium of the last user.
    pub(super) domain: PersistenceDomain,
    /// Boot of the machine in which it was last opened; 0 if unknown.
    pub(super) boot_id: u128,
    /// Index of the copy that counts. It is not written.
    pub(super) counting: usize,
}

impl State {
    const ALL: [Self; 4] = [Self::Closed, Self::Opening, Self::Open, Self::SyncFailed];
}

const DOMAINS: [PersistenceDomain; 3] = [PersistenceDomain::Adr, PersistenceDomain::Eadr, PersistenceDomain::PageCache];

impl Header {
    fn encode(&self, copy: u64) -> [u64; WORDS] {
        let state = State::ALL.iter().position(|state| *state == self.state).unwrap_or(0) as u64;
        let domain = DOMAINS.iter().position(|domain| *domain == self.domain).unwrap_or(0) as u64;
        let mut words = [0; WORDS];
        words[..10].copy_from_slice(&[
            MAGIC,
            VERSION,
            self.layout_id,
            self.length,
            self.chunk_length,
            self.sequence,
            self.open_counter,
            state | domain << 8,
            self.boot_id as u64,
            (self.boot_id >> 64) as u64,
        ]);
        words[WORDS - 1] = checksum(&words, copy);
        words
    }

    /// The header in words with a valid checksum; `None` if they are meaningless. No pool reaches
    /// the end of the sequence.
    fn decode(words: &[u64; WORDS], counting: usize) -> Option<Self> {
        let state = *State::ALL.get(usize::try_from(words[7] & 0xff).ok()?)?;
        let domain = *DOMAINS.get(usize::try_from(words[7] >> 8).ok()?)?;
        let header = Self {
            layout_id: words[2],
            length: words[3],
            chunk_length: words[4],
            sequence: words[5],
            open_counter: words[6],
            state,
            domain,
            boot_id: u128::from(words[9]) << 64 | u128::from(words[8]),
            counting,
        };
        let chunks = header.length.checked_sub(METADATA_LENGTH)?;
        let is_written = (VERSION_MIN..=VERSION).contains(&words[1]) && header.sequence < u64::MAX;
        (is_written && is_chunk_length(header.chunk_length) && chunks.is_multiple_of(header.chunk_length))
            .then_some(header)
    }

    /// Reads and checks the header of a file. The file is unchanged.
    pub(super) fn read(file: &dyn File, pool: &str) -> Result<Self> {
        let pool = || pool.to_owned();
        let found = file.len()?;
        let mut newest: Option<Self> = None;
        // Whether a copy of a later version is whole, and that version.
        let mut later: Option<(bool, u64)> = None;
        let mut is_pool = false;
        for (index, copy) in COPIES.into_iter().enumerate() {
            let words = read_words(file, copy, found)?;
            if words[0] != MAGIC {
                continue;
            }
            is_pool = true;
            let is_whole = words[WORDS - 1] == checksum(&words, copy);
            if words[1] > VERSION {
                later = later.max(Some((is_whole, words[1])));
            } else if is_whole
                && let Some(header) = Self::decode(&words, index)
                && newest.is_none_or(|newest| newest.sequence < header.sequence)
            {
                newest = Some(header);
            }
        }
        // A copy that is not whole is damaged, if the other one can be read. If not, a later
        // version may have another checksum.
        if let Some((is_whole, version)) = later
            && (is_whole || newest.is_none())
        {
            return Err(Error::Newer { pool: pool(), found: version, known: VERSION });
        }
        match newest {
            None if !is_pool => Err(Error::NotAPool { pool: pool() }),
            _ if found < METADATA_LENGTH => Err(Error::Truncated { pool: pool(), found, expected: METADATA_LENGTH }),
            None => {
                let reason = "neither copy of the header has a valid checksum".to_owned();
                Err(Error::Damaged { pool: pool(), offset: COPIES[0], reason })
            }
            Some(header) if found < header.length => {
                Err(Error::Truncated { pool: pool(), found, expected: header.length })
            }
            Some(header) => Ok(header),
        }
    }

    /// Checks that no chunk begins behind the pool's end. A crash while the pool grows leaves space
    /// there, which holds zeros until the header includes it. If there is a chunk, the header is an
    /// earlier one.
    pub(super) fn check_end(&self, file: &dyn File, pool: &str) -> Result<()> {
        let mut word = [0; WORD_LENGTH as usize];
        if file.len()? < self.length + WORD_LENGTH {
            return Ok(());
        }
        file.read_exact_at(&mut word, self.length)?;
        if word == [0; WORD_LENGTH as usize] {
            return Ok(());
        }
        let reason = "a chunk begins there, behind the end that the header states".to_owned();
        Err(Error::Damaged { pool: pool.to_owned(), offset: self.length, reason })
    }

    /// Makes durable what was read. A killed user may have stored it without flushing it, and the
    /// other copy is written next.
    pub(super) fn settle<B: Backend>(&self, backend: &B) {
        backend.persist(range(COPIES[self.counting]), FOUND);
    }

    /// Writes this header as the next in the sequence.
    ///
    /// After the first persist the new state counts (H2). After the second, both copies hold it
    /// (H3).
    pub(super) fn write<B: Backend>(&mut self, backend: &B) {
        self.sequence += 1;
        for (copy, site) in [(COPIES[1 - self.counting], HEADER), (COPIES[self.counting], SECOND)] {
            for (offset, word) in (copy..).step_by(WORD_LENGTH as usize).zip(self.encode(copy)) {
                if backend.load(offset) != word {
                    backend.store(offset, word);
                }
            }
            backend.persist(range(copy), site);
        }
    }
}

/// Whether a file can be the rest of an interrupted creation: it is empty, or holds zeros and any
/// words of the first header. A pool that was ever closed or opened again never looks so.
pub(super) fn is_unfinished(file: &dyn File) -> Result<bool> {
    let length = file.len()?;
    if length > METADATA_LENGTH {
        return Ok(false);
    }
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, 0)?;
    bytes.resize(METADATA_LENGTH as usize, 0);
    for copy in COPIES.map(|copy| copy as usize) {
        let (words, _) = bytes[copy..copy + COPY_LENGTH as usize].as_chunks();
        let words: [u64; WORDS] = std::array::from_fn(|index| u64::from_le_bytes(words[index]));
        let open = State::ALL.iter().position(|state| *state == State::Open).unwrap_or(0) as u64;
        // In the first header these have one possible value or a few: length, number of openings,
        // and state with medium.
        let fits = [(0, MAGIC), (3, METADATA_LENGTH), (6, 1)];
        let is_first = fits.iter().all(|(index, value)| words[*index] == 0 || words[*index] == *value)
            && words[1] <= VERSION
            && (words[7] == 0 || words[7] & 0xff == open);
        if !is_first {
            return Ok(false);
        }
        bytes[copy..copy + COPY_LENGTH as usize].fill(0);
    }
    Ok(bytes.iter().all(|byte| *byte == 0))
}

/// Whether chunks can have this length.
pub(super) fn is_chunk_length(length: u64) -> bool {
    length.is_multiple_of(PAGE_LENGTH) && (PAGE_LENGTH..=CHUNK_LENGTH_MAX).contains(&length)
}

fn range(copy: u64) -> Range<u64> {
    copy..copy + COPY_LENGTH
}

/// The words of a copy. Behind the end of the file they are zeros.
fn read_words(file: &dyn File, copy: u64, length: u64) -> std::result::Result<[u64; WORDS], StorageError> {
    let mut bytes = [0; COPY_LENGTH as usize];
    let there = length.saturating_sub(copy).min(COPY_LENGTH) as usize;
    file.read_exact_at(&mut bytes[..there], copy)?;
    let (words, _) = bytes.as_chunks();
    Ok(std::array::from_fn(|index| u64::from_le_bytes(words[index])))
}

fn checksum(words: &[u64; WORDS], copy: u64) -> u64 {
    let place = crc32c::crc32c(&copy.to_le_bytes());
    let covered = words[..WORDS - 1].iter();
    u64::from(covered.fold(place, |checksum, word| crc32c::crc32c_append(checksum, &word.to_le_bytes())))
}
