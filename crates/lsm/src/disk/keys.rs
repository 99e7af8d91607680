//! Keys inside a page: eight-byte keys as a column of integers, others with offsets.
//!
//! Layout: a head and a body, which need not be adjacent. The head is the form u64 (0 to 8: width
//! of an integer's offset; 255: variable) and the base u64. The body
//! - of integers: offsets, packed to the width, 8 bytes of slack, padded to 8. In a leaf of an
//!   R-tree they are the ends of its rows instead;
//! - variable: ends u32 each, padded to 8 · bytes, padded to 8.

use super::column::RowPart;

const VARIABLE: u64 = 255;
const SLACK: usize = 8;

/// A key of a page. An integer stands for its eight big-endian bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key<'a> {
    /// A key of exactly eight bytes.
    Integer([u8; 8]),
    /// Any other key.
    Bytes(&'a [u8]),
}

impl std::ops::Deref for Key<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Integer(bytes) => bytes,
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// Collects the keys of a page.
#[derive(Debug, Default)]
pub struct KeysBuilder {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl KeysBuilder {
    /// Adds a key.
    pub fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len() as u32);
    }

    /// Keys so far.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of the keys so far.
    pub fn bytes_len(&self) -> usize {
        self.bytes.len() + 4 * self.ends.len()
    }

    /// Takes the first `count` keys for a page.
    pub fn take(&mut self, count: usize) -> TakenKeys {
        let mut taken = TakenKeys::default();
        let length = self.ends[..count].last().map_or(0, |end| *end as usize);
        let (keys, ends) = (&self.bytes[..length], &self.ends[..count]);
        let body = &mut taken.body;
        if count > 0 && (1..).zip(ends).all(|(number, end)| *end == 8 * number) {
            let integers = || {
                keys.chunks_exact(8)
                    .map(|key| u64::from_be_bytes([key[0], key[1], key[2], key[3], key[4], key[5], key[6], key[7]]))
            };
            let base = integers().min().unwrap_or(0);
            let range = integers().max().unwrap_or(0) - base;
            let width = (64 - range.leading_zeros() as usize).div_ceil(8);
            taken.head = [width as u64, base];
            for value in integers() {
                body.extend_from_slice(&(value - base).to_le_bytes()[..width]);
            }
            body.resize((body.len() + SLACK).next_multiple_of(8), 0);
        } else {
            taken.head = [VARIABLE, 0];
            body.extend(ends.iter().flat_map(|end| end.to_le_bytes()));
            body.resize(body.len().next_multiple_of(8), 0);
            body.extend_from_slice(keys);
            body.resize(body.len().next_multiple_of(8), 0);
        }
        self.bytes.drain(..length);
        self.ends.drain(..count);
        self.ends.iter_mut().for_each(|end| *end -= length as u32);
        taken
    }
}

/// Keys in the form that pages have.
#[derive(Debug, Default)]
pub struct TakenKeys {
    /// Form and base.
    pub head: [u64; 2],
    /// The rest.
    pub body: Vec<u8>,
}

impl TakenKeys {
    /// Appends head and body to a page.
    pub fn append_to(&self, page: &mut Vec<u8>) {
        page.extend_from_slice(bytemuck::bytes_of(&self.head));
        page.extend_from_slice(&self.body);
    }
}

/// Bytes of an integer key with this head in a row; `None` for keys of another form.
#[inline]
pub fn width_in_rows([form, _]: [u64; 2]) -> Option<usize> {
    (form <= 8).then_some(form as usize)
}

/// Appends integers to a page as keys of eight bytes.
pub fn append_integers(integers: &[u64], page: &mut Vec<u8>) {
    let mut keys = KeysBuilder::default();
    integers.iter().for_each(|integer| keys.push(&integer.to_be_bytes()));
    keys.take(integers.len()).append_to(page);
}

/// Parses `count` integers at the front of `bytes`, which must be aligned to 8; returns them and
/// the bytes behind them.
#[inline]
pub fn parse_integers(bytes: &[u8], count: usize) -> Option<(Keys<'_>, &[u8])> {
    let (head, rest) = split_head(bytes)?;
    width_in_rows(head)?;
    Keys::parse(head, rest, count)
}

/// Form and base at the front of `bytes`, which must be aligned to 8, and the bytes behind them.
#[inline]
pub fn split_head(bytes: &[u8]) -> Option<([u64; 2], &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<16>()?;
    Some((bytemuck::cast(*head), rest))
}

/// The keys of a page.
#[derive(Clone, Copy, Debug)]
pub enum Keys<'a> {
    /// Integers as offsets from the smallest.
    Integers {
        /// The smallest.
        base: u64,
        /// Selects the bytes of an offset.
        mask: u64,
        /// The offsets.
        offsets: RowPart<'a>,
    },
    /// Keys of any length.
    Variable {
        /// The end of each key in `bytes`.
        ends: &'a [u32],
        /// The keys.
        bytes: &'a [u8],
    },
}

impl<'a> Keys<'a> {
    /// Parses `count` keys whose body is at the front of `bytes`, which must be aligned to 8;
    /// returns them and the bytes behind them.
    #[inline]
    pub fn parse([form, base]: [u64; 2], bytes: &'a [u8], count: usize) -> Option<(Self, &'a [u8])> {
        match form {
            width @ 0..=8 => {
                let width = width as usize;
                let (bytes, rest) = bytes.split_at_checked((width * count + SLACK).next_multiple_of(8))?;
                Some((Self::integers(base, width, RowPart::alone(bytes, width)), rest))
            }
            VARIABLE => {
                let (ends, rest) = bytes.split_at_checked((4 * count).next_multiple_of(8))?;
                let ends: &[u32] = bytemuck::try_cast_slice(ends).ok()?;
                let ends = &ends[..count];
                let length = ends.last().map_or(0, |end| *end as usize);
                let (bytes, rest) = rest.split_at_checked(length.next_multiple_of(8))?;
                Some((Self::Variable { ends, bytes }, rest))
            }
            _ => None,
        }
    }

    #[inline]
    fn integers(base: u64, width: usize, offsets: RowPart<'a>) -> Self {
        let mask = if width == 8 { u64::MAX } else { (1 << (8 * width)) - 1 };
        Self::Integers { base, mask, offsets }
    }

    /// Parses keys. The offsets of integers are parts of rows; other keys have their body at the
    /// front of `bytes`.
    #[inline]
    pub fn parse_rows(head: [u64; 2], offsets: RowPart<'a>, bytes: &'a [u8], count: usize) -> Option<(Self, &'a [u8])> {
        match width_in_rows(head) {
            Some(width) => Some((Self::integers(head[1], width, offsets), bytes)),
            None => Self::parse(head, bytes, count),
        }
    }

    /// Whether every key can be read. Checked once, when a page enters memory.
    pub fn is_valid(&self, count: usize) -> bool {
        match *self {
            Self::Integers { base, .. } => {
                (0..count).all(|index| base.checked_add(self.integer_offset(index)).is_some())
            }
            Self::Variable { ends, .. } => ends.is_sorted(),
        }
    }

    #[inline]
    fn integer_offset(&self, index: usize) -> u64 {
        match *self {
            Self::Integers { mask, offsets, .. } => offsets.word(index) & mask,
            Self::Variable { .. } => 0,
        }
    }

    /// The integer at an index; 0 if keys are no integers.
    #[inline]
    pub fn integer(&self, index: usize) -> u64 {
        match *self {
            Self::Integers { base, .. } => base.wrapping_add(self.integer_offset(index)),
            Self::Variable { .. } => 0,
        }
    }

    /// The key at an index.
    #[inline]
    pub fn get(&self, index: usize) -> Key<'a> {
        match *self {
            Self::Integers { base, .. } => Key::Integer(base.wrapping_add(self.integer_offset(index)).to_be_bytes()),
            Self::Variable { ends, bytes } => {
                let start = if index == 0 { 0 } else { ends[index - 1] as usize };
                Key::Bytes(&bytes[start..ends[index] as usize])
            }
        }
    }

    /// Index of the first key that is not less than `key`, of `count` sorted keys.
    #[inline]
    pub fn lower_bound(&self, count: usize, key: &[u8]) -> usize {
        if let (Self::Integers { base, .. }, Ok(bytes)) = (self, <[u8; 8]>::try_from(key)) {
            let Some(wanted) = u64::from_be_bytes(bytes).checked_sub(*base) else { return 0 };
            return partition_point(count, |index| self.integer_offset(index) < wanted);
        }
        partition_point(count, |index| *self.get(index) < *key)
    }
}

#[inline]
fn partition_point(count: usize, mut before: impl FnMut(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keys_give_back_what_went_in(mut keys in prop_oneof![
            prop::collection::vec(prop::collection::vec(any::<u8>(), 8), 1..80),
            prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 1..80),
        ], wanted in prop::collection::vec(any::<u8>(), 0..12), cut: prop::sample::Index) {
            keys.sort();
            let mut builder = KeysBuilder::default();
            for key in &keys {
                builder.push(key);
            }
            // Stored as two pages.
            for keys in [&keys[..cut.index(keys.len() + 1)], &keys[cut.index(keys.len() + 1)..]] {
                let TakenKeys { head, body } = builder.take(keys.len());
                let words: Vec<u64> = body.chunks(8).map(|chunk| u64::from_le_bytes(chunk.try_into().unwrap())).collect();
                let (parsed, rest) = Keys::parse(head, bytemuck::cast_slice(&words), keys.len()).unwrap();
                prop_assert!(rest.is_empty() && parsed.is_valid(keys.len()));
                for (index, key) in keys.iter().enumerate() {
                    prop_assert_eq!(&*parsed.get(index), key.as_slice());
                    let bound = parsed.lower_bound(keys.len(), key);
                    prop_assert_eq!(bound, keys.partition_point(|other| other < key));
                }
                prop_assert_eq!(parsed.lower_bound(keys.len(), &wanted), keys.partition_point(|key| key < &wanted));
            }
            prop_assert_eq!(builder.len(), 0);
        }
    }
}
