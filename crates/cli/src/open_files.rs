//! The process's limit on open files.

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the limit as far as the process may. Every component of a store is an open file, and the
/// usual soft limit is low for the sake of programs that use `select`.
pub fn raise_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        // The current limit may suffice.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}
