//! From text to a condition, by recursive descent:
//!
//! ```text
//! or        = and {"or" and}
//! and       = not {"and" not}
//! not       = "not" not | "(" or ")" | predicate
//! predicate = column [comparison literal | ["not"] "between" literal "and" literal
//!             | ["not"] "in" "(" [literal {"," literal}] ")" | "is" ["not"] "null"
//!             | ["not"] "match" text]
//!           | "*" ["not"] "match" text
//! ```

use super::error::{shortened, syntax};
use super::lexer::{Lexer, Token};
use super::literal::{INFINITY, NAN};
use super::{
    CONDITION_BYTES_MAX, CONDITION_DEPTH_MAX, Condition, ConditionColumn, ConditionError, IN_ITEMS_MAX, Literal, Node,
    Operator,
};

type Result<T> = std::result::Result<T, ConditionError>;

/// Words that are column names only in double quotes.
pub(super) const KEYWORDS: [&str; 10] = ["and", "or", "not", "between", "in", "is", "null", "match", "true", "false"];

const OPERATORS: [(&str, Operator); 7] = [
    ("=", Operator::Equal),
    ("!=", Operator::NotEqual),
    ("<>", Operator::NotEqual),
    ("<", Operator::Less),
    ("<=", Operator::LessOrEqual),
    (">", Operator::Greater),
    (">=", Operator::GreaterOrEqual),
];

const A_LITERAL: &str = "a number, a text in single quotes, true or false";
const A_COMPARISON: &str = "=, !=, <, <=, >, >=, \"between\", \"in\", \"is\" or \"match\"";

pub(super) fn parse(text: &str) -> Result<Condition> {
    if text.len() > CONDITION_BYTES_MAX {
        return Err(ConditionError::TooLong { bytes: text.len() });
    }
    let mut lexer = Lexer::new(text);
    let (start, token) = lexer.next()?;
    let mut parser = Parser { lexer, start, token, nesting: 0 };
    let condition = parser.or()?;
    match parser.token {
        Token::End => Ok(condition),
        _ => Err(parser.expected("\"and\", \"or\" or the end")),
    }
}

struct Parser<'t> {
    lexer: Lexer<'t>,
    /// The next token, and the byte where it begins.
    token: Token<'t>,
    start: usize,
    /// Number of parentheses and `not`s around the current place.
    nesting: usize,
}

impl<'t> Parser<'t> {
    fn error(&self, reason: impl Into<String>) -> ConditionError {
        syntax(self.lexer.text, self.start, reason)
    }

    fn expected(&self, what: &str) -> ConditionError {
        self.error(format!("expected {what}, found {}", self.token.describe()))
    }

    /// Advances to the next token, and returns the last one.
    fn advance(&mut self) -> Result<Token<'t>> {
        let (start, token) = self.lexer.next()?;
        self.start = start;
        Ok(std::mem::replace(&mut self.token, token))
    }

    /// Advances if the next token is this keyword.
    fn take_word(&mut self, keyword: &str) -> Result<bool> {
        let found = self.token.is_word(keyword);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    fn take_sign(&mut self, sign: &str) -> Result<bool> {
        let found = self.token.is_sign(sign);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    /// Refuses a tree that is too deep.
    fn checked(&self, condition: Condition) -> Result<Condition> {
        match condition.node {
            Node::TooDeep => Err(ConditionError::TooDeep),
            _ => Ok(condition),
        }
    }

    /// Parses one level deeper. The recursion is bounded here.
    fn nested(&mut self, inner: impl FnOnce(&mut Self) -> Result<Condition>) -> Result<Condition> {
        if self.nesting == CONDITION_DEPTH_MAX {
            return Err(ConditionError::TooDeep);
        }
        self.nesting += 1;
        let condition = inner(self)?;
        self.nesting -= 1;
        Ok(condition)
    }

    fn or(&mut self) -> Result<Condition> {
        let mut condition = self.and()?;
        while self.take_word("or")? {
            condition = condition.or(self.and()?);
            condition = self.checked(condition)?;
        }
        Ok(condition)
    }

    fn and(&mut self) -> Result<Condition> {
        let mut condition = self.not()?;
        while self.take_word("and")? {
            condition = condition.and(self.not()?);
            condition = self.checked(condition)?;
        }
        Ok(condition)
    }

    fn not(&mut self) -> Result<Condition> {
        if self.take_word("not")? {
            let negated = self.nested(Self::not)?;
            return self.checked(!negated);
        }
        if self.take_sign("(")? {
            let inner = self.nested(Self::or)?;
            if !self.take_sign(")")? {
                return Err(self.expected("\"and\", \"or\" or \")\""));
            }
            return Ok(inner);
        }
        self.predicate()
    }

    fn predicate(&mut self) -> Result<Condition> {
        if self.take_sign("*")? {
            let negated = self.take_word("not")?;
            if !self.take_word("match")? {
                return Err(self.expected("\"match\", because \"*\" only searches for words"));
            }
            let text = self.words()?;
            return Ok(negated_if(negated, Condition::matches_anywhere(text)));
        }
        let column = Condition::on(self.column()?);
        if let Some((_, operator)) = OPERATORS.into_iter().find(|(sign, _)| self.token.is_sign(sign)) {
            self.advance()?;
            let literal = self.literal()?;
            return Ok(column.compare(operator, literal));
        }
        if self.take_word("is")? {
            let negated = self.take_word("not")?;
            if !self.take_word("null")? {
                return Err(self.expected(if negated { "\"null\"" } else { "\"null\" or \"not null\"" }));
            }
            return Ok(negated_if(negated, column.is_null()));
        }
        let negated = self.take_word("not")?;
        match self.ranged(column, negated)? {
            Ok(condition) => Ok(negated_if(negated, condition)),
            Err(column) => self.flag(column),
        }
    }

    /// Parses the operators that may follow `not` behind a column. Returns the column if there is
    /// none.
    fn ranged(
        &mut self,
        column: ConditionColumn,
        negated: bool,
    ) -> Result<std::result::Result<Condition, ConditionColumn>> {
        if self.take_word("between")? {
            let low = self.literal()?;
            if !self.take_word("and")? {
                return Err(self.expected("\"and\" and the upper end of \"between\""));
            }
            return Ok(Ok(column.between(low, self.literal()?)));
        }
        if self.take_word("in")? {
            return Ok(Ok(column.one_of(self.list()?)));
        }
        if self.take_word("match")? {
            return Ok(Ok(column.matches(self.words()?)));
        }
        if negated {
            return Err(self.expected("\"between\", \"in\" or \"match\""));
        }
        Ok(Err(column))
    }

    /// A column by itself, unless the next token belongs to a comparison.
    fn flag(&mut self, column: ConditionColumn) -> Result<Condition> {
        let follows = self.token.is_word("and") || self.token.is_word("or") || self.token.is_sign(")");
        if follows || self.token == Token::End {
            return Ok(column.is_true());
        }
        Err(self.expected(&format!("{A_COMPARISON}, or, behind a boolean column, \"and\", \"or\" or the end")))
    }

    fn column(&mut self) -> Result<String> {
        match &self.token {
            Token::Word(word) if !KEYWORDS.iter().any(|keyword| word.eq_ignore_ascii_case(keyword)) => {
                let name = (*word).to_owned();
                self.advance()?;
                Ok(name)
            }
            Token::Quoted(_) => match self.advance()? {
                Token::Quoted(name) => Ok(name),
                _ => Err(self.expected("a column")),
            },
            Token::Number(_) | Token::Text(_) | Token::Sign("-" | "+") => {
                Err(self.expected("the name of a column, which comes first in a comparison"))
            }
            Token::Word(word) if !word.eq_ignore_ascii_case("and") && !word.eq_ignore_ascii_case("or") => {
                let reason = format!(
                    "expected the name of a column, \"not\" or \"(\", found {}; put a column of this name in double quotes",
                    self.token.describe()
                );
                Err(self.error(reason))
            }
            _ => Err(self.expected("the name of a column, \"not\" or \"(\"")),
        }
    }

    /// A text to search for.
    fn words(&mut self) -> Result<String> {
        match self.token {
            Token::Text(_) => match self.advance()? {
                Token::Text(text) => Ok(text),
                _ => Err(self.expected("a text")),
            },
            _ => Err(self.expected("words in single quotes")),
        }
    }

    fn list(&mut self) -> Result<Vec<Literal>> {
        if !self.take_sign("(")? {
            return Err(self.expected("\"(\" and a list of literals"));
        }
        let mut items = Vec::new();
        if self.take_sign(")")? {
            return Ok(items);
        }
        loop {
            if items.len() == IN_ITEMS_MAX {
                return Err(self.error(format!("\"in\" has more than {IN_ITEMS_MAX} items, so ask several times")));
            }
            items.push(self.literal()?);
            if self.take_sign(")")? {
                return Ok(items);
            }
            if !self.take_sign(",")? {
                return Err(self.expected("\",\" or \")\""));
            }
        }
    }

    fn literal(&mut self) -> Result<Literal> {
        let is_negative = self.token.is_sign("-");
        if is_negative || self.token.is_sign("+") {
            self.advance()?;
            return match &self.token {
                Token::Number(_) => self.number(is_negative),
                token if token.is_word(INFINITY) => self.number(is_negative),
                _ => Err(self.expected("a number behind the sign")),
            };
        }
        match &self.token {
            Token::Number(_) => self.number(false),
            Token::Text(_) => Ok(Literal::Text(self.words()?)),
            token if token.is_word("true") || token.is_word("false") => {
                let value = token.is_word("true");
                self.advance()?;
                Ok(Literal::Bool(value))
            }
            token if token.is_word(NAN) || token.is_word(INFINITY) => self.number(false),
            token if token.is_word("null") => Err(self
                .error(format!("expected {A_LITERAL}; nothing equals null, so write \"is null\" or \"is not null\""))),
            Token::Word(_) | Token::Quoted(_) => Err(self.expected(&format!(
                "{A_LITERAL} (texts are in single quotes, and columns are not compared with columns)"
            ))),
            _ => Err(self.expected(A_LITERAL)),
        }
    }

    /// A number whose sign has been read. A point or an exponent makes it a float.
    fn number(&mut self, is_negative: bool) -> Result<Literal> {
        let (start, token) = (self.start, self.advance()?);
        let refused = |reason: String| Err(syntax(self.lexer.text, start, reason));
        let digits = match token {
            Token::Number(digits) => digits,
            Token::Word(word) => word,
            _ => "",
        };
        let sign = if is_negative { "-" } else { "" };
        let signed = format!("{sign}{digits}");
        if digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return match signed.parse() {
                Ok(integer) => Ok(Literal::Int(integer)),
                Err(_) => refused("the integer is too large; write it with an exponent, as 1e40".to_owned()),
            };
        }
        // This is Rust's syntax of floats, without the words.
        match signed.parse::<f64>() {
            Ok(number) if number.is_finite() || !digits.contains(|c: char| c.is_ascii_digit()) => {
                Ok(Literal::Float(number))
            }
            Ok(_) => refused(format!("{} is beyond the range of a 64-bit float", shortened(&signed))),
            Err(_) => refused(format!("{} is not a number", shortened(&signed))),
        }
    }
}

fn negated_if(negated: bool, condition: Condition) -> Condition {
    if negated { !condition } else { condition }
}
