//! Access to the tree node by node, for searches with their own order.
//!
//! A best-first nearest-neighbour search keeps one queue over the nodes and entries of all
//! components. It finds the same entries as a window query if it expands every node at most once
//! and no object has several entries.

use super::super::Versioned;
use super::super::tree::{Extent, Inner, Leaf, Node};
use super::columns::Spatial;
use super::{Kinds, MemoryRTree, SpatialEntry, seen};
use terrane_space::Rect;

/// A node of a [`MemoryRTree`]; valid as long as the tree is borrowed.
#[derive(Clone, Copy)]
pub struct NodeHandle<'a>(Handle<'a>);

#[derive(Clone, Copy)]
enum Handle<'a> {
    Points(Node<'a, Spatial<2>>),
    Rects(Node<'a, Spatial<4>>),
}

/// A child of an inner node.
#[derive(Clone, Copy)]
pub struct Child<'a> {
    /// Covers every entry below the child; empty if there is none.
    pub mbr: Rect,
    /// The child itself.
    pub node: NodeHandle<'a>,
}

impl NodeHandle<'_> {
    /// Whether the node has entries; otherwise it has children.
    pub fn is_leaf(&self) -> bool {
        matches!(self.0, Handle::Points(Node::Leaf(_)) | Handle::Rects(Node::Leaf(_)))
    }
}

impl MemoryRTree {
    /// The current root; never a leaf.
    pub fn root(&self) -> NodeHandle<'_> {
        NodeHandle(match &self.kinds {
            Kinds::Points(tree) => Handle::Points(Node::Inner(tree.root())),
            Kinds::Rects(tree) => Handle::Rects(Node::Inner(tree.root())),
        })
    }

    /// Visits the children of an inner node; a leaf has none.
    pub fn children<'a>(&'a self, node: NodeHandle<'a>, visit: &mut dyn FnMut(Child<'a>)) {
        match node.0 {
            Handle::Points(Node::Inner(inner)) => {
                children(inner, |mbr, node| visit(Child { mbr, node: NodeHandle(Handle::Points(node)) }))
            }
            Handle::Rects(Node::Inner(inner)) => {
                children(inner, |mbr, node| visit(Child { mbr, node: NodeHandle(Handle::Rects(node)) }))
            }
            Handle::Points(Node::Leaf(_)) | Handle::Rects(Node::Leaf(_)) => {}
        }
    }

    /// Visits the entries of a leaf that the snapshot sees, and its anti-matter up to the snapshot.
    /// An inner node has none.
    pub fn leaf_entries<'a>(
        &'a self,
        node: NodeHandle<'a>,
        snapshot: u64,
        visit: &mut dyn FnMut(Versioned<SpatialEntry<'a>>),
    ) {
        match node.0 {
            Handle::Points(Node::Leaf(leaf)) => entries(leaf, snapshot, visit),
            Handle::Rects(Node::Leaf(leaf)) => entries(leaf, snapshot, visit),
            Handle::Points(Node::Inner(_)) | Handle::Rects(Node::Inner(_)) => {}
        }
    }
}

fn children<'a, const N: usize>(inner: &'a Inner<Spatial<N>>, mut visit: impl FnMut(Rect, Node<'a, Spatial<N>>)) {
    let children = inner.children();
    for index in 0..children.len() {
        visit(Rect::load(children.extent(index)), children.get(index));
    }
}

fn entries<'a, const N: usize>(
    leaf: &'a Leaf<Spatial<N>>,
    snapshot: u64,
    visit: &mut dyn FnMut(Versioned<SpatialEntry<'a>>),
) {
    for view in leaf.views() {
        for slot in 0..view.len() {
            if let Some(entry) = seen(view.cell(slot), snapshot) {
                visit(entry);
            }
        }
    }
}
