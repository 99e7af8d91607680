//! What goes on, on standard error.

/// Says what is done now.
pub fn progress(message: &str) {
    eprintln!("terrane-lab: {message}");
}

/// Says that times mean nothing, where they do not.
pub fn warn_of_debug_build() {
    if cfg!(debug_assertions) {
        progress("this is a debug build: its times mean nothing, build with --release");
    }
}
