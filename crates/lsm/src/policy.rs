//! Merge policies: which disk components of an index to merge next.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Decides on merges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MergePolicy {
    /// The prefix policy (Kim 2016, section 4.3.1): the smallest sequence of components, oldest
    /// first, none of them larger than `mergeable_bytes_max`, whose sum exceeds that size or
    /// whose number reaches `components_max`.
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
    /// Whether there are several times as many components as the policy wants, so that merges must be
    /// waited for. `sizes` are the components' bytes, newest first.
    pub fn is_far_behind(&self, sizes: &[u64]) -> bool {
        const TIMES: usize = 4;
        match *self {
            Self::Prefix { mergeable_bytes_max, components_max } => {
                let mergeable = sizes.iter().take_while(|size| **size <= mergeable_bytes_max).count();
                mergeable > components_max.max(2).saturating_mul(TIMES)
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
                        return Some(index..oldest + 1);
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
    fn a_multiple_of_what_is_wanted_is_far_behind() {
        let policy = MergePolicy::Prefix { mergeable_bytes_max: 100, components_max: 3 };
        assert!(!policy.is_far_behind(&[10; 12]));
        assert!(policy.is_far_behind(&[10; 13]));
        let large = [&[10; 12][..], &[500; 90]].concat();
        assert!(!policy.is_far_behind(&large), "large ones are never merged");
        let never = MergePolicy::Prefix { mergeable_bytes_max: u64::MAX, components_max: usize::MAX };
        assert!(!never.is_far_behind(&[10; 1000]));
    }

    #[test]
    fn the_oldest_of_many_are_merged_first() {
        assert_eq!(prefix(&[10, 10, 10]), Some(0..3));
        assert_eq!(prefix(&[1, 10, 10, 10]), Some(1..4));
        assert_eq!(prefix(&[10, 10, 10, 500]), Some(0..3));
    }

    #[test]
    fn a_sum_above_the_limit_is_merged_at_once() {
        assert_eq!(prefix(&[60, 60]), Some(0..2));
        assert_eq!(prefix(&[5, 60, 60, 700]), Some(1..3));
    }
}
