//! Merge policies: which disk components of an index to merge next.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// A merge policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MergePolicy {
    /// The prefix policy (Kim 2016, section 4.3.1). It takes the smallest sequence of components,
    /// oldest first, none larger than `mergeable_bytes_max`, whose sum exceeds that size or whose
    /// number reaches `components_max`. Newer ones are included if they came during the merge
    /// before and keep the sum within that size. With the smallest sequence alone, merges fall ever
    /// farther behind steady writes (decision 13).
    Prefix {
        /// Components larger than this are not merged.
        mergeable_bytes_max: u64,
        /// This many components are merged, however small they are.
        components_max: usize,
    },
    /// All components are merged into one once there are enough. Reads meet few components, but
    /// everything is rewritten again and again.
    Constant {
        /// Number of components to merge; at least 2.
        components_max: usize,
    },
    /// Neighbours of similar size are merged once there are enough. Each record is written about
    /// once for every factor of `components_min` by which the index grows. Reads meet more
    /// components, but little is rewritten.
    SizeTiered {
        /// Number of neighbours of similar size to merge; at least 2.
        components_min: usize,
        /// Neighbours are of similar size if the largest is at most this many times the smallest;
        /// at least 1.
        size_ratio: u64,
        /// Smaller components count as this large, so that small flushes are merged with each
        /// other.
        bytes_min: u64,
    },
}

/// Why a policy is not possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}; the policy was {policy}")]
pub struct PolicyError {
    /// The policy.
    pub policy: MergePolicy,
    /// What does not fit.
    pub reason: &'static str,
}

impl Default for MergePolicy {
    fn default() -> Self {
        Self::Prefix { mergeable_bytes_max: 1 << 30, components_max: 5 }
    }
}

impl MergePolicy {
    /// Constant merging with the count of the prefix policy: as soon as there are five.
    pub const CONSTANT: Self = Self::Constant { components_max: 5 };

    /// Size-tiered merging with the usual values: four neighbours, none more than four times as
    /// large as another.
    pub const SIZE_TIERED: Self = Self::SizeTiered { components_min: 4, size_ratio: 4, bytes_min: 1 << 20 };

    /// As few components as merges of moderate length achieve: each run of small ones becomes one.
    pub const FEWEST: Self = Self::Prefix { mergeable_bytes_max: 1 << 30, components_max: 2 };

    /// Refuses a policy under which components would be merged alone or never match.
    pub fn validate(&self) -> Result<(), PolicyError> {
        let reason = match *self {
            Self::Prefix { components_max: 0 | 1, .. } | Self::Constant { components_max: 0 | 1 } => {
                "a merge policy merges at least 2 components"
            }
            Self::SizeTiered { components_min: 0 | 1, .. } => "a merge policy merges at least 2 components",
            Self::SizeTiered { size_ratio: 0, .. } => "the ratio is at least 1: no component is smaller than itself",
            _ => return Ok(()),
        };
        Err(PolicyError { policy: *self, reason })
    }

    /// Whether there are more than `times` as many components as the policy wants. `sizes` are the
    /// components' bytes, newest first.
    pub fn is_behind(&self, sizes: &[u64], times: usize) -> bool {
        let (count, wanted) = match *self {
            Self::Prefix { mergeable_bytes_max, components_max } => {
                (sizes.iter().take_while(|size| **size <= mergeable_bytes_max).count(), components_max)
            }
            Self::Constant { components_max } => (sizes.len(), components_max),
            Self::SizeTiered { components_min, .. } => {
                (self.choose(sizes).map_or(0, |range| range.len()), components_min)
            }
        };
        count > wanted.max(2).saturating_mul(times)
    }

    /// Chooses the components to merge. `sizes` are the components' bytes, newest first; the range
    /// refers to that order.
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
            Self::Constant { components_max } => (sizes.len() >= components_max.max(2)).then_some(0..sizes.len()),
            Self::SizeTiered { components_min, size_ratio, bytes_min } => {
                // The oldest first; all of similar size that came meanwhile are merged along.
                (0..sizes.len()).rev().find_map(|oldest| {
                    let (mut smallest, mut largest) = (u64::MAX, 0);
                    let alike = sizes[..=oldest].iter().rev().take_while(|size| {
                        let size = (**size).max(bytes_min);
                        (smallest, largest) = (size.min(smallest), size.max(largest));
                        largest <= smallest.saturating_mul(size_ratio)
                    });
                    let count = alike.count();
                    (count >= components_min.max(2)).then(|| oldest + 1 - count..oldest + 1)
                })
            }
        }
    }
}

/// A policy that is refused may have one.
fn components(count: usize) -> String {
    if count == 1 { "1 component".into() } else { format!("{count} components") }
}

impl fmt::Display for MergePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prefix { mergeable_bytes_max, components_max } => {
                write!(f, "prefix, {} or {mergeable_bytes_max} bytes", components(*components_max))
            }
            Self::Constant { components_max } => write!(f, "constant, {}", components(*components_max)),
            Self::SizeTiered { components_min, size_ratio, bytes_min } => write!(
                f,
                "size-tiered, {} of sizes within a factor of {size_ratio}, \
                 less than {bytes_min} bytes counting as these",
                components(*components_min)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(sizes: &[u64]) -> Option<Range<usize>> {
        MergePolicy::Prefix { mergeable_bytes_max: 100, components_max: 3 }.choose(sizes)
    }

    /// Bytes that merges write after `flushes` flushes of one byte each, one after the other.
    fn merged(policy: MergePolicy, flushes: u64) -> u64 {
        let (mut sizes, mut written) = (Vec::new(), 0);
        for _ in 0..flushes {
            sizes.insert(0, 1);
            while let Some(range) = policy.choose(&sizes) {
                let sum: u64 = sizes[range.clone()].iter().sum();
                sizes.splice(range, [sum]);
                written += sum;
            }
        }
        written
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

    #[test]
    fn constant_merges_all_of_them() {
        let policy = MergePolicy::Constant { components_max: 3 };
        assert_eq!(policy.choose(&[1, 900]), None);
        assert_eq!(policy.choose(&[1, 2, 900]), Some(0..3));
        assert_eq!(policy.choose(&[1, 2, 3, 4, 5]), Some(0..5));
        assert!(!policy.is_behind(&[1; 12], 4) && policy.is_behind(&[1; 13], 4));
    }

    #[test]
    fn size_tiered_merges_neighbours_of_about_one_size() {
        let policy = MergePolicy::SizeTiered { components_min: 3, size_ratio: 4, bytes_min: 10 };
        assert_eq!(policy.choose(&[10, 10]), None);
        assert_eq!(policy.choose(&[10, 10, 41, 10]), None, "they are not neighbours");
        assert_eq!(policy.choose(&[1, 5, 10]), Some(0..3), "small ones count as one size");
        assert_eq!(policy.choose(&[10, 10, 100, 200, 400]), Some(2..5), "the oldest first");
        assert_eq!(policy.choose(&[10, 10, 10, 100, 401]), Some(0..3));
        assert_eq!(policy.choose(&[20, 20, 20, 20, 20, 900]), Some(0..5), "all that there are");
        assert!(!policy.is_behind(&[20; 12], 4) && policy.is_behind(&[20; 13], 4));
        assert!(!policy.is_behind(&[20, 900, 20, 900, 20, 900, 20, 900, 20, 900, 20, 900, 20, 900], 4));
    }

    /// Without more flushes, merges come to an end, nothing is left to merge, and all input is in
    /// the output.
    #[test]
    fn every_policy_comes_to_an_end() {
        let policies = [
            MergePolicy::default(),
            MergePolicy::SIZE_TIERED,
            MergePolicy::Constant { components_max: 4 },
            MergePolicy::SizeTiered { components_min: 2, size_ratio: 2, bytes_min: 0 },
        ];
        for policy in policies {
            policy.validate().unwrap();
            let mut sizes: Vec<u64> = Vec::new();
            let mut written = 0;
            for flush in 0..1000_u64 {
                sizes.insert(0, (5 << 20) + flush * 977);
                let mut merges = 0;
                while let Some(range) = policy.choose(&sizes) {
                    assert!(range.len() >= 2, "{policy:?} merges {range:?} of {sizes:?}");
                    let sum = sizes[range.clone()].iter().sum();
                    sizes.splice(range, [sum]);
                    written += sum;
                    merges += 1;
                    assert!(merges < 100, "{policy:?} goes on and on");
                }
            }
            let total: u64 = (0..1000).map(|flush| (5 << 20) + flush * 977).sum();
            assert_eq!(sizes.iter().sum::<u64>(), total, "{policy:?}");
            assert!(written >= total / 2, "{policy:?}");
        }
    }

    /// With flushes of one size, each record is written once for every power of the number that is
    /// merged.
    #[test]
    fn size_tiered_writes_a_record_once_a_tier() {
        let policy = MergePolicy::SizeTiered { components_min: 4, size_ratio: 2, bytes_min: 0 };
        assert_eq!(merged(policy, 256), 4 * 256);
    }

    /// The first merge makes one of `count` flushes. After that each takes `count - 1` more, and
    /// rewrites everything. Merge number `m` therefore writes `1 + m (count - 1)` flushes.
    fn merged_by_count(count: u64, merges: u64) -> u64 {
        (1..=merges).map(|merge| 1 + merge * (count - 1)).sum()
    }

    #[test]
    fn constant_writes_everything_with_each_merge() {
        for count in [2, 3, 5, 8] {
            for flushes in [1, 7, 64, 1000] {
                let policy = MergePolicy::Constant { components_max: count as usize };
                let merges = (flushes - 1) / (count - 1);
                assert_eq!(merged(policy, flushes), merged_by_count(count, merges), "{count} of {flushes}");
            }
        }
    }

    /// Kim 2016, section 4.3.1: components are merged by their number until one is larger than the
    /// limit. That one is then left alone, and the next begins.
    #[test]
    fn prefix_writes_as_constant_does_until_a_component_is_larger_than_the_limit() {
        for (count, limit) in [(3, 10), (5, 100), (4, 3), (2, 50)] {
            let policy = MergePolicy::Prefix { mergeable_bytes_max: limit, components_max: count as usize };
            // The first merge whose sum is above the limit, and the flushes that it takes.
            let merges = limit.div_ceil(count - 1).max(1);
            let merges = if 1 + merges * (count - 1) > limit { merges } else { merges + 1 };
            let cycle = 1 + merges * (count - 1);
            for cycles in [1, 2, 9] {
                let rest = cycle / 2;
                let expected = cycles * merged_by_count(count, merges)
                    + merged_by_count(count, rest.saturating_sub(1) / (count - 1));
                assert_eq!(merged(policy, cycles * cycle + rest), expected, "{count} up to {limit}, {cycles} cycles");
            }
        }
    }

    #[test]
    fn policies_that_merge_nothing_are_refused() {
        let refused = |policy: MergePolicy| policy.validate().unwrap_err().to_string();
        assert!(refused(MergePolicy::Constant { components_max: 1 }).contains("at least 2"));
        let tiers = |components_min, size_ratio| MergePolicy::SizeTiered { components_min, size_ratio, bytes_min: 0 };
        assert!(refused(tiers(1, 4)).contains("at least 2"));
        assert!(refused(tiers(4, 0)).contains("at least 1"));
    }

    /// An hour of flushes while merges take time: the number of components stays bounded by those
    /// that come during a merge.
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
