//! The process's limit on the size of files.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::SIGXFSZ;
use signal_hook::flag;

/// Has a write beyond the limit fail as on a full disk, where the signal would end the process without a word.
pub fn report_limit() {
    // Where it cannot be had, the process ends as others do.
    let _ = flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
}
