//! Pages: header, checksum, aligned bytes.

use std::ops::Deref;
use std::sync::Arc;

use arc_swap::Guard;
use bytemuck::{Pod, Zeroable};

use crate::sync::{AtomicBool, Ordering};

/// Length of a page's header in bytes.
pub const HEADER_LEN: usize = 16;
/// Pages start at multiples of this, and their lengths are multiples of it.
pub const ALIGNMENT: usize = 8;
/// Longest page: a record of 16 MiB, a key, and the page's own fields.
pub const PAGE_LEN_MAX: usize = (16 << 20) + (64 << 10);

/// What a page holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PageKind {
    /// Sorted entries of a B-tree.
    BTreeLeaf = 1,
    /// Separators and children of a B-tree.
    BTreeInner = 2,
    /// Points or rectangles with their keys.
    RTreeLeaf = 3,
    /// Boxes and children of an R-tree.
    RTreeInner = 4,
    /// A Bloom filter.
    Bloom = 5,
    /// The component's description.
    Meta = 6,
}

impl PageKind {
    fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::BTreeLeaf,
            2 => Self::BTreeInner,
            3 => Self::RTreeLeaf,
            4 => Self::RTreeInner,
            5 => Self::Bloom,
            6 => Self::Meta,
            _ => return None,
        })
    }
}

/// The first 16 bytes of every page.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct PageHeader {
    /// CRC-32C over file id, page number and the page without this field.
    pub checksum: u32,
    /// Bytes after the header that mean something; zeros pad the page to 8 bytes.
    pub payload_len: u32,
    /// A [`PageKind`].
    pub kind: u8,
    /// Distance from the leaves.
    pub level: u8,
    /// Depends on the kind.
    pub flags: u16,
    /// Number of entries.
    pub count: u32,
}

const _: () = assert!(size_of::<PageHeader>() == HEADER_LEN);

/// Where a page lies in its file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable, serde::Serialize, serde::Deserialize)]
#[repr(C)]
pub struct PagePointer {
    /// Byte offset of the header.
    pub offset: u64,
    /// Page number: pages are numbered in the order in which they were written.
    pub number: u32,
    /// Bytes with header and padding.
    pub length: u32,
}

const _: () = assert!(size_of::<PagePointer>() == 16);

/// CRC-32C of a page: `bytes` is the whole page; its first four bytes do not count.
pub fn checksum(file_id: u64, number: u32, bytes: &[u8]) -> u32 {
    let mut place = [0; 12];
    place[..8].copy_from_slice(&file_id.to_le_bytes());
    place[8..].copy_from_slice(&number.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&place), &bytes[4..])
}

/// A page in memory whose checksum and structure have been verified.
#[derive(Debug)]
pub struct Page {
    words: Box<[u64]>,
    header: PageHeader,
    kind: PageKind,
    /// Set by readers, cleared by the cache's clock hand.
    pub(super) referenced: AtomicBool,
}

impl Page {
    /// Takes over the bytes of a page after verifying header and checksum; the error is a reason.
    pub fn verify(words: Box<[u64]>, file_id: u64, number: u32) -> std::result::Result<Self, String> {
        let bytes: &[u8] = bytemuck::cast_slice(&words);
        let Some(header) = bytes.get(..HEADER_LEN) else {
            return Err("the page is shorter than its header".into());
        };
        let header: PageHeader = bytemuck::pod_read_unaligned(header);
        let found = checksum(file_id, number, bytes);
        if found != header.checksum {
            return Err(format!("checksum {found:08x} does not match the stored {:08x}", header.checksum));
        }
        let Some(kind) = PageKind::from_byte(header.kind) else {
            return Err(format!("unknown page kind {}", header.kind));
        };
        let room = bytes.len() - HEADER_LEN;
        if header.payload_len as usize > room || room - header.payload_len as usize >= ALIGNMENT {
            return Err(format!("payload length {} does not fit a page of {} bytes", header.payload_len, bytes.len()));
        }
        Ok(Self { words, header, kind, referenced: AtomicBool::new(true) })
    }

    /// What the page holds.
    pub fn kind(&self) -> PageKind {
        self.kind
    }

    /// Distance from the leaves.
    pub fn level(&self) -> u8 {
        self.header.level
    }

    /// Kind-dependent flags.
    pub fn flags(&self) -> u16 {
        self.header.flags
    }

    /// Number of entries.
    pub fn count(&self) -> usize {
        self.header.count as usize
    }

    /// The bytes after the header, aligned to 8.
    pub fn payload(&self) -> &[u8] {
        let bytes: &[u8] = bytemuck::cast_slice(&self.words);
        &bytes[HEADER_LEN..HEADER_LEN + self.header.payload_len as usize]
    }

    /// Bytes that the page occupies in memory.
    pub fn memory_used(&self) -> usize {
        size_of_val(&*self.words) + size_of::<Self>() + 2 * size_of::<usize>()
    }

    pub(super) fn touch(&self) {
        if !self.referenced.load(Ordering::Relaxed) {
            self.referenced.store(true, Ordering::Relaxed);
        }
    }
}

/// A verified page, kept in memory while this lives.
#[derive(Debug)]
pub enum PageRef {
    /// Lent by the cache.
    Cached(Guard<Option<Arc<Page>>>),
    /// Held by its own count.
    Owned(Arc<Page>),
}

impl Deref for PageRef {
    type Target = Page;

    fn deref(&self) -> &Page {
        match self {
            Self::Cached(guard) => guard.as_ref().expect("a cached reference is made of a full slot only"),
            Self::Owned(page) => page,
        }
    }
}
