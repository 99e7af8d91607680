//! Queues of records that arrive faster than they are written.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::support::small_options;
use crate::support::workload::{MAIN, first_schema};
use terrane::{Error, FeedReceiver, FeedSender, OnOverload, QueuedRecord, Store};
use terrane_storage::Storage;
use terrane_testkit::MemoryStorage;

/// A number with as many bytes as it says.
#[derive(Clone, Debug, PartialEq)]
struct Numbered {
    number: u64,
    text: Vec<u8>,
}

impl QueuedRecord for Numbered {
    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.text.len()
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.number.to_le_bytes());
        bytes.extend_from_slice(&self.text);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (number, text) = bytes.split_first_chunk()?;
        Some(Self { number: u64::from_le_bytes(*number), text: text.to_vec() })
    }
}

fn numbered(numbers: impl Iterator<Item = u64>) -> Vec<Numbered> {
    numbers.map(|number| Numbered { number, text: vec![b'x'; (number % 7) as usize * 40] }).collect()
}

fn store(storage: &Arc<MemoryStorage>) -> Store {
    let store = Store::open_on(storage.clone(), small_options()).unwrap();
    store.create_dataset(MAIN, first_schema()).unwrap();
    store
}

/// Sends numbers up to an end, several at a time.
fn send(sender: &FeedSender<Numbered>, end: u64, sent: impl Fn(u64)) {
    for start in (0..end).step_by(13) {
        let records = numbered(start..end.min(start + 13));
        let count = records.len() as u64;
        assert!(sender.send(records).unwrap());
        sent(count);
    }
}

fn receive_all(receiver: &FeedReceiver<Numbered>, count_max: usize) -> Vec<Numbered> {
    let mut all = Vec::new();
    loop {
        let records = receiver.receive(count_max).unwrap();
        assert!(records.len() <= count_max);
        if records.is_empty() {
            return all;
        }
        all.extend(records);
    }
}

#[test]
fn a_sender_waits_for_memory_when_it_throttles() {
    const END: u64 = 20_000;
    let store = store(&Arc::default());
    let (sender, receiver) = store.feed_queue(OnOverload::Throttle, 2000).unwrap();
    let sent = Arc::new(AtomicU64::new(0));
    let counter = sent.clone();
    let sending = thread::spawn(move || send(&sender, END, |count| _ = counter.fetch_add(count, Ordering::SeqCst)));
    let mut received = Vec::new();
    loop {
        let records = receiver.receive(17).unwrap();
        if records.is_empty() {
            break;
        }
        received.extend(records);
        // A record takes more than 20 bytes, so fewer than 100 of them wait.
        assert!(sent.load(Ordering::SeqCst) < received.len() as u64 + 100 + 17);
    }
    sending.join().unwrap();
    assert_eq!(received, numbered(0..END));
}

#[test]
fn spilled_records_come_in_order_and_release_their_space_as_they_are_read() {
    const END: u64 = 200_000;
    let storage = Arc::new(MemoryStorage::new());
    let store = store(&storage);
    let files = || storage.list("components").unwrap();
    let (before, names) = (storage.used_bytes(), files());
    let (sender, receiver) = store.feed_queue(OnOverload::Spill, 2000).unwrap();
    send(&sender, END, |_| ());
    let spilled = storage.used_bytes() - before;
    assert!(spilled > 24 << 20, "{spilled}");
    assert_eq!(files(), names, "the files have no names");
    let mut received = Vec::new();
    while received.len() < END as usize / 2 {
        received.extend(receiver.receive(1000).unwrap());
    }
    let left = storage.used_bytes() - before;
    assert!(left < spilled * 2 / 3, "{left} of {spilled}");
    drop(sender);
    received.extend(receive_all(&receiver, 20));
    assert_eq!(received, numbered(0..END));
    assert_eq!(storage.used_bytes(), before);
}

#[test]
fn records_keep_their_order_while_they_are_spilled_and_read() {
    let store = store(&Arc::default());
    let (sender, receiver) = store.feed_queue(OnOverload::Spill, 3000).unwrap();
    let sending = thread::spawn(move || send(&sender, 50_000, |_| ()));
    assert_eq!(receive_all(&receiver, 17), numbered(0..50_000));
    sending.join().unwrap();
}

#[test]
fn a_sender_waits_where_the_disk_has_no_space_to_spill() {
    const END: u64 = 20_000;
    let storage = Arc::new(MemoryStorage::new());
    let store = store(&storage);
    let capacity = storage.used_bytes() * 2 + 100_000;
    storage.set_capacity(capacity);
    let (sender, receiver) = store.feed_queue(OnOverload::Spill, 3000).unwrap();
    let sending = thread::spawn(move || send(&sender, END, |_| ()));
    let mut received = Vec::new();
    loop {
        let records = receiver.receive(17).unwrap();
        if records.is_empty() {
            break;
        }
        received.extend(records);
        assert!(storage.used_bytes() <= capacity - capacity / 16, "a part of the disk is left to others");
    }
    sending.join().unwrap();
    assert_eq!(received, numbered(0..END));
}

#[test]
fn records_that_do_not_fit_are_discarded_and_counted() {
    let store = store(&Arc::default());
    let (sender, receiver) = store.feed_queue(OnOverload::Discard, 2000).unwrap();
    send(&sender, 5000, |_| ());
    let first = receiver.receive(1000).unwrap();
    assert_eq!(first, numbered(0..first.len() as u64));
    assert_eq!(first.len() as u64 + receiver.discarded(), 5000);
    // There is memory again.
    send(&sender, 3, |_| ());
    drop(sender);
    assert_eq!(receive_all(&receiver, 10), numbered(0..3));
}

#[test]
fn a_sender_without_a_receiver_waits_no_longer() {
    let storage = Arc::new(MemoryStorage::new());
    let store = store(&storage);
    storage.set_capacity(storage.used_bytes());
    for on_overload in [OnOverload::Throttle, OnOverload::Spill, OnOverload::Discard] {
        let (sender, receiver) = store.feed_queue(on_overload, 3000).unwrap();
        let sending = thread::spawn(move || (0..).find(|_| !sender.send(numbered(0..20)).unwrap()));
        assert!(!receiver.receive(10).unwrap().is_empty());
        drop(receiver);
        assert!(sending.join().unwrap().is_some());
    }
}

#[test]
fn a_store_that_is_open_for_reading_has_no_queues() {
    let storage = Arc::new(MemoryStorage::new());
    store(&storage).close().unwrap();
    let store = Store::open_read_only_on(storage, small_options()).unwrap();
    let queue = store.feed_queue::<Numbered>(OnOverload::Throttle, 1000);
    assert!(matches!(queue, Err(Error::ReadOnly)));
}
