//! Members of GeoJSON objects that GeoJSON does not define (RFC 7946, section 6.1): no column takes them,
//! so they are told of.

use std::fmt;

use crate::quoted::quoted;

/// Most names that are kept and told of, so that memory and messages stay small whatever the records have.
const NAMES_MAX: usize = 10;

/// The names of members that were not taken.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ForeignMembers {
    /// Names as they are shown, in the order in which they were met.
    names: Vec<String>,
    has_more: bool,
}

impl ForeignMembers {
    /// Adds those of a record; true if there is more to tell than before.
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

    /// Adds a name as it is shown; true if there is more to tell than before.
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
            "members that mean nothing in GeoJSON are not taken: {}{others}; move them into the features' properties",
            self.names.join(", ")
        )
    }
}
