//! Members of GeoJSON objects that GeoJSON does not define (RFC 7946, section 6.1). No column takes
//! them, and a notice names them.

use std::fmt;

use crate::quoted::quoted;

/// Most names that are kept and shown. It bounds memory and message length, whatever the records
/// have.
const NAMES_MAX: usize = 10;

/// The names of members that were ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ForeignMembers {
    /// Names as they are shown, in the order of their first occurrence.
    names: Vec<String>,
    has_more: bool,
}

impl ForeignMembers {
    /// Adds those of a record; true if that changes the notice.
    pub fn note(&mut self, names: &[String]) -> bool {
        names.iter().fold(false, |has_news, name| self.add(quoted(name)) | has_news)
    }

    /// Adds those of later records.
    pub(crate) fn merge(&mut self, later: ForeignMembers) {
        for name in later.names {
            self.add(name);
        }
        self.has_more |= later.has_more;
    }

    /// Adds a name as it is shown; true if that changes the notice.
    fn add(&mut self, name: String) -> bool {
        if self.names.contains(&name) {
            return false;
        }
        if self.names.len() < NAMES_MAX {
            self.names.push(name);
            return true;
        }
        !std::mem::replace(&mut self.has_more, true)
    }

    /// Whether there were none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

impl fmt::Display for ForeignMembers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let others = if self.has_more { " and others" } else { "" };
        write!(
            f,
            "members that GeoJSON does not define are ignored: {}{others}; move them into the features' properties",
            self.names.join(", ")
        )
    }
}
