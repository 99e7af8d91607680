//! The words, signs and literals of a condition's text.

use super::ConditionError;
use super::error::{shortened, syntax};

/// A piece of the text.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token<'t> {
    /// A keyword or the name of a column.
    Word(&'t str),
    /// A name in double quotes, without them.
    Quoted(String),
    /// A text in single quotes, without them.
    Text(String),
    /// Digits, perhaps with a point and an exponent, without a sign.
    Number(&'t str),
    Sign(&'static str),
    End,
}

/// All signs; of two that begin alike, the longer first.
const SIGNS: [&str; 13] = ["<=", ">=", "<>", "!=", "=", "<", ">", "(", ")", ",", "*", "-", "+"];

/// Whether a character may begin the name of a column that is not quoted.
pub(super) fn begins_word(character: char) -> bool {
    character.is_alphabetic() || character == '_'
}

/// Whether a character may go on in such a name.
pub(super) fn continues_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

impl Token<'_> {
    /// Whether this is a keyword, in letters of any case.
    pub fn is_word(&self, keyword: &str) -> bool {
        matches!(self, Self::Word(word) if word.eq_ignore_ascii_case(keyword))
    }

    pub fn is_sign(&self, sign: &str) -> bool {
        matches!(self, Self::Sign(found) if *found == sign)
    }

    /// What was found, for messages.
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

/// Goes through a text.
pub(super) struct Lexer<'t> {
    pub text: &'t str,
    /// Bytes gone through.
    at: usize,
}

impl<'t> Lexer<'t> {
    pub fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    /// The next token and the byte at which it begins.
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
                        "{first:?} has no meaning here; names of columns with such characters are put in double quotes"
                    );
                    return Err(syntax(self.text, start, reason));
                }
            },
        };
        Ok((start, token))
    }

    /// Goes on while the characters belong to the token; the predicate gets the one before as well.
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

    /// Everything that looks like a part of a number; whether it is one is for the parser.
    fn number(&mut self) -> &'t str {
        self.take(|before, character| {
            continues_word(character)
                || character == '.'
                || (matches!(character, '+' | '-') && matches!(before, 'e' | 'E'))
        })
    }

    /// What stands between quotes; two quotes are one of the text.
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
