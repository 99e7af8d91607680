//! Conditions as text. Parsing the text gives the same condition.

use std::fmt::{self, Display};

use super::lexer::{begins_word, continues_word};
use super::literal::quote;
use super::parse::KEYWORDS;
use super::{Condition, Literal, Node, Operator};

/// Writes the condition in its own language. A condition that is nested too deeply is marked as
/// such.
impl Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_node(f, &self.node, Binding::Or)
    }
}

impl Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        })
    }
}

/// How tightly the surroundings of a node bind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Binding {
    Or,
    And,
    Not,
}

fn write_node(f: &mut fmt::Formatter<'_>, node: &Node, place: Binding) -> fmt::Result {
    match node {
        Node::Or(parts) => write_joined(f, parts, " or ", Binding::And, place > Binding::Or),
        Node::And(parts) => write_joined(f, parts, " and ", Binding::Not, place > Binding::And),
        Node::Not(inner) => match &**inner {
            Node::Between { .. } | Node::In { .. } | Node::IsNull(_) | Node::Match { .. } => {
                write_predicate(f, inner, "not ")
            }
            inner => {
                f.write_str("not ")?;
                write_node(f, inner, Binding::Not)
            }
        },
        predicate => write_predicate(f, predicate, ""),
    }
}

fn write_joined(
    f: &mut fmt::Formatter<'_>,
    parts: &[Node],
    word: &str,
    place: Binding,
    in_parentheses: bool,
) -> fmt::Result {
    f.write_str(if in_parentheses { "(" } else { "" })?;
    for (number, part) in parts.iter().enumerate() {
        f.write_str(if number > 0 { word } else { "" })?;
        write_node(f, part, place)?;
    }
    f.write_str(if in_parentheses { ")" } else { "" })
}

/// Writes a predicate, with `not` behind the column.
fn write_predicate(f: &mut fmt::Formatter<'_>, node: &Node, not: &str) -> fmt::Result {
    match node {
        Node::Compare { column, operator, literal } => write!(f, "{} {operator} {literal}", Name(column)),
        Node::Between { column, low, high } => write!(f, "{} {not}between {low} and {high}", Name(column)),
        Node::In { column, items } => {
            write!(f, "{} {not}in (", Name(column))?;
            write_list(f, items)?;
            f.write_str(")")
        }
        Node::IsNull(column) => write!(f, "{} is {not}null", Name(column)),
        Node::Flag(column) => Name(column).fmt(f),
        Node::Match { column, text } => {
            match column {
                Some(column) => Name(column).fmt(f)?,
                None => f.write_str("*")?,
            }
            write!(f, " {not}match ")?;
            quote(f, text, '\'')
        }
        Node::TooDeep => f.write_str("(nested too deeply)"),
        Node::And(_) | Node::Or(_) | Node::Not(_) => write_node(f, node, Binding::Not),
    }
}

fn write_list(f: &mut fmt::Formatter<'_>, items: &[Literal]) -> fmt::Result {
    for (number, item) in items.iter().enumerate() {
        f.write_str(if number > 0 { ", " } else { "" })?;
        item.fmt(f)?;
    }
    Ok(())
}

/// The name of a column, in quotes where it needs them.
struct Name<'n>(&'n str);

impl Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_keyword = KEYWORDS.iter().any(|keyword| self.0.eq_ignore_ascii_case(keyword));
        if !is_keyword && self.0.starts_with(begins_word) && self.0.chars().all(continues_word) {
            f.write_str(self.0)
        } else {
            quote(f, self.0, '"')
        }
    }
}
