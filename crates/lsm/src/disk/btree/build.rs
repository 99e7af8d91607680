//! Bulk load: takes sorted entries and writes a finished component.

use std::sync::Arc;

use super::pages::{HAS_ANTIMATTER, HAS_SEQUENCES};
use super::{KIND, to_hex};
use crate::disk::bloom;
use crate::disk::component::{ComponentMeta, Statistics};
use crate::disk::keys::KeysBuilder;
use crate::disk::page::{PageKind, PagePointer};
use crate::disk::times::{RecordTimes, TimeSpan};
use crate::disk::writer::ComponentWriter;
use crate::{Error, Result};

/// A leaf is closed when its keys and values reach this many bytes.
const LEAF_BYTES: usize = 8 << 10;
/// An inner page is closed when its keys reach this many bytes, or at [`FANOUT_MAX`] children.
const INNER_BYTES: usize = 8 << 10;
const FANOUT_MAX: usize = 256;

#[derive(Debug, Default)]
struct LeafBuilder {
    keys: KeysBuilder,
    first_key: Vec<u8>,
    ends: Vec<u32>,
    antimatter: Vec<u64>,
    has_antimatter: bool,
    begins: Vec<u64>,
    values: Vec<u8>,
    /// Hashes of its keys, if there are filters.
    hashes: Vec<u64>,
}

#[derive(Debug, Default)]
struct InnerBuilder {
    keys: KeysBuilder,
    first_key: Vec<u8>,
    children: Vec<PagePointer>,
    /// Hashes of all keys below; for parents of leaves.
    hashes: Vec<u64>,
}

/// Builds a B-tree component from entries in key order.
#[derive(Debug)]
pub struct BTreeBuilder {
    writer: ComponentWriter,
    has_sequences: bool,
    has_filters: bool,
    leaf: LeafBuilder,
    levels: Vec<InnerBuilder>,
    first_key: Option<Vec<u8>>,
    last: (Vec<u8>, u64),
    statistics: Statistics,
    times: Option<TimeSpan>,
    payload: Vec<u8>,
}

impl BTreeBuilder {
    /// Starts a component. With `has_sequences`, entries keep their begin numbers and a key may
    /// have several versions, newest first. There are no Bloom filters, as only
    /// [`BTreeComponent::get`] uses them.
    ///
    /// [`BTreeComponent::get`]: super::BTreeComponent::get
    pub fn new(writer: ComponentWriter, has_sequences: bool) -> Self {
        Self {
            writer,
            has_sequences,
            has_filters: false,
            leaf: LeafBuilder::default(),
            levels: Vec::new(),
            first_key: None,
            last: (Vec::new(), 0),
            statistics: Statistics::default(),
            times: None,
            payload: Vec::new(),
        }
    }

    /// The same with Bloom filters, for components in which single keys are searched.
    pub fn with_filters(self) -> Self {
        Self { has_filters: true, ..self }
    }

    /// The same for records, with the range of their times among the statistics.
    pub fn with_times(self, times: Arc<dyn RecordTimes>) -> Self {
        Self { times: TimeSpan::new(times), ..self }
    }

    /// Adds the next entry.
    ///
    /// # Errors
    /// When entries are out of order or larger than a page, or the storage fails.
    pub fn push(&mut self, key: &[u8], antimatter: bool, begin: u64, value: &[u8]) -> Result<()> {
        if self.first_key.is_none() {
            self.first_key = Some(key.to_vec());
        } else {
            let version = self.has_sequences && self.last.0 == key && begin < self.last.1;
            if key <= self.last.0.as_slice() && !version {
                return Err(Error::Invalid("entries of a B-tree must be loaded in key order".into()));
            }
        }
        if self.leaf.keys.len() > 0
            && self.leaf.keys.bytes_len() + self.leaf.values.len() + key.len() + value.len() > LEAF_BYTES
        {
            self.finish_leaf()?;
        }
        self.last.0.clear();
        self.last.0.extend_from_slice(key);
        self.last.1 = begin;
        let leaf = &mut self.leaf;
        let index = leaf.keys.len();
        if index == 0 {
            leaf.first_key.clear();
            leaf.first_key.extend_from_slice(key);
        }
        leaf.keys.push(key);
        leaf.values.extend_from_slice(value);
        leaf.ends.push(leaf.values.len() as u32);
        if index.is_multiple_of(64) {
            leaf.antimatter.push(0);
        }
        if antimatter {
            leaf.antimatter[index / 64] |= 1 << (index % 64);
            leaf.has_antimatter = true;
            self.statistics.antimatter += 1;
        } else {
            self.statistics.entries += 1;
            if let Some(times) = &mut self.times {
                times.add(value);
            }
        }
        if self.has_sequences {
            leaf.begins.push(begin);
        }
        if self.has_filters {
            leaf.hashes.push(bloom::hash(key));
        }
        Ok(())
    }

    fn finish_leaf(&mut self) -> Result<()> {
        let leaf = &mut self.leaf;
        let count = leaf.keys.len();
        if count == 0 {
            return Ok(());
        }
        let mut flags = 0;
        let payload = &mut self.payload;
        payload.clear();
        leaf.keys.take(count).append_to(payload);
        payload.extend_from_slice(bytemuck::cast_slice(&leaf.ends));
        payload.resize(payload.len().next_multiple_of(8), 0);
        if leaf.has_antimatter {
            flags |= HAS_ANTIMATTER;
            payload.extend_from_slice(bytemuck::cast_slice(&leaf.antimatter));
        }
        if self.has_sequences {
            flags |= HAS_SEQUENCES;
            payload.extend_from_slice(bytemuck::cast_slice(&leaf.begins));
        }
        payload.extend_from_slice(&leaf.values);
        let pointer = self.writer.page(PageKind::BTreeLeaf, 0, flags, count, payload)?;
        let first_key = std::mem::take(&mut leaf.first_key);
        leaf.ends.clear();
        leaf.antimatter.clear();
        leaf.has_antimatter = false;
        leaf.begins.clear();
        leaf.values.clear();
        self.add_child(0, &first_key, pointer)?;
        self.leaf.first_key = first_key;
        Ok(())
    }

    /// Adds a child to the open inner page of a level (0: parents of leaves).
    fn add_child(&mut self, level: usize, first_key: &[u8], pointer: PagePointer) -> Result<()> {
        if level == self.levels.len() {
            self.levels.push(InnerBuilder::default());
        }
        let open = &self.levels[level];
        if open.children.len() >= FANOUT_MAX
            || (open.children.len() > 1 && open.keys.bytes_len() + first_key.len() > INNER_BYTES)
        {
            self.finish_inner(level)?;
        }
        let open = &mut self.levels[level];
        if open.children.is_empty() {
            open.first_key.clear();
            open.first_key.extend_from_slice(first_key);
        }
        open.keys.push(first_key);
        open.children.push(pointer);
        if level == 0 {
            open.hashes.append(&mut self.leaf.hashes);
        }
        Ok(())
    }

    fn write_inner(&mut self, level: usize) -> Result<PagePointer> {
        let mut bloom = PagePointer::default();
        if level == 0 && self.has_filters {
            let hashes = &mut self.levels[0].hashes;
            let words = bloom::build(hashes);
            hashes.clear();
            bloom = self.writer.page(PageKind::Bloom, 0, 0, words.len() / 8, bytemuck::cast_slice(&words))?;
        }
        let open = &mut self.levels[level];
        let count = open.children.len();
        self.payload.clear();
        self.payload.extend_from_slice(bytemuck::bytes_of(&bloom));
        self.payload.extend_from_slice(bytemuck::cast_slice(&open.children));
        open.keys.take(open.keys.len()).append_to(&mut self.payload);
        open.children.clear();
        self.writer.page(PageKind::BTreeInner, level as u8 + 1, 0, count, &self.payload)
    }

    fn finish_inner(&mut self, level: usize) -> Result<()> {
        let pointer = self.write_inner(level)?;
        let first_key = std::mem::take(&mut self.levels[level].first_key);
        self.add_child(level + 1, &first_key, pointer)?;
        self.levels[level].first_key = first_key;
        Ok(())
    }

    /// Closes all open pages and completes the file. `sequence` is the range of the sequence
    /// numbers of the changes inside.
    pub fn finish(mut self, sequence: (u64, u64)) -> Result<ComponentMeta> {
        self.finish_leaf()?;
        let mut root = None;
        let mut level = 0;
        while level < self.levels.len() {
            let pointer = self.write_inner(level)?;
            if level + 1 == self.levels.len() {
                root = Some(pointer);
            } else {
                let first_key = std::mem::take(&mut self.levels[level].first_key);
                self.add_child(level + 1, &first_key, pointer)?;
            }
            level += 1;
        }
        self.statistics.sequence = sequence;
        self.statistics.time = self.times.and_then(TimeSpan::finish);
        let meta = ComponentMeta {
            file_id: 0,
            stamp: 0,
            kind: KIND.into(),
            root,
            height: self.levels.len() as u8 + u8::from(root.is_some()),
            pages: 0,
            page_len_max: 0,
            has_sequences: self.has_sequences,
            statistics: self.statistics,
            key_range: self.first_key.map(|first| (to_hex(&first), to_hex(&self.last.0))),
            file_len: 0,
        };
        self.writer.finish(meta)
    }
}
