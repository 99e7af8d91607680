//! Looks for crashes that a structure in a pool does not survive. For tests and the laboratory.
//!
//! A [`Subject`] is a structure in one configuration. A [`History`] is a run of it under the crash
//! controller; its crashes are the cuts between any two events, and at each what a power loss or a
//! kill may leave. [`Explorer`] recovers from these images and asks for durable linearizability:
//! what is there is what was there after the last step that had returned, or after the one that was
//! under way, and the structure works on. Also inside of recovery, and in what is done after it;
//! [`Explorer::chain`] goes on after many crashes, one after the other.
//!
//! Images that hold the same are recovered from once. Where all of a cut's images are to be tried,
//! only lines that recovery reads make a difference ([`terrane_testkit::crash::Branches`]).
//!
//! [`sample`] draws histories, [`gate`] leaves out one flush or fence after the other, each of
//! which has to be noticed, and [`Canary`] is wrong on purpose: if it passes, the explorer is worth
//! nothing. A [`Failure`] is made small by [`shrink`], and prints as a [`Case`] that [`replay`]
//! goes through again.

mod canary;
mod case;
mod chain;
mod gate;
mod history;
mod near;
mod part;
mod places;
mod sample;
mod search;
mod shrink;
pub mod sites;

use std::fmt::{Debug, Display};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;

use terrane_storage::Storage;
use terrane_testkit::crash::Controller;

pub use canary::{Canary, check_canary};
pub use case::{Case, Crash, Failure, Loss, ParseCaseError};
pub use gate::{Catch, Gate, GateReport, gate, names};
pub use history::History;
pub use part::{ParsePartError, Part};
pub use places::{Dropped, Place};
pub use sample::{Sample, sample};
pub use search::{Breadth, Cuts, Explorer, Tally};
pub use shrink::{replay, shrink};

use crate::{Dropping, PersistenceDomain, Traced};

/// What came of a check: what is wrong, in words.
pub type Checked<T> = Result<T, String>;

/// A structure in one configuration, as the explorer runs it.
///
/// Everything has to be deterministic: the same calls make the same events. Its words are reached
/// by [`Dropping<Traced>`](Dropping), so that what it flushes can be left out.
pub trait Subject: Sync {
    /// The structure in use.
    type Structure: Sync;
    /// Something done to it. It makes sense in every state, so that histories can be shortened; its
    /// text has no blanks and no semicolons.
    type Step: Clone + Display + FromStr + Send + Sync;
    /// What the structure holds, as a value; at first, the default.
    type Model: Clone + Default + PartialEq + Debug + Send;

    /// Name of the structure, such as `fbr`.
    fn structure(&self) -> &'static str;

    /// Name of the configuration, which no other one of the structure has.
    fn configuration(&self) -> &str;

    /// The medium.
    fn domain(&self) -> PersistenceDomain;

    /// A new, empty structure in a pool of its own.
    fn create(&self, storage: &dyn Storage) -> Checked<Self::Structure>;

    /// Opens it again: recovery. Where a crash has left a pool without the structure, that is made.
    fn open(&self, storage: &dyn Storage) -> Checked<Self::Structure>;

    /// A history to run, drawn from a seed.
    fn steps(&self, seed: u64) -> Vec<Self::Step>;

    /// Takes a step, in the structure and in its model, and compares what came of it.
    fn apply(&self, structure: &Self::Structure, model: &mut Self::Model, step: &Self::Step) -> Checked<()>;

    /// Checks the structure, and says what it holds.
    fn observe(&self, structure: &mut Self::Structure) -> Checked<Self::Model>;

    /// Checks that a structure which holds this can be used further.
    fn work_on(&self, structure: &mut Self::Structure, model: Self::Model) -> Checked<()>;

    /// All flushes and fences that belong to the structure, and not to what lies below it. The
    /// [`gate`] fails if it does not come to one of them.
    fn places(&self) -> Vec<Place>;

    /// Of a flush or fence whose loss no history of steps one after the other shows: file and name
    /// of the test that does.
    fn shown_by(&self, dropped: &Dropped) -> Option<&'static str> {
        let _ = dropped;
        None
    }
}

/// Runs something of a subject; a panic is something wrong as well.
fn guarded<T>(run: impl FnOnce() -> Checked<T>) -> Checked<T> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message");
        Err(format!("a panic: {text}"))
    })
}

/// Makes or opens a structure, without an instruction that may be left out.
fn leaving_out<T>(dropped: Option<&Dropped>, run: impl FnOnce() -> T) -> T {
    match dropped {
        None => run(),
        Some(Dropped { instruction, site }) => Dropping::<Traced>::leaving_out(*instruction, site, run),
    }
}

/// Recovers under a controller, without an instruction that may be left out, and looks what is
/// there.
fn recover<S: Subject>(subject: &S, controller: &Controller, dropped: Option<&Dropped>) -> Checked<S::Model> {
    let storage = controller.storage();
    guarded(|| {
        let mut structure = leaving_out(dropped, || subject.open(&*storage))?;
        subject.observe(&mut structure)
    })
}
