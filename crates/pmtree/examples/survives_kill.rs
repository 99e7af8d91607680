//! Trees on ordinary files that survive SIGKILL. For each tree, the program starts itself, kills
//! itself in the middle of insertions, and proves that no acknowledged one is missing. The file
//! lies in TMPDIR. If that file system cannot keep it, as in many containers, it lies in /dev/shm.
//!
//! ```console
//! cargo run --release -p terrane-pmtree --example survives_kill
//! ```

mod killed;

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use terrane_pmtree::fbr::{self, FbrTree};
use terrane_pmtree::pear::{self, PearTree};
use terrane_pmtree::pmr::{self, PmrTree};
use terrane_pmtree::{Census, PersistenceDomain, PersistentRTree, PersistentTree, Rect};
use terrane_storage::RealStorage;

/// Insertions after which the process is killed.
const ACKNOWLEDGED: u64 = 20_000;

/// The names of the pools.
const FBR: &str = "fbr-tree";
const PMR: &str = "pm-rtree";
const PEAR: &str = "pear-tree";

/// A tree with a census, as all R-trees have.
trait Tree: Sized + PersistentRTree<2> + PersistentTree<Census = Census> {}

impl<T: PersistentRTree<2> + PersistentTree<Census = Census>> Tree for T {}

fn main() -> ExitCode {
    let domain = PersistenceDomain::PageCache;
    let (fbr, pmr) = (fbr::Options::new(domain), pmr::Options::new(domain));
    // Room for some inner nodes in memory. The others lie in the file.
    let pear = pear::Options { budget: pear::Budget::Nodes(20), ..pear::Options::new(domain) };
    let outcome = match std::env::args_os().nth(1) {
        Some(directory) => {
            let directory = Path::new(&directory);
            match [PMR, PEAR].into_iter().find(|name| directory.join(name).exists()) {
                Some(PMR) => insert_until_killed::<PmrTree<2>>(directory, PMR, &pmr),
                Some(_) => insert_until_killed::<PearTree<2>>(directory, PEAR, &pear),
                None => insert_until_killed::<FbrTree<2>>(directory, FBR, &fbr),
            }
        }
        None => kill_and_prove::<FbrTree<2>>(FBR, &fbr)
            .and_then(|()| kill_and_prove::<PmrTree<2>>(PMR, &pmr))
            .and_then(|()| kill_and_prove::<PearTree<2>>(PEAR, &pear)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn rect(number: u64) -> Result<Rect<2>, terrane_pmtree::Error> {
    // Spread over a square without a pattern in their order.
    let scattered = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Rect::point([(scattered >> 40) as f64, (scattered >> 16 & 0xff_ffff) as f64])
}

fn insert_until_killed<T: Tree>(directory: &Path, name: &str, options: &T::Options) -> Result<(), Box<dyn Error>> {
    let tree = T::open(&RealStorage::new(directory), name, options)?;
    let mut out = std::io::stdout().lock();
    for number in 0.. {
        tree.insert(&rect(number)?, number)?;
        writeln!(out, "{number}")?;
        out.flush()?;
    }
    Ok(())
}

fn kill_and_prove<T: Tree>(name: &str, options: &T::Options) -> Result<(), Box<dyn Error>> {
    let create = |directory: &Path| T::create(&RealStorage::new(directory), name, options).map(drop);
    let directory = killed::folder(create)?;
    let acknowledged = killed::run_and_kill(directory.path(), ACKNOWLEDGED)?;
    let started = Instant::now();
    let mut tree = T::open(&RealStorage::new(directory.path()), name, options)?;
    let opened = started.elapsed();
    for number in 0..acknowledged {
        if !tree.contains(&rect(number)?, number)? {
            return Err(format!("{number} was acknowledged and is not there").into());
        }
    }
    let mut hits = 0;
    let window = Rect::new([0.0; 2], [(1 << 23) as f64; 2])?;
    tree.window(&window, &mut |_, _| hits += 1)?;
    let census = tree.check()?;
    println!(
        "{name}: killed after {acknowledged} acknowledged insertions; opened in {opened:?}: {} entries in {} leaves, none of the \
         acknowledged ones missing; {hits} in a quarter of the plane",
        census.entries, census.leaves
    );
    Box::new(tree).close()?;
    Ok(())
}
