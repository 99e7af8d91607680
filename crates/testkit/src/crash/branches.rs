//! The images of one cut that recovery can distinguish.
//!
//! If recovery reads nothing of a line, it behaves the same for every content of that line. One
//! image therefore stands for all that differ from it only in unread lines. The search continues
//! with images that differ in a line that was read. It takes those lines in some order. For each,
//! the lines before it stay as they were, the line itself takes each of its other values, and the
//! lines behind it are open again. Each combination of lines that a recovery reads is tried once.

use std::sync::Arc;

use terrane_storage::event::FileId;

use super::choice::Choice;
use super::cut::{Cut, NameOrder, UnitKind};
use super::image::{Crash, Image};
use crate::Reads;

/// Images of one cut. The next ones depend on what the recoveries from earlier ones read.
///
/// ```text
/// while let Some(image) = branches.next() {
///     let storage = image.watched();
///     // recovery on the storage, and what checks it
///     branches.note(&storage.reads());
/// }
/// ```
/// Recovery has to be deterministic. Without the note, an image counts as if nothing of it was
/// read.
#[derive(Debug)]
pub struct Branches {
    cut: Arc<Cut>,
    places: Vec<Place>,
    open: Vec<Branch>,
    last: Option<Branch>,
}

/// A unit that is kept or lost independently.
#[derive(Debug)]
struct Place {
    /// Its bits of the choice; a prefix of them is kept.
    bits: Vec<usize>,
    /// Its bytes; `None` for units that count as always read: names, lengths, sectors.
    line: Option<(FileId, std::ops::Range<u64>)>,
}

/// An image: for each unit how much is kept, and whether that is settled.
#[derive(Clone, Debug)]
struct Branch {
    kept: Vec<usize>,
    is_settled: Vec<bool>,
}

impl Branches {
    pub(super) fn new(cut: Arc<Cut>) -> Self {
        let mut places: Vec<Place> = Vec::new();
        for unit in &cut.units {
            let line = match unit.kind {
                UnitKind::Store(file, index) => cut.store_line(file, index).map(|bytes| (file, bytes)),
                UnitKind::Name(_) | UnitKind::Data(..) => None,
            };
            match places.iter_mut().find(|place| line.is_some() && place.line == line) {
                Some(place) => place.bits.extend(unit.bits.clone()),
                None if line.is_some() => places.push(Place { bits: unit.bits.clone().collect(), line }),
                None => places.extend(unit.bits.clone().map(|bit| Place { bits: vec![bit], line: None })),
            }
        }
        let first = Branch { kept: vec![0; places.len()], is_settled: vec![false; places.len()] };
        Self { cut, places, open: vec![first], last: None }
    }

    /// The next image, if there is one.
    #[expect(
        clippy::should_implement_trait,
        reason = "it cannot be iterated: the caller has to note the reads in between"
    )]
    pub fn next(&mut self) -> Option<Image> {
        let branch = self.open.pop()?;
        let mut choice = Choice::nothing(self.cut.bits);
        for (place, &kept) in self.places.iter().zip(&branch.kept) {
            place.bits[..kept].iter().for_each(|&bit| choice.set(bit..bit + 1, true));
        }
        self.last = Some(branch);
        Some(Image::new(self.cut.clone(), Crash::PowerLoss, choice, NameOrder::AnySubset))
    }

    /// Notes what was read of the last image.
    pub fn note(&mut self, reads: &Reads) {
        let Some(mut branch) = self.last.take() else { return };
        for (number, place) in self.places.iter().enumerate() {
            let is_read = place.line.as_ref().is_none_or(|(file, bytes)| reads.meet(*file, bytes.clone()));
            if branch.is_settled[number] || !is_read {
                continue;
            }
            branch.is_settled[number] = true;
            for kept in 1..=place.bits.len() {
                let mut other = branch.clone();
                other.kept[number] = kept;
                self.open.push(other);
            }
        }
    }
}
