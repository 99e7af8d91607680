//! The flags of `terrane drop`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
Drops the dataset in one step, with its records, indexes, feeds and policy. After a crash, all of
it exists or nothing. Its name can be used again. To replace the records and keep indexes and
policy, use `terrane import --mode replace`.

Example:
  terrane drop s.terrane rides")]
pub struct DropArguments {
    /// Directory of the store.
    pub store: PathBuf,
    /// Dataset to drop.
    pub dataset: String,
}
