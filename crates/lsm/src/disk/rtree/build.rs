//! Bulk load: entries in Hilbert order in, a finished component out.

use terrane_space::{Rect, RectF32, ordered_bits};

use super::KIND;
use super::pages::{FANOUT_MAX, HAS_ANTIMATTER, HAS_SEQUENCES, POINTS_MAX, RECTANGLES, RECTANGLES_MAX};
use crate::Result;
use crate::disk::column;
use crate::disk::component::{ComponentMeta, Statistics};
use crate::disk::keys::KeysBuilder;
use crate::disk::page::{PageKind, PagePointer};
use crate::disk::writer::ComponentWriter;

#[derive(Debug, Default)]
struct LeafBuilder {
    corners: [Vec<u64>; 4],
    rect: Option<Rect>,
    keys: KeysBuilder,
    antimatter: Vec<u64>,
    has_antimatter: bool,
    begins: Vec<u64>,
    ends: Vec<u64>,
}

#[derive(Debug, Default)]
struct InnerBuilder {
    corners: [Vec<f32>; 4],
    rect: Option<Rect>,
    children: Vec<PagePointer>,
}

/// Builds an R-tree component from entries in the order of (Hilbert position, key).
#[derive(Debug)]
pub struct RTreeBuilder {
    writer: ComponentWriter,
    points: bool,
    has_sequences: bool,
    leaf: LeafBuilder,
    levels: Vec<InnerBuilder>,
    statistics: Statistics,
    payload: Vec<u8>,
}

fn extended(rect: Option<Rect>, by: Rect) -> Option<Rect> {
    Some(rect.map_or(by, |rect| rect.union(&by)))
}

impl RTreeBuilder {
    /// Starts a component of points or of rectangles; with `has_sequences`, entries keep
    /// their begin and end numbers.
    pub fn new(writer: ComponentWriter, points: bool, has_sequences: bool) -> Self {
        Self {
            writer,
            points,
            has_sequences,
            leaf: LeafBuilder::default(),
            levels: Vec::new(),
            statistics: Statistics::default(),
            payload: Vec::new(),
        }
    }

    /// Bytes written to the file so far.
    pub fn bytes_written(&self) -> u64 {
        self.writer.len()
    }

    /// Adds the next entry; `life` is its begin and end number.
    pub fn push(&mut self, rect: Rect, key: &[u8], antimatter: bool, life: (u64, u64)) -> Result<()> {
        let capacity = if self.points { POINTS_MAX } else { RECTANGLES_MAX };
        let index = self.leaf.keys.len();
        // Leaves of long keys are closed early, so that a page stays about a page.
        if index == capacity || (index >= 16 && self.leaf.keys.bytes_len() > (16 << 10)) {
            self.finish_leaf()?;
        }
        let leaf = &mut self.leaf;
        let index = leaf.keys.len();
        let corners = [rect.x0, rect.y0, rect.x1, rect.y1];
        for (column, value) in leaf.corners.iter_mut().zip(corners).take(if self.points { 2 } else { 4 }) {
            column.push(ordered_bits(value));
        }
        leaf.rect = extended(leaf.rect, rect);
        leaf.keys.push(key);
        if index.is_multiple_of(64) {
            leaf.antimatter.push(0);
        }
        if antimatter {
            leaf.antimatter[index / 64] |= 1 << (index % 64);
            leaf.has_antimatter = true;
            self.statistics.antimatter += 1;
        } else {
            self.statistics.entries += 1;
        }
        if self.has_sequences {
            leaf.begins.push(life.0);
            leaf.ends.push(life.1);
        }
        Ok(())
    }

    fn finish_leaf(&mut self) -> Result<()> {
        let leaf = &mut self.leaf;
        let Some(rect) = leaf.rect.take() else { return Ok(()) };
        let count = leaf.keys.len();
        let payload = &mut self.payload;
        let mut flags = if self.points { 0 } else { RECTANGLES };
        payload.clear();
        let columns = &mut leaf.corners[..if self.points { 2 } else { 4 }];
        column::encode(columns, payload);
        columns.iter_mut().for_each(Vec::clear);
        leaf.keys.finish(payload);
        if leaf.has_antimatter {
            flags |= HAS_ANTIMATTER;
            payload.extend_from_slice(bytemuck::cast_slice(&leaf.antimatter));
        }
        if self.has_sequences {
            flags |= HAS_SEQUENCES;
            payload.extend_from_slice(bytemuck::cast_slice(&leaf.begins));
            payload.extend_from_slice(bytemuck::cast_slice(&leaf.ends));
        }
        leaf.antimatter.clear();
        leaf.has_antimatter = false;
        leaf.begins.clear();
        leaf.ends.clear();
        let pointer = self.writer.page(PageKind::RTreeLeaf, 0, flags, count, payload)?;
        self.statistics.extend(rect);
        self.add_child(0, rect, pointer)
    }

    fn add_child(&mut self, level: usize, rect: Rect, pointer: PagePointer) -> Result<()> {
        if level == self.levels.len() {
            self.levels.push(InnerBuilder::default());
        }
        if self.levels[level].children.len() == FANOUT_MAX {
            let (rect, pointer) = self.write_inner(level)?;
            self.add_child(level + 1, rect, pointer)?;
        }
        let open = &mut self.levels[level];
        let outward = RectF32::outward(rect);
        for (corners, value) in open.corners.iter_mut().zip([outward.x0, outward.y0, outward.x1, outward.y1]) {
            corners.push(value);
        }
        open.rect = extended(open.rect, rect);
        open.children.push(pointer);
        Ok(())
    }

    fn write_inner(&mut self, level: usize) -> Result<(Rect, PagePointer)> {
        let open = &mut self.levels[level];
        let count = open.children.len();
        self.payload.clear();
        for corners in &mut open.corners {
            self.payload.extend_from_slice(bytemuck::cast_slice(corners));
            self.payload.resize(self.payload.len().next_multiple_of(8), 0);
            corners.clear();
        }
        self.payload.extend_from_slice(bytemuck::cast_slice(&open.children));
        open.children.clear();
        let rect = open.rect.take().unwrap_or(Rect::EMPTY);
        let pointer = self.writer.page(PageKind::RTreeInner, level as u8 + 1, 0, count, &self.payload)?;
        Ok((rect, pointer))
    }

    /// Closes all open pages and completes the file. `sequence` is the range of the sequence
    /// numbers of the changes inside.
    pub fn finish(mut self, sequence: (u64, u64)) -> Result<ComponentMeta> {
        self.finish_leaf()?;
        let mut root = None;
        let mut level = 0;
        while level < self.levels.len() {
            let (rect, pointer) = self.write_inner(level)?;
            level += 1;
            if level == self.levels.len() {
                root = Some(pointer);
            } else {
                self.add_child(level, rect, pointer)?;
            }
        }
        self.statistics.sequence = sequence;
        let meta = ComponentMeta {
            file_id: 0,
            stamp: 0,
            kind: KIND.into(),
            root,
            height: self.levels.len() as u8 + u8::from(root.is_some()),
            pages: 0,
            has_sequences: self.has_sequences,
            statistics: self.statistics,
            key_range: None,
            file_len: 0,
        };
        self.writer.finish(meta)
    }
}
