//! Names of datasets and of what belongs to them.

use crate::{Error, Result};

/// Refuses what is no name for a dataset.
///
/// # Errors
/// [`Error::Usage`], which says what names are.
pub fn check_dataset_name(name: &str) -> Result<()> {
    check_name("a dataset", name)
}

/// Names are shown in messages and written on command lines: no control characters, no slash.
pub(crate) fn check_name(what: &str, name: &str) -> Result<()> {
    let fits = !name.is_empty()
        && name.len() <= 255
        && !name.chars().any(|c| c.is_control() || c == '/')
        && !name.starts_with('-');
    if fits {
        Ok(())
    } else {
        Err(Error::usage(format!(
            "{name:?} is no name for {what}: 1 to 255 bytes without control characters and slashes, not starting with a hyphen"
        )))
    }
}
