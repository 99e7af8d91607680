//! Names of datasets and their parts.

use crate::{Error, Result};

/// Refuses an invalid dataset name.
///
/// # Errors
/// [`Error::Usage`], with the rules for names.
pub fn check_dataset_name(name: &str) -> Result<()> {
    check_name("a dataset", name)
}

/// Names appear in messages and on command lines, so they have no control characters and no slash.
pub(crate) fn check_name(what: &str, name: &str) -> Result<()> {
    let fits = !name.is_empty()
        && name.len() <= 255
        && !name.chars().any(|c| c.is_control() || c == '/')
        && !name.starts_with('-');
    if fits {
        Ok(())
    } else {
        Err(Error::usage(format!(
            "{name:?} is not a valid name for {what}: use 1 to 255 bytes without control characters and slashes, not starting with a hyphen"
        )))
    }
}
