//! Creates a directory whose own name is durable.

use std::fs;
use std::io;
use std::path::Path;

/// Creates a directory with its missing parents. A `sync` of the directory above makes each durable
/// before the next is created.
///
/// At most the deepest existing directory may therefore have a name that is not durable: its
/// creator was killed before the sync. That sync is repeated, whoever created the directory.
pub(crate) fn create_durably(root: &Path, sync: &mut dyn FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    let mut missing = Vec::new();
    let mut found = None;
    for directory in root.ancestors().filter(|directory| !directory.as_os_str().is_empty()) {
        if directory.exists() {
            found = Some(directory);
            break;
        }
        missing.push(directory);
    }
    if let Some(found) = found {
        // The path of `.` and the like does not tell the directory above.
        let whole = found.canonicalize();
        match sync(above(whole.as_deref().unwrap_or(found))) {
            // The directory above may belong to others, or lie on a file system that cannot be
            // written or synced.
            Err(error) if is_foreign(&error) => {}
            outcome => outcome?,
        }
    }
    for directory in missing.into_iter().rev() {
        match fs::create_dir(directory) {
            // Another process was faster.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => {}
            outcome => outcome?,
        }
        sync(above(directory))?;
    }
    if root.is_dir() { Ok(()) } else { Err(io::ErrorKind::NotADirectory.into()) }
}

fn above(directory: &Path) -> &Path {
    match directory.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => directory,
    }
}

fn is_foreign(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, PermissionDenied, ReadOnlyFilesystem, Unsupported};
    matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem | InvalidInput | Unsupported)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// Runs a creation that is killed at a sync, if a number is given; returns what was synced
    /// before.
    fn run(root: &Path, killed_at: Option<usize>) -> (Vec<PathBuf>, bool) {
        let mut synced = Vec::new();
        let outcome = create_durably(root, &mut |directory| {
            if Some(synced.len()) == killed_at {
                return Err(io::Error::other("killed"));
            }
            synced.push(directory.to_path_buf());
            Ok(())
        });
        (synced, outcome.is_ok())
    }

    #[test]
    fn every_name_is_synced_whenever_a_creation_before_was_killed() {
        for killed_at in 0..4 {
            let parent = tempfile::tempdir().unwrap();
            let root = parent.path().join("a/b/c");
            let (mut synced, complete) = run(&root, Some(killed_at));
            assert!(!complete, "killed at {killed_at}");
            let (again, complete) = run(&root, None);
            assert!(complete && root.is_dir(), "killed at {killed_at}");
            synced.extend(again);
            for directory in ["", "a", "a/b"] {
                let directory = parent.path().join(directory);
                assert!(synced.contains(&directory), "{} after a kill at {killed_at}: {synced:?}", directory.display());
            }
        }
    }

    #[test]
    fn an_existing_directory_has_its_name_synced_by_every_opening() {
        let parent = tempfile::tempdir().unwrap();
        let root = parent.path().join("store");
        fs::create_dir(&root).unwrap();
        assert_eq!(run(&root, None), (vec![parent.path().to_path_buf()], true));
    }

    #[test]
    fn a_place_that_is_nobody_elses_business_does_not_stand_in_the_way() {
        let parent = tempfile::tempdir().unwrap();
        let refuse = |kind: io::ErrorKind| create_durably(parent.path(), &mut |_| Err(kind.into()));
        assert!(refuse(io::ErrorKind::PermissionDenied).is_ok());
        assert!(refuse(io::ErrorKind::StorageFull).is_err());
    }

    #[test]
    fn a_file_in_the_way_is_an_error() {
        let parent = tempfile::tempdir().unwrap();
        fs::write(parent.path().join("file"), "").unwrap();
        for root in ["file", "file/store"] {
            assert!(!run(&parent.path().join(root), None).1, "{root}");
        }
    }
}
