//! A choice of the waiting changes that a disk image holds, as bits that can be printed and parsed.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// One bit for each thing that a power loss may keep or lose: a sector of a write, a change of a
/// length, a change of names. It prints as `COUNT:HEX`, and parses the same.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Choice {
    length: usize,
    words: Vec<u64>,
}

/// A text that is not a [`Choice`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a choice: expected a decimal count, a colon, and that many bits in hexadecimal")]
pub struct ParseChoiceError {
    text: String,
}

const WORD_BITS: usize = u64::BITS as usize;

/// Longest choice that is parsed: it bounds the allocation for a damaged text.
const LENGTH_MAX: usize = 1 << 32;

impl Choice {
    pub(super) fn nothing(length: usize) -> Self {
        Self { length, words: vec![0; length.div_ceil(WORD_BITS)] }
    }

    pub(super) fn everything(length: usize) -> Self {
        let mut choice = Self::nothing(length);
        choice.set(0..length, true);
        choice
    }

    /// The lowest bits of a number.
    pub(super) fn from_bits(length: usize, bits: u64) -> Self {
        let mut choice = Self::nothing(length);
        for index in 0..length.min(WORD_BITS) {
            choice.set(index..index + 1, bits >> index & 1 == 1);
        }
        choice
    }

    /// Number of bits.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether nothing was waiting, so that there is nothing to choose.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Whether a bit is set: kept. Bits beyond the end are lost.
    pub fn keeps(&self, index: usize) -> bool {
        self.words.get(index / WORD_BITS).is_some_and(|word| word >> (index % WORD_BITS) & 1 == 1)
    }

    pub(super) fn set(&mut self, range: Range<usize>, kept: bool) {
        debug_assert!(range.end <= self.length, "bits {range:?} of {}", self.length);
        for index in range {
            let bit = 1 << (index % WORD_BITS);
            let word = &mut self.words[index / WORD_BITS];
            *word = if kept { *word | bit } else { *word & !bit };
        }
    }

    pub(super) fn keeps_all(&self, range: Range<usize>) -> bool {
        range.into_iter().all(|index| self.keeps(index))
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:", self.length)?;
        for digit in (0..self.length.div_ceil(4)).rev() {
            let value = (0..4).filter(|bit| self.keeps(digit * 4 + bit)).fold(0, |value, bit| value | 1 << bit);
            write!(formatter, "{value:x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Choice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Choice({self})")
    }
}

impl FromStr for Choice {
    type Err = ParseChoiceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (length, digits) = text.split_once(':')?;
            let length: usize = length.parse().ok().filter(|&length| length <= LENGTH_MAX)?;
            if digits.len() != length.div_ceil(4) {
                return None;
            }
            let mut choice = Self::nothing(length);
            for (position, digit) in digits.chars().rev().enumerate() {
                let value = digit.to_digit(16)?;
                for bit in (0..4).filter(|bit| value >> bit & 1 == 1) {
                    let index = position * 4 + bit;
                    if index >= length {
                        return None;
                    }
                    choice.set(index..index + 1, true);
                }
            }
            Some(choice)
        };
        parse().ok_or_else(|| ParseChoiceError { text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_prints() {
        for length in [0, 1, 3, 4, 63, 64, 65, 200] {
            for bits in [0, 1, 0b1011, u64::MAX] {
                let choice = Choice::from_bits(length, bits);
                assert_eq!(choice.to_string().parse(), Ok(choice));
            }
            let choice = Choice::everything(length);
            assert!(choice.keeps_all(0..length));
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        assert_eq!(Choice::from_bits(9, 0x12f).to_string(), "9:12f");
    }

    #[test]
    fn other_text_is_refused() {
        for text in ["", "3", "3:", ":1", "3:8", "3:01", "4:g", "99999999999999999999:0", "18446744073709551615:"] {
            assert!(text.parse::<Choice>().is_err(), "{text}");
        }
    }
}
