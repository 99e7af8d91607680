//! Prepared statements and the values of parameters.
//!
//! A prepared statement is kept as it was parsed. Each execution plans it anew, so it sees the
//! newest state and takes the indexes that fit the values.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, Expr, Statement as SqlStatement, UnaryOperator, Value, Visit, Visitor,
};

use crate::error::SqlError;
use crate::write::is_write;

/// The prepared statements of a session.
#[derive(Default)]
pub(crate) struct Prepared(HashMap<String, (Vec<DataType>, SqlStatement)>);

/// The next step of a statement.
pub(crate) enum Step {
    /// Run the statement with values of its parameters.
    Run(Box<Statement>, Vec<Expr>),
    /// It is done.
    Done,
}

impl Prepared {
    /// Whether a statement changes the store.
    pub fn changes(&self, statement: &Statement) -> bool {
        match statement {
            Statement::Statement(inner) => match &**inner {
                SqlStatement::Execute { name: Some(name), .. } => {
                    let prepared = self.0.get(name.to_string().trim_matches('"'));
                    prepared.is_some_and(|(_, statement)| is_write(statement))
                }
                inner => is_write(inner),
            },
            _ => false,
        }
    }

    /// Keeps, forgets or fills in a prepared statement.
    ///
    /// # Errors
    /// An unknown or a known name; values that do not fit.
    pub fn step(&mut self, statement: Statement, params: &[Param]) -> Result<Step, SqlError> {
        let run = |statement| Step::Run(Box::new(statement), params.iter().map(Param::literal).collect());
        let inner = match statement {
            Statement::Statement(inner) => inner,
            other => return Ok(run(other)),
        };
        match *inner {
            SqlStatement::Prepare { name, data_types, statement } => {
                if self.0.contains_key(&name.value) {
                    return Err(SqlError::refused(format!(
                        "the statement {name} is prepared already; DEALLOCATE it first"
                    )));
                }
                self.0.insert(name.value, (data_types, *statement));
                Ok(Step::Done)
            }
            SqlStatement::Deallocate { name, .. } => {
                if name.value.eq_ignore_ascii_case("all") {
                    self.0.clear();
                } else if self.0.remove(&name.value).is_none() {
                    return Err(unknown(&name.value));
                }
                Ok(Step::Done)
            }
            SqlStatement::Execute { name, parameters, .. } => {
                let name = name.map(|name| name.to_string()).unwrap_or_default();
                let (types, statement) = self.0.get(name.trim_matches('"')).ok_or_else(|| unknown(&name))?;
                if !types.is_empty() && types.len() != parameters.len() {
                    let (wanted, given) = (types.len(), parameters.len());
                    return Err(SqlError::refused(format!(
                        "{name} has {wanted} parameters, and {given} values are given"
                    )));
                }
                let values = parameters.into_iter().enumerate().map(|(number, value)| {
                    if has_names(&value) {
                        return Err(SqlError::refused(format!(
                            "value {} of {name} is not a constant: {value}",
                            number + 1
                        )));
                    }
                    Ok(typed(value, types.get(number)))
                });
                let values = values.collect::<Result<Vec<Expr>, SqlError>>()?;
                Ok(Step::Run(Box::new(Statement::Statement(Box::new(statement.clone()))), values))
            }
            other => Ok(run(Statement::Statement(Box::new(other)))),
        }
    }
}

fn unknown(name: &str) -> SqlError {
    SqlError::refused(format!("no statement {name} is prepared; PREPARE it first"))
}

/// Whether an expression is more than a constant.
fn has_names(expr: &Expr) -> bool {
    struct Names(bool);
    impl Visitor for Names {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            self.0 |= matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Subquery(_));
            ControlFlow::Continue(())
        }
    }
    let mut names = Names(false);
    let _ = expr.visit(&mut names);
    names.0
}

fn typed(value: Expr, data_type: Option<&DataType>) -> Expr {
    match data_type {
        Some(data_type) => Expr::Cast {
            kind: CastKind::Cast,
            expr: Box::new(value),
            data_type: data_type.clone(),
            array: false,
            format: None,
        },
        None => value,
    }
}

/// The value of a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Param {
    /// No value.
    Null,
    /// A truth value.
    Bool(bool),
    /// A number, as SQL writes it.
    Number(String),
    /// A text: also a date, a time or a geometry.
    Text(String),
}

impl Param {
    /// Reads a parameter of the command line: null, a truth value, a number, or else a text.
    pub fn parse(text: &str) -> Self {
        let is_number = || {
            text.starts_with(|first: char| first.is_ascii_digit() || first == '.' || first == '-')
                && text.parse::<f64>().is_ok_and(f64::is_finite)
        };
        match text {
            "null" | "NULL" => Self::Null,
            "true" | "false" => Self::Bool(text == "true"),
            _ if is_number() => Self::Number(text.to_owned()),
            _ => Self::Text(text.to_owned()),
        }
    }

    fn literal(&self) -> Expr {
        let value = |value: Value| Expr::Value(value.into());
        match self {
            Self::Null => value(Value::Null),
            Self::Bool(truth) => value(Value::Boolean(*truth)),
            Self::Text(text) => value(Value::SingleQuotedString(text.clone())),
            Self::Number(number) => match number.strip_prefix('-') {
                Some(positive) => Expr::UnaryOp {
                    op: UnaryOperator::Minus,
                    expr: Box::new(value(Value::Number(positive.to_owned(), false))),
                },
                None => value(Value::Number(number.clone(), false)),
            },
        }
    }
}
