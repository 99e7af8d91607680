//! The ids of stores, and the manifest of a new one.

use terrane_lsm::log::LogPosition;
use terrane_lsm::manifest::Manifest;
use terrane_storage::Storage;

use crate::options::Durability;
use crate::{Error, Result};

/// A number that tells stores apart, 32 hexadecimal digits. It has to be unlikely to repeat, not
/// hard to guess.
pub(crate) fn draw_id(storage: &dyn Storage) -> String {
    let seed = (storage.unix_time_ns(), storage.monotonic_ns(), std::process::id(), storage.describe());
    format!("{:032x}", xxhash_rust::xxh3::xxh3_128(format!("{seed:?}").as_bytes()))
}

/// The manifest of an empty store.
pub(super) fn first_manifest(storage: &dyn Storage, durability: Durability) -> Manifest {
    Manifest {
        store_id: draw_id(storage),
        branch: String::new(),
        generation: 0,
        durability: durability.name().into(),
        next_file_id: 1,
        next_dataset_id: 1,
        last_sequence: 0,
        low_water: LogPosition::START,
        datasets: Vec::new(),
    }
}

/// The id in a manifest.
pub(crate) fn store_id(manifest: &Manifest) -> Result<[u8; 16]> {
    let id = u128::from_str_radix(&manifest.store_id, 16)
        .map_err(|_| Error::damaged("MANIFEST", 0, "the store's id is not hexadecimal"))?;
    Ok(id.to_be_bytes())
}
