//! Bulk load: takes entries in Hilbert order and writes a finished component.

use terrane_space::{Rect, RectF32};

use super::KIND;
use super::pages::FANOUT_MAX;
use crate::Result;
use crate::disk::component::ComponentMeta;
use crate::disk::page::{PageKind, PagePointer};
use crate::disk::spatial::build::{Borders, LeafBuilder, enclosing};
use crate::disk::writer::ComponentWriter;

#[derive(Debug, Default)]
struct InnerBuilder {
    borders: Borders,
    corners: [Vec<f32>; 4],
    rects: Vec<Rect>,
    children: Vec<PagePointer>,
}

/// Builds an R-tree component from entries in the order of (Hilbert position, key).
#[derive(Debug)]
pub struct RTreeBuilder {
    writer: ComponentWriter,
    has_sequences: bool,
    leaf: LeafBuilder,
    levels: Vec<InnerBuilder>,
    payload: Vec<u8>,
}

impl RTreeBuilder {
    /// Starts a component of points or of rectangles. With `has_sequences`, entries keep their
    /// begin and end numbers.
    pub fn new(writer: ComponentWriter, points: bool, has_sequences: bool) -> Self {
        Self {
            writer,
            has_sequences,
            leaf: LeafBuilder::new(points, has_sequences),
            levels: Vec::new(),
            payload: Vec::new(),
        }
    }

    /// Adds the next entry. `position` is the Hilbert position of its centre, `life` its begin and
    /// end number.
    pub fn push(&mut self, position: u64, rect: Rect, key: &[u8], antimatter: bool, life: (u64, u64)) -> Result<()> {
        while let Some(count) = self.leaf.cut_before(position) {
            self.write_leaf(count)?;
        }
        self.leaf.push(position, rect, key, antimatter, life);
        Ok(())
    }

    /// Writes a leaf of the first `count` entries.
    fn write_leaf(&mut self, count: usize) -> Result<()> {
        let leaf = self.leaf.take(count, &mut self.payload);
        let pointer = self.writer.page(PageKind::RTreeLeaf, 0, leaf.flags, count, &self.payload)?;
        self.add_child(0, leaf.rect, pointer, leaf.border)
    }

    fn add_child(&mut self, level: usize, rect: Rect, pointer: PagePointer, border: u8) -> Result<()> {
        if level == self.levels.len() {
            self.levels.push(InnerBuilder::default());
        }
        if self.levels[level].children.len() == FANOUT_MAX {
            let (rect, pointer, first_border) = self.write_inner(level, self.levels[level].borders.cut(border))?;
            self.add_child(level + 1, rect, pointer, first_border)?;
        }
        let open = &mut self.levels[level];
        let outward = RectF32::outward(rect);
        for (corners, value) in open.corners.iter_mut().zip([outward.x0, outward.y0, outward.x1, outward.y1]) {
            corners.push(value);
        }
        open.borders.push(border);
        open.rects.push(rect);
        open.children.push(pointer);
        Ok(())
    }

    /// Writes an inner page of the first `count` children.
    fn write_inner(&mut self, level: usize, count: usize) -> Result<(Rect, PagePointer, u8)> {
        let open = &mut self.levels[level];
        self.payload.clear();
        for corners in &mut open.corners {
            self.payload.extend_from_slice(bytemuck::cast_slice(&corners[..count]));
            self.payload.resize(self.payload.len().next_multiple_of(8), 0);
            corners.drain(..count);
        }
        self.payload.extend_from_slice(bytemuck::cast_slice(&open.children[..count]));
        open.children.drain(..count);
        let rect = enclosing(&open.rects[..count]);
        open.rects.drain(..count);
        let border = open.borders.take(count);
        let pointer = self.writer.page(PageKind::RTreeInner, level as u8 + 1, 0, count, &self.payload)?;
        Ok((rect, pointer, border))
    }

    /// Closes all open pages and completes the file. `sequence` is the range of the sequence
    /// numbers of the changes inside.
    pub fn finish(mut self, sequence: (u64, u64)) -> Result<ComponentMeta> {
        if self.leaf.len() > 0 {
            self.write_leaf(self.leaf.len())?;
        }
        let mut root = None;
        let mut level = 0;
        while level < self.levels.len() {
            let (rect, pointer, border) = self.write_inner(level, self.levels[level].children.len())?;
            level += 1;
            if level == self.levels.len() {
                root = Some(pointer);
            } else {
                self.add_child(level, rect, pointer, border)?;
            }
        }
        let mut statistics = self.leaf.statistics;
        statistics.sequence = sequence;
        let meta = ComponentMeta {
            file_id: 0,
            stamp: 0,
            kind: KIND.into(),
            root,
            height: self.levels.len() as u8 + u8::from(root.is_some()),
            pages: 0,
            page_len_max: 0,
            has_sequences: self.has_sequences,
            statistics,
            key_range: None,
            file_len: 0,
        };
        self.writer.finish(meta)
    }
}
