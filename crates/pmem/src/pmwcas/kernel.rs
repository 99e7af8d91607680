//! The steps on shared words: installing, deciding, completing, reading. Any thread that meets a
//! descriptor in a word takes the same steps as its owner. `thread` is a number that no other live
//! thread has.

use super::layout::{CONDITIONAL, DIRTY, Entry, FLAGS, INSTALLED, State, Status};
use super::layout::{conditional, decode_conditional, installed};
use crate::{Backend, Error, Result, Site, WORD_LENGTH};

const INSTALL: Site = Site::new("pmwcas.install");
const DECIDE: Site = Site::new("pmwcas.decide");
const COMPLETE: Site = Site::new("pmwcas.complete");
const CLEAN: Site = Site::new("pmwcas.clean");

/// The memory that the steps work on: words, some of them in descriptors.
pub(super) trait Memory {
    type Backend: Backend;

    fn backend(&self) -> &Self::Backend;

    /// Whether a descriptor begins at an offset, which may be any number.
    fn is_descriptor(&self, offset: u64) -> Result<bool>;

    fn damaged(&self, offset: u64, reason: String) -> Error;

    /// The state and the use of a descriptor.
    fn status(&self, descriptor: u64) -> Result<Status> {
        Status::decode(self.backend().load(descriptor))
            .ok_or_else(|| self.damaged(descriptor, "a descriptor has an unknown state".to_owned()))
    }
}

/// Brings an operation to its end, whoever began it. Its descriptor is durable. The caller is its
/// owner, or has met it while it was undecided ([`help`]).
///
/// 1. Every word is given to the descriptor, in the order of the addresses. The operation fails if
///    one holds another value than expected, or something that no operation leaves; that damage is
///    returned. Then all words are made durable (M2).
/// 2. The status is decided once, by a compare-and-swap. Success is made durable before any thread
///    stores a new value (M3).
/// 3. Every word that the descriptor still has gets its value, marked as dirty, is made durable,
///    and is unmarked (M4).
pub(super) fn run<M: Memory>(memory: &M, descriptor: u64, thread: u64) -> Result<Option<Error>> {
    run_from(memory, descriptor, 0, thread)
}

/// The same if others have given the entries before `first` to the descriptor.
pub(super) fn run_from<M: Memory>(memory: &M, descriptor: u64, first: usize, thread: u64) -> Result<Option<Error>> {
    let status = memory.status(descriptor)?;
    let mut damage = None;
    if status.state == State::Undecided {
        let installed = install_all(memory, descriptor, status.stamp, first, thread);
        let state = if matches!(installed, Ok(true)) { State::Succeeded } else { State::Failed };
        damage = installed.err();
        // If this fails, another thread has decided.
        let _ = memory.backend().compare_exchange(descriptor, status.encode(), Status { state, ..status }.encode());
    }
    complete(memory, descriptor, |_| true)?;
    Ok(damage)
}

/// The first step. Gives whether all words hold the descriptor, or have held it.
fn install_all<M: Memory>(memory: &M, descriptor: u64, stamp: u64, first: usize, thread: u64) -> Result<bool> {
    let backend = memory.backend();
    for (index, entry) in Entry::load_all(backend, descriptor, stamp).skip(first) {
        if !install(memory, descriptor, index, &entry, thread)? {
            return Ok(false);
        }
    }
    for (_, entry) in Entry::load_all(backend, descriptor, stamp) {
        backend.flush(word(entry.address), INSTALL);
    }
    backend.fence(INSTALL);
    Ok(true)
}

/// The third step for some of the addresses, after making the status durable. After a failure that
/// is not needed: undecided has the same effect.
fn complete<M: Memory>(memory: &M, descriptor: u64, is_wanted: impl Fn(u64) -> bool) -> Result<()> {
    let backend = memory.backend();
    let status = memory.status(descriptor)?;
    let has_succeeded = status.state == State::Succeeded;
    if has_succeeded {
        backend.persist(word(descriptor), DECIDE);
    }
    let value = |entry: &Entry| if has_succeeded { entry.new } else { entry.old };
    let mut own = [false; super::WORDS];
    let entries = Entry::load_all(backend, descriptor, status.stamp);
    for (index, entry) in entries.filter(|(_, entry)| is_wanted(entry.address)) {
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
        // If this fails, a reader has done it.
        let _ = backend.compare_exchange(entry.address, value(&entry) | DIRTY, value(&entry));
    }
    Ok(())
}

/// Gives a word to a descriptor, if that is undecided and the word holds its old value; `false` if
/// not.
pub(super) fn install<M: Memory>(
    memory: &M,
    descriptor: u64,
    index: usize,
    entry: &Entry,
    thread: u64,
) -> Result<bool> {
    let wanted = conditional(descriptor, index, thread);
    loop {
        match memory.backend().compare_exchange(entry.address, entry.old, wanted) {
            Ok(_) => {
                resolve(memory, wanted)?;
                return Ok(true);
            }
            Err(found) if found == installed(descriptor) => return Ok(true),
            Err(found) if found & FLAGS == 0 => return Ok(false),
            Err(found) => {
                help(memory, entry.address, found, thread)?;
                // The other operation may have led back to this one, and that run may have asked
                // and ended it (M6).
                if memory.status(descriptor)?.state != State::Undecided {
                    return Ok(false);
                }
            }
        }
    }
}

/// Resolves a word that asks for a descriptor's state: it gets the descriptor if that is undecided,
/// else its old value.
///
/// Between the check of the state and the compare-and-swap the descriptor may be decided. Then the
/// swap succeeds only if the word has asked since before the decision, and not if it asks again
/// (M6).
fn resolve<M: Memory>(memory: &M, asking: u64) -> Result<()> {
    if let Some(answer) = Answer::find(memory, asking)? {
        answer.give(memory.backend());
    }
    Ok(())
}

/// The new contents of a word that asks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    address: u64,
    asking: u64,
    value: u64,
}

impl Answer {
    pub(super) fn find<M: Memory>(memory: &M, asking: u64) -> Result<Option<Self>> {
        let (descriptor, index) = decode_conditional(asking);
        let status = memory.status(descriptor)?;
        Ok(Entry::load(memory.backend(), descriptor, index, status.stamp).map(|Entry { address, old, .. }| {
            let value = if status.state == State::Undecided { installed(descriptor) } else { old | DIRTY };
            Self { address, asking, value }
        }))
    }

    pub(super) fn give<B: Backend>(self, backend: &B) {
        let is_given = backend.compare_exchange(self.address, self.asking, self.value).is_ok();
        if is_given && self.value & DIRTY != 0 {
            clean(backend, self.address, self.value);
        }
    }
}

/// Helps until a word has no flags.
///
/// An undecided operation holds all its words up to the one where it was met. A helper begins after
/// that word. So this thread goes upwards from one operation to the next, and never comes back to a
/// word where it has asked (M6).
fn help<M: Memory>(memory: &M, address: u64, found: u64, thread: u64) -> Result<()> {
    // The word was overwritten, or changed without a guard: no thread would ever take the
    // descriptor out of it.
    let damaged =
        || Err(memory.damaged(address, format!("the word there is {found:#x}, which no operation leaves in it")));
    let (descriptor, index) = match found & FLAGS {
        DIRTY => {
            clean(memory.backend(), address, found);
            return Ok(());
        }
        INSTALLED => (found & !FLAGS, None),
        CONDITIONAL => {
            let (descriptor, index) = decode_conditional(found);
            (descriptor, Some(index))
        }
        _ => return damaged(),
    };
    match (entry_for(memory, descriptor, address, index)?, index) {
        (None, _) => damaged(),
        (Some(_), Some(_)) => resolve(memory, found),
        // Damage of another word is for its owner, whose operation has failed.
        (Some((at, State::Undecided)), None) => run_from(memory, descriptor, at + 1, thread).map(drop),
        // It may have been retired before this thread came, so its other words may belong to others
        // (M10).
        (Some(_), None) => complete(memory, descriptor, |wanted| wanted == address),
    }
}

/// The entry of a descriptor for a word, and the descriptor's state. `None` if there is no such
/// descriptor in use or no such entry. With an index, only that entry counts.
fn entry_for<M: Memory>(
    memory: &M,
    descriptor: u64,
    address: u64,
    index: Option<usize>,
) -> Result<Option<(usize, State)>> {
    if !memory.is_descriptor(descriptor)? {
        return Ok(None);
    }
    let Status { state, stamp } = memory.status(descriptor)?;
    if matches!(state, State::Free | State::Filling) {
        return Ok(None);
    }
    let mut entries = Entry::load_all(memory.backend(), descriptor, stamp);
    let found = entries.find(|(at, entry)| entry.address == address && index.is_none_or(|index| *at == index));
    Ok(found.map(|(at, _)| (at, state)))
}

/// Makes a dirty value durable, and clears the mark.
fn clean<B: Backend>(backend: &B, address: u64, dirty: u64) {
    backend.persist(word(address), CLEAN);
    // If this fails, another thread has done it, or the value is another one.
    let _ = backend.compare_exchange(address, dirty, dirty & !DIRTY);
}

/// The value of a word, which is durable.
pub(super) fn read<M: Memory>(memory: &M, address: u64, thread: u64) -> Result<u64> {
    loop {
        match memory.backend().load(address) {
            value if value & FLAGS == 0 => return Ok(value),
            found => help(memory, address, found, thread)?,
        }
    }
}

/// Changes one word without a descriptor. For tests only: a thread that stops in the middle may
/// clear the mark of a later, equal value.
#[cfg(test)]
pub(super) fn compare_exchange<M: Memory>(
    memory: &M,
    address: u64,
    current: u64,
    new: u64,
    thread: u64,
) -> Result<std::result::Result<u64, u64>> {
    let backend = memory.backend();
    loop {
        match backend.compare_exchange(address, current, new | DIRTY) {
            Ok(_) => {
                clean(backend, address, new | DIRTY);
                return Ok(Ok(current));
            }
            Err(found) if found & FLAGS == 0 => return Ok(Err(found)),
            Err(found) => help(memory, address, found, thread)?,
        }
    }
}

fn word(offset: u64) -> std::ops::Range<u64> {
    offset..offset + WORD_LENGTH
}
