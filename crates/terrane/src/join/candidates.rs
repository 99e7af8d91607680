//! Candidates of a join: inner keys, each with the outer geometry that it was found for.

use terrane_space::Point;

use super::pair::{Met, Place};

/// Maximal number of candidates that are sorted by inner key and looked up together.
const CANDIDATES_MAX: usize = 16 << 10;

/// An inner record that may match an outer one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// The outer geometry's number among those of these candidates.
    pub outer: u32,
    key_length: u32,
    key_start: usize,
    /// Its place, if the index has it.
    pub point: Point,
    /// The pair's relation, if the index alone shows that it is one.
    pub met: Option<Met>,
}

/// An outer geometry with its row in the current batch.
pub(super) struct OuterPlace {
    pub row: u32,
    pub place: Place,
}

/// Candidates of one batch of outer rows.
#[derive(Default)]
pub(super) struct Candidates {
    all: Vec<Candidate>,
    keys: Vec<u8>,
    places: Vec<OuterPlace>,
    places_bytes: usize,
    /// Number of candidates already processed.
    pub taken: usize,
}

impl Candidates {
    /// Removes all candidates, and all outer geometries except the last one if `keep_last`.
    pub fn clear(&mut self, keep_last: bool) {
        self.all.clear();
        self.keys.clear();
        self.taken = 0;
        let last = self.places.pop().filter(|_| keep_last);
        self.places.clear();
        self.places_bytes = 0;
        if let Some(last) = last {
            self.add_outer(last);
        }
    }

    /// Adds an outer geometry. The next candidates belong to it.
    pub fn add_outer(&mut self, outer: OuterPlace) {
        self.places_bytes += outer.place.memory_used();
        self.places.push(outer);
    }

    /// The last outer geometry.
    pub fn last_outer(&self) -> Option<&OuterPlace> {
        self.places.last()
    }

    /// Adds a candidate for the last outer geometry.
    pub fn push(&mut self, key: &[u8], point: Point, met: Option<Met>) {
        self.all.push(Candidate {
            outer: self.places.len().saturating_sub(1) as u32,
            key_length: key.len() as u32,
            key_start: self.keys.len(),
            point,
            met,
        });
        self.keys.extend_from_slice(key);
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn is_taken(&self) -> bool {
        self.taken == self.all.len()
    }

    /// Whether they should be processed before more are added. A single outer geometry never fills
    /// them, however large it is, because a join must hold the current one.
    pub fn is_full(&self, bytes_max: usize) -> bool {
        let bytes = self.keys.len() + self.all.len() * size_of::<Candidate>();
        let places_fill = self.places.len() > 1 && self.places_bytes >= bytes_max;
        self.all.len() >= CANDIDATES_MAX || bytes >= bytes_max || places_fill
    }

    /// Sorts them by key, the order in which records are looked up.
    pub fn sort(&mut self) {
        let keys = &self.keys;
        let key = |candidate: &Candidate| key_of(keys, candidate);
        self.all.sort_unstable_by(|a, b| key(a).cmp(key(b)).then(a.outer.cmp(&b.outer)));
    }

    /// The next candidate.
    pub fn next(&self) -> Option<Candidate> {
        self.all.get(self.taken).copied()
    }

    pub fn key(&self, candidate: &Candidate) -> &[u8] {
        key_of(&self.keys, candidate)
    }

    pub fn outer(&self, candidate: &Candidate) -> Option<&OuterPlace> {
        self.places.get(candidate.outer as usize)
    }
}

fn key_of<'k>(keys: &'k [u8], candidate: &Candidate) -> &'k [u8] {
    &keys[candidate.key_start..candidate.key_start + candidate.key_length as usize]
}
