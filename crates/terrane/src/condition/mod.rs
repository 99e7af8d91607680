//! Conditions on the attributes and the key of a record.
//!
//! A [`Condition`] is parsed from text ([`Condition::parse`]) or built by constructors, without a
//! schema.
//!
//! Bound to a schema (`bind.rs`), it is evaluated on records (`bound.rs`) with SQL's three truth
//! values. A comparison with null is neither true nor false, and a record meets a condition if the
//! result is true. `implied.rs` derives facts about single columns, from which an access path is
//! chosen. `docs/conditions.md` describes the language.

mod bind;
mod bound;
mod display;
mod domain;
mod error;
mod implied;
mod lexer;
mod literal;
mod notices;
mod number;
mod parse;
mod text;

#[cfg(test)]
mod plans;
#[cfg(test)]
mod tests;

pub(crate) use bound::{Attributes, BoundCondition, Texts};
pub(crate) use domain::Domain;
pub use error::ConditionError;
pub(crate) use implied::{Implied, ScatteredWords};
pub use literal::Literal;
pub use text::RequiredWords;
pub(crate) use text::words;

/// Maximal length of a condition's text in bytes.
pub const CONDITION_BYTES_MAX: usize = 1 << 20;
/// Maximal nesting of a condition: parentheses and `not`s inside each other, or `and` and `or` in
/// turn.
pub const CONDITION_DEPTH_MAX: usize = 100;
/// Maximal number of literals of one `in`.
pub const IN_ITEMS_MAX: usize = 10_000;

/// A condition on the attributes and the key of a record.
///
/// ```
/// use terrane::Condition;
///
/// # fn main() -> Result<(), terrane::ConditionError> {
/// let read = Condition::parse("size >= 3 and name match 'north station'")?;
/// let station = Condition::on("name").matches("north station");
/// let made = Condition::on("size").at_least(3).and(station);
/// assert_eq!(read, made);
/// assert_eq!(made.to_string(), "size >= 3 and name match 'north station'");
/// # Ok(())
/// # }
/// ```
///
/// Null behaves as in SQL. A comparison with null is unknown, and so is `not` of unknown. A record
/// meets a condition only if it is true. So each record meets exactly one of `p`, `not p` and "`p`
/// is unknown".
///
/// NaN equals NaN and is greater than every number. Integers and floats
/// are compared by their exact values, texts and binary data by their bytes.
///
/// Constructors never fail. The query refuses a condition that is nested too deeply or does not fit
/// the dataset's schema.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    node: Node,
    /// Number of nested nodes.
    depth: usize,
}

/// The syntax tree of a condition. Only the constructors of [`Condition`] make trees, so equal
/// texts have equal trees.
#[derive(Clone, Debug, PartialEq)]
enum Node {
    /// At least two nodes, none of them an `And`.
    And(Vec<Node>),
    /// At least two nodes, none of them an `Or`.
    Or(Vec<Node>),
    Not(Box<Node>),
    Compare {
        column: String,
        operator: Operator,
        literal: Literal,
    },
    /// Both ends are included.
    Between {
        column: String,
        low: Literal,
        high: Literal,
    },
    In {
        column: String,
        items: Vec<Literal>,
    },
    IsNull(String),
    /// A boolean column by itself.
    Flag(String),
    /// Every word occurs in the column. Without a column, every word occurs in some text column.
    Match {
        column: Option<String>,
        text: String,
    },
    /// Replaces nodes nested deeper than [`CONDITION_DEPTH_MAX`], so that no tree exhausts the
    /// stack.
    TooDeep,
}

/// A comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A column for which a condition is being built: see [`Condition::on`].
#[derive(Clone, Debug)]
#[must_use = "add a comparison"]
pub struct ConditionColumn(String);

impl Condition {
    /// Parses a condition.
    ///
    /// # Errors
    /// [`ConditionError::Syntax`] with the position; a text that is too long.
    pub fn parse(text: &str) -> Result<Self, ConditionError> {
        parse::parse(text)
    }

    /// Begins a condition on a column, the key's or an attribute's.
    pub fn on(column: impl Into<String>) -> ConditionColumn {
        ConditionColumn(column.into())
    }

    /// Every word of the text occurs in some text column, not necessarily the same for all.
    pub fn matches_anywhere(text: impl Into<String>) -> Self {
        Self::leaf(Node::Match { column: None, text: text.into() })
    }

    /// Both conditions.
    pub fn and(self, other: Self) -> Self {
        self.joined(other, Node::And, |node| match node {
            Node::And(parts) => Ok(parts),
            other => Err(other),
        })
    }

    /// One of the two conditions, or both.
    pub fn or(self, other: Self) -> Self {
        self.joined(other, Node::Or, |node| match node {
            Node::Or(parts) => Ok(parts),
            other => Err(other),
        })
    }

    /// Joins two conditions. Parts of the same kind become one list.
    fn joined(self, other: Self, join: fn(Vec<Node>) -> Node, parts: fn(Node) -> Result<Vec<Node>, Node>) -> Self {
        let mut depth = 0;
        let mut take = |condition: Self| match parts(condition.node) {
            Ok(parts) => {
                depth = depth.max(condition.depth);
                parts
            }
            Err(node) => {
                depth = depth.max(condition.depth + 1);
                vec![node]
            }
        };
        let mut joined = take(self);
        joined.append(&mut take(other));
        Self::of(join(joined), depth)
    }

    fn leaf(node: Node) -> Self {
        Self { node, depth: 1 }
    }

    fn of(node: Node, depth: usize) -> Self {
        match depth > CONDITION_DEPTH_MAX {
            true => Self { node: Node::TooDeep, depth },
            false => Self { node, depth },
        }
    }
}

/// The negation. Unknown stays unknown.
impl std::ops::Not for Condition {
    type Output = Self;

    fn not(self) -> Self {
        Self::of(Node::Not(Box::new(self.node)), self.depth + 1)
    }
}

impl std::str::FromStr for Condition {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Self, ConditionError> {
        Self::parse(text)
    }
}

impl ConditionColumn {
    fn compare(self, operator: Operator, literal: impl Into<Literal>) -> Condition {
        Condition::leaf(Node::Compare { column: self.0, operator, literal: literal.into() })
    }

    /// The column equals the literal.
    pub fn equals(self, literal: impl Into<Literal>) -> Condition {
        self.compare(Operator::Equal, literal)
    }

    /// The column does not equal the literal.
    pub fn differs_from(self, literal: impl Into<Literal>) -> Condition {
        self.compare(Operator::NotEqual, literal)
    }

    /// The column is less than the literal.
    pub fn less_than(self, literal: impl Into<Literal>) -> Condition {
        self.compare(Operator::Less, literal)
    }

    /// The column is less than the literal or equals it.
    pub fn at_most(self, literal: impl Into<Literal>) -> Condition {
        self.compare(Operator::LessOrEqual, literal)
    }

    /// The column is greater than the literal.
    pub fn greater_than(self, literal: impl Into<Literal>) -> Condition {
        self.compare(Operator::Greater, literal)
    }

    /// The column is greater than the literal or equals it.
    pub fn at_least(self, literal: impl Into<Literal>) -> Condition {
        self.compare(Operator::GreaterOrEqual, literal)
    }

    /// The column lies between two literals, or equals one of them.
    pub fn between(self, low: impl Into<Literal>, high: impl Into<Literal>) -> Condition {
        Condition::leaf(Node::Between { column: self.0, low: low.into(), high: high.into() })
    }

    /// The column equals one of the literals; at most [`IN_ITEMS_MAX`] are possible.
    pub fn one_of(self, literals: impl IntoIterator<Item = impl Into<Literal>>) -> Condition {
        let items = literals.into_iter().map(Into::into).collect();
        Condition::leaf(Node::In { column: self.0, items })
    }

    /// The column has no value.
    pub fn is_null(self) -> Condition {
        Condition::leaf(Node::IsNull(self.0))
    }

    /// The column has a value.
    pub fn is_not_null(self) -> Condition {
        !self.is_null()
    }

    /// The boolean column is true.
    pub fn is_true(self) -> Condition {
        Condition::leaf(Node::Flag(self.0))
    }

    /// Every word of the text occurs in the column, in any order. Words are those of Unicode (UAX
    /// 29), in lower case.
    pub fn matches(self, text: impl Into<String>) -> Condition {
        Condition::leaf(Node::Match { column: Some(self.0), text: text.into() })
    }
}
