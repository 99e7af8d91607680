//! Statements: parsing, parameters, names and casts.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::error::DataFusionError;
use datafusion::sql::parser::{DFParserBuilder, Statement};
use datafusion::sql::sqlparser::ast::{
    self, Expr, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident, ObjectName,
    ObjectNamePart, Query, SelectItem, SetExpr, TableFactor, Value, Visit, VisitMut, Visitor, VisitorMut,
};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

use crate::chains::balance;
use crate::dialect::SqlDialect;
use crate::error::SqlError;
use crate::forms::common_form;
use crate::functions::{CAST, GEOGRAPHY_CAST, RELATE_PATTERN, aggregate_name};

/// Maximal length of a text of statements in bytes.
pub const SQL_BYTES_MAX: usize = 16 << 20;
/// Maximal number of tokens of a text of statements.
pub const SQL_TOKENS_MAX: usize = 100_000;
/// Maximal nesting of parentheses and subqueries.
const NESTING_MAX: usize = 100;

/// Parses a text of statements, separated by `;`.
pub(crate) fn parse(text: &str) -> Result<Vec<Statement>, SqlError> {
    if text.len() > SQL_BYTES_MAX {
        return Err(SqlError::refused(format!("the statements have more than {SQL_BYTES_MAX} bytes; shorten them")));
    }
    let failed = |error: DataFusionError| SqlError::planning(&error, text);
    let parser_failed = |error: ParserError| failed(DataFusionError::SQL(Box::new(error), None));
    let dialect = SqlDialect;
    let tokens =
        Tokenizer::new(&dialect, text).tokenize_with_location().map_err(|error| parser_failed(error.into()))?;
    let count = tokens.iter().filter(|token| !matches!(token.token, Token::Whitespace(_))).count();
    if count > SQL_TOKENS_MAX {
        return Err(SqlError::refused(format!(
            "the statements have {count} words and signs; at most {SQL_TOKENS_MAX} are possible"
        )));
    }
    let mut statements = Vec::new();
    let mut tokens = tokens.into_iter().peekable();
    while tokens.peek().is_some() {
        let tokens: Vec<_> = tokens.by_ref().take_while(|token| token.token != Token::SemiColon).collect();
        let first = tokens.iter().find(|token| !matches!(token.token, Token::Whitespace(_)));
        let Some(first) = first else { continue };
        // The COPY of DataFusion is another one.
        if matches!(&first.token, Token::Word(word) if word.keyword == Keyword::COPY) {
            let parser = Parser::new(&dialect).with_recursion_limit(NESTING_MAX);
            let copy = parser.with_tokens_with_locations(tokens).parse_statements().map_err(parser_failed)?;
            statements.extend(copy.into_iter().map(|copy| Statement::Statement(Box::new(copy))));
            continue;
        }
        let parser = DFParserBuilder::new(tokens).with_dialect(&dialect).with_recursion_limit(NESTING_MAX).build();
        statements.extend(parser.and_then(|mut parser| parser.parse_statements()).map_err(failed)?);
    }
    statements.iter_mut().try_for_each(balance_statement)?;
    statements.into_iter().map(common_form).collect()
}

/// Whether a text ends a statement: its last token is a semicolon, outside of quotes and comments.
pub fn ends_with_semicolon(text: &str) -> bool {
    let tokens = Tokenizer::new(&SqlDialect, text).tokenize().unwrap_or_default();
    let last = tokens.iter().rev().find(|token| !matches!(token, Token::Whitespace(_)));
    last.is_some_and(|token| *token == Token::SemiColon)
}

fn balance_statement(statement: &mut Statement) -> Result<(), SqlError> {
    match statement {
        Statement::Statement(statement) => balance(&mut **statement).map_err(SqlError::refused),
        Statement::Explain(explain) => balance_statement(&mut explain.statement),
        _ => Ok(()),
    }
}

/// Gives the names of a table's columns.
pub(crate) type ColumnNames = Box<dyn Fn(&str) -> Vec<String> + Send + Sync>;

/// The names that a statement may use.
pub(crate) struct Names {
    /// Of datasets.
    pub tables: Vec<String>,
    /// Of the columns of a table.
    pub columns: ColumnNames,
}

/// Prepares a parsed statement for planning: sets its parameters, which stay open without values,
/// completes names, and makes casts to geometries calls.
pub(crate) fn prepare(statement: &mut Statement, names: &Names, params: Option<&[Expr]>) -> Result<(), SqlError> {
    match statement {
        Statement::Statement(statement) => rewrite(&mut **statement, names, params),
        Statement::Explain(explain) => prepare(&mut explain.statement, names, params),
        _ => Ok(()),
    }
}

fn rewrite<S: VisitMut + ast::Visit>(
    statement: &mut S,
    names: &Names,
    params: Option<&[Expr]>,
) -> Result<(), SqlError> {
    let mut seen = Seen::default();
    let _ = ast::Visit::visit(&*statement, &mut seen);
    let tables = seen.relations.iter().map(|name| found(&names.tables, name).unwrap_or(name));
    let columns = tables.flat_map(|table| (names.columns)(table)).collect();
    let mut rewriter = Rewriter { tables: &names.tables, columns, aliases: seen.aliases, params };
    match VisitMut::visit(statement, &mut rewriter) {
        ControlFlow::Break(reason) => Err(SqlError::refused(reason)),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// The name that is equal, or else the only one that is equal without regard to case.
pub(crate) fn found<'n>(names: &'n [String], wanted: &str) -> Option<&'n String> {
    names.iter().find(|name| *name == wanted).or_else(|| {
        let wanted = wanted.to_lowercase();
        let mut equal = names.iter().filter(|name| name.to_lowercase() == wanted);
        equal.next().filter(|first| equal.all(|other| other == *first))
    })
}

/// The names of a statement's relations, as they are written.
pub(crate) fn relations_of(statement: &Statement) -> Vec<String> {
    let mut seen = Seen::default();
    match statement {
        Statement::Statement(inner) => drop(inner.visit(&mut seen)),
        Statement::Explain(explain) => return relations_of(&explain.statement),
        _ => {}
    }
    seen.relations
}

/// The datasets that the relations of a statement may be.
pub(crate) fn datasets_of(statement: &Statement, names: &[String]) -> Vec<String> {
    let relations = relations_of(statement);
    let mut datasets: Vec<String> = relations.iter().filter_map(|name| found(names, name).cloned()).collect();
    datasets.sort_unstable();
    datasets.dedup();
    datasets
}

/// The names that a statement uses and defines.
#[derive(Default)]
struct Seen {
    relations: Vec<String>,
    /// In lower case.
    aliases: HashSet<String>,
}

impl Seen {
    fn add_alias(&mut self, alias: &Ident) {
        self.aliases.insert(alias.value.to_lowercase());
    }

    fn add_aliases(&mut self, body: &SetExpr) {
        match body {
            SetExpr::Select(select) => {
                for item in &select.projection {
                    if let SelectItem::ExprWithAlias { alias, .. } = item {
                        self.add_alias(alias);
                    }
                }
            }
            SetExpr::SetOperation { left, right, .. } => {
                self.add_aliases(left);
                self.add_aliases(right);
            }
            _ => {}
        }
    }
}

impl Visitor for Seen {
    type Break = ();

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
        if let Some(ObjectNamePart::Identifier(name)) = relation.0.last() {
            self.relations.push(name.value.clone());
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        for table in query.with.iter().flat_map(|with| &with.cte_tables) {
            self.add_alias(&table.alias.name);
            table.alias.columns.iter().for_each(|column| self.add_alias(&column.name));
        }
        self.add_aliases(&query.body);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        let alias = match factor {
            TableFactor::Table { alias, .. } | TableFactor::Derived { alias, .. } => alias,
            _ => &None,
        };
        if let Some(alias) = alias {
            self.add_alias(&alias.name);
            alias.columns.iter().for_each(|column| self.add_alias(&column.name));
        }
        ControlFlow::Continue(())
    }
}

struct Rewriter<'n> {
    tables: &'n [String],
    columns: Vec<String>,
    aliases: HashSet<String>,
    params: Option<&'n [Expr]>,
}

impl Rewriter<'_> {
    /// Gives a name the spelling of the existing one, and quotes it, which keeps upper case.
    fn complete(&self, name: &mut Ident, known: &[String]) {
        if name.quote_style.is_some() {
            return;
        }
        let is_exact = known.contains(&name.value);
        if !is_exact && self.aliases.contains(&name.value.to_lowercase()) {
            return;
        }
        if let Some(known) = found(known, &name.value)
            && *known != name.value.to_lowercase()
        {
            name.value.clone_from(known);
            name.quote_style = Some('"');
        }
    }

    /// The value of a parameter; `None` if it stays open.
    fn parameter(&self, name: &str) -> Result<Option<Expr>, String> {
        let number = name.strip_prefix('$').and_then(|number| number.parse::<usize>().ok());
        let Some(number) = number.filter(|number| *number > 0) else {
            return Err(format!("{name} is not a parameter; the first one is $1"));
        };
        let Some(params) = self.params else { return Ok(None) };
        match params.get(number - 1) {
            Some(value) => Ok(Some(value.clone())),
            None => Err(format!("parameter ${number} has no value; {} given", params.len())),
        }
    }
}

impl VisitorMut for Rewriter<'_> {
    type Break = String;

    fn pre_visit_relation(&mut self, relation: &mut ObjectName) -> ControlFlow<String> {
        if let [ObjectNamePart::Identifier(name)] = relation.0.as_mut_slice() {
            self.complete(name, self.tables);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<String> {
        match expr {
            Expr::Identifier(name) => self.complete(name, &self.columns),
            Expr::CompoundIdentifier(names) => {
                if let [table @ .., column] = names.as_mut_slice() {
                    self.complete(column, &self.columns);
                    if let Some(table) = table.last_mut() {
                        self.complete(table, self.tables);
                    }
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<String> {
        match expr {
            Expr::Value(value) => {
                if let Value::Placeholder(name) = &value.value {
                    match self.parameter(name) {
                        Ok(Some(value)) => *expr = value,
                        Ok(None) => {}
                        Err(reason) => return ControlFlow::Break(reason),
                    }
                }
            }
            Expr::Function(function) => {
                if let FunctionArguments::List(list) = &function.args
                    && let Some(name) = other_name(&function.name.to_string(), list.args.len())
                {
                    function.name = ObjectName(vec![ObjectNamePart::Identifier(Ident::new(name))]);
                }
            }
            Expr::Cast { expr: inner, data_type: ast::DataType::Custom(name, _), .. } => {
                let name = name.to_string();
                let casts = [CAST, GEOGRAPHY_CAST];
                if let Some(cast) = casts.into_iter().find(|cast| name.eq_ignore_ascii_case(cast)) {
                    let inner = std::mem::replace(&mut **inner, Expr::Value(Value::Null.into()));
                    *expr = call(cast, vec![inner]);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// The name of the function that a call becomes, by the number of its arguments: a relation with a
/// pattern has another type, and an aggregate takes one geometry.
fn other_name(function: &str, arguments: usize) -> Option<&'static str> {
    match arguments == 3 && function.eq_ignore_ascii_case("st_relate") {
        true => Some(RELATE_PATTERN),
        false => aggregate_name(function, arguments),
    }
}

/// A call of a function.
pub(crate) fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    let arguments = arguments.into_iter().map(|argument| FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)));
    Expr::Function(ast::Function {
        name: ObjectName(vec![ObjectNamePart::Identifier(Ident::new(name))]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: arguments.collect(),
            clauses: Vec::new(),
        }),
        within_group: Vec::new(),
        filter: None,
        null_treatment: None,
        over: None,
    })
}
