//! A back-end that leaves out flushes and fences by their name.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use terrane_storage::File;
use terrane_storage::event::{Event, PoolEvent};
use terrane_storage::sync::RwLock;
use terrane_testkit::crash::Controller;

use super::{Backend, Loads, Site};
use crate::{PersistenceDomain, Result};

/// An instruction that makes stores durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Instruction {
    /// The write-back of lines.
    Flush,
    /// The wait for write-backs.
    Fence,
}

impl Instruction {
    /// The instructions of a run, with their names.
    pub fn sites(controller: &Controller) -> BTreeSet<(Self, &'static str)> {
        controller.log().iter().filter_map(Self::site).collect()
    }

    /// The instructions of a run after it set this mark; none if it did not set it.
    pub fn sites_after(controller: &Controller, mark: u64) -> BTreeSet<(Self, &'static str)> {
        controller.log().iter().skip_while(|event| **event != Event::Mark(mark)).filter_map(Self::site).collect()
    }

    fn site(event: &Event) -> Option<(Self, &'static str)> {
        match event {
            Event::Pool(PoolEvent::Flush { site, .. }) => Some((Self::Flush, *site)),
            Event::Pool(PoolEvent::Fence { site, .. }) => Some((Self::Fence, *site)),
            _ => None,
        }
    }
}

/// A back-end that leaves out the instructions of one [`Site`]. Anything that runs on it is wrong
/// on purpose. A crash test that does not notice is too shallow, or the instruction is needless.
#[derive(Debug)]
pub struct Dropping<B> {
    inner: B,
    dropped: RwLock<Option<(Instruction, String)>>,
}

thread_local! {
    /// The instruction that is left out of pools that this thread maps now.
    static FROM_THE_START: RefCell<Option<(Instruction, String)>> = const { RefCell::new(None) };
}

impl<B> Dropping<B> {
    /// Leaves an instruction out of pools that `run` opens on this thread, from their first access
    /// on.
    pub fn leaving_out<T>(instruction: Instruction, site: &str, run: impl FnOnce() -> T) -> T {
        struct Reset;
        impl Drop for Reset {
            fn drop(&mut self) {
                FROM_THE_START.set(None);
            }
        }
        FROM_THE_START.set(Some((instruction, site.to_owned())));
        let _reset = Reset;
        run()
    }

    /// Leaves an instruction out from now on, wherever it has this name.
    pub fn leave_out(&self, instruction: Instruction, site: &str) {
        *self.dropped.write() = Some((instruction, site.to_owned()));
    }

    fn is_dropped(&self, instruction: Instruction, site: Site) -> bool {
        matches!(&*self.dropped.read(), Some((dropped, name)) if *dropped == instruction && name == site.name())
    }
}

impl<B: Backend> Backend for Dropping<B> {
    type View<'a>
        = Loads<'a, Self>
    where
        Self: 'a;

    fn map(file: Arc<dyn File>, pool: &str, domain: PersistenceDomain, address_space: u64) -> Result<Self> {
        let dropped = FROM_THE_START.with_borrow(Clone::clone);
        Ok(Self { inner: B::map(file, pool, domain, address_space)?, dropped: RwLock::new(dropped) })
    }

    fn extend(&self, length: u64) -> Result<()> {
        self.inner.extend(length)
    }

    fn length(&self) -> u64 {
        self.inner.length()
    }

    fn domain(&self) -> PersistenceDomain {
        self.inner.domain()
    }

    fn load(&self, offset: u64) -> u64 {
        self.inner.load(offset)
    }

    fn view(&self, offset: u64, length: u64) -> Loads<'_, Self> {
        Loads::new(self, offset, length)
    }

    fn store(&self, offset: u64, value: u64) {
        self.inner.store(offset, value);
    }

    fn compare_exchange(&self, offset: u64, current: u64, new: u64) -> std::result::Result<u64, u64> {
        self.inner.compare_exchange(offset, current, new)
    }

    fn fetch_or(&self, offset: u64, bits: u64) -> u64 {
        self.inner.fetch_or(offset, bits)
    }

    fn fetch_and(&self, offset: u64, bits: u64) -> u64 {
        self.inner.fetch_and(offset, bits)
    }

    fn write_back(&self, line: u64, site: Site) {
        if !self.is_dropped(Instruction::Flush, site) {
            self.inner.write_back(line, site);
        }
    }

    fn fence(&self, site: Site) {
        if !self.is_dropped(Instruction::Fence, site) {
            self.inner.fence(site);
        }
    }
}
