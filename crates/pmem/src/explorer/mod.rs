//! Searches for crashes that a structure in a pool does not survive. For tests and the laboratory.
//!
//! A [`Subject`] is a structure in one configuration. A [`History`] is a run of it under the crash
//! controller. Its crashes are the cuts between any two events, each with the states that a power
//! loss or a kill may leave. [`Explorer`] recovers from these images and demands durable
//! linearizability. So the contents are those after the last step that had returned, or after the
//! one in progress. The structure must also be usable then. Crashes inside of recovery and after it
//! are tried as well; [`Explorer::chain`] crashes many times in succession.
//!
//! Images with equal contents are recovered from once. Where all images of a cut are tried, they
//! branch only on lines that recovery reads ([`terrane_testkit::crash::Branches`]).
//!
//! [`sample`] draws histories. [`gate`] leaves out one flush or fence after the other, and each
//! loss has to be caught. [`Canary`] is wrong on purpose, and has to be caught too. [`shrink`]
//! makes a [`Failure`] small. It prints as a [`Case`] that [`replay`] runs again.

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

/// Result of a check; the error describes the problem.
pub type Checked<T> = Result<T, String>;

/// A structure in one configuration, as the explorer runs it.
///
/// It must be deterministic: the same calls make the same events. It reaches its words through
/// [`Dropping<Traced>`](Dropping), so that its flushes can be left out.
pub trait Subject: Sync {
    /// The structure in use.
    type Structure: Sync;
    /// An operation on it. It must make sense in every state, so that histories can be shortened.
    /// Its text has no blanks and no semicolons.
    type Step: Clone + Display + FromStr + Send + Sync;
    /// The contents of the structure, as a value; initially, the default.
    type Model: Clone + Default + PartialEq + Debug + Send;

    /// Name of the structure, such as `fbr`.
    fn structure(&self) -> &'static str;

    /// Name of the configuration, unique within the structure.
    fn configuration(&self) -> &str;

    /// The medium.
    fn domain(&self) -> PersistenceDomain;

    /// A new, empty structure in a pool of its own.
    fn create(&self, storage: &dyn Storage) -> Checked<Self::Structure>;

    /// Opens it again, with recovery. Creates the structure if a crash has left a pool without it.
    fn open(&self, storage: &dyn Storage) -> Checked<Self::Structure>;

    /// A random history for a seed.
    fn steps(&self, seed: u64) -> Vec<Self::Step>;

    /// Takes a step, in the structure and in its model, and compares the results.
    fn apply(&self, structure: &Self::Structure, model: &mut Self::Model, step: &Self::Step) -> Checked<()>;

    /// Checks the structure, and gives its contents.
    fn observe(&self, structure: &mut Self::Structure) -> Checked<Self::Model>;

    /// Checks that a structure with these contents can be used further.
    fn check_usable(&self, structure: &mut Self::Structure, model: Self::Model) -> Checked<()>;

    /// All flushes and fences of the structure itself, without those of lower layers. The [`gate`]
    /// fails if it does not reach one of them.
    fn places(&self) -> Vec<Place>;

    /// File and name of the test that shows the loss of a flush or fence, if no history of
    /// consecutive steps does.
    fn shown_by(&self, dropped: &Dropped) -> Option<&'static str> {
        let _ = dropped;
        None
    }
}

/// Runs a function of a subject. A panic is a problem as well.
fn guarded<T>(run: impl FnOnce() -> Checked<T>) -> Checked<T> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message");
        Err(format!("a panic: {text}"))
    })
}

/// Makes or opens a structure, with an instruction left out, if one is given.
fn leaving_out<T>(dropped: Option<&Dropped>, run: impl FnOnce() -> T) -> T {
    match dropped {
        None => run(),
        Some(Dropped { instruction, site }) => Dropping::<Traced>::leaving_out(*instruction, site, run),
    }
}

/// Recovers under a controller, with an instruction left out if one is given, and observes the
/// contents.
fn recover<S: Subject>(subject: &S, controller: &Controller, dropped: Option<&Dropped>) -> Checked<S::Model> {
    let storage = controller.storage();
    guarded(|| {
        let mut structure = leaving_out(dropped, || subject.open(&*storage))?;
        subject.observe(&mut structure)
    })
}
