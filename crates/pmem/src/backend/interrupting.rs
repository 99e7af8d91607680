//! A back-end that runs another operation in the middle of one: at a chosen access, on the same
//! thread.
//!
//! Readers take no locks at first. So a whole operation of a writer fits between any two loads of a
//! reader, and a whole search between any two steps of a writer. Interrupting at each access in
//! turn tries every such interleaving.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use terrane_storage::File;

use super::{Backend, Dropping, Loads, Site, Traced};
use crate::{PersistenceDomain, Result};

/// Where to interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Before a load.
    Load,
    /// After a load.
    Loaded,
    /// After a store, a flush or a fence.
    Change,
    /// Before any fence.
    BeforeFence,
    /// After a flush of this name.
    Flush(&'static str),
    /// After a fence of this name.
    Fence(&'static str),
}

type Interruption = Box<dyn FnOnce()>;

thread_local! {
    static PENDING: RefCell<Option<(At, usize, Interruption)>> = const { RefCell::new(None) };
    static IS_ENABLED: Cell<bool> = const { Cell::new(false) };
}

/// Runs an operation, and another one at its access with this number. Gives whether there was such
/// an access.
pub fn interrupt<T>(
    at: At,
    number: usize,
    interruption: impl FnOnce() + 'static,
    run: impl FnOnce() -> T,
) -> (T, bool) {
    PENDING.set(Some((at, number, Box::new(interruption))));
    IS_ENABLED.set(true);
    let outcome = run();
    IS_ENABLED.set(false);
    (outcome, PENDING.take().is_none())
}

/// Within an interruption: interrupts the same operation again, at a later access, counted from
/// here.
pub fn interrupt_again(at: At, number: usize, interruption: impl FnOnce() + 'static) {
    PENDING.set(Some((at, number, Box::new(interruption))));
}

/// How many loads an operation has.
pub fn loads_of<T>(run: impl FnOnce() -> T) -> usize {
    fn count(loads: Rc<Cell<usize>>) -> Interruption {
        Box::new(move || {
            loads.set(loads.get() + 1);
            interrupt_again(At::Load, 0, count(loads));
        })
    }
    let loads = Rc::default();
    interrupt(At::Load, 0, count(Rc::clone(&loads)), run);
    loads.get()
}

/// An operation that is stopped at an access, or has ended.
#[derive(Debug)]
pub struct Stopped {
    resume: mpsc::Sender<Stop>,
    thread: JoinHandle<bool>,
}

/// Where to stop next. The last part is a channel that is never sent to: it is closed when the
/// access is reached or the operation has ended.
type Stop = (At, usize, mpsc::Sender<()>);

/// Waits for the next place to stop, or for the end of such places.
fn stop(reach: mpsc::Sender<()>, resumed: mpsc::Receiver<Stop>) -> Interruption {
    Box::new(move || {
        drop(reach);
        if let Ok((at, number, reach)) = resumed.recv() {
            PENDING.set(Some((at, number, stop(reach, resumed))));
        }
    })
}

impl Stopped {
    /// Runs an operation in a thread of its own up to its access with this number.
    pub fn start(at: At, number: usize, run: impl FnOnce() + Send + 'static) -> Self {
        let (resume, resumed) = mpsc::channel();
        let (reach, reached) = mpsc::channel();
        let thread = std::thread::spawn(move || interrupt(at, number, stop(reach, resumed), run).1);
        let _ = reached.recv();
        Self { resume, thread }
    }

    /// Continues it up to a later access, counted from here.
    pub fn resume_until(&self, at: At, number: usize) {
        let (reach, reached) = mpsc::channel();
        let _ = self.resume.send((at, number, reach));
        let _ = reached.recv();
    }

    /// Lets several operations run to their ends, where they may wait for each other. Gives for
    /// each whether it reached its access.
    pub fn end(all: impl IntoIterator<Item = Self>) -> Vec<bool> {
        let resume = |Self { resume, thread }: Self| {
            drop(resume);
            thread
        };
        let threads: Vec<_> = all.into_iter().map(resume).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    }
}

fn pass(at: At) {
    if !IS_ENABLED.get() {
        return;
    }
    let due = PENDING.with_borrow_mut(|pending| match pending {
        Some((kind, 0, _)) if *kind == at => pending.take(),
        Some((kind, left, _)) if *kind == at => {
            *left -= 1;
            None
        }
        _ => None,
    });
    if let Some((_, _, interruption)) = due {
        IS_ENABLED.set(false);
        interruption();
        IS_ENABLED.set(true);
    }
}

/// [`Traced`] with interruptions, and with an instruction left out on demand.
#[derive(Debug)]
pub struct Interrupting(pub Dropping<Traced>);

impl Backend for Interrupting {
    type View<'a>
        = Loads<'a, Self>
    where
        Self: 'a;

    fn map(file: Arc<dyn File>, pool: &str, domain: PersistenceDomain, address_space: u64) -> Result<Self> {
        Dropping::map(file, pool, domain, address_space).map(Self)
    }

    fn extend(&self, length: u64) -> Result<()> {
        self.0.extend(length)
    }

    fn length(&self) -> u64 {
        self.0.length()
    }

    fn domain(&self) -> PersistenceDomain {
        self.0.domain()
    }

    fn load(&self, offset: u64) -> u64 {
        pass(At::Load);
        let value = self.0.load(offset);
        pass(At::Loaded);
        value
    }

    fn view(&self, offset: u64, length: u64) -> Loads<'_, Self> {
        Loads::new(self, offset, length)
    }

    fn store(&self, offset: u64, value: u64) {
        self.0.store(offset, value);
        pass(At::Change);
    }

    fn compare_exchange(&self, offset: u64, current: u64, new: u64) -> std::result::Result<u64, u64> {
        let outcome = self.0.compare_exchange(offset, current, new);
        pass(At::Change);
        outcome
    }

    fn fetch_or(&self, offset: u64, bits: u64) -> u64 {
        self.0.fetch_or(offset, bits)
    }

    fn fetch_and(&self, offset: u64, bits: u64) -> u64 {
        self.0.fetch_and(offset, bits)
    }

    fn flush(&self, range: Range<u64>, site: Site) {
        self.0.flush(range, site);
        pass(At::Change);
        pass(At::Flush(site.name()));
    }

    fn write_back(&self, line: u64, site: Site) {
        self.0.write_back(line, site);
    }

    fn fence(&self, site: Site) {
        pass(At::BeforeFence);
        self.0.fence(site);
        pass(At::Change);
        pass(At::Fence(site.name()));
    }
}
