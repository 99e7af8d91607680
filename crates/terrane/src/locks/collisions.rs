//! Binary keys that share one lock. They are constructed for a given hash, in any number.
//!
//! For 32 bytes, XXH3 combines each word with a secret word and the seed. It multiplies the first
//! two words and the last two, adds the products, and mixes the sum reversibly. If the first factor
//! is 0, the second word is free. If the third is 1, the last word is the desired sum.

use terrane::locks::lock_hash;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The beginning of XXH3's secret, as little-endian words.
const SECRET: [u64; 4] = [0xbe4b_a423_396c_feb8, 0x1cad_21f7_2c81_017c, 0xdb97_9083_e96d_d4de, 0x1f67_b3b7_a4a4_4072];
const PRIME: u64 = 0x9e37_79b1_85eb_ca87;
/// The inverse of the factor of XXH3's last step.
const MIX_INVERSE: u64 = inverse(0x1656_6791_9e37_79f9);
/// The constant in `terrane::locks`.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
/// Seed of the hash that distributes records over partitions. It is part of the format.
const PARTITION_SEED: u64 = 0x7465_7272_616e_6531;

/// Returns `count` keys whose records have the lock of `hash`, alternating over the partitions.
pub fn keys_locked_as(hash: u64, dataset: u64, partitions: u32, count: usize) -> Vec<Vec<u8>> {
    let keys_of = |partition| {
        let keys = (0..).map(move |number| key_locked_as(hash, dataset, partition, number));
        let partition_of = move |key: &Vec<u8>| xxh3_64_with_seed(key, PARTITION_SEED) % u64::from(partitions);
        keys.filter(move |key| partition_of(key) == u64::from(partition))
    };
    let mut keys: Vec<_> = (0..partitions).map(keys_of).collect();
    let partitions = keys.len();
    (0..count).map(|number| keys[number % partitions].next().expect("there is no end of them")).collect()
}

/// Key `number` with a hash, for records of one partition of a dataset.
fn key_locked_as(hash: u64, dataset: u64, partition: u32, number: u64) -> Vec<u8> {
    let seed = dataset.wrapping_mul(SPREAD) ^ u64::from(partition);
    let mixed = (hash ^ hash >> 32).wrapping_mul(MIX_INVERSE);
    let sum = (mixed ^ mixed >> 37).wrapping_sub(PRIME.wrapping_mul(32));
    let words =
        [SECRET[0].wrapping_add(seed), number, SECRET[2].wrapping_add(seed) ^ 1, SECRET[3].wrapping_sub(seed) ^ sum];
    let key = words.map(u64::to_le_bytes).concat();
    assert_eq!(lock_hash(dataset, partition, &key), hash, "the hash function of locks has changed");
    key
}

/// The inverse of an odd number modulo 2 to the power of 64.
const fn inverse(number: u64) -> u64 {
    // Each step doubles the number of correct low bits. For any odd number, three are correct.
    let (mut inverse, mut right) = (number, 3);
    while right < u64::BITS {
        inverse = inverse.wrapping_mul(2_u64.wrapping_sub(number.wrapping_mul(inverse)));
        right *= 2;
    }
    inverse
}
