//! Warnings about conditions that may not mean what they say.

use terrane_literal::Time;

use super::{Condition, Literal, Node};
use crate::schema::{ColumnType, Schema};

impl Condition {
    /// Warns about comparisons that are valid and rarely intended: of a text column with a date or
    /// timestamp, which compares letters and not times. There is one message per column.
    pub fn notices(&self, schema: &Schema) -> Vec<String> {
        let mut notices = Vec::new();
        visit(&self.node, &mut |column, literal| {
            let is_text = schema.column(column).is_some_and(|column| column.column_type == ColumnType::Utf8);
            let notice = match literal {
                Literal::Text(text) if is_text && Time::of(text).is_some() => format!(
                    "column {column:?} is text and compared with '{text}' letter by letter, not as a time; a time column \
                     is made by importing it with its type"
                ),
                _ => return,
            };
            if !notices.contains(&notice) {
                notices.push(notice);
            }
        });
        notices
    }
}

/// Visits each column with each literal that it is compared with.
fn visit<'n>(node: &'n Node, visited: &mut impl FnMut(&'n str, &'n Literal)) {
    match node {
        Node::And(parts) | Node::Or(parts) => parts.iter().for_each(|part| visit(part, visited)),
        Node::Not(inner) => visit(inner, visited),
        Node::Compare { column, literal, .. } => visited(column, literal),
        Node::Between { column, low, high } => [low, high].into_iter().for_each(|end| visited(column, end)),
        Node::In { column, items } => items.iter().for_each(|item| visited(column, item)),
        Node::IsNull(_) | Node::Flag(_) | Node::Match { .. } | Node::TooDeep => {}
    }
}
