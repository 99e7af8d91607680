//! The flags of `terrane drop`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
All of the dataset goes in one step: its records, indexes, feeds and policy. A crash leaves all of it or
nothing. The name is free for another dataset then. To put other records in its place, and keep indexes
and policy, see `terrane import --mode replace`.

Example:
  terrane drop s.terrane rides")]
pub struct DropArguments {
    /// Directory of the store.
    pub store: PathBuf,
    /// Dataset to drop.
    pub dataset: String,
}
