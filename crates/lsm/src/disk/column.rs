//! A column of 64-bit values as offsets from its minimum, split for scanning.
//!
//! Each offset is split into its upper 16 bits and as many whole lower bytes as the page needs. A
//! scan compares the 16-bit parts, eight per vector register. The lower bytes matter only if the
//! upper part equals that of a bound. Coordinates are stored as their order-preserving bits, so
//! nothing is lost.
//!
//! The upper parts of all columns lie in front, so that a scan runs over contiguous memory. The
//! lower parts lie in rows, so that the rest of an entry is in one place. Layout:
//!
//! - per column: base u64, width of the lower part u16 (0 to 6 bytes), largest upper part u16,
//!   zeros u32;
//! - per column: the upper parts, u16 each, padded to 8 bytes;
//! - per entry, packed: the lower parts of all columns and the rest of the row;
//! - behind the last row: 8 bytes of slack and padding.

use bytemuck::{Pod, Zeroable};
use terrane_space::from_ordered_bits;

use super::page::prefetch;

/// The properties of a column that precede its values.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Head {
    base: u64,
    /// Bytes of a lower part.
    width: u16,
    /// The largest upper part.
    upper_max: u16,
    reserved: u32,
}

const HEAD_LEN: usize = size_of::<Head>();
const _: () = assert!(HEAD_LEN == 16);
/// Slack after the rows, so that any part of one can be read as 8 bytes.
const SLACK: usize = 8;

/// Appends the first `count` values of columns. A row ends with `tail_width` bytes of `tails`.
pub fn encode(columns: &[Vec<u64>], count: usize, (tails, tail_width): (&[u8], usize), out: &mut Vec<u8>) {
    let columns = || columns.iter().map(|values| &values[..count]);
    let head = |values: &[u64]| {
        let base = values.iter().copied().min().unwrap_or(0);
        let range = values.iter().copied().max().unwrap_or(0) - base;
        let bits = 64 - range.leading_zeros() as usize;
        (base, bits.saturating_sub(16).div_ceil(8))
    };
    let heads: Vec<(u64, usize)> = columns().map(head).collect();
    for (values, &(base, width)) in columns().zip(&heads) {
        let range = values.iter().copied().max().unwrap_or(0) - base;
        let upper_max = (range >> (8 * width)) as u16;
        out.extend_from_slice(bytemuck::bytes_of(&Head { base, width: width as u16, upper_max, reserved: 0 }));
    }
    for (values, (base, width)) in columns().zip(&heads) {
        for value in values {
            out.extend_from_slice(&(((value - base) >> (8 * width)) as u16).to_le_bytes());
        }
        out.resize(out.len().next_multiple_of(8), 0);
    }
    for index in 0..count {
        for (values, (base, width)) in columns().zip(&heads) {
            out.extend_from_slice(&(values[index] - base).to_le_bytes()[..*width]);
        }
        out.extend_from_slice(&tails[index * tail_width..][..tail_width]);
    }
    out.resize((out.len() + SLACK).next_multiple_of(8), 0);
}

/// One part of the rows of a page.
#[derive(Clone, Copy, Debug, Default)]
pub struct RowPart<'a> {
    rows: &'a [u8],
    /// Length of a row in bytes.
    stride: usize,
    /// Offset of the part in a row.
    place: usize,
}

impl<'a> RowPart<'a> {
    /// The only part of rows at a distance of `stride` bytes.
    pub fn alone(rows: &'a [u8], stride: usize) -> Self {
        Self { rows, stride, place: 0 }
    }

    /// Prefetches the part of a row.
    #[inline]
    pub fn prefetch(&self, row: usize) {
        let start = row * self.stride + self.place;
        for byte in [start, start + 7].iter().filter_map(|place| self.rows.get(*place)) {
            prefetch(byte);
        }
    }

    /// Eight bytes from the start of the part of a row. The caller masks what lies behind the part.
    #[inline(always)]
    pub fn word(&self, row: usize) -> u64 {
        let start = row * self.stride + self.place;
        match self.rows.get(start..start + 8) {
            Some(b) => u64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]),
            None => 0,
        }
    }
}

/// Bounds of a range in terms of the upper parts; `None` if no value can lie in it.
#[derive(Clone, Copy, Debug, Default)]
pub struct UpperRange {
    /// First upper part that may belong to the range.
    pub low: u16,
    /// Last minus first.
    pub span: u16,
}

impl UpperRange {
    /// Whether every value with this upper part lies in the range, whatever its lower part.
    #[inline]
    pub fn has_inside(&self, upper: u16) -> bool {
        let place = upper.wrapping_sub(self.low);
        place > 0 && place < self.span
    }
}

/// Evenly spaced numbers.
#[derive(Clone, Copy, Debug)]
pub struct EvenSteps {
    /// The number at offset 0.
    pub first: f64,
    /// The increment per step of the upper part.
    pub step: f64,
    /// Number of steps within which all numbers lie.
    pub count: f64,
}

/// A column inside a page.
#[derive(Clone, Copy, Debug, Default)]
pub struct Column<'a> {
    base: u64,
    /// Bits of the lower part.
    shift: u32,
    upper_max: u16,
    upper: &'a [u16],
    lower: RowPart<'a>,
}

/// Columns, the tails of their rows, and the bytes behind the rows.
pub type Parsed<'a, const N: usize> = ([Column<'a>; N], RowPart<'a>, &'a [u8]);

/// Parses `N` columns of `count` values, whose rows end with `tail_width` more bytes, at the front
/// of `bytes`. `bytes` must be aligned to 8. `None` if they are too short or inconsistent.
#[inline]
pub fn parse<const N: usize>(bytes: &[u8], count: usize, tail_width: usize) -> Option<Parsed<'_, N>> {
    let (heads, mut rest) = bytes.split_at_checked(N * HEAD_LEN)?;
    let heads: &[Head] = bytemuck::try_cast_slice(heads).ok()?;
    let mut columns = [Column::default(); N];
    let mut tail = RowPart::default();
    for (column, head) in columns.iter_mut().zip(heads) {
        if head.width > 6 {
            return None;
        }
        let (upper, behind) = rest.split_at_checked((2 * count).next_multiple_of(8))?;
        rest = behind;
        let upper: &[u16] = bytemuck::try_cast_slice(upper).ok()?;
        let (base, upper_max) = (head.base, head.upper_max);
        let lower = RowPart { place: tail.place, ..RowPart::default() };
        *column = Column { base, shift: 8 * u32::from(head.width), upper_max, upper: &upper[..count], lower };
        tail.place += usize::from(head.width);
    }
    tail.stride = tail.place + tail_width;
    (tail.rows, rest) = rest.split_at_checked((tail.stride * count + SLACK).next_multiple_of(8))?;
    for column in &mut columns {
        column.lower = RowPart { place: column.lower.place, ..tail };
    }
    Some((columns, tail, rest))
}

impl<'a> Column<'a> {
    /// Whether all values stay below 2^64, and the largest upper part is the stored one. Checked
    /// once, when a page enters memory.
    pub fn is_valid(&self) -> bool {
        self.upper.iter().max().is_none_or(|max| *max == self.upper_max)
            && (0..self.upper.len()).all(|index| self.base.checked_add(self.offset(index)).is_some())
    }

    #[inline]
    fn offset(&self, index: usize) -> u64 {
        (u64::from(self.upper[index]) << self.shift) | (self.lower.word(index) & ((1 << self.shift) - 1))
    }

    /// Prefetches the lower part of a value, and the rest of its row.
    #[inline]
    pub fn prefetch(&self, index: usize) {
        self.lower.prefetch(index);
    }

    /// The value at an index.
    #[inline]
    pub fn get(&self, index: usize) -> u64 {
        self.base.wrapping_add(self.offset(index))
    }

    /// The upper parts, for scanning.
    #[inline]
    pub fn upper(&self) -> &'a [u16] {
        self.upper
    }

    /// The steps of the upper part, if the values are the ordered bits of evenly spaced numbers
    /// between two powers of two.
    #[inline]
    pub fn even_steps(&self) -> Option<EvenSteps> {
        const MANTISSA_BITS: u32 = f64::MANTISSA_DIGITS - 1;
        if self.upper_max == 0 {
            return None;
        }
        let last = self.base.checked_add((u64::from(self.upper_max) << self.shift) | ((1 << self.shift) - 1))?;
        if self.base >> MANTISSA_BITS != last >> MANTISSA_BITS {
            return None;
        }
        let first = from_ordered_bits(self.base);
        let exponent = (first.to_bits() >> MANTISSA_BITS) & 0x7ff;
        let exponent = (exponent + u64::from(self.shift)).checked_sub(u64::from(MANTISSA_BITS))?;
        (1..0x7ff).contains(&exponent).then(|| EvenSteps {
            first,
            step: f64::from_bits(exponent << MANTISSA_BITS),
            count: f64::from(self.upper_max) + 1.0,
        })
    }

    /// The upper parts of values in `low..=high`.
    #[inline]
    pub fn upper_range(&self, low: u64, high: u64) -> Option<UpperRange> {
        if high < self.base || low > high {
            return None;
        }
        let first = low.saturating_sub(self.base) >> self.shift;
        let last = ((high - self.base) >> self.shift).min(u64::from(u16::MAX));
        if first > last {
            return None;
        }
        Some(UpperRange { low: first as u16, span: (last - first) as u16 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(bytes: &[u8]) -> Vec<u64> {
        assert!(bytes.len().is_multiple_of(8));
        bytes.chunks(8).map(|chunk| u64::from_le_bytes(chunk.try_into().unwrap())).collect()
    }

    proptest! {
        #[test]
        fn columns_give_back_what_went_in(base: u64, offsets in prop::collection::vec(any::<u64>(), 1..300), shift in 0u32..64) {
            let values: Vec<u64> = offsets.iter().map(|offset| base.saturating_add(offset >> shift)).collect();
            let mut bytes = Vec::new();
            encode(std::slice::from_ref(&values), values.len(), (&[], 0), &mut bytes);
            let aligned = words(&bytes);
            let ([column], _, rest) = parse(bytemuck::cast_slice(&aligned), values.len(), 0).unwrap();
            prop_assert!(rest.is_empty());
            prop_assert!(column.is_valid());
            for (index, value) in values.iter().enumerate() {
                prop_assert_eq!(column.get(index), *value);
            }
        }

        #[test]
        fn even_steps_tell_where_numbers_lie(
            start in prop_oneof![-200.0..200.0f64, -1e-3..1e-3f64, -1e300..1e300f64],
            offsets in prop::collection::vec(any::<u64>(), 1..60),
            shift in 4u32..64,
        ) {
            let start = terrane_space::ordered_bits(start);
            let values: Vec<u64> = offsets.iter().map(|offset| start.saturating_add(offset >> shift)).collect();
            let numbers = values.iter().map(|value| from_ordered_bits(*value));
            prop_assume!(numbers.clone().all(f64::is_finite));
            let mut bytes = Vec::new();
            encode(std::slice::from_ref(&values), values.len(), (&[], 0), &mut bytes);
            let aligned = words(&bytes);
            let ([column], _, _) = parse(bytemuck::cast_slice(&aligned), values.len(), 0).unwrap();
            if let Some(EvenSteps { first, step, count }) = column.even_steps() {
                for (number, upper) in numbers.zip(column.upper()) {
                    let place = (number - first) / step;
                    prop_assert!(place < count);
                    prop_assert!(f64::from(*upper) <= place && place < f64::from(*upper) + 1.0);
                }
            }
        }

        #[test]
        fn upper_ranges_lose_no_value(values in prop::collection::vec(any::<u64>(), 1..60), a: u64, b: u64, shift in 0u32..64) {
            let values: Vec<u64> = values.iter().map(|value| value >> shift).collect();
            let (low, high) = (a.min(b) >> shift, a.max(b) >> shift);
            let mut bytes = Vec::new();
            encode(std::slice::from_ref(&values), values.len(), (&[], 0), &mut bytes);
            let aligned = words(&bytes);
            let ([column], _, _) = parse(bytemuck::cast_slice(&aligned), values.len(), 0).unwrap();
            let range = column.upper_range(low, high);
            for (index, value) in values.iter().enumerate() {
                let inside = range.is_some_and(|range| column.upper()[index].wrapping_sub(range.low) <= range.span);
                prop_assert!(inside || !(low..=high).contains(value));
            }
        }
    }
}
