//! The tokens of a condition's text: words, signs and literals.

use super::ConditionError;
use super::error::{shortened, syntax};

/// A token.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token<'t> {
    /// A keyword or the name of a column.
    Word(&'t str),
    /// A name in double quotes; the quotes are removed.
    Quoted(String),
    /// A text in single quotes; the quotes are removed.
    Text(String),
    /// An unsigned number: digits, optionally with a point and an exponent.
    Number(&'t str),
    Sign(&'static str),
    End,
}

/// All signs. A sign comes before its own prefixes.
const SIGNS: [&str; 13] = ["<=", ">=", "<>", "!=", "=", "<", ">", "(", ")", ",", "*", "-", "+"];

/// Whether a character may begin an unquoted column name.
pub(super) fn begins_word(character: char) -> bool {
    character.is_alphabetic() || character == '_'
}

/// Whether a character may follow in an unquoted column name.
pub(super) fn continues_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

impl Token<'_> {
    /// Whether this is a keyword. Case does not matter.
    pub fn is_word(&self, keyword: &str) -> bool {
        matches!(self, Self::Word(word) if word.eq_ignore_ascii_case(keyword))
    }

    pub fn is_sign(&self, sign: &str) -> bool {
        matches!(self, Self::Sign(found) if *found == sign)
    }

    /// Describes the token in messages.
    pub fn describe(&self) -> String {
        match self {
            Self::Word(word) => format!("{:?}", shortened(word)),
            Self::Quoted(name) => format!("the column {:?}", shortened(name)),
            Self::Text(text) => format!("the text '{}'", shortened(text)),
            Self::Number(number) => format!("the number {}", shortened(number)),
            Self::Sign(sign) => format!("{sign:?}"),
            Self::End => "the end".to_owned(),
        }
    }
}

/// Reads a text token by token.
pub(super) struct Lexer<'t> {
    pub text: &'t str,
    /// Number of bytes read.
    at: usize,
}

impl<'t> Lexer<'t> {
    pub fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    /// The next token, and the byte where it begins.
    pub fn next(&mut self) -> Result<(usize, Token<'t>), ConditionError> {
        self.at = self.text.len() - self.rest().trim_start().len();
        let (start, rest) = (self.at, self.rest());
        let Some(first) = rest.chars().next() else { return Ok((start, Token::End)) };
        let token = match first {
            '\'' => Token::Text(self.quoted('\'', "the text")?),
            '"' => Token::Quoted(self.quoted('"', "the name of a column")?),
            _ if begins_word(first) => Token::Word(self.take(|_, character| continues_word(character))),
            _ if first.is_ascii_digit() || first == '.' => Token::Number(self.number()),
            _ => match SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
                Some(sign) => {
                    self.at += sign.len();
                    Token::Sign(sign)
                }
                None => {
                    let reason = format!(
                        "{first:?} has no meaning here; put column names with such characters in double quotes"
                    );
                    return Err(syntax(self.text, start, reason));
                }
            },
        };
        Ok((start, token))
    }

    /// Reads characters while the predicate accepts them. The predicate also gets the preceding
    /// character.
    fn take(&mut self, mut belongs: impl FnMut(char, char) -> bool) -> &'t str {
        let rest = self.rest();
        let mut before = ' ';
        let end = rest.find(|character| {
            let ends = !belongs(before, character);
            before = character;
            ends
        });
        let token = &rest[..end.unwrap_or(rest.len())];
        self.at += token.len();
        token
    }

    /// Reads everything that looks like part of a number. The parser decides whether it is one.
    fn number(&mut self) -> &'t str {
        self.take(|before, character| {
            continues_word(character)
                || character == '.'
                || (matches!(character, '+' | '-') && matches!(before, 'e' | 'E'))
        })
    }

    /// Reads a quoted text. Two quotes stand for one in the text.
    fn quoted(&mut self, mark: char, what: &str) -> Result<String, ConditionError> {
        let start = self.at;
        let mut text = String::new();
        self.at += 1;
        loop {
            let rest = self.rest();
            let Some(length) = rest.find(mark) else {
                return Err(syntax(self.text, start, format!("{what} that begins here has no closing {mark}")));
            };
            text.push_str(&rest[..length]);
            self.at += length + 1;
            if !self.rest().starts_with(mark) {
                return Ok(text);
            }
            text.push(mark);
            self.at += 1;
        }
    }
}
