//! Names: the durable ones, and the changes that wait for a sync of their directory.
//!
//! A change waits until every directory it touches (two for a move between directories) has been
//! synced. It is kept or lost as a whole. Any subset of the waiting changes may be kept; a file
//! never has two names.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use terrane_storage::event::FileId;
use terrane_storage::names::{ancestors, parent};

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Node {
    Directory,
    File(FileId),
}

/// Every name below the root, with its full path.
pub(super) type Names = BTreeMap<Arc<str>, Node>;

/// The effect of a change on the names.
#[derive(Clone, Debug)]
pub(super) enum NameEffect {
    Create { file: FileId, name: Arc<str> },
    Rename { file: FileId, from: Arc<str>, to: Arc<str> },
    Remove { name: Arc<str> },
    CreateDirectory { name: Arc<str> },
}

/// A change that waits for a sync.
#[derive(Clone, Debug)]
pub(super) struct NameChange {
    /// Number of its event.
    pub(super) order: i64,
    pub(super) effect: NameEffect,
    /// Directories that have not been synced since.
    unsynced: Vec<Arc<str>>,
}

impl NameEffect {
    /// Makes the change. A rename takes the file from its current name, since an earlier rename of
    /// it may have been lost.
    pub(super) fn apply(&self, names: &mut Names) {
        match self {
            Self::Create { file, name } => {
                names.insert(name.clone(), Node::File(*file));
            }
            Self::Rename { file, to, .. } => {
                names.retain(|_, node| *node != Node::File(*file));
                names.insert(to.clone(), Node::File(*file));
            }
            Self::Remove { name } => {
                names.remove(name);
            }
            Self::CreateDirectory { name } => {
                names.insert(name.clone(), Node::Directory);
            }
        }
    }

    fn touches(&self, name: &str) -> bool {
        match self {
            Self::Create { name: own, .. } | Self::Remove { name: own } | Self::CreateDirectory { name: own } => {
                **own == *name
            }
            Self::Rename { from, to, .. } => **from == *name || **to == *name,
        }
    }

    fn directories(&self) -> Vec<Arc<str>> {
        match self {
            Self::Create { name, .. } | Self::Remove { name } | Self::CreateDirectory { name } => {
                vec![parent(name).into()]
            }
            Self::Rename { from, to, .. } => {
                let mut directories = vec![parent(from).into(), parent(to).into()];
                directories.dedup();
                directories
            }
        }
    }
}

impl fmt::Display for NameEffect {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { name, .. } => write!(formatter, "create {name}"),
            Self::Rename { from, to, .. } => write!(formatter, "rename {from} to {to}"),
            Self::Remove { name } => write!(formatter, "remove {name}"),
            Self::CreateDirectory { name } => write!(formatter, "create directory {name}"),
        }
    }
}

impl NameChange {
    pub(super) fn new(order: i64, effect: NameEffect) -> Self {
        Self { order, unsynced: effect.directories(), effect }
    }
}

/// Makes the changes durable that only waited for a sync of `directory`.
pub(super) fn sync_directory(names: &mut Arc<Names>, waiting: &mut Vec<NameChange>, directory: &str) {
    let mut rest: Vec<NameChange> = Vec::with_capacity(waiting.len());
    for mut change in waiting.drain(..) {
        change.unsynced.retain(|unsynced| **unsynced != *directory);
        if !change.unsynced.is_empty() {
            rest.push(change);
            continue;
        }
        change.effect.apply(Arc::make_mut(names));
        // An older move into this directory may still wait for a sync of the other directory. If
        // that move is kept, it must not replace the file that has since become durable under the
        // new name.
        for older in &mut rest {
            if let NameEffect::Rename { from, to, .. } = &older.effect
                && change.effect.touches(to)
            {
                older.effect = NameEffect::Remove { name: from.clone() };
            }
        }
    }
    *waiting = rest;
}

/// Removes names without a directory, as when its creation was lost.
pub(super) fn retain_reachable(names: &mut Names) {
    let reachable: Vec<Arc<str>> = names
        .keys()
        .filter(|name| ancestors(name).all(|above| names.get(above) == Some(&Node::Directory)))
        .cloned()
        .collect();
    if reachable.len() < names.len() {
        let mut kept = Names::new();
        for name in reachable {
            if let Some(node) = names.get(&name) {
                kept.insert(name, *node);
            }
        }
        *names = kept;
    }
}
