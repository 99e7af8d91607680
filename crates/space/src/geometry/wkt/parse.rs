//! Reads well-known text directly into well-known binary.
//!
//! The `wkt` crate serves as a reference in the tests only. It refuses empty members of
//! multi-points and heights without a tag, ignores text after the end, recurses without limit and
//! gives no position of an error.

use crate::geometry::error::GeometryError;
use crate::geometry::kind::{Dimensions, GeometryKind};
use crate::geometry::walk::NESTING_DEPTH_MAX;
use crate::geometry::wkb::normalise;
use crate::geometry::write::{CommonDimensions, Writer};

/// The stored form of a geometry in well-known text.
///
/// Case and spacing do not matter, and `POINTZ` is `POINT Z`. Without a tag, three numbers are x,
/// y, z and four are x, y, z, m. The points of a multi-point may have their own brackets.
///
/// # Errors
/// What is wrong with the text and where, or with the geometry that it describes.
pub fn from_wkt(text: &str) -> Result<Vec<u8>, GeometryError> {
    let mut parser = Parser { text: text.as_bytes(), offset: 0, writer: Writer::default() };
    parser.geometry(1)?;
    parser.skip_space();
    if parser.offset < parser.text.len() {
        return Err(parser.refusal("text after the end of the geometry"));
    }
    normalise(&parser.writer.bytes)
}

struct Parser<'a> {
    text: &'a [u8],
    offset: usize,
    writer: Writer,
}

impl Parser<'_> {
    fn refusal(&self, reason: &str) -> GeometryError {
        GeometryError::Text { reason: format!("{reason} at character {}", self.offset) }
    }

    fn expected(&self, what: &str) -> GeometryError {
        let rest = &self.text[self.offset..];
        let is_end = |byte: &u8| matches!(byte, b' ' | b'(' | b')' | b',');
        let end = rest.iter().skip(1).position(is_end).map_or(rest.len(), |end| end + 1);
        let found = String::from_utf8_lossy(&rest[..end.min(20)]).into_owned();
        let found = if rest.is_empty() { "the end".to_owned() } else { format!("{found:?}") };
        self.refusal(&format!("{what} is expected, found {found}"))
    }

    fn peek(&mut self) -> Option<u8> {
        self.skip_space();
        self.text.get(self.offset).copied()
    }

    fn skip_space(&mut self) {
        let is_space = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        self.offset += self.text[self.offset..].iter().take_while(is_space).count();
    }

    /// Skips `byte` if it is next.
    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.offset += usize::from(is_next);
        is_next
    }

    /// The next word in upper case, not consumed, and its end.
    fn word(&mut self) -> (String, usize) {
        self.skip_space();
        let rest = &self.text[self.offset..];
        // No keyword is longer, so a longer word is no keyword.
        let length = rest.iter().take(24).take_while(|byte| byte.is_ascii_alphabetic()).count();
        let word = rest[..length].iter().map(|byte| char::from(byte.to_ascii_uppercase()));
        (word.collect(), self.offset + length)
    }

    fn take_word(&mut self, wanted: &str) -> bool {
        let (word, end) = self.word();
        let is_next = word == wanted;
        if is_next {
            self.offset = end;
        }
        is_next
    }

    fn geometry(&mut self, depth: u32) -> Result<(), GeometryError> {
        if depth > NESTING_DEPTH_MAX {
            return Err(GeometryError::TooDeep { limit: NESTING_DEPTH_MAX });
        }
        let (kind, tag) = self.kind()?;
        let start = self.writer.bytes.len();
        if kind == GeometryKind::GeometryCollection {
            self.writer.header(kind, Dimensions::XY);
            let mut common = CommonDimensions::default();
            self.list(|parser| {
                let member = parser.writer.bytes.len();
                parser.geometry(depth + 1)?;
                common.add(parser.writer.dimensions_at(member));
                Ok(())
            })?;
            self.writer.rewrite_header(start, kind, tag.unwrap_or_else(|| common.get()));
            return Ok(());
        }
        let dimensions = match tag {
            Some(dimensions) => dimensions,
            None => self.untagged_dimensions(),
        };
        self.body(kind, dimensions)
    }

    /// The type and its tag, attached (`POINTZ`) or not (`POINT Z`).
    fn kind(&mut self) -> Result<(GeometryKind, Option<Dimensions>), GeometryError> {
        let (word, end) = self.word();
        if word == "SRID" {
            return Err(self.refusal("EWKT is not supported: remove the SRID"));
        }
        let tags = [("", None), ("ZM", Some((true, true))), ("Z", Some((true, false))), ("M", Some((false, true)))];
        let dimensions = |(has_z, has_m)| Dimensions { has_z, has_m };
        let attached = tags.iter().find_map(|(suffix, tag)| {
            let kind = GeometryKind::from_name_of_any_case(word.strip_suffix(suffix)?)?;
            Some((kind, *tag))
        });
        let Some((kind, tag)) = attached else {
            return Err(self.expected("a type of geometry, such as POINT or POLYGON,"));
        };
        self.offset = end;
        if let Some(tag) = tag {
            return Ok((kind, Some(dimensions(tag))));
        }
        for (name, tag) in &tags[1..] {
            if self.take_word(name) {
                return Ok((kind, tag.map(dimensions)));
            }
        }
        Ok((kind, None))
    }

    /// The dimensions of the first position in the brackets that follow, which all must have; x and
    /// y if there is none.
    fn untagged_dimensions(&self) -> Dimensions {
        let rest = &self.text[self.offset..];
        let mut depth = 0i64;
        for (start, byte) in rest.iter().enumerate() {
            match byte {
                b'(' => depth += 1,
                b')' => depth -= 1,
                _ => {}
            }
            if is_number_byte(*byte) && !byte.is_ascii_alphabetic() {
                let is_end = |byte: &u8| matches!(byte, b',' | b')');
                let position = rest[start..].split(is_end).next().unwrap_or_default();
                let numbers = position.split(u8::is_ascii_whitespace);
                let count = numbers.filter(|number| !number.is_empty()).count();
                return Dimensions { has_z: count >= 3, has_m: count >= 4 };
            }
            if depth <= 0 && !byte.is_ascii_whitespace() {
                break;
            }
        }
        Dimensions::XY
    }

    fn body(&mut self, kind: GeometryKind, dimensions: Dimensions) -> Result<(), GeometryError> {
        if kind == GeometryKind::Point {
            return self.point(dimensions);
        }
        self.writer.header(kind, dimensions);
        match kind {
            GeometryKind::LineString => self.list(|parser| parser.position(dimensions)),
            GeometryKind::Polygon => self.list(|parser| parser.list(|parser| parser.position(dimensions))),
            GeometryKind::MultiPoint => self.list(|parser| match parser.peek() {
                Some(b'(' | b'E' | b'e') => parser.point(dimensions),
                _ => {
                    parser.writer.header(GeometryKind::Point, dimensions);
                    parser.position(dimensions)
                }
            }),
            _ => {
                let member = kind.member().unwrap_or(kind);
                self.list(|parser| parser.body(member, dimensions))
            }
        }
    }

    fn point(&mut self, dimensions: Dimensions) -> Result<(), GeometryError> {
        if self.take_word("EMPTY") {
            self.writer.empty_point(dimensions);
            return Ok(());
        }
        self.writer.header(GeometryKind::Point, dimensions);
        self.open()?;
        self.position(dimensions)?;
        self.close()
    }

    /// A count, and that many items in brackets; or `EMPTY`.
    fn list(&mut self, mut item: impl FnMut(&mut Self) -> Result<(), GeometryError>) -> Result<(), GeometryError> {
        let place = self.writer.bytes.len();
        self.writer.count(0);
        if self.take_word("EMPTY") {
            return Ok(());
        }
        self.open()?;
        let mut count = 1;
        item(self)?;
        while self.take(b',') {
            item(self)?;
            count += 1;
        }
        self.close()?;
        self.writer.rewrite_count(place, count);
        Ok(())
    }

    fn open(&mut self) -> Result<(), GeometryError> {
        if self.take(b'(') { Ok(()) } else { Err(self.expected("an opening bracket or EMPTY")) }
    }

    fn close(&mut self) -> Result<(), GeometryError> {
        if self.take(b')') { Ok(()) } else { Err(self.expected("a comma or a closing bracket")) }
    }

    fn position(&mut self, dimensions: Dimensions) -> Result<(), GeometryError> {
        for _ in 0..dimensions.count() {
            self.skip_space();
            let rest = &self.text[self.offset..];
            let length = rest.iter().take_while(|byte| is_number_byte(**byte)).count();
            let number = str::from_utf8(&rest[..length]).ok().and_then(|text| text.parse().ok());
            let Some(number) = number else {
                return Err(self.expected("a number"));
            };
            self.offset += length;
            self.writer.numbers(&[number]);
        }
        Ok(())
    }
}

fn is_number_byte(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E')
}
