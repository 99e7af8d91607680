//! Progress messages on standard error.

/// Reports the present step.
pub fn progress(message: &str) {
    eprintln!("terrane-lab: {message}");
}

/// Warns if times mean nothing.
pub fn warn_of_debug_build() {
    if cfg!(debug_assertions) {
        progress("this is a debug build: its times mean nothing, build with --release");
    }
}
