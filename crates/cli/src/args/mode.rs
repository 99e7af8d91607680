//! What an import does with an existing dataset.

use clap::{Args, ValueEnum};

/// Flags of the mode of an import.
#[derive(Clone, Copy, Debug, Args)]
pub struct ModeFlags {
    /// How an existing dataset is treated [default: create or append].
    #[arg(long, value_name = "MODE")]
    mode: Option<Mode>,
}

/// Modes of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Create the dataset; exit code 2 if it exists.
    Create,
    /// Add to the dataset; exit code 2 if it does not exist.
    Append,
    /// Create the dataset or add to it, and replace its records whose keys are imported. A key that
    /// occurs twice in the files is refused, as in every mode.
    Upsert,
    /// Replace all records and columns of the dataset by those of the files. Partitions, policy and
    /// indexes are kept; feeds start from the beginning.
    Replace,
}

impl ModeFlags {
    pub fn get(self) -> terrane::ImportMode {
        self.mode.map_or(terrane::ImportMode::CreateOrAppend, |mode| match mode {
            Mode::Create => terrane::ImportMode::Create,
            Mode::Append => terrane::ImportMode::Append,
            Mode::Upsert => terrane::ImportMode::Upsert,
            Mode::Replace => terrane::ImportMode::Replace,
        })
    }
}
