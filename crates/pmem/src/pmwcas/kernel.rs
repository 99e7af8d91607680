//! The steps on words that are shared: installing, deciding, completing, reading. Whoever meets a descriptor in a word takes
//! the same steps as its owner. `thread` is a number that no other live thread has.

use super::layout::{CONDITIONAL, DIRTY, Entry, FLAGS, INSTALLED, State, Status};
use super::layout::{conditional, decode_conditional, installed};
use crate::{Backend, Site, WORD_LENGTH};

const INSTALL: Site = Site::new("pmwcas.install");
const DECIDE: Site = Site::new("pmwcas.decide");
const COMPLETE: Site = Site::new("pmwcas.complete");
const CLEAN: Site = Site::new("pmwcas.clean");

/// Brings an operation to its end, whoever began it. Its descriptor is durable.
///
/// 1. Every word is given to the descriptor, in the order of the addresses, unless one holds something else than it
///    should. Then all words are made durable (M2).
/// 2. The status is decided once, by a compare-and-swap; success is made durable before anybody stores a new value (M3).
/// 3. Every word that the descriptor still has is given its value, marked as dirty, made durable, and unmarked (M4).
pub(super) fn run<B: Backend>(backend: &B, descriptor: u64, thread: u64) {
    let status = Status::load(backend, descriptor);
    if status.state == State::Undecided {
        let mut entries = Entry::load_all(backend, descriptor, status.stamp);
        let state = match entries.all(|(index, entry)| install(backend, descriptor, index, &entry, thread)) {
            true => State::Succeeded,
            false => State::Failed,
        };
        if state == State::Succeeded {
            for (_, entry) in Entry::load_all(backend, descriptor, status.stamp) {
                backend.flush(word(entry.address), INSTALL);
            }
            backend.fence(INSTALL);
        }
        // Where it fails, somebody else has decided.
        let _ = backend.compare_exchange(descriptor, status.encode(), Status { state, ..status }.encode());
    }
    complete(backend, descriptor);
}

/// The third step, and what has to be durable before it. After a failure that is nothing: undecided is as good.
fn complete<B: Backend>(backend: &B, descriptor: u64) {
    let status = Status::load(backend, descriptor);
    let has_succeeded = status.state == State::Succeeded;
    if has_succeeded {
        backend.persist(word(descriptor), DECIDE);
    }
    let value = |entry: &Entry| if has_succeeded { entry.new } else { entry.old };
    let mut own = [false; super::WORDS];
    for (index, entry) in Entry::load_all(backend, descriptor, status.stamp) {
        let stored = backend.compare_exchange(entry.address, installed(descriptor), value(&entry) | DIRTY);
        if stored.is_ok() {
            own[index] = true;
            backend.flush(word(entry.address), COMPLETE);
        }
    }
    if own.contains(&true) {
        backend.fence(COMPLETE);
    }
    for (_, entry) in Entry::load_all(backend, descriptor, status.stamp).filter(|(index, _)| own[*index]) {
        // Where it fails, a reader has done it.
        let _ = backend.compare_exchange(entry.address, value(&entry) | DIRTY, value(&entry));
    }
}

/// Gives a word to a descriptor, if that is undecided and the word holds the value it should; `false` if not.
fn install<B: Backend>(backend: &B, descriptor: u64, index: usize, entry: &Entry, thread: u64) -> bool {
    let wanted = conditional(descriptor, index, thread);
    loop {
        match backend.compare_exchange(entry.address, entry.old, wanted) {
            Ok(_) => {
                resolve(backend, wanted);
                return true;
            }
            Err(found) if found == installed(descriptor) => return true,
            Err(found) if found & FLAGS == 0 => return false,
            Err(found) => help(backend, entry.address, found, thread),
        }
    }
}

/// Makes of a word that asks for a descriptor's state one that the descriptor has, if that is undecided; else
/// the value that it held.
///
/// Between the look at the state and the compare-and-swap the descriptor may be decided. The swap then succeeds only
/// if the word asks still, since before the decision; not if it asks again (M6).
fn resolve<B: Backend>(backend: &B, asking: u64) {
    if let Some(answer) = Answer::find(backend, asking) {
        answer.give(backend);
    }
}

/// What a word that asks is to be changed into.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    address: u64,
    asking: u64,
    value: u64,
}

impl Answer {
    pub(super) fn find<B: Backend>(backend: &B, asking: u64) -> Option<Self> {
        let (descriptor, index) = decode_conditional(asking);
        let status = Status::load(backend, descriptor);
        let Entry { address, old, .. } = Entry::load(backend, descriptor, index, status.stamp)?;
        let value = if status.state == State::Undecided { installed(descriptor) } else { old | DIRTY };
        Some(Self { address, asking, value })
    }

    pub(super) fn give<B: Backend>(self, backend: &B) {
        let is_given = backend.compare_exchange(self.address, self.asking, self.value).is_ok();
        if is_given && self.value & DIRTY != 0 {
            clean(backend, self.address, self.value);
        }
    }
}

/// Does for a word with flags what has to be done until it has none.
fn help<B: Backend>(backend: &B, address: u64, found: u64, thread: u64) {
    if found & CONDITIONAL != 0 {
        let (descriptor, index) = decode_conditional(found);
        check_named(backend, descriptor, address, |named| named == index);
        resolve(backend, found);
    } else if found & INSTALLED != 0 {
        let descriptor = found & !FLAGS;
        check_named(backend, descriptor, address, |_| true);
        run(backend, descriptor, thread);
    } else {
        clean(backend, address, found);
    }
}

/// Stops where a word was overwritten, or changed without a guard: nobody would ever take the descriptor out of it.
fn check_named<B: Backend>(backend: &B, descriptor: u64, address: u64, is_at: impl Fn(usize) -> bool) {
    let stamp = Status::load(backend, descriptor).stamp;
    let is_named = Entry::load_all(backend, descriptor, stamp).any(|(at, entry)| entry.address == address && is_at(at));
    assert!(is_named, "the word at byte {address} holds a descriptor that does not name it: it was overwritten");
}

/// Makes a dirty value durable, and says so in the word.
fn clean<B: Backend>(backend: &B, address: u64, dirty: u64) {
    backend.persist(word(address), CLEAN);
    // Where it fails, somebody else has done it, or the value is another one.
    let _ = backend.compare_exchange(address, dirty, dirty & !DIRTY);
}

/// The value of a word, which is durable.
pub(super) fn read<B: Backend>(backend: &B, address: u64, thread: u64) -> u64 {
    loop {
        match backend.load(address) {
            value if value & FLAGS == 0 => return value,
            found => help(backend, address, found, thread),
        }
    }
}

/// Changes one word, durably when it returns.
pub(super) fn compare_exchange<B: Backend>(
    backend: &B,
    address: u64,
    current: u64,
    new: u64,
    thread: u64,
) -> Result<u64, u64> {
    loop {
        match backend.compare_exchange(address, current, new | DIRTY) {
            Ok(_) => {
                clean(backend, address, new | DIRTY);
                return Ok(current);
            }
            Err(found) if found & FLAGS == 0 => return Err(found),
            Err(found) => help(backend, address, found, thread),
        }
    }
}

fn word(offset: u64) -> std::ops::Range<u64> {
    offset..offset + WORD_LENGTH
}
