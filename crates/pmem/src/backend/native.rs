//! Words of a file of the operating system.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rustix::io::Errno;
use terrane_storage::{Backing, File};

use super::{Backend, Site, View, outside};
use crate::flush::{self, FlushInstruction, store_fence};
use crate::mapping::Mapping;
use crate::{Error, PersistenceDomain, Result, probe};

/// A mapped file, on persistent memory or the page cache.
#[derive(Debug)]
pub struct Native {
    file: Arc<dyn File>,
    pool: String,
    mapping: Mapping,
    medium: Medium,
}

/// Consecutive words of a [`Native`].
#[derive(Clone, Copy, Debug)]
pub struct Words<'a>(&'a [AtomicU64]);

impl View for Words<'_> {
    #[inline]
    fn load(&self, index: usize) -> u64 {
        u64::from_le(self.0[index].load(Ordering::Acquire))
    }

    #[inline]
    fn load_array<const N: usize>(&self, first: usize) -> [u64; N] {
        let words = &self.0[first..first + N];
        std::array::from_fn(|index| u64::from_le(words[index].load(Ordering::Acquire)))
    }
}

/// The kind of medium, which decides what fences and flushes do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Medium {
    /// Persistent memory behind caches that a power loss empties.
    Dax(FlushInstruction),
    /// Persistent memory whose caches a power loss does not empty.
    Eadr,
    /// Ordinary memory of the system, which survives only the process. The order of the stores
    /// suffices.
    PageCache,
}

impl Native {
    /// Maps a file on the medium that `domain` asks for, checked by what `detect` finds out about
    /// it.
    fn map_asking(
        detect: impl FnOnce(BorrowedFd<'_>) -> Option<PersistenceDomain>,
        file: Arc<dyn File>,
        pool: &str,
        domain: PersistenceDomain,
        address_space: u64,
    ) -> Result<Self> {
        let unsuitable = |reason: String| Error::Unsuitable { pool: pool.to_owned(), reason };
        let Backing::Descriptor(descriptor) = file.backing() else {
            return Err(unsuitable("it is not a file of the operating system that is open for writing".to_owned()));
        };
        let medium = match domain {
            PersistenceDomain::Adr => {
                let instruction = FlushInstruction::detect();
                Medium::Dax(instruction.ok_or_else(|| {
                    unsuitable("no instruction is known that writes back a cache line of this CPU".to_owned())
                })?)
            }
            // If nothing is found out, the caller's declaration counts.
            PersistenceDomain::Eadr => match detect(descriptor) {
                Some(PersistenceDomain::Eadr) | None => Medium::Eadr,
                Some(PersistenceDomain::Adr | PersistenceDomain::PageCache) => {
                    return Err(unsuitable(
                        "the kernel reports that the caches of this machine do not survive a power loss \
                         (persistence_domain of its region); open it for the domain ADR, which flushes lines"
                            .to_owned(),
                    ));
                }
            },
            PersistenceDomain::PageCache => {
                probe::page_cache(descriptor).map_err(|refusal| unsuitable(refusal.to_string()))?;
                Medium::PageCache
            }
        };
        let reserved = usize::try_from(address_space).unwrap_or(usize::MAX);
        let mapping = Mapping::reserve(reserved).map_err(|errno| {
            unsuitable(format!(
                "{address_space} bytes of address space cannot be reserved for it: {errno}; open it with a smaller \
                 `address_space`, or raise the limit of the process (RLIMIT_AS)"
            ))
        })?;
        Ok(Self { file: file.clone(), pool: pool.to_owned(), mapping, medium })
    }

    #[inline]
    pub(super) fn word(&self, offset: u64) -> &AtomicU64 {
        match self.mapping.word(offset) {
            Some(word) => word,
            None => outside(offset, self.length()),
        }
    }
}

impl Backend for Native {
    type View<'a>
        = Words<'a>
    where
        Self: 'a;

    fn map(file: Arc<dyn File>, pool: &str, domain: PersistenceDomain, address_space: u64) -> Result<Self> {
        Self::map_asking(probe::persistence_domain, file, pool, domain, address_space)
    }

    fn extend(&self, length: u64) -> Result<()> {
        let reserved = self.mapping.reserved() as u64;
        if length > reserved {
            return Err(Error::AddressSpace { pool: self.pool.clone(), wanted: length, reserved });
        }
        let unsuitable = |reason: String| Error::Unsuitable { pool: self.pool.clone(), reason };
        let Backing::Descriptor(descriptor) = self.file.backing() else {
            return Err(unsuitable("it can no longer be mapped".to_owned()));
        };
        let sync = self.medium != Medium::PageCache;
        // It is at most the reserved length, which is a usize.
        self.mapping.extend(descriptor, length as usize, sync).map_err(|errno| match errno {
            Errno::OPNOTSUPP | Errno::INVAL if sync => unsuitable(
                "its file system gives no direct access to persistent memory (MAP_SYNC is refused); \
                 put it on a file system that is mounted with -o dax on a pmem device"
                    .to_owned(),
            ),
            errno => unsuitable(format!("{length} bytes of it cannot be mapped: {errno}")),
        })
    }

    #[inline]
    fn length(&self) -> u64 {
        self.mapping.mapped() as u64
    }

    #[inline]
    fn domain(&self) -> PersistenceDomain {
        match self.medium {
            Medium::Dax(_) => PersistenceDomain::Adr,
            Medium::Eadr => PersistenceDomain::Eadr,
            Medium::PageCache => PersistenceDomain::PageCache,
        }
    }

    #[inline]
    fn load(&self, offset: u64) -> u64 {
        u64::from_le(self.word(offset).load(Ordering::Acquire))
    }

    #[inline]
    fn view(&self, offset: u64, length: u64) -> Words<'_> {
        match self.mapping.words(offset, length) {
            Some(words) => Words(words),
            None => outside(offset, self.length()),
        }
    }

    #[inline]
    fn prefetch(&self, offset: u64, length: u64) {
        if let Some(words) = self.mapping.words(offset, length) {
            flush::prefetch(words);
        }
    }

    #[inline]
    fn store(&self, offset: u64, value: u64) {
        self.word(offset).store(value.to_le(), Ordering::Release);
    }

    #[inline]
    fn compare_exchange(&self, offset: u64, current: u64, new: u64) -> std::result::Result<u64, u64> {
        self.word(offset)
            .compare_exchange(current.to_le(), new.to_le(), Ordering::AcqRel, Ordering::Acquire)
            .map(u64::from_le)
            .map_err(u64::from_le)
    }

    #[inline]
    fn fetch_or(&self, offset: u64, bits: u64) -> u64 {
        u64::from_le(self.word(offset).fetch_or(bits.to_le(), Ordering::AcqRel))
    }

    #[inline]
    fn fetch_and(&self, offset: u64, bits: u64) -> u64 {
        u64::from_le(self.word(offset).fetch_and(bits.to_le(), Ordering::AcqRel))
    }

    #[inline]
    fn write_back(&self, line: u64, _: Site) {
        if let Medium::Dax(instruction) = self.medium {
            instruction.write_back(self.word(line));
        }
    }

    #[inline]
    fn fence(&self, _: Site) {
        match self.medium {
            Medium::Dax(_) | Medium::Eadr => store_fence(),
            // A kill stops every thread between two instructions, with all earlier stores done.
            // Only the order of the instructions matters.
            Medium::PageCache => fence(Ordering::Release),
        }
    }
}

#[cfg(test)]
const SITE: Site = Site::new("test");

#[cfg(test)]
mod tests {
    use terrane_storage::{OpenMode, RealStorage, Storage};

    use super::*;

    /// Runs on words of an ordinary file, since there is no such memory here. The instructions are
    /// the ones that each medium needs.
    #[test]
    fn each_medium_executes_the_write_backs_and_fences_that_it_needs() {
        let Some(instruction) = FlushInstruction::detect() else { return };
        let directory = tempfile::tempdir().unwrap();
        let file = RealStorage::new(directory.path()).open("pool", OpenMode::CreateNew).unwrap();
        file.allocate(0..4096).unwrap();
        let needed =
            [(Medium::Dax(instruction), true, true), (Medium::Eadr, false, true), (Medium::PageCache, false, false)];
        for (medium, writes_back, fences) in needed {
            let mapping = Mapping::reserve(4096).unwrap();
            let Backing::Descriptor(descriptor) = file.backing() else { panic!("a file has a descriptor") };
            mapping.extend(descriptor, 4096, false).unwrap();
            let native = Native { file: file.clone(), pool: "pool".to_owned(), mapping, medium };
            flush::EXECUTED.take();
            // Four lines, the first and the last in part.
            native.flush(120..264, SITE);
            native.fence(SITE);
            let lines: Vec<usize> = [64, 128, 192, 256].map(|line| native.word(line).as_ptr().addr()).to_vec();
            let executed: Vec<usize> = lines.into_iter().filter(|_| writes_back).chain(fences.then_some(0)).collect();
            assert_eq!(flush::EXECUTED.take(), executed, "{medium:?}");
        }
    }

    /// The test states what the machine would say, since it has no such memory.
    #[test]
    fn caches_are_taken_for_durable_unless_the_machine_says_that_they_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let file = RealStorage::new(directory.path()).open("pool", OpenMode::CreateNew).unwrap();
        let map = |detected: Option<PersistenceDomain>, wanted| {
            Native::map_asking(|_| detected, file.clone(), "the pool", wanted, 1 << 20).map(|mapped| mapped.domain())
        };
        let (adr, eadr) = (PersistenceDomain::Adr, PersistenceDomain::Eadr);
        for (detected, wanted) in [(Some(eadr), eadr), (None, eadr), (Some(eadr), adr), (Some(adr), adr), (None, adr)] {
            assert_eq!(map(detected, wanted).unwrap(), wanted, "detected {detected:?}");
        }
        let error = map(Some(adr), eadr).unwrap_err();
        assert!(matches!(error, Error::Unsuitable { .. }), "{error}");
        let message = error.to_string();
        assert!(message.starts_with("the pool cannot be") && message.ends_with("which flushes lines"), "{message}");
    }
}
