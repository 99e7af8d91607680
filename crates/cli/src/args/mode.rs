//! What an import does with a dataset that exists.

use clap::{Args, ValueEnum};

/// Flags of the mode of an import.
#[derive(Clone, Copy, Debug, Args)]
pub struct ModeFlags {
    /// What becomes of a dataset that exists [default: create or append].
    #[arg(long, value_name = "MODE")]
    mode: Option<Mode>,
}

/// Modes of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Make the dataset; exit code 2 if it exists.
    Create,
    /// Add to the dataset; exit code 2 if it does not exist.
    Append,
    /// Make the dataset or add to it, and replace its records whose keys are imported. A key that comes twice in the files
    /// is refused, as in every mode.
    Upsert,
    /// Put the records and the columns of the files in the place of all that the dataset has. Partitions, policy and
    /// indexes are kept; feeds begin anew.
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
