//! Bulk load: entries in Hilbert order in, a finished component out.
//!
//! A page that is full is cut where the curve leaves the largest cell, no earlier than half
//! way; what is behind the cut begins the next page. So pages are whole cells or runs of equal
//! ones, whose boxes hardly overlap: a window of 10 hits among 1 M clustered points meets 2 leaves
//! where it met 3 of pages that were always filled.

use terrane_space::{Rect, RectF32, ordered_bits};

use super::KIND;
use super::pages::{FANOUT_MAX, HAS_ANTIMATTER, HAS_SEQUENCES, POINTS_MAX, RECTANGLES, RECTANGLES_MAX};
use crate::Result;
use crate::disk::column;
use crate::disk::component::{ComponentMeta, Statistics};
use crate::disk::keys::{KeysBuilder, width_in_rows};
use crate::disk::page::{PageKind, PagePointer};
use crate::disk::writer::ComponentWriter;

#[derive(Debug, Default)]
struct LeafBuilder {
    borders: Borders,
    /// Hilbert position of the last entry.
    position: u64,
    corners: [Vec<u64>; 4],
    rects: Vec<Rect>,
    keys: KeysBuilder,
    antimatter: Vec<bool>,
    begins: Vec<u64>,
    ends: Vec<u64>,
}

impl LeafBuilder {
    fn is_full(&self, points: bool) -> bool {
        let count = self.keys.len();
        count == if points { POINTS_MAX } else { RECTANGLES_MAX } || (count >= 16 && self.keys.bytes_len() > (16 << 10))
    }
}

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
    points: bool,
    has_sequences: bool,
    leaf: LeafBuilder,
    levels: Vec<InnerBuilder>,
    statistics: Statistics,
    payload: Vec<u8>,
}

/// For each entry of a page in the making, the order of the smallest cell of the curve that holds
/// both it and the entry before it: the larger the cell, the farther apart they may lie.
#[derive(Debug, Default)]
struct Borders(Vec<u8>);

impl Borders {
    /// The order of the smallest cell that holds both positions.
    fn between(position: u64, next: u64) -> u8 {
        (u64::BITS - (position ^ next).leading_zeros()).div_ceil(2) as u8
    }

    /// Where to cut a full page, so that the entry of border `next` begins another if none of
    /// the latter half is a better place. Of equal places the last is taken.
    fn cut(&self, next: u8) -> usize {
        let count = self.0.len();
        let (mut place, mut order) = (count, next);
        for index in (count.div_ceil(2)..count).rev() {
            if self.0[index] > order {
                (place, order) = (index, self.0[index]);
            }
        }
        place
    }
}

fn enclosing(rects: &[Rect]) -> Rect {
    rects.iter().fold(Rect::EMPTY, |all, rect| all.union(rect))
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

    /// Adds the next entry; `position` is the Hilbert position of its centre, `life` its begin and end
    /// number.
    pub fn push(&mut self, position: u64, rect: Rect, key: &[u8], antimatter: bool, life: (u64, u64)) -> Result<()> {
        let border = Borders::between(self.leaf.position, position);
        // Leaves of long keys are closed early, so that a page stays about a page.
        while self.leaf.is_full(self.points) {
            self.write_leaf(self.leaf.borders.cut(border))?;
        }
        let leaf = &mut self.leaf;
        leaf.borders.0.push(border);
        leaf.position = position;
        let corners = [rect.x0, rect.y0, rect.x1, rect.y1];
        for (column, value) in leaf.corners.iter_mut().zip(corners).take(if self.points { 2 } else { 4 }) {
            column.push(ordered_bits(value));
        }
        leaf.rects.push(rect);
        leaf.keys.push(key);
        leaf.antimatter.push(antimatter);
        if antimatter {
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

    /// Writes a leaf of the first `count` entries.
    fn write_leaf(&mut self, count: usize) -> Result<()> {
        let leaf = &mut self.leaf;
        let payload = &mut self.payload;
        let mut flags = if self.points { 0 } else { RECTANGLES };
        payload.clear();
        // What a search needs of every leaf stands in front; most entries are never looked at.
        let keys = leaf.keys.take(count);
        payload.extend_from_slice(bytemuck::bytes_of(&keys.head));
        let columns = &mut leaf.corners[..if self.points { 2 } else { 4 }];
        let key_width = width_in_rows(keys.head);
        column::encode(columns, count, (&keys.body, key_width.unwrap_or(0)), payload);
        columns.iter_mut().for_each(|column| drop(column.drain(..count)));
        if key_width.is_none() {
            payload.extend_from_slice(&keys.body);
        }
        if leaf.antimatter[..count].contains(&true) {
            flags |= HAS_ANTIMATTER;
            for bits in leaf.antimatter[..count].chunks(64) {
                let word = bits.iter().rev().fold(0_u64, |word, bit| word << 1 | u64::from(*bit));
                payload.extend_from_slice(&word.to_le_bytes());
            }
        }
        if self.has_sequences {
            flags |= HAS_SEQUENCES;
            payload.extend_from_slice(bytemuck::cast_slice(&leaf.begins[..count]));
            payload.extend_from_slice(bytemuck::cast_slice(&leaf.ends[..count]));
            leaf.begins.drain(..count);
            leaf.ends.drain(..count);
        }
        leaf.antimatter.drain(..count);
        let rect = enclosing(&leaf.rects[..count]);
        leaf.rects.drain(..count);
        let border = leaf.borders.0[0];
        leaf.borders.0.drain(..count);
        let pointer = self.writer.page(PageKind::RTreeLeaf, 0, flags, count, payload)?;
        self.statistics.extend(rect);
        self.add_child(0, rect, pointer, border)
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
        open.borders.0.push(border);
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
        let border = open.borders.0[0];
        open.borders.0.drain(..count);
        let pointer = self.writer.page(PageKind::RTreeInner, level as u8 + 1, 0, count, &self.payload)?;
        Ok((rect, pointer, border))
    }

    /// Closes all open pages and completes the file. `sequence` is the range of the sequence
    /// numbers of the changes inside.
    pub fn finish(mut self, sequence: (u64, u64)) -> Result<ComponentMeta> {
        if self.leaf.keys.len() > 0 {
            self.write_leaf(self.leaf.keys.len())?;
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
        self.statistics.sequence = sequence;
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
            key_range: None,
            file_len: 0,
        };
        self.writer.finish(meta)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_border_is_the_order_of_the_cell_that_holds_both_sides() {
        assert_eq!(Borders::between(5, 5), 0);
        assert_eq!(Borders::between(4, 7), 1);
        assert_eq!(Borders::between(3, 4), 2);
        assert_eq!(Borders::between(15, 16), 3);
        assert_eq!(Borders::between(0, u64::MAX), 32);
    }

    #[test]
    fn a_full_page_is_cut_at_the_highest_border_of_its_latter_half() {
        let borders = Borders(vec![9, 1, 8, 3, 2, 1, 2, 1]);
        assert_eq!(borders.cut(1), 6, "of equal places the last");
        assert_eq!(borders.cut(2), 8, "the page is left whole where its end is as good");
        assert_eq!(borders.cut(3), 8);
        assert_eq!(Borders(vec![0; 128]).cut(0), 128);
        assert_eq!(Borders(vec![1]).cut(0), 1, "a page has an entry");
    }
}
