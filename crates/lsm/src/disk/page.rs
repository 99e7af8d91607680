//! Pages: header, checksum, aligned bytes.

use std::ffi::c_void;
use std::ops::Deref;

use bytemuck::{Pod, Zeroable};
use triomphe::ThinArc;

use super::slot::Lent;

use terrane_storage::sync::{AtomicBool, Ordering};

/// Length of a page's header in bytes.
pub const HEADER_LEN: usize = 16;
/// Pages start at multiples of this, and their lengths are multiples of it.
pub const ALIGNMENT: usize = 8;
/// Longest page: a record of 16 MiB, a key, and the page's own fields.
pub const PAGE_LEN_MAX: usize = (16 << 20) + (64 << 10);

/// The kind of a page's content.
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
    /// Points or rectangles with their keys, in the order of a curve.
    CurveLeaf = 7,
    /// Positions and children of a curve-keyed tree.
    CurveInner = 8,
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
            7 => Self::CurveLeaf,
            8 => Self::CurveInner,
            _ => return None,
        })
    }
}

/// The first 16 bytes of every page.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct PageHeader {
    /// CRC-32C over the file's seal, page number and the page without this field.
    pub checksum: u32,
    /// Length of the payload; zeros pad the page to 8 bytes.
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

impl PageHeader {
    /// The header of a page with this payload, without its checksum.
    pub fn new(kind: PageKind, level: u8, flags: u16, count: usize, payload: &[u8]) -> Self {
        let (payload_len, count) = (payload.len() as u32, count as u32);
        Self { checksum: 0, payload_len, kind: kind as u8, level, flags, count }
    }
}

/// The location of a page in its file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable, serde::Serialize, serde::Deserialize)]
#[repr(C)]
pub struct PagePointer {
    /// Byte offset of the header.
    pub offset: u64,
    /// Page number. Pages are numbered in the order in which they were written.
    pub number: u32,
    /// Bytes including header and padding.
    pub length: u32,
}

const _: () = assert!(size_of::<PagePointer>() == 16);

/// The file that a page belongs to; checksums cover it.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct FileSeal {
    /// The file's id, unique in its store.
    pub file_id: u64,
    /// A number drawn for the file, which distinguishes it from those of all other stores.
    pub stamp: u64,
}

/// CRC-32C of a page. `bytes` is the whole page; its first four bytes are excluded.
pub fn checksum(seal: FileSeal, number: u32, bytes: &[u8]) -> u32 {
    let seed = crc32c::crc32c(bytemuck::bytes_of(&seal));
    crc32c::crc32c_append(crc32c::crc32c_append(seed, &number.to_le_bytes()), &bytes[4..])
}

/// The data in front of a page's words in memory.
#[derive(Debug)]
struct Head {
    kind: PageKind,
    /// Set by readers, cleared by the cache's clock hand.
    referenced: AtomicBool,
}

/// A page in memory whose checksum and structure have been verified; clones share it. Reference
/// count, head and words are one allocation, so a pointer to the page leads to all of it.
#[derive(Clone, Debug)]
pub struct Page(ThinArc<Head, u64>);

impl Page {
    /// Reads a page of `len` bytes, a multiple of 8, and verifies header and checksum. The inner
    /// error tells why it is no page.
    pub fn read<E>(
        len: usize,
        seal: FileSeal,
        number: u32,
        read: impl FnOnce(&mut [u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<std::result::Result<Self, String>, E> {
        let head = Head { kind: PageKind::Meta, referenced: AtomicBool::new(true) };
        let mut words = ThinArc::from_header_and_iter(head, std::iter::repeat_n(0, len / ALIGNMENT));
        words
            .with_arc_mut(|words| {
                let words = triomphe::Arc::get_mut(words).expect("nobody else has the new page yet");
                read(bytemuck::cast_slice_mut(words.slice_mut()))?;
                let verified = verify(bytemuck::cast_slice(words.slice()), seal, number);
                Ok(verified.map(|kind| words.header_mut().kind = kind))
            })
            .map(|verified| verified.map(|()| Self(words)))
    }

    /// The first 16 bytes.
    #[inline]
    fn header(&self) -> &PageHeader {
        bytemuck::from_bytes(bytemuck::cast_slice(&self.0.slice[..HEADER_LEN / ALIGNMENT]))
    }

    /// The kind of the page.
    #[inline]
    pub fn kind(&self) -> PageKind {
        self.0.header.header.kind
    }

    /// Distance from the leaves.
    #[inline]
    pub fn level(&self) -> u8 {
        self.header().level
    }

    /// Kind-dependent flags.
    #[inline]
    pub fn flags(&self) -> u16 {
        self.header().flags
    }

    /// Number of entries.
    #[inline]
    pub fn count(&self) -> usize {
        self.header().count as usize
    }

    /// The bytes after the header, aligned to 8.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        let bytes: &[u8] = bytemuck::cast_slice(&self.0.slice);
        &bytes[HEADER_LEN..HEADER_LEN + self.header().payload_len as usize]
    }

    /// Prefetches the first part of the page. This does not even read the page's length, so the
    /// part may exceed the page.
    #[inline]
    pub fn prefetch(&self) {
        const LINE: usize = 64;
        const LINES: usize = 10;
        let start = self.0.as_ptr().cast::<u8>();
        for line in 0..LINES {
            prefetch(start.wrapping_add(line * LINE));
        }
    }

    /// Bytes that the page occupies in memory.
    pub fn memory_used(&self) -> usize {
        size_of_val(&self.0.slice) + size_of::<Head>() + 4 * size_of::<usize>()
    }

    /// Marks the page as used.
    #[inline]
    pub fn touch(&self) {
        let referenced = &self.0.header.header.referenced;
        if !referenced.load(Ordering::Relaxed) {
            referenced.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the page was used since the last call.
    pub(super) fn take_referenced(&self) -> bool {
        self.0.header.header.referenced.swap(false, Ordering::Relaxed)
    }

    /// Number of owners.
    #[cfg(test)]
    pub fn owners(&self) -> usize {
        ThinArc::strong_count(&self.0)
    }

    /// The page as a pointer that owns one reference.
    pub(super) fn into_raw(self) -> *const c_void {
        ThinArc::into_raw(self.0)
    }

    /// The page of a pointer.
    ///
    /// # Safety
    /// The pointer comes from [`Self::into_raw`], and its reference is not returned twice.
    #[expect(unsafe_code, reason = "pages leave and enter the slots of the cache as pointers")]
    pub(super) unsafe fn from_raw(pointer: *const c_void) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { ThinArc::from_raw(pointer) })
    }
}

/// Prefetches the memory around an address, without waiting for it. Does nothing on processors
/// other than x86-64.
#[inline(always)]
#[allow(unsafe_code, reason = "the instruction has no safe form")]
pub(super) fn prefetch(place: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the instruction is a hint. It fails for no address and changes no memory, and
        // every processor of this kind has it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = place;
}

/// Verifies header and checksum of a page; the error tells the reason.
fn verify(bytes: &[u8], seal: FileSeal, number: u32) -> std::result::Result<PageKind, String> {
    let Some(header) = bytes.get(..HEADER_LEN) else {
        return Err("the page is shorter than its header".into());
    };
    let header: PageHeader = bytemuck::pod_read_unaligned(header);
    let found = checksum(seal, number, bytes);
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
    Ok(kind)
}

/// A verified page, kept in memory while this value lives.
#[derive(Debug)]
pub enum PageRef<'g> {
    /// Borrowed from the cache.
    Lent(Lent<'g>),
    /// Owned by a reference of its own.
    Owned(Page),
}

impl PageRef<'_> {
    /// The page, with a reference of its own.
    pub fn into_owned(self) -> Page {
        match self {
            Self::Lent(page) => page.clone(),
            Self::Owned(page) => page,
        }
    }
}

impl Deref for PageRef<'_> {
    type Target = Page;

    #[inline]
    fn deref(&self) -> &Page {
        match self {
            Self::Lent(page) => page,
            Self::Owned(page) => page,
        }
    }
}

/// A leaf of that level in whose payload every byte is the level.
#[cfg(test)]
pub fn test_page(level: u8) -> Page {
    let mut bytes = vec![level; HEADER_LEN + 64];
    let payload_len = 64;
    let mut header =
        PageHeader { checksum: 0, payload_len, kind: PageKind::RTreeLeaf as u8, level, flags: 0, count: 1 };
    bytes[..HEADER_LEN].copy_from_slice(bytemuck::bytes_of(&header));
    let seal = FileSeal { file_id: 1, stamp: 1 };
    header.checksum = checksum(seal, 1, &bytes);
    bytes[..HEADER_LEN].copy_from_slice(bytemuck::bytes_of(&header));
    let read = |page: &mut [u8]| {
        page.copy_from_slice(&bytes);
        Ok::<(), std::convert::Infallible>(())
    };
    let Ok(page) = Page::read(bytes.len(), seal, 1, read);
    page.unwrap()
}
