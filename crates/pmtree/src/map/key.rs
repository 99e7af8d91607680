//! Keys of maps, as words that compare in the keys' order.

use super::{Kind, Map};
use crate::{Error, Result};

/// A type of keys: `u64`, `i64`, `str` or `[u8]`.
pub trait Key: sealed::Words + std::fmt::Debug {
    /// A key that a map gives back.
    type Owned: std::borrow::Borrow<Self> + Clone + std::fmt::Debug;
}

impl Key for u64 {
    type Owned = u64;
}

impl Key for i64 {
    type Owned = i64;
}

impl Key for str {
    type Owned = String;
}

impl Key for [u8] {
    type Owned = Vec<u8>;
}

/// Words of a key.
pub(super) type KeyWords = smallvec::SmallVec<[u64; 2]>;

pub(super) mod sealed {
    use super::{KeyWords, Kind, Result};

    /// How keys of a type are stored. Nobody else implements it, as a file says what its keys are.
    pub trait Words {
        #[doc(hidden)]
        const KIND: Kind;

        /// The words of a key in a slot of some words.
        #[doc(hidden)]
        fn words(&self, length: usize) -> Result<KeyWords>;

        /// The key of its words; `None` if there is none.
        #[doc(hidden)]
        fn key(words: &[u64]) -> Option<Self::Owned>
        where
            Self: super::Key;
    }
}

const SIGN: u64 = 1 << 63;

impl sealed::Words for u64 {
    const KIND: Kind = Kind::U64;

    fn words(&self, _: usize) -> Result<KeyWords> {
        Ok(KeyWords::from_slice(&[*self]))
    }

    fn key(words: &[u64]) -> Option<u64> {
        words.first().copied()
    }
}

impl sealed::Words for i64 {
    const KIND: Kind = Kind::I64;

    fn words(&self, _: usize) -> Result<KeyWords> {
        Ok(KeyWords::from_slice(&[*self as u64 ^ SIGN]))
    }

    fn key(words: &[u64]) -> Option<i64> {
        words.first().map(|word| (word ^ SIGN) as i64)
    }
}

impl sealed::Words for str {
    const KIND: Kind = Kind::Text;

    fn words(&self, length: usize) -> Result<KeyWords> {
        self.as_bytes().words(length)
    }

    fn key(words: &[u64]) -> Option<String> {
        String::from_utf8(<[u8]>::key(words)?).ok()
    }
}

/// The bytes, zeros, and their number in the last byte. Such slots compare as the bytes do: where
/// one key begins another one, the zeros or the numbers decide.
impl sealed::Words for [u8] {
    const KIND: Kind = Kind::Bytes;

    fn words(&self, length: usize) -> Result<KeyWords> {
        let most = length * 8 - 1;
        if self.len() > most {
            return Err(Error::KeyTooLong { length: self.len(), most });
        }
        let mut words: KeyWords = (0..length)
            .map(|word| {
                let bytes = self.get(word * 8..).unwrap_or_default();
                let mut of_word = [0; 8];
                of_word.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
                u64::from_be_bytes(of_word)
            })
            .collect();
        words[length - 1] |= self.len() as u64;
        Ok(words)
    }

    fn key(words: &[u64]) -> Option<Vec<u8>> {
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        let length = usize::from(bytes.pop()?);
        (length <= bytes.len()).then(|| {
            bytes.truncate(length);
            bytes
        })
    }
}

impl<Q: Key + ?Sized, B: terrane_pmem::Backend> Map<Q, B> {
    pub(super) fn words_of(&self, key: &Q) -> Result<KeyWords> {
        key.words(self.tree.key_words())
    }

    pub(super) fn key_of(&self, words: &[u64]) -> Result<Q::Owned> {
        Q::key(words).ok_or_else(|| self.damaged(0, format!("the words {words:x?} are no key of this map")))
    }
}

#[cfg(test)]
mod tests {
    use super::sealed::Words;
    use super::*;

    #[test]
    fn words_compare_as_keys_do_and_give_them_back() {
        let integers = [i64::MIN, -1, 0, 1, i64::MAX];
        assert!(integers.is_sorted_by_key(|key| key.words(1).unwrap()));
        assert!(integers.iter().all(|key| i64::key(&key.words(1).unwrap()) == Some(*key)));
        let texts = ["", "\0", "\0\0", "a", "a\0", "ab", "abcdefg", "abcdefgh", "abcdefghijklmno", "b", "é"];
        assert!(texts.is_sorted_by_key(|key| key.words(2).unwrap()));
        assert!(texts.iter().all(|key| str::key(&key.words(2).unwrap()).as_deref() == Some(*key)));
        let error = "abcdefghijklmnop".words(2).unwrap_err();
        assert!(matches!(error, Error::KeyTooLong { length: 16, most: 15 }), "{error}");
    }
}
