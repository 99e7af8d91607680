//! Every system the laboratory knows, in the order tables show them.

mod pools;
mod terrane;

use anyhow::{Result, bail};

use crate::system::System;

/// Terrane's first, then their peers.
pub fn all() -> Vec<Box<dyn System>> {
    let grown = pools::PoolTree::ALL.map(|tree| -> Box<dyn System> { Box::new(tree) });
    terrane::systems().into_iter().chain(grown).chain(peers()).collect()
}

#[cfg(feature = "peers")]
fn peers() -> Vec<Box<dyn System>> {
    crate::peers::systems()
}

#[cfg(not(feature = "peers"))]
fn peers() -> Vec<Box<dyn System>> {
    Vec::new()
}

/// The system of that name. The error lists the existing names.
pub fn by_name(name: &str) -> Result<Box<dyn System>> {
    let mut systems = all();
    match systems.iter().position(|system| system.name() == name) {
        Some(place) => Ok(systems.swap_remove(place)),
        None => {
            let names: Vec<_> = systems.iter().map(|system| system.name()).collect();
            bail!("no system {name}; there are: {}", names.join(", "))
        }
    }
}
