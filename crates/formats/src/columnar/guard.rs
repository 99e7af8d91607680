//! Runs decoders of other crates, in which a damaged file may trigger a failed assertion. The panic
//! becomes an error about the file, and nothing is printed to standard error.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Once;

use crate::error::{FormatError, Location};

thread_local! {
    /// Whether this thread runs a decoder. Its panics are returned as errors and not printed.
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Makes the panic hook skip threads that run a decoder. For other threads, the previous hook runs.
fn install_hook() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !IS_GUARDED.try_with(Cell::get).unwrap_or(false) {
                previous(info);
            }
        }));
    });
}

/// Runs a decoder. If it panics, the file is damaged.
pub(crate) fn guarded<T>(path: &Path, decode: impl FnOnce() -> Result<T, FormatError>) -> Result<T, FormatError> {
    install_hook();
    let was_guarded = IS_GUARDED.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(decode));
    IS_GUARDED.set(was_guarded);
    outcome.unwrap_or_else(|payload| {
        let reason = format!("the content contradicts itself and cannot be decoded{}", reason_of(&*payload));
        Err(FormatError::damaged(path, Location::File, reason))
    })
}

/// The message of a panic, on one line.
fn reason_of(payload: &(dyn Any + Send)) -> String {
    let message = payload.downcast_ref::<&str>().copied().or(payload.downcast_ref::<String>().map(String::as_str));
    match message.and_then(|message| message.lines().next()) {
        Some(line) if !line.is_empty() => format!(" ({line})"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing<T>(reason: &'static str) -> Result<T, FormatError> {
        guarded(Path::new("a.parquet"), || panic!("{reason}"))
    }

    #[test]
    fn a_panic_becomes_an_error_that_keeps_its_reason() {
        let error = failing::<()>("5 is not 6\nand more").expect_err("a panic").to_string();
        assert_eq!(error, "a.parquet: the content contradicts itself and cannot be decoded (5 is not 6)");
        assert!(!IS_GUARDED.get());
    }

    #[test]
    fn an_inner_decoder_does_not_end_the_guard_of_an_outer_one() {
        let nested = guarded(Path::new("a"), || failing("inner").or_else(|_| Ok(IS_GUARDED.get())));
        assert_eq!(nested.ok(), Some(true));
    }
}
