//! The numbers that records without a key get as their keys.
//!
//! I1 A number is above every key that was noted before it was taken, and above every key that
//!    was stored when the first was taken.
//! I2 Numbers only rise, and end at the key type's largest value.

use terrane_storage::sync::{AtomicBool, AtomicU64, Ordering};

use crate::key::{Key, KeyType};
use crate::{Error, Result};

/// The row numbers of one dataset.
#[derive(Debug)]
pub(crate) struct RowNumbers {
    /// Above all keys that were noted and all numbers that were taken.
    next: AtomicU64,
    /// Whether `next` is also above all keys that were stored before.
    has_looked: AtomicBool,
}

impl RowNumbers {
    pub fn new() -> Self {
        Self { next: AtomicU64::new(0), has_looked: AtomicBool::new(false) }
    }

    /// Keeps the numbers above a key. To be called before the key is stored: who takes a number
    /// meanwhile may not see it yet.
    pub fn note(&self, key: &Key) {
        let number = match key {
            Key::Int(number) => u64::try_from(*number).ok(),
            Key::UInt(number) => Some(*number),
            Key::Utf8(_) | Key::Binary(_) | Key::Uuid(_) => None,
        };
        if let Some(number) = number {
            self.next.fetch_max(number.saturating_add(1), Ordering::AcqRel);
        }
    }

    /// Takes the next number. The first time, `largest` looks for the largest key that is stored.
    pub fn take(&self, key_type: KeyType, largest: impl FnOnce() -> Result<Option<Key>>) -> Result<Key> {
        // `next` stays at or below the type's largest value plus one, or at `u64::MAX`, which is
        // never given out.
        let (after_last, key): (u64, fn(u64) -> Key) = match key_type {
            KeyType::Int64 => (1 << 63, |number| Key::Int(number as i64)),
            KeyType::UInt64 => (u64::MAX, Key::UInt),
            other => {
                return Err(Error::refused(format!(
                    "the records have no key, and keys of type {other:?} cannot be numbered"
                )));
            }
        };
        if !self.has_looked.load(Ordering::Acquire) {
            // Keys that were stored since it looked were noted.
            largest()?.iter().for_each(|key| self.note(key));
            self.has_looked.store(true, Ordering::Release);
        }
        let advance = |next| if next < after_last { Some(next + 1) } else { None };
        let taken = self.next.fetch_update(Ordering::AcqRel, Ordering::Acquire, advance);
        taken.map(key).map_err(|_| {
            Error::refused(
                "no row number left: the dataset has the largest key that its type can hold; give the records keys of their own",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another thread stores and notes a key while this one looks for the largest.
    #[test]
    fn a_key_that_is_noted_during_the_look_counts() {
        let numbers = RowNumbers::new();
        let first = numbers.take(KeyType::Int64, || {
            numbers.note(&Key::Int(10));
            Ok(Some(Key::Int(2)))
        });
        assert_eq!(first.unwrap(), Key::Int(11));
        let looked = || panic!("it looks only once");
        assert_eq!(numbers.take(KeyType::Int64, looked).unwrap(), Key::Int(12));
    }

    #[test]
    fn a_key_that_is_noted_before_the_look_counts() {
        let numbers = RowNumbers::new();
        numbers.note(&Key::UInt(10));
        assert_eq!(numbers.take(KeyType::UInt64, || Ok(None)).unwrap(), Key::UInt(11));
    }

    #[test]
    fn a_failed_look_is_repeated() {
        let numbers = RowNumbers::new();
        assert!(numbers.take(KeyType::Int64, || Err(Error::Failed("read".into()))).is_err());
        assert_eq!(numbers.take(KeyType::Int64, || Ok(Some(Key::Int(4)))).unwrap(), Key::Int(5));
    }

    #[test]
    fn negative_keys_and_none_begin_at_0() {
        for largest in [None, Some(Key::Int(-3))] {
            assert_eq!(RowNumbers::new().take(KeyType::Int64, || Ok(largest)).unwrap(), Key::Int(0));
        }
    }
}
