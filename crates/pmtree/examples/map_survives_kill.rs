//! A persistent map on an ordinary file. The program starts itself, kills itself in the middle of
//! changes, and proves that no acknowledged one is missing. No file is ever synced.
//!
//! ```console
//! cargo run --release -p terrane-pmtree --example map_survives_kill
//! ```

mod killed;

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use terrane_pmtree::map::{Map, Options};
use terrane_storage::RealStorage;

/// Changes after which the process is killed.
const ACKNOWLEDGED: u64 = 20_000;

/// Keys whose values are replaced again and again.
const KEYS: u64 = 5_000;

fn main() -> ExitCode {
    let outcome = match std::env::args_os().nth(1) {
        Some(directory) => change_until_killed(Path::new(&directory)),
        None => kill_and_prove(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn key(number: u64) -> String {
    format!("page/{}", number % KEYS)
}

/// The number, and up to two kilobytes.
fn value(number: u64) -> Vec<u8> {
    let mut value = number.to_le_bytes().to_vec();
    value.resize(8 + (number * 97 % 2000) as usize, number as u8);
    value
}

fn change_until_killed(directory: &Path) -> Result<(), Box<dyn Error>> {
    let map: Map<str> = Map::open(&RealStorage::new(directory), "map", &Options::new())?;
    let mut out = std::io::stdout().lock();
    for number in 0.. {
        map.upsert(&key(number), &value(number))?;
        writeln!(out, "{number}")?;
        out.flush()?;
    }
    Ok(())
}

fn kill_and_prove() -> Result<(), Box<dyn Error>> {
    let create = |directory: &Path| Map::<str>::create(&RealStorage::new(directory), "map", &Options::new()).map(drop);
    let directory = killed::folder(create)?;
    let acknowledged = killed::run_and_kill(directory.path(), ACKNOWLEDGED)?;
    let started = Instant::now();
    let mut map: Map<str> = Map::open(&RealStorage::new(directory.path()), "map", &Options::new())?;
    let opened = started.elapsed();
    for number in acknowledged - KEYS..acknowledged {
        let found = map.get(&key(number))?.ok_or("a key is missing")?;
        // One more change may have been made than was acknowledged.
        if found != value(number) && found != value(number + KEYS) {
            return Err(format!("{number} was acknowledged, and its key has another value").into());
        }
    }
    let census = map.check()?;
    println!(
        "killed after {acknowledged} acknowledged changes; opened in {opened:?}: {} entries, {} with blocks of their \
         own, none of the acknowledged values missing",
        census.entries, census.long_values
    );
    map.close()?;
    Ok(())
}
