//! Bulk load: takes entries in the order of their positions and writes a finished component.

use terrane_space::Rect;

use super::pages::HAS_POSITIONS;
use crate::curve::Curve;
use crate::disk::component::ComponentMeta;
use crate::disk::keys::append_integers;
use crate::disk::page::{PageKind, PagePointer};
use crate::disk::rtree::FANOUT_MAX;
use crate::disk::spatial::build::{Borders, LeafBuilder};
use crate::disk::writer::ComponentWriter;
use crate::{Error, Result};

#[derive(Debug, Default)]
struct InnerBuilder {
    borders: Borders,
    firsts: Vec<u64>,
    lasts: Vec<u64>,
    children: Vec<PagePointer>,
}

/// A written page.
struct Written {
    first: u64,
    last: u64,
    pointer: PagePointer,
    /// Border before its first entry.
    border: u8,
}

/// Builds a component of a curve-keyed kind from entries in the order of (position, key). An object
/// has an entry under each of its positions ([`Curve::positions`]).
#[derive(Debug)]
pub struct CurveBuilder {
    writer: ComponentWriter,
    kind: &'static str,
    points: bool,
    stores_positions: bool,
    has_sequences: bool,
    leaf: LeafBuilder,
    /// Positions of the entries of the leaf.
    positions: Vec<u64>,
    last_key: Vec<u8>,
    levels: Vec<InnerBuilder>,
    payload: Vec<u8>,
}

impl CurveBuilder {
    /// Starts a component. With `has_sequences`, entries keep their begin and end numbers.
    pub fn new(writer: ComponentWriter, curve: &Curve, has_sequences: bool) -> Self {
        Self {
            writer,
            kind: curve.kind(),
            points: curve.points(),
            stores_positions: curve.stores_positions(),
            has_sequences,
            leaf: LeafBuilder::new(curve.points(), has_sequences),
            positions: Vec::new(),
            last_key: Vec::new(),
            levels: Vec::new(),
            payload: Vec::new(),
        }
    }

    /// Adds the next entry; `life` is its begin and end number.
    ///
    /// # Errors
    /// When entries are out of order, a rectangle is added to a component of points, or the storage
    /// fails.
    pub fn push(&mut self, position: u64, rect: Rect, key: &[u8], antimatter: bool, life: (u64, u64)) -> Result<()> {
        if let Some(last) = self.positions.last()
            && (*last, self.last_key.as_slice()) > (position, key)
        {
            return Err(Error::Invalid(format!(
                "entries of a component of kind {} must be loaded in the order of position and key",
                self.kind
            )));
        }
        if self.points && (rect.x0 != rect.x1 || rect.y0 != rect.y1) {
            return Err(Error::Invalid(format!("{rect:?} is not a point, and this component holds points")));
        }
        while let Some(count) = self.leaf.cut_before(position) {
            self.write_leaf(count)?;
        }
        self.leaf.push(position, rect, key, antimatter, life);
        self.positions.push(position);
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        Ok(())
    }

    /// Writes a leaf of the first `count` entries.
    fn write_leaf(&mut self, count: usize) -> Result<()> {
        let leaf = self.leaf.take(count, &mut self.payload);
        let mut flags = leaf.flags;
        let positions = &self.positions[..count];
        if self.stores_positions {
            flags |= HAS_POSITIONS;
            append_integers(positions, &mut self.payload);
        }
        let pointer = self.writer.page(PageKind::CurveLeaf, 0, flags, count, &self.payload)?;
        let written = Written { first: positions[0], last: positions[count - 1], pointer, border: leaf.border };
        self.positions.drain(..count);
        self.add_child(0, &written)
    }

    fn add_child(&mut self, level: usize, child: &Written) -> Result<()> {
        if level == self.levels.len() {
            self.levels.push(InnerBuilder::default());
        }
        if self.levels[level].children.len() == FANOUT_MAX {
            let written = self.write_inner(level, self.levels[level].borders.cut(child.border))?;
            self.add_child(level + 1, &written)?;
        }
        let open = &mut self.levels[level];
        open.borders.push(child.border);
        open.firsts.push(child.first);
        open.lasts.push(child.last);
        open.children.push(child.pointer);
        Ok(())
    }

    /// Writes an inner page of the first `count` children.
    fn write_inner(&mut self, level: usize, count: usize) -> Result<Written> {
        let open = &mut self.levels[level];
        let (first, last) = (open.firsts[0], open.lasts[count - 1]);
        self.payload.clear();
        for positions in [&mut open.firsts, &mut open.lasts] {
            append_integers(&positions[..count], &mut self.payload);
            positions.drain(..count);
        }
        self.payload.extend_from_slice(bytemuck::cast_slice(&open.children[..count]));
        open.children.drain(..count);
        let border = open.borders.take(count);
        let pointer = self.writer.page(PageKind::CurveInner, level as u8 + 1, 0, count, &self.payload)?;
        Ok(Written { first, last, pointer, border })
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
            let written = self.write_inner(level, self.levels[level].children.len())?;
            level += 1;
            if level == self.levels.len() {
                root = Some(written.pointer);
            } else {
                self.add_child(level, &written)?;
            }
        }
        let mut statistics = self.leaf.statistics;
        statistics.sequence = sequence;
        let meta = ComponentMeta {
            file_id: 0,
            stamp: 0,
            kind: self.kind.into(),
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
