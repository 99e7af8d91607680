//! Orders of threads that are drawn from a seed. With TERRANE_SOAK=1 there are many more.
//!
//! A failure is made small: steps of its threads are left out as long as it still fails with the
//! same seed.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::str::FromStr;
use std::sync::Once;

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{FailurePersistence, Runner};

const SEED: &str = "TERRANE_TEST_SEED";
const WITHOUT: &str = "TERRANE_TEST_WITHOUT";

/// Factor for the number of orders if steps are left out.
const MORE_ORDERS: usize = 16;

/// Runs a body with many seeds, each in `orders` orders. They are drawn at random or, every second
/// time, with few switches. Prints the seed that fails. `test` is a part of the test's name.
pub fn explore(test: &str, orders: usize, body: fn(u64)) {
    let seeds = match std::env::var(SEED).ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None if crate::is_soak() => 0..5000u64,
        None => 0..12,
    };
    for seed in seeds {
        run_seed(test, seed, || run_orders(seed, orders, body));
    }
}

/// Runs a body with a seed in `orders` orders. Without some of its steps it runs more, as the
/// failing order comes later then.
pub fn run_orders(seed: u64, orders: usize, body: fn(u64)) {
    let orders = if LEFT_OUT.with_borrow(|left_out| left_out.0.is_empty()) { orders } else { orders * MORE_ORDERS };
    match seed % 2 {
        0 => Runner::new(RandomScheduler::new_from_seed(seed, orders), config()).run(move || body(seed)),
        _ => Runner::new(PctScheduler::new_from_seed(seed, 3, orders), config()).run(move || body(seed)),
    };
}

fn config() -> shuttle::Config {
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 20;
    // The seed determines everything.
    config.failure_persistence = FailurePersistence::None;
    config
}

/// Runs all orders of a seed. If one fails, runs again without the steps that the failure does not
/// need, and prints how to replay that. The steps are those that threads pass to [`is_kept`].
pub fn run_seed(test: &str, seed: u64, run: impl Fn()) {
    let left_out = match std::env::var(WITHOUT) {
        Ok(text) => text.parse().unwrap_or_else(|what| panic!("{WITHOUT}: {what}")),
        Err(_) => LeftOut::default(),
    };
    let Err(mut panic) = run_without(&left_out, &run) else { return };
    // A replayed failure is small already.
    let smallest = if left_out.0.is_empty() { shrink(&run) } else { left_out.clone() };
    if smallest != left_out {
        eprintln!("the same seed with fewer steps:");
        panic = run_without(&smallest, &run).err().unwrap_or(panic);
    }
    let without = if smallest.0.is_empty() { String::new() } else { format!(" {WITHOUT}={smallest}") };
    eprintln!("seed {seed}; replay with {SEED}={seed}{without} make shuttle TEST={test}");
    panic::resume_unwind(panic);
}

/// A thread's number, and a step's among its own.
type Step = (usize, usize);

/// Steps that are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut(pub BTreeSet<Step>);

impl fmt::Display for LeftOut {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps: Vec<String> = self.0.iter().map(|(thread, step)| format!("{thread}.{step}")).collect();
        formatter.write_str(&steps.join(","))
    }
}

impl FromStr for LeftOut {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let step = |text: &str| Some(text.split_once('.')?).and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        let steps = text.split(',').map(|text| step(text).ok_or(format!("{text:?} is not a step such as 0.2")));
        steps.collect::<Result<_, _>>().map(Self)
    }
}

thread_local! {
    // Shuttle runs all tasks on the thread that runs the test.
    static LEFT_OUT: RefCell<LeftOut> = RefCell::default();
    static ASKED: RefCell<BTreeSet<Step>> = RefCell::default();
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Whether a thread takes one of its steps. Its random values are drawn in any case, so that the
/// others stay the same.
pub fn is_kept(thread: usize, step: usize) -> bool {
    ASKED.with_borrow_mut(|asked| asked.insert((thread, step)));
    LEFT_OUT.with_borrow(|left_out| !left_out.0.contains(&(thread, step)))
}

/// Runs without some steps. Gives the panic of a failure.
pub fn run_without(left_out: &LeftOut, run: &impl Fn()) -> Result<(), Box<dyn Any + Send>> {
    ASKED.take();
    LEFT_OUT.set(left_out.clone());
    let done = panic::catch_unwind(AssertUnwindSafe(run));
    LEFT_OUT.take();
    done
}

/// The steps that the last failure does not need. It needs all others.
pub fn shrink(run: &impl Fn()) -> LeftOut {
    let mut left_out = LeftOut::default();
    let asked = ASKED.with_borrow(BTreeSet::clone);
    let threads: BTreeSet<usize> = asked.iter().map(|(thread, _)| *thread).collect();
    let whole = threads.iter().map(|thread| asked.iter().copied().filter(|step| step.0 == *thread).collect());
    let parts: Vec<BTreeSet<Step>> = whole.chain(asked.iter().map(|step| BTreeSet::from([*step]))).collect();
    loop {
        let before = left_out.0.len();
        for part in &parts {
            let more = LeftOut(&left_out.0 | part);
            if more != left_out && quietly(|| run_without(&more, run)).is_err() {
                left_out = more;
            }
        }
        // Without one step, another one may be needless too.
        if left_out.0.len() == before {
            return left_out;
        }
    }
}

/// Runs without messages of panics of this thread.
fn quietly<T>(run: impl FnOnce() -> T) -> T {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let tell = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !IS_QUIET.get() {
                tell(info);
            }
        }));
    });
    IS_QUIET.set(true);
    let done = run();
    IS_QUIET.set(false);
    done
}
