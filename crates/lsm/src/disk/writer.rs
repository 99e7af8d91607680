//! Writes the pages of a component file in one pass.

use std::sync::Arc;

use terrane_storage::{File, OpenMode, Storage};

use super::component::{ComponentMeta, FORMAT_VERSION, MAGIC, TRAILER_LEN, Trailer, component_name};
use super::page::{ALIGNMENT, FileSeal, HEADER_LEN, PAGE_LEN_MAX, PageHeader, PageKind, PagePointer, checksum};
use crate::stamp::draw_stamp;
use crate::{Error, Result};

/// Pages are collected into writes of about this many bytes.
const BUFFER_LEN: usize = 256 << 10;

/// A component file under construction. If it is dropped unfinished, the file is removed.
#[derive(Debug)]
pub struct ComponentWriter {
    storage: Arc<dyn Storage>,
    file: Arc<dyn File>,
    seal: FileSeal,
    buffer: Vec<u8>,
    /// Bytes passed to the file.
    written: u64,
    pages: u32,
    page_len_max: u32,
    finished: bool,
}

impl ComponentWriter {
    /// Creates the file with a fresh id.
    pub fn create(storage: &Arc<dyn Storage>, file_id: u64) -> Result<Self> {
        let file = storage.open(&component_name(file_id), OpenMode::CreateNew)?;
        Ok(Self {
            storage: storage.clone(),
            file,
            seal: FileSeal { file_id, stamp: draw_stamp(storage.as_ref()) },
            buffer: Vec::with_capacity(BUFFER_LEN + (16 << 10)),
            written: 0,
            pages: 0,
            page_len_max: 0,
            finished: false,
        })
    }

    /// Bytes written so far.
    pub fn len(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Whether nothing was written yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends a page.
    pub fn page(&mut self, kind: PageKind, level: u8, flags: u16, count: usize, payload: &[u8]) -> Result<PagePointer> {
        let length = (HEADER_LEN + payload.len()).next_multiple_of(ALIGNMENT);
        if length > PAGE_LEN_MAX {
            return Err(Error::Invalid(format!(
                "an entry of {} bytes is larger than a page can be ({PAGE_LEN_MAX} bytes)",
                payload.len()
            )));
        }
        let pointer = PagePointer { offset: self.len(), number: self.pages, length: length as u32 };
        let start = self.buffer.len();
        let mut header = PageHeader::new(kind, level, flags, count, payload);
        self.buffer.extend_from_slice(bytemuck::bytes_of(&header));
        self.buffer.extend_from_slice(payload);
        self.buffer.resize(start + length, 0);
        header.checksum = checksum(self.seal, pointer.number, &self.buffer[start..]);
        self.buffer[start..start + 4].copy_from_slice(&header.checksum.to_le_bytes());
        self.pages = self
            .pages
            .checked_add(1)
            .ok_or_else(|| Error::Invalid("a component holds at most 4 billion pages".into()))?;
        self.page_len_max = self.page_len_max.max(pointer.length);
        if self.buffer.len() >= BUFFER_LEN {
            self.write_out()?;
        }
        Ok(pointer)
    }

    fn write_out(&mut self) -> Result<()> {
        self.file.write_all_at(&self.buffer, self.written)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Fills in the fields that the writer knows, writes the description and the trailer, and syncs
    /// the file. Returns the description for the manifest. The file's name becomes durable with a
    /// sync of its directory; the caller must do that before a manifest names the file.
    pub fn finish(mut self, mut meta: ComponentMeta) -> Result<ComponentMeta> {
        FileSeal { file_id: meta.file_id, stamp: meta.stamp } = self.seal;
        meta.pages = self.pages;
        meta.page_len_max = self.page_len_max;
        meta.file_len = 0;
        let description = serde_json::to_vec(&meta)
            .map_err(|error| Error::Invalid(format!("a component's description cannot be written: {error}")))?;
        let pointer = self.page(PageKind::Meta, 0, 0, 1, &description)?;
        let mut trailer = Trailer {
            meta: pointer,
            file_id: self.seal.file_id,
            version: FORMAT_VERSION,
            reserved: 0,
            magic: MAGIC,
            checksum: 0,
            padding: 0,
        };
        trailer.checksum = crc32c::crc32c(&bytemuck::bytes_of(&trailer)[..TRAILER_LEN - 8]);
        self.buffer.extend_from_slice(bytemuck::bytes_of(&trailer));
        self.write_out()?;
        self.file.sync_data()?;
        meta.file_len = self.written;
        self.finished = true;
        Ok(meta)
    }
}

impl Drop for ComponentWriter {
    fn drop(&mut self) {
        if !self.finished {
            // A file that cannot be removed is a stray, which the next open removes.
            let _ = self.storage.remove(&component_name(self.seal.file_id));
        }
    }
}
