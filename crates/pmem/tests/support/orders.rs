//! Orders of threads that are drawn from a seed. With TERRANE_SOAK=1 there are many more.

use shuttle::Runner;
use shuttle::scheduler::{PctScheduler, RandomScheduler};

/// Runs a body with many seeds, and with each in so many orders, drawn at random or, every second time, with few switches;
/// prints the seed that fails. `test` is a part of the test's name.
pub fn explore(test: &str, orders: usize, body: fn(u64)) {
    let seeds = match std::env::var("TERRANE_TEST_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None if std::env::var_os("TERRANE_SOAK").is_some() => 0..5000u64,
        None => 0..48,
    };
    for seed in seeds {
        let run = move || match seed % 2 {
            0 => Runner::new(RandomScheduler::new_from_seed(seed, orders), config()).run(move || body(seed)),
            _ => Runner::new(PctScheduler::new_from_seed(seed, 3, orders), config()).run(move || body(seed)),
        };
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!("seed {seed}; replay with TERRANE_TEST_SEED={seed} make shuttle TEST={test}");
            std::panic::resume_unwind(panic);
        }
    }
}

fn config() -> shuttle::Config {
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 20;
    config
}
