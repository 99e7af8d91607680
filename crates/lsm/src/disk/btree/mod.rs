//! The B-tree of a disk component: sorted keys with opaque values.
//!
//! Layouts of the pages' payloads. Every part is padded to 8 bytes.
//! - leaf: keys · value ends u32 each · anti-matter bits (if flagged) · begin sequence
//!   numbers u64 each (if flagged) · values.
//! - inner: pointer to the Bloom filter of the keys below (in all parents of leaves or in none) ·
//!   child pointers · first key of each child.
//!
//! I1 Keys ascend over the whole tree; versions of one key descend in their begin numbers.
//! I2 An inner entry's key is the first key below it.

mod build;
mod check;
mod cursor;
mod pages;
mod search;

use std::sync::Arc;

pub use build::BTreeBuilder;
pub use cursor::BTreeCursor;
pub(super) use pages::words_if;
pub use pages::{Entry, Leaf};
pub use search::Found;

use super::component::ComponentFile;
use crate::{Error, Result};

/// The name of this kind in component descriptions.
pub const KIND: &str = "btree";

/// An open B-tree component.
#[derive(Debug)]
pub struct BTreeComponent {
    file: Arc<ComponentFile>,
    key_range: Option<(Vec<u8>, Vec<u8>)>,
}

impl BTreeComponent {
    /// Wraps a component file of this kind.
    pub fn open(file: Arc<ComponentFile>) -> Result<Self> {
        let meta = file.meta();
        if meta.kind != KIND {
            return Err(Error::damaged(
                file.name(),
                0,
                format!("it is a {} component where a {KIND} was expected", meta.kind),
            ));
        }
        let key_range = match &meta.key_range {
            None => None,
            Some((first, last)) => match (from_hex(first), from_hex(last)) {
                (Some(first), Some(last)) => Some((first, last)),
                _ => return Err(Error::damaged(file.name(), 0, "the description's key range is not hexadecimal")),
            },
        };
        Ok(Self { file, key_range })
    }

    /// The underlying file.
    pub fn file(&self) -> &Arc<ComponentFile> {
        &self.file
    }

    /// Smallest and largest key.
    pub fn key_range(&self) -> Option<(&[u8], &[u8])> {
        self.key_range.as_ref().map(|(first, last)| (first.as_slice(), last.as_slice()))
    }
}

fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [DIGITS[usize::from(byte >> 4)] as char, DIGITS[usize::from(byte & 15)] as char])
        .collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> =
        text.chars().map(|digit| digit.to_digit(16).map(|value| value as u8)).collect::<Option<_>>()?;
    digits.len().is_multiple_of(2).then(|| digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}
