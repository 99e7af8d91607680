//! The process's limit on open files.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the limit as far as the process may: every component of a store is an open file, and the usual
/// soft limit is for programs that wait with `select`.
pub fn raise_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        // As many as there are may do.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}
