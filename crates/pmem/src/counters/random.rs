//! A set of bounded size that forgets a random entry.

use std::collections::HashMap;

/// Keys with a value each. A random one is evicted.
#[derive(Debug)]
pub(super) struct Random<V> {
    capacity: usize,
    places: HashMap<u64, usize>,
    entries: Vec<(u64, V)>,
    state: u64,
}

impl<V> Random<V> {
    /// An empty set of at least one entry.
    pub(super) fn new(capacity: usize, seed: u64) -> Self {
        Self { capacity: capacity.max(1), places: HashMap::new(), entries: Vec::new(), state: seed }
    }

    /// Uses a key, and inserts it with `value` if it is new. Gives its value, and the evicted
    /// entry.
    pub(super) fn touch(&mut self, key: u64, value: V) -> (&mut V, Option<(u64, V)>) {
        let (place, evicted) = match self.places.get(&key) {
            Some(&place) => (place, None),
            None if self.entries.len() < self.capacity => {
                self.entries.push((key, value));
                (self.entries.len() - 1, None)
            }
            None => {
                let place = (self.next() % self.capacity as u64) as usize;
                let old = std::mem::replace(&mut self.entries[place], (key, value));
                self.places.remove(&old.0);
                (place, Some(old))
            }
        };
        self.places.insert(key, place);
        (&mut self.entries[place].1, evicted)
    }

    /// The value of a key.
    pub(super) fn get_mut(&mut self, key: u64) -> Option<&mut V> {
        self.places.get(&key).map(|&place| &mut self.entries[place].1)
    }

    /// Takes all entries out, in random order.
    pub(super) fn drain(&mut self) -> Vec<(u64, V)> {
        self.places.clear();
        let mut entries = std::mem::take(&mut self.entries);
        for last in (1..entries.len()).rev() {
            let other = (self.next() % (last as u64 + 1)) as usize;
            entries.swap(last, other);
        }
        entries
    }

    /// The next random number (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number
    /// generators").
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ self.state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn it_forgets_one_of_its_keys_when_it_is_full_and_the_seed_says_which() {
        const CAPACITY: usize = 5;
        let evicted = |seed| {
            let (mut random, mut model) = (Random::new(CAPACITY, seed), BTreeSet::new());
            let mut order = Vec::new();
            for step in 0..500u64 {
                let key = step * step % 11;
                let is_new = model.insert(key);
                let (_, evicted) = random.touch(key, ());
                assert_eq!(evicted.is_some(), is_new && model.len() > CAPACITY, "step {step}");
                if let Some((old, ())) = evicted {
                    assert!(old != key && model.remove(&old), "step {step}");
                    order.push(old);
                }
                assert!(model.iter().all(|&key| random.get_mut(key).is_some()));
            }
            let left: BTreeSet<u64> = random.drain().into_iter().map(|(key, ())| key).collect();
            assert_eq!(left, model);
            order
        };
        assert_eq!(evicted(1), evicted(1));
        assert_ne!(evicted(1), evicted(2));
    }
}
