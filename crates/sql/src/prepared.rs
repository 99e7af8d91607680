//! Prepared statements and the values of parameters.
//!
//! A prepared statement is kept as it was parsed, and with a physical plan if its parameters can
//! stay open there. Else each execution plans it anew. Either way it sees the newest state, and
//! takes the indexes that fit the values.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_schema::DataType as ArrowType;
use datafusion::common::ScalarValue;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, Expr, Statement as SqlStatement, UnaryOperator, Value, Visit, Visitor,
};

use crate::comparisons::plain_literal;
use crate::error::SqlError;
use crate::kept::KeptPlan;
use crate::write::is_write;

/// Maximal number of plans of one statement, which differ in the types of the values.
const PLANS_MAX: usize = 16;

/// Maximal number of queries with parameters that have plans without being prepared.
const UNNAMED_MAX: usize = 64;

/// The prepared statements of a session.
#[derive(Default)]
pub(crate) struct Prepared {
    named: HashMap<String, Arc<PreparedStatement>>,
    /// Queries that were run with values of parameters: whoever does so often does it again.
    unnamed: HashMap<SqlStatement, Arc<PreparedStatement>>,
}

/// A prepared statement.
pub(crate) struct PreparedStatement {
    types: Vec<DataType>,
    statement: SqlStatement,
    /// By the types of the values; `None` where each execution plans the statement anew.
    plans: Mutex<HashMap<Vec<ArrowType>, Option<Arc<KeptPlan>>>>,
}

impl PreparedStatement {
    fn new(types: Vec<DataType>, statement: SqlStatement) -> Arc<Self> {
        Arc::new(Self { types, statement, plans: Mutex::default() })
    }

    fn plans(&self) -> MutexGuard<'_, HashMap<Vec<ArrowType>, Option<Arc<KeptPlan>>>> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A prepared statement with values of its parameters.
pub(crate) struct Execution {
    prepared: Arc<PreparedStatement>,
    pub params: Vec<Expr>,
    /// The values, if all are plain ones.
    pub values: Option<Arc<[ScalarValue]>>,
}

impl Execution {
    fn new(prepared: Arc<PreparedStatement>, params: Vec<Expr>) -> Self {
        let values = params.iter().map(plain_value).collect();
        Self { prepared, params, values }
    }

    /// The query, if it may have a plan that is kept.
    pub fn query(&self) -> Option<&SqlStatement> {
        let statement = &self.prepared.statement;
        matches!(statement, SqlStatement::Query(_)).then_some(statement)
    }

    pub fn statement(&self) -> Box<Statement> {
        Box::new(Statement::Statement(Box::new(self.prepared.statement.clone())))
    }

    /// What was kept for values of these types, if the statement was run with such.
    pub fn kept(&self, values: &[ScalarValue]) -> Option<Option<Arc<KeptPlan>>> {
        self.prepared.plans().get(&types_of(values)).cloned()
    }

    /// Keeps a plan for values of these types, or that there is none.
    pub fn keep(&self, values: &[ScalarValue], plan: Option<Arc<KeptPlan>>) {
        let mut plans = self.prepared.plans();
        if plans.len() >= PLANS_MAX {
            plans.clear();
        }
        plans.insert(types_of(values), plan);
    }
}

fn types_of(values: &[ScalarValue]) -> Vec<ArrowType> {
    values.iter().map(ScalarValue::data_type).collect()
}

/// The next step of a statement.
pub(crate) enum Step {
    /// Run the statement with values of its parameters.
    Run(Box<Statement>, Vec<Expr>),
    /// Run a prepared statement.
    Execute(Execution),
    /// It is done.
    Done,
}

impl Prepared {
    /// Whether a statement changes the store.
    pub fn changes(&self, statement: &Statement) -> bool {
        match self.executed(statement).as_ref().unwrap_or(statement) {
            Statement::Statement(inner) => is_write(inner),
            _ => false,
        }
    }

    /// The statement that a statement executes, if it executes a prepared one.
    pub fn executed(&self, statement: &Statement) -> Option<Statement> {
        let Statement::Statement(inner) = statement else { return None };
        let SqlStatement::Execute { name: Some(name), .. } = &**inner else { return None };
        let prepared = self.named.get(name.to_string().trim_matches('"'))?;
        Some(Statement::Statement(Box::new(prepared.statement.clone())))
    }

    /// Forgets the plans, which were made with other settings.
    fn forget_plans(&mut self) {
        self.named.values().for_each(|prepared| prepared.plans().clear());
        self.unnamed.clear();
    }

    /// Keeps, forgets or fills in a prepared statement.
    ///
    /// # Errors
    /// An unknown or a known name; values that do not fit.
    pub fn step(&mut self, statement: Statement, params: &[Param]) -> Result<Step, SqlError> {
        let run = |statement| Step::Run(Box::new(statement), params.iter().map(Param::literal).collect());
        let inner = match statement {
            Statement::Statement(inner) => inner,
            other => {
                self.forget_plans();
                return Ok(run(other));
            }
        };
        match *inner {
            SqlStatement::Prepare { name, data_types, statement } => {
                if self.named.contains_key(&name.value) {
                    return Err(SqlError::refused(format!(
                        "the statement {name} is prepared already; DEALLOCATE it first"
                    )));
                }
                self.named.insert(name.value, PreparedStatement::new(data_types, *statement));
                Ok(Step::Done)
            }
            SqlStatement::Deallocate { name, .. } => {
                if name.value.eq_ignore_ascii_case("all") {
                    self.named.clear();
                } else if self.named.remove(&name.value).is_none() {
                    return Err(unknown(&name.value));
                }
                Ok(Step::Done)
            }
            SqlStatement::Execute { name, parameters, .. } => {
                let name = name.map(|name| name.to_string()).unwrap_or_default();
                let prepared = self.named.get(name.trim_matches('"')).ok_or_else(|| unknown(&name))?;
                let types = &prepared.types;
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
                let params = values.collect::<Result<Vec<Expr>, SqlError>>()?;
                Ok(Step::Execute(Execution::new(prepared.clone(), params)))
            }
            query @ SqlStatement::Query(_) if !params.is_empty() => {
                if self.unnamed.len() >= UNNAMED_MAX && !self.unnamed.contains_key(&query) {
                    self.unnamed.clear();
                }
                let prepared = match self.unnamed.get(&query) {
                    Some(prepared) => prepared.clone(),
                    None => {
                        let prepared = PreparedStatement::new(Vec::new(), query.clone());
                        self.unnamed.insert(query, prepared.clone());
                        prepared
                    }
                };
                Ok(Step::Execute(Execution::new(prepared, params.iter().map(Param::literal).collect())))
            }
            SqlStatement::Set(set) => {
                self.forget_plans();
                Ok(run(Statement::Statement(Box::new(SqlStatement::Set(set)))))
            }
            other => Ok(run(Statement::Statement(Box::new(other)))),
        }
    }
}

/// The value of a literal as a plan has it, if it is not null.
fn plain_value(expr: &Expr) -> Option<ScalarValue> {
    let value = match expr {
        Expr::Value(value) => match &value.value {
            Value::Boolean(truth) => ScalarValue::Boolean(Some(*truth)),
            Value::SingleQuotedString(text) => ScalarValue::Utf8(Some(text.clone())),
            Value::Number(number, _) => number_of(number)?,
            _ => return None,
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match &**expr {
            Expr::Value(value) => match &value.value {
                Value::Number(number, _) => number_of(&format!("-{number}"))?,
                _ => return None,
            },
            _ => return None,
        },
        Expr::Cast { expr, data_type, .. } => match (plain_value(expr)?, data_type) {
            (value @ ScalarValue::Float64(_), DataType::Double(_) | DataType::DoublePrecision | DataType::Float8) => {
                value
            }
            (ScalarValue::Int64(Some(value)), DataType::Double(_) | DataType::DoublePrecision | DataType::Float8) => {
                ScalarValue::Float64(Some(value as f64))
            }
            (value @ ScalarValue::Int64(_), DataType::BigInt(_) | DataType::Int8(_)) => value,
            _ => return None,
        },
        _ => return None,
    };
    Some(plain_literal(&value).unwrap_or(value))
}

fn number_of(text: &str) -> Option<ScalarValue> {
    if let Ok(integer) = text.parse::<i64>() {
        return Some(ScalarValue::Int64(Some(integer)));
    }
    let is_float = text.contains(['.', 'e', 'E']);
    let float = text.parse::<f64>().ok().filter(|float| is_float && float.is_finite())?;
    Some(ScalarValue::Float64(Some(float)))
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
    /// Bytes.
    Bytes(Vec<u8>),
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
            Self::Bytes(bytes) => {
                value(Value::HexStringLiteral(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
            }
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
