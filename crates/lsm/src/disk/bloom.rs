//! Split-block Bloom filter: one block of 32 bytes per key, eight bits in it.
//!
//! The scheme is that of Putze, Sanders and Singler (2007) as used by Parquet. With
//! [`BITS_PER_KEY`] bits per key, about one of a hundred absent keys appears present. Hashes are
//! XXH3 with 64 bits. They are stable across versions, since the filter is stored.

/// Bits per key.
pub const BITS_PER_KEY: usize = 10;
const BLOCK_WORDS: usize = 8;
const SALTS: [u32; BLOCK_WORDS] =
    [0x47b6_137b, 0x4497_4d91, 0x8824_ad5b, 0xa2b7_289d, 0x7054_95c7, 0x2df1_424b, 0x9efc_4947, 0x5c6b_fb31];

/// The hash of a key.
#[inline]
pub fn hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

fn block_index(hash: u64, blocks: usize) -> usize {
    (((hash >> 32) * blocks as u64) >> 32) as usize
}

#[inline]
fn bit(hash: u64, word: usize) -> u32 {
    1 << ((hash as u32).wrapping_mul(SALTS[word]) >> 27)
}

/// Builds the filter over the keys' hashes.
pub fn build(hashes: &[u64]) -> Vec<u32> {
    let blocks = (hashes.len() * BITS_PER_KEY).div_ceil(32 * BLOCK_WORDS).max(1);
    let mut words = vec![0; blocks * BLOCK_WORDS];
    for hash in hashes {
        let start = block_index(*hash, blocks) * BLOCK_WORDS;
        for (index, word) in words[start..start + BLOCK_WORDS].iter_mut().enumerate() {
            *word |= bit(*hash, index);
        }
    }
    words
}

/// Whether a key with this hash may be among the filter's keys.
#[inline]
pub fn may_contain(words: &[u32], hash: u64) -> bool {
    let blocks = words.len() / BLOCK_WORDS;
    if blocks == 0 {
        return true;
    }
    let start = block_index(hash, blocks) * BLOCK_WORDS;
    words[start..start + BLOCK_WORDS].iter().enumerate().all(|(index, word)| word & bit(hash, index) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn present_keys_are_never_denied_and_absent_ones_seldom_admitted() {
        let hashes: Vec<u64> = (0u64..20_000).map(|key| hash(&key.to_be_bytes())).collect();
        let words = build(&hashes);
        assert!(hashes.iter().all(|hash| may_contain(&words, *hash)));
        let admitted = (20_000u64..120_000).filter(|key| may_contain(&words, hash(&key.to_be_bytes()))).count();
        assert!(admitted < 2_000, "{admitted} of 100,000 absent keys were admitted");
    }
}
