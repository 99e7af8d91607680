//! An ordinary file with the instructions that persistent memory needs, to measure these.

use std::sync::Arc;

use terrane_storage::File;

use super::{Backend, Native, Site, Words};
use crate::flush::{FlushInstruction, store_fence};
use crate::{PersistenceDomain, Result};

/// A file in the page cache that executes the write-backs and fences of any persistence domain.
///
/// It shows what these instructions cost on ordinary memory. That is no figure of a device, and no
/// change survives a power loss.
#[derive(Debug)]
pub struct Executing {
    native: Native,
    domain: PersistenceDomain,
    instruction: Option<FlushInstruction>,
}

impl Backend for Executing {
    type View<'a> = Words<'a>;

    fn map(file: Arc<dyn File>, pool: &str, domain: PersistenceDomain, address_space: u64) -> Result<Self> {
        let native = Native::map(file, pool, PersistenceDomain::PageCache, address_space)?;
        Ok(Self { native, domain, instruction: FlushInstruction::detect() })
    }

    fn extend(&self, length: u64) -> Result<()> {
        self.native.extend(length)
    }

    #[inline]
    fn length(&self) -> u64 {
        self.native.length()
    }

    #[inline]
    fn domain(&self) -> PersistenceDomain {
        self.domain
    }

    #[inline]
    fn load(&self, offset: u64) -> u64 {
        self.native.load(offset)
    }

    #[inline]
    fn view(&self, offset: u64, length: u64) -> Words<'_> {
        self.native.view(offset, length)
    }

    #[inline]
    fn prefetch(&self, offset: u64, length: u64) {
        self.native.prefetch(offset, length);
    }

    #[inline]
    fn store(&self, offset: u64, value: u64) {
        self.native.store(offset, value);
    }

    #[inline]
    fn compare_exchange(&self, offset: u64, current: u64, new: u64) -> std::result::Result<u64, u64> {
        self.native.compare_exchange(offset, current, new)
    }

    #[inline]
    fn fetch_or(&self, offset: u64, bits: u64) -> u64 {
        self.native.fetch_or(offset, bits)
    }

    #[inline]
    fn fetch_and(&self, offset: u64, bits: u64) -> u64 {
        self.native.fetch_and(offset, bits)
    }

    #[inline]
    fn write_back(&self, line: u64, _: Site) {
        if let Some(instruction) = self.instruction {
            instruction.write_back(self.native.word(line));
        }
    }

    #[inline]
    fn fence(&self, site: Site) {
        match self.domain {
            PersistenceDomain::Adr | PersistenceDomain::Eadr => store_fence(),
            PersistenceDomain::PageCache => self.native.fence(site),
        }
    }
}
