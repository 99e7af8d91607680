//! The rules for names of files and directories, in any storage.

use std::io;

/// Refuses names that are empty, absolute or could leave the root.
pub fn check_file(name: &str) -> io::Result<()> {
    let well_formed =
        name.split('/').all(|part| !part.is_empty() && part != "." && part != ".." && !part.contains(['\0', '\\']));
    if well_formed {
        Ok(())
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the name must be relative to the root, with `/` between non-empty parts, none of them `.` or `..`",
        ))
    }
}

/// Like [`check_file`], but allows `""`, the root.
pub fn check_directory(name: &str) -> io::Result<()> {
    if name.is_empty() { Ok(()) } else { check_file(name) }
}

/// The directory that holds a name (`""` is the root).
pub fn parent(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// All directories above a name, without the root, the outermost first.
pub fn ancestors(name: &str) -> impl Iterator<Item = &str> {
    name.match_indices('/').map(|(end, _)| &name[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_leave_the_root_are_refused() {
        for name in ["", "/", "/etc/passwd", "..", "a/../../b", "a//b", "a/", "./a", "a\0b", "a\\b"] {
            assert!(check_file(name).is_err(), "{name:?}");
        }
        for name in ["a", "a/b", "a/..b", ".hidden", "ä/1.tc"] {
            assert!(check_file(name).is_ok(), "{name:?}");
        }
        assert!(check_directory("").is_ok());
    }

    #[test]
    fn parents_and_ancestors() {
        assert_eq!(parent("a"), "");
        assert_eq!(parent("a/b/c"), "a/b");
        assert_eq!(ancestors("a/b/c").collect::<Vec<_>>(), ["a", "a/b"]);
    }
}
