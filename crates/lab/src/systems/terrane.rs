//! Terrane under comparison: the only file of the laboratory that knows the store's interface.

use crate::system::System;

/// Terrane in each durability mode that is compared.
pub fn systems() -> Vec<Box<dyn System>> {
    Vec::new()
}
