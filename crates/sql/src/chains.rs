//! Long chains of operators: those of `AND` and `OR` become balanced trees, others are bounded.
//!
//! A chain of n terms is parsed as a tree n deep, and planning takes time with the square of its
//! depth.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Query, SetExpr, Value, VisitMut, VisitorMut};

/// Deepest chain that stays as it is parsed.
const CHAIN_MAX: usize = 32;
/// Deepest expression, and longest chain of set operations.
const DEPTH_MAX: usize = 1_000;

/// Balances the chains of a statement.
///
/// # Errors
/// An expression is too deep, or a chain of set operations too long.
pub(crate) fn balance<S: VisitMut>(statement: &mut S) -> Result<(), String> {
    match VisitMut::visit(statement, &mut Balancer { depth: 0 }) {
        ControlFlow::Break(reason) => Err(reason),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct Balancer {
    depth: usize,
}

impl VisitorMut for Balancer {
    type Break = String;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<String> {
        let mut operations = 0;
        let mut body = &*query.body;
        while let SetExpr::SetOperation { left, .. } = body {
            operations += 1;
            body = left;
        }
        match operations > DEPTH_MAX {
            true => ControlFlow::Break(format!(
                "the statement joins {operations} queries by UNION or the like; at most {DEPTH_MAX} are possible"
            )),
            false => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<String> {
        if let Expr::BinaryOp { op: op @ (BinaryOperator::And | BinaryOperator::Or), .. } = expr {
            let op = op.clone();
            if depth_of(expr, &op) > CHAIN_MAX {
                let chain = std::mem::replace(expr, Expr::Value(Value::Null.into()));
                let mut terms = terms_of(chain, &op);
                *expr = joined(&mut terms, &op);
            }
        }
        self.depth += 1;
        match self.depth > DEPTH_MAX {
            true => ControlFlow::Break(format!(
                "an expression is nested more than {DEPTH_MAX} deep; write a list or several statements instead"
            )),
            false => ControlFlow::Continue(()),
        }
    }

    fn post_visit_expr(&mut self, _: &mut Expr) -> ControlFlow<String> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }
}

/// Number of applications of an operator, one in the left side of the other.
fn depth_of(mut expr: &Expr, op: &BinaryOperator) -> usize {
    let mut depth = 0;
    while let Expr::BinaryOp { left, op: found, .. } = expr
        && found == op
    {
        depth += 1;
        expr = left;
    }
    depth
}

/// The terms of a chain, the last one first.
fn terms_of(mut expr: Expr, op: &BinaryOperator) -> Vec<Expr> {
    let mut terms = Vec::new();
    loop {
        match expr {
            Expr::BinaryOp { left, op: found, right } if found == *op => {
                terms.push(*right);
                expr = *left;
            }
            first => {
                terms.push(first);
                return terms;
            }
        }
    }
}

/// A balanced tree of terms in reverse order.
fn joined(terms: &mut Vec<Expr>, op: &BinaryOperator) -> Expr {
    match terms.len() {
        0 | 1 => terms.pop().unwrap_or_else(|| Expr::Value(Value::Null.into())),
        length => {
            let mut first = terms.split_off(length / 2);
            let (left, right) = (joined(&mut first, op), joined(terms, op));
            Expr::BinaryOp { left: Box::new(left), op: op.clone(), right: Box::new(right) }
        }
    }
}
