//! A component file: pages, then the page that describes the component, then the trailer.

use std::sync::Arc;

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};
use terrane_space::Rect;
use terrane_storage::sync::{AtomicBool, Ordering};
use terrane_storage::{File, OpenMode, Storage};

use super::cache::{PageCache, SlotTable};
use super::page::{ALIGNMENT, FileSeal, HEADER_LEN, PAGE_LEN_MAX, Page, PageKind, PagePointer, PageRef};
use super::slot::{Lent, ReadGuard};
use super::times::TimeRange;
use crate::log::copy_file;
use crate::{Error, Result};

/// Version of the component format.
pub const FORMAT_VERSION: u32 = 3;
pub(super) const MAGIC: [u8; 8] = *b"TERRANEc";

/// The last 48 bytes of a component file. They are written last.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Trailer {
    pub meta: PagePointer,
    pub file_id: u64,
    pub version: u32,
    pub reserved: u32,
    pub magic: [u8; 8],
    /// CRC-32C over the fields before.
    pub checksum: u32,
    pub padding: u32,
}

const _: () = assert!(size_of::<Trailer>() == 48);
pub(super) const TRAILER_LEN: usize = size_of::<Trailer>();

/// Minimum and maximum of a component's contents. Queries skip components by them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// Lowest and highest sequence number of a change in it.
    pub sequence: (u64, u64),
    /// Box around all entries, including anti-matter: x0, y0, x1, y1; for spatial components.
    pub bounds: Option<[f64; 4]>,
    /// Lowest and highest time of the live entries; `None` if it is unknown, or no attribute holds
    /// the time. Anti-matter has no time, so a component outside of an interval may still hide
    /// entries in it.
    pub time: Option<TimeRange>,
    /// Live entries.
    pub entries: u64,
    /// Anti-matter entries.
    pub antimatter: u64,
}

impl Statistics {
    /// The sequence numbers in the description of a component from a bulk load. Its records get one
    /// number when it is installed, which the manifest stores.
    pub const LOADED: (u64, u64) = (0, 0);

    /// Enlarges the bounds.
    pub fn extend(&mut self, rect: Rect) {
        self.bounds = Some(match self.bounds {
            None => [rect.x0, rect.y0, rect.x1, rect.y1],
            Some([x0, y0, x1, y1]) => [x0.min(rect.x0), y0.min(rect.y0), x1.max(rect.x1), y1.max(rect.y1)],
        });
    }

    /// The bounds as a rectangle; empty if there are no entries.
    pub fn rect(&self) -> Rect {
        self.bounds.map_or(Rect::EMPTY, |[x0, y0, x1, y1]| Rect { x0, y0, x1, y1 })
    }
}

/// The description of a component, in its own file and in the manifest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComponentMeta {
    /// The file's id.
    pub file_id: u64,
    /// A number drawn for the file. The checksum of every page covers it together with the id. No
    /// file of another store, or of a diverged copy, therefore passes for this one.
    #[serde(with = "stamp_digits")]
    pub stamp: u64,
    /// Kind of the index: `btree`, `rtree`, …
    pub kind: String,
    /// Root page; `None` if the component is empty.
    pub root: Option<PagePointer>,
    /// Levels of the tree, leaves included.
    pub height: u8,
    /// Number of pages before the description.
    pub pages: u32,
    /// Bytes of the longest page, which a merge holds in memory.
    pub page_len_max: u32,
    /// Whether entries carry begin and end sequence numbers.
    pub has_sequences: bool,
    /// Minimum and maximum of the contents.
    pub statistics: Statistics,
    /// Smallest and largest key, hexadecimal; for B-trees.
    pub key_range: Option<(String, String)>,
    /// Length of the file in bytes; stored in the manifest, 0 in the file itself.
    #[serde(default)]
    pub file_len: u64,
}

/// A stamp as 16 hexadecimal digits.
mod stamp_digits {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(stamp: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{stamp:016x}"))
    }

    pub fn deserialize<'d, D: Deserializer<'d>>(deserializer: D) -> Result<u64, D::Error> {
        let digits = String::deserialize(deserializer)?;
        u64::from_str_radix(&digits, 16).map_err(|_| D::Error::custom("a stamp is 16 hexadecimal digits"))
    }
}

impl ComponentMeta {
    pub(super) fn seal(&self) -> FileSeal {
        FileSeal { file_id: self.file_id, stamp: self.stamp }
    }
}

/// The name of a component file below the store's directory.
pub fn component_name(file_id: u64) -> String {
    format!("components/{file_id:012}.tc")
}

/// An open component file.
#[derive(Debug)]
pub struct ComponentFile {
    meta: ComponentMeta,
    file: Arc<dyn File>,
    storage: Arc<dyn Storage>,
    cache: Arc<PageCache>,
    slots: Arc<SlotTable>,
    /// Whether the file goes when the last reader lets go of it.
    obsolete: AtomicBool,
}

impl ComponentFile {
    /// Opens a file and checks that it is the component that `expected` describes.
    pub fn open(storage: &Arc<dyn Storage>, cache: &Arc<PageCache>, expected: &ComponentMeta) -> Result<Arc<Self>> {
        let name = component_name(expected.file_id);
        let file = storage.open(&name, OpenMode::Read).map_err(|error| {
            if error.is_not_found() {
                Error::damaged(&name, 0, "the file that the manifest names is missing")
            } else if error.is_no_file() {
                Error::damaged(&name, 0, "something else is where the manifest has a file")
            } else {
                error.into()
            }
        })?;
        let length = file.len()?;
        if length != expected.file_len {
            return Err(Error::damaged(
                &name,
                length.min(expected.file_len),
                format!("the file has {length} bytes, the manifest says {}", expected.file_len),
            ));
        }
        let meta = read_meta(&*file, &name, expected.seal(), length)?;
        let mut meta = ComponentMeta { file_len: length, ..meta };
        if meta.statistics.sequence == Statistics::LOADED {
            meta.statistics.sequence = expected.statistics.sequence;
        }
        if meta != *expected {
            return Err(Error::damaged(&name, 0, "the file is not the component that the manifest describes"));
        }
        let slots = Arc::new(SlotTable::new(meta.pages));
        Ok(Arc::new(Self {
            meta,
            file,
            storage: storage.clone(),
            cache: cache.clone(),
            slots,
            obsolete: AtomicBool::new(false),
        }))
    }

    /// The description of the component.
    pub fn meta(&self) -> &ComponentMeta {
        &self.meta
    }

    /// The file's name, for messages.
    pub fn name(&self) -> String {
        component_name(self.meta.file_id)
    }

    /// Reads a page through the cache. `validate` checks its structure when it enters memory.
    #[inline]
    pub fn page<'g>(
        &self,
        pointer: PagePointer,
        validate: fn(&Page) -> std::result::Result<(), String>,
        guard: &'g ReadGuard,
    ) -> Result<PageRef<'g>> {
        match self.slots.get(pointer.number, guard) {
            Some(page) => Ok(PageRef::Lent(page)),
            None => {
                let page = self.load(pointer, validate)?;
                self.cache.insert(&self.slots, pointer.number, &page);
                Ok(PageRef::Owned(page))
            }
        }
    }

    /// The page if it is cached, without waiting for its memory.
    #[inline]
    pub fn peek<'g>(&self, pointer: PagePointer, guard: &'g ReadGuard) -> Option<Lent<'g>> {
        self.slots.peek(pointer.number, guard)
    }

    /// Reads a page that will not be used again soon: uses cached pages, and adds none.
    pub fn page_once(
        &self,
        pointer: PagePointer,
        validate: fn(&Page) -> std::result::Result<(), String>,
    ) -> Result<Page> {
        match self.slots.get(pointer.number, &ReadGuard::enter()) {
            Some(page) => Ok(page.clone()),
            None => self.load(pointer, validate),
        }
    }

    /// Reads a page from the file, regardless of the cache, for `check`.
    pub fn load(&self, pointer: PagePointer, validate: fn(&Page) -> std::result::Result<(), String>) -> Result<Page> {
        let damaged = |reason: String| Error::damaged(self.name(), pointer.offset, reason);
        if pointer.number >= self.meta.pages {
            return Err(damaged(format!("page number {} of {}", pointer.number, self.meta.pages)));
        }
        let page = read_page(&*self.file, pointer, self.meta.seal(), self.meta.file_len)
            .map_err(|error| relabel(error, &self.name()))?;
        self.cache.count_read(pointer.length as usize);
        validate(&page).map_err(damaged)?;
        Ok(page)
    }

    /// A damage error for a page of this file.
    pub fn damaged(&self, pointer: PagePointer, reason: impl Into<String>) -> Error {
        Error::damaged(self.name(), pointer.offset, reason)
    }

    /// Copies the file to another place under a new name, and makes its content durable. The name
    /// is not durable yet.
    pub fn copy_to(&self, storage: &dyn Storage, name: &str) -> Result<u64> {
        copy_file(&*self.file, storage, name)
    }

    /// Removes the file when its last reader drops it.
    pub fn set_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }
}

impl Drop for ComponentFile {
    fn drop(&mut self) {
        self.cache.remove(&self.slots);
        if self.obsolete.load(Ordering::Acquire) {
            // A file that stays behind is a stray, which the next open removes.
            let _ = self.storage.remove(&self.name());
        }
    }
}

fn relabel(error: Error, name: &str) -> Error {
    match error {
        Error::Damaged { offset, reason, .. } => Error::damaged(name, offset, reason),
        other => other,
    }
}

/// Reads and verifies one page; errors have an empty file name.
fn read_page(file: &dyn File, pointer: PagePointer, seal: FileSeal, file_len: u64) -> Result<Page> {
    let length = pointer.length as usize;
    let fits = pointer.offset.checked_add(pointer.length.into()).is_some_and(|end| end <= file_len);
    if !fits
        || !(HEADER_LEN..=PAGE_LEN_MAX).contains(&length)
        || !length.is_multiple_of(ALIGNMENT)
        || !pointer.offset.is_multiple_of(ALIGNMENT as u64)
    {
        return Err(Error::damaged("", pointer.offset, format!("a page of {length} bytes cannot lie here")));
    }
    let read = |bytes: &mut [u8]| {
        file.read_exact_at(bytes, pointer.offset).map_err(|error| {
            if error.is_unexpected_end() {
                Error::damaged("", pointer.offset, "the file ends inside the page")
            } else {
                error.into()
            }
        })
    };
    Page::read(length, seal, pointer.number, read)?.map_err(|reason| Error::damaged("", pointer.offset, reason))
}

fn read_meta(file: &dyn File, name: &str, seal: FileSeal, length: u64) -> Result<ComponentMeta> {
    let Some(trailer_offset) = length.checked_sub(TRAILER_LEN as u64) else {
        return Err(Error::damaged(name, 0, "the file is too short for a component"));
    };
    let damaged = |reason: &str| Error::damaged(name, trailer_offset, reason);
    let mut bytes = [0; TRAILER_LEN];
    file.read_exact_at(&mut bytes, trailer_offset)?;
    let trailer: Trailer = bytemuck::pod_read_unaligned(&bytes);
    if trailer.magic != MAGIC {
        return Err(damaged("the file does not end as a component does"));
    }
    if crc32c::crc32c(&bytes[..TRAILER_LEN - 8]) != trailer.checksum || trailer.padding != 0 {
        return Err(damaged("the trailer's checksum does not match"));
    }
    if trailer.version != FORMAT_VERSION {
        return Err(Error::UnknownVersion { file: name.into(), found: trailer.version, known: FORMAT_VERSION });
    }
    if trailer.file_id != seal.file_id {
        return Err(damaged("the file belongs to another place"));
    }
    let page = read_page(file, trailer.meta, seal, length).map_err(|error| relabel(error, name))?;
    if page.kind() != PageKind::Meta {
        return Err(damaged("the trailer does not point to the description"));
    }
    serde_json::from_slice(page.payload())
        .map_err(|error| Error::damaged(name, trailer.meta.offset, format!("the description cannot be read: {error}")))
}
