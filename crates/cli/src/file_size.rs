//! The process's limit on the size of files.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::SIGXFSZ;
use signal_hook::flag;

/// Makes a write beyond the limit fail as on a full disk. By default, a signal would end the
/// process silently.
pub fn report_limit() {
    // If this fails, the signal ends the process.
    let _ = flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
}
