//! Members of GeoJSON objects that GeoJSON does not define (RFC 7946, section 6.1): no column takes them,
//! so they are told of.

use std::fmt;

use crate::source::quoted;

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
        let mut has_news = false;
        for name in names {
            let name = quoted(name);
            if self.names.contains(&name) {
                continue;
            }
            if self.names.len() < NAMES_MAX {
                self.names.push(name);
                has_news = true;
            } else {
                has_news |= !self.has_more;
                self.has_more = true;
            }
        }
        has_news
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
