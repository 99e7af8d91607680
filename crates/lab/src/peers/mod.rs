//! The peers of Terrane: two trees in memory, an embedded database with an R-tree, and the bare
//! disk.

mod geo_index;
mod maps;
mod rstar;
mod sqlite;

pub use maps::map;

use crate::system::System;

/// All peers.
pub fn systems() -> Vec<Box<dyn System>> {
    vec![
        Box::new(geo_index::GeoIndex),
        Box::new(rstar::Rstar::BulkLoaded),
        Box::new(rstar::Rstar::Dynamic),
        Box::new(sqlite::Sqlite::Full),
        Box::new(sqlite::Sqlite::Normal),
        Box::new(sqlite::Sqlite::Off),
    ]
}

#[cfg(test)]
mod peers_tests;
