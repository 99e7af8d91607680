//! Words of a file in memory. Every change is reported to the crash controller.

use std::sync::Arc;

use terrane_storage::event::ThreadNumber;
use terrane_storage::sync::{AtomicU64, Ordering};
use terrane_storage::{Backing, File, MappedMemory};

use super::{Backend, Loads, Site, outside};
use crate::{Error, PersistenceDomain, Result};

/// A mapped file of [`terrane_testkit::MemoryStorage`]. Under a
/// [`Controller`](terrane_testkit::crash::Controller), stores, flushes and fences enter its log in
/// the order in which they happen, among the changes of files.
///
/// Each access, flush and fence begins with a load of the mapped length, where a model checker may
/// switch threads.
#[derive(Debug)]
pub struct Traced {
    pool: String,
    memory: Box<dyn MappedMemory>,
    domain: PersistenceDomain,
    mapped: AtomicU64,
    address_space: u64,
}

impl Traced {
    fn update(&self, offset: u64, mut change: impl FnMut(u64) -> Option<u64>) -> std::result::Result<u64, u64> {
        let mapped = self.length();
        if offset >= mapped {
            outside(offset, mapped);
        }
        self.memory.update(thread_number(), offset, &mut change).unwrap_or_else(|| outside(offset, mapped))
    }

    /// A change that always happens and depends on the word before, which it gives.
    fn replace(&self, offset: u64, change: impl Fn(u64) -> u64) -> u64 {
        let (Ok(before) | Err(before)) = self.update(offset, |word| Some(change(word)));
        before
    }
}

/// The number of the calling thread, in the order of the threads' first calls.
#[cfg(not(shuttle))]
fn thread_number() -> ThreadNumber {
    use std::cell::Cell;
    // Of no interest to a model checker.
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    thread_local! {
        static OWN: Cell<u64> = const { Cell::new(0) };
    }
    OWN.with(|own| {
        if own.get() == 0 {
            own.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        ThreadNumber(own.get())
    })
}

/// The calling task: all tasks of shuttle run in one thread.
#[cfg(shuttle)]
fn thread_number() -> ThreadNumber {
    ThreadNumber(usize::from(shuttle::current::me()) as u64)
}

impl Backend for Traced {
    type View<'a>
        = Loads<'a, Self>
    where
        Self: 'a;

    fn map(file: Arc<dyn File>, pool: &str, domain: PersistenceDomain, address_space: u64) -> Result<Self> {
        let Backing::Memory(memory) = file.backing() else {
            let reason = "it is not a file in memory that is open for writing".to_owned();
            return Err(Error::Unsuitable { pool: pool.to_owned(), reason });
        };
        memory.set_domain(domain);
        Ok(Self { pool: pool.to_owned(), memory, domain, mapped: AtomicU64::new(0), address_space })
    }

    fn extend(&self, length: u64) -> Result<()> {
        if length > self.address_space {
            return Err(Error::AddressSpace { pool: self.pool.clone(), wanted: length, reserved: self.address_space });
        }
        self.mapped.fetch_max(length, Ordering::AcqRel);
        Ok(())
    }

    fn length(&self) -> u64 {
        self.mapped.load(Ordering::Acquire)
    }

    fn domain(&self) -> PersistenceDomain {
        self.domain
    }

    fn load(&self, offset: u64) -> u64 {
        let mapped = self.length();
        let word = if offset < mapped { self.memory.load(offset) } else { None };
        word.unwrap_or_else(|| outside(offset, mapped))
    }

    fn view(&self, offset: u64, length: u64) -> Loads<'_, Self> {
        Loads::new(self, offset, length)
    }

    fn store(&self, offset: u64, value: u64) {
        let mapped = self.length();
        let stored = if offset < mapped { self.memory.store(thread_number(), offset, value) } else { None };
        stored.unwrap_or_else(|| outside(offset, mapped));
    }

    fn compare_exchange(&self, offset: u64, current: u64, new: u64) -> std::result::Result<u64, u64> {
        self.update(offset, |word| (word == current).then_some(new))
    }

    fn fetch_or(&self, offset: u64, bits: u64) -> u64 {
        self.replace(offset, |word| word | bits)
    }

    fn fetch_and(&self, offset: u64, bits: u64) -> u64 {
        self.replace(offset, |word| word & bits)
    }

    fn write_back(&self, line: u64, site: Site) {
        self.length();
        self.memory.flush(thread_number(), line, site.name());
    }

    fn fence(&self, site: Site) {
        self.length();
        self.memory.fence(thread_number(), site.name());
    }
}
