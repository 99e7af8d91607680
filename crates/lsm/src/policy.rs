//! Merge policies: which disk components of an index to merge next.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Decides on merges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MergePolicy {
    /// The prefix policy (Kim 2016, section 4.3.1): the smallest sequence of components, oldest
    /// first, none of them larger than `mergeable_bytes_max`, whose sum exceeds that size or
    /// whose number reaches `components_max`. Newer ones that came during the merge before, and with
    /// which the sum does not exceed that size, are merged along: with the smallest
    /// sequence alone, merges fall ever farther behind steady writes (decision 13).
    Prefix {
        /// Components larger than this are left alone.
        mergeable_bytes_max: u64,
        /// As many components are merged, however small they are.
        components_max: usize,
    },
}

impl Default for MergePolicy {
    fn default() -> Self {
        Self::Prefix { mergeable_bytes_max: 1 << 30, components_max: 5 }
    }
}

impl MergePolicy {
    /// Whether there are more than `times` as many components as the policy wants. `sizes` are the
    /// components' bytes, newest first.
    pub fn is_behind(&self, sizes: &[u64], times: usize) -> bool {
        match *self {
            Self::Prefix { mergeable_bytes_max, components_max } => {
                let mergeable = sizes.iter().take_while(|size| **size <= mergeable_bytes_max).count();
                mergeable > components_max.max(2).saturating_mul(times)
            }
        }
    }

    /// Chooses what to merge. `sizes` are the components' bytes, newest first, and so is the
    /// range that is returned.
    pub fn choose(&self, sizes: &[u64]) -> Option<Range<usize>> {
        match *self {
            Self::Prefix { mergeable_bytes_max, components_max } => {
                let oldest = (0..sizes.len())
                    .rev()
                    .find(|index| sizes[..=*index].iter().all(|size| *size <= mergeable_bytes_max))?;
                let mut sum = 0u64;
                for index in (0..=oldest).rev() {
                    sum = sum.saturating_add(sizes[index]);
                    let count = oldest - index + 1;
                    if count >= 2 && (sum > mergeable_bytes_max || count >= components_max.max(2)) {
                        let newer = sizes[..index].iter().rev().take_while(|size| {
                            sum = sum.saturating_add(**size);
                            sum <= mergeable_bytes_max
                        });
                        return Some(index - newer.count()..oldest + 1);
                    }
                }
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(sizes: &[u64]) -> Option<Range<usize>> {
        MergePolicy::Prefix { mergeable_bytes_max: 100, components_max: 3 }.choose(sizes)
    }

    #[test]
    fn few_small_components_are_left_alone() {
        assert_eq!(prefix(&[]), None);
        assert_eq!(prefix(&[10, 10]), None);
        assert_eq!(prefix(&[10, 10, 500]), None);
    }

    #[test]
    fn a_multiple_of_what_is_wanted_is_behind() {
        let policy = MergePolicy::Prefix { mergeable_bytes_max: 100, components_max: 3 };
        assert!(!policy.is_behind(&[10; 12], 4));
        assert!(policy.is_behind(&[10; 13], 4));
        let large = [&[10; 12][..], &[500; 90]].concat();
        assert!(!policy.is_behind(&large, 4), "large ones are never merged");
        let never = MergePolicy::Prefix { mergeable_bytes_max: u64::MAX, components_max: usize::MAX };
        assert!(!never.is_behind(&[10; 1000], 4));
    }

    #[test]
    fn many_small_ones_are_merged_from_the_oldest_on() {
        assert_eq!(prefix(&[10, 10, 10]), Some(0..3));
        assert_eq!(prefix(&[10, 10, 10, 500]), Some(0..3));
        assert_eq!(prefix(&[1, 10, 10, 10]), Some(0..4));
        assert_eq!(prefix(&[9, 30, 30, 20, 20]), Some(1..5), "as many as make no more than the limit");
        assert_eq!(prefix(&[1, 80, 10, 10, 10]), Some(2..5));
    }

    /// An hour of flushes while a merge takes its time: components stay as many as come during a merge.
    #[test]
    fn merges_keep_up_with_flushes() {
        const FLUSH: u64 = 6;
        const MERGED_PER_FLUSH: u64 = 30;
        let policy = MergePolicy::Prefix { mergeable_bytes_max: 1024, components_max: 5 };
        let (mut sizes, mut merging, mut most) = (Vec::new(), None::<(Range<usize>, u64)>, 0);
        for _ in 0..12_000 {
            sizes.insert(0, FLUSH);
            if let Some((range, left)) = &mut merging {
                *range = range.start + 1..range.end + 1;
                *left = left.saturating_sub(MERGED_PER_FLUSH);
                if *left == 0 {
                    let sum = sizes[range.clone()].iter().sum();
                    sizes.splice(range.clone(), [sum]);
                    merging = None;
                }
            }
            if merging.is_none() {
                merging = policy.choose(&sizes).map(|range| (range.clone(), sizes[range].iter().sum()));
            }
            most = most.max(sizes.iter().filter(|size| **size <= 1024).count());
        }
        assert!(most <= 150, "{most} components");
    }

    #[test]
    fn a_sum_above_the_limit_is_merged_at_once() {
        assert_eq!(prefix(&[60, 60]), Some(0..2));
        assert_eq!(prefix(&[5, 60, 60, 700]), Some(1..3));
    }
}
