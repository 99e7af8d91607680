//! The steps on words that are shared: installing, deciding, completing, reading. Whoever meets a
//! descriptor in a word takes the same steps as its owner. `thread` is a number that no other live
//! thread has.

use super::layout::{CONDITIONAL, DIRTY, Entry, FLAGS, INSTALLED, State, Status};
use super::layout::{conditional, decode_conditional, installed};
use crate::{Backend, Error, Result, Site, WORD_LENGTH};

const INSTALL: Site = Site::new("pmwcas.install");
const DECIDE: Site = Site::new("pmwcas.decide");
const COMPLETE: Site = Site::new("pmwcas.complete");
const CLEAN: Site = Site::new("pmwcas.clean");

/// What the steps are taken on: words, some of which are descriptors.
pub(super) trait Memory {
    type Backend: Backend;

    fn backend(&self) -> &Self::Backend;

    /// Whether a descriptor begins at an offset, which may be any.
    fn is_descriptor(&self, offset: u64) -> Result<bool>;

    fn damaged(&self, offset: u64, reason: String) -> Error;

    /// How far a descriptor has come.
    fn status(&self, descriptor: u64) -> Result<Status> {
        Status::decode(self.backend().load(descriptor))
            .ok_or_else(|| self.damaged(descriptor, "a descriptor has a state that there is not".to_owned()))
    }
}

/// Brings an operation to its end, whoever began it. Its descriptor is durable. Who runs it is its
/// owner, or has met it while it was undecided: [`help`].
///
/// 1. Every word is given to the descriptor, in the order of the addresses, unless one holds
///    something else than it should, or what nothing leaves in a word: then the operation fails,
///    and that damage is given back. Then all words are made durable (M2).
/// 2. The status is decided once, by a compare-and-swap; success is made durable before anybody
///    stores a new value (M3).
/// 3. Every word that the descriptor still has is given its value, marked as dirty, made durable,
///    and unmarked (M4).
pub(super) fn run<M: Memory>(memory: &M, descriptor: u64, thread: u64) -> Result<Option<Error>> {
    run_from(memory, descriptor, 0, thread)
}

/// The same where the entries before `first` have been given to the descriptor by others.
pub(super) fn run_from<M: Memory>(memory: &M, descriptor: u64, first: usize, thread: u64) -> Result<Option<Error>> {
    let status = memory.status(descriptor)?;
    let mut damage = None;
    if status.state == State::Undecided {
        let installed = install_all(memory, descriptor, status.stamp, first, thread);
        let state = if matches!(installed, Ok(true)) { State::Succeeded } else { State::Failed };
        damage = installed.err();
        // Where it fails, somebody else has decided.
        let _ = memory.backend().compare_exchange(descriptor, status.encode(), Status { state, ..status }.encode());
    }
    complete(memory, descriptor, |_| true)?;
    Ok(damage)
}

/// The first step; whether all words hold the descriptor, or have held it.
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

/// The third step for some of the addresses, and what has to be durable before it. After a failure
/// that is nothing: undecided is as good.
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
        // Where it fails, a reader has done it.
        let _ = backend.compare_exchange(entry.address, value(&entry) | DIRTY, value(&entry));
    }
    Ok(())
}

/// Gives a word to a descriptor, if that is undecided and the word holds the value it should;
/// `false` if not.
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
                // The other operation may have led back to this one, and that run have asked and
                // ended it (M6).
                if memory.status(descriptor)?.state != State::Undecided {
                    return Ok(false);
                }
            }
        }
    }
}

/// Makes of a word that asks for a descriptor's state one that the descriptor has, if that is
/// undecided; else the value that it held.
///
/// Between the look at the state and the compare-and-swap the descriptor may be decided. The swap
/// then succeeds only if the word asks still, since before the decision; not if it asks again (M6).
fn resolve<M: Memory>(memory: &M, asking: u64) -> Result<()> {
    if let Some(answer) = Answer::find(memory, asking)? {
        answer.give(memory.backend());
    }
    Ok(())
}

/// What a word that asks is to be changed into.
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

/// Does for a word with flags what has to be done until it has none.
///
/// An undecided operation holds all its words up to the one where it was met. Who helps it begins
/// after that: so this thread, whose operation has led here, goes upwards from one operation to the
/// next, and never comes back to a word where it has asked (M6).
fn help<M: Memory>(memory: &M, address: u64, found: u64, thread: u64) -> Result<()> {
    // It was overwritten, or changed without a guard: nobody would ever take the descriptor out of
    // it.
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
        // What is wrong with another word is for its owner, whose operation has failed.
        (Some((at, State::Undecided)), None) => run_from(memory, descriptor, at + 1, thread).map(drop),
        // It may have been retired before this thread came, so its other words may be anybody's
        // (M10).
        (Some(_), None) => complete(memory, descriptor, |wanted| wanted == address),
    }
}

/// The entry of a descriptor for a word, and the state, if there is such a descriptor, in use, and
/// such an entry: the one with this index if one is given.
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

/// Makes a dirty value durable, and says so in the word.
fn clean<B: Backend>(backend: &B, address: u64, dirty: u64) {
    backend.persist(word(address), CLEAN);
    // Where it fails, somebody else has done it, or the value is another one.
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

/// Changes one word without a descriptor. What stops in the middle of this may take away the mark
/// of an equal value of later, so it is for tests alone.
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
