//! Reads a GeoJSON document feature by feature, or an array of records element by element.
//!
//! The document is cut at the brackets of its `features` array, so only one feature is in memory at
//! a time. Each piece is then parsed strictly. The document's own members are kept as text, since
//! parsed values take dozens of times the memory. The document as a whole is checked at its end.
//! The first pass over a file therefore finds every structural fault before any row is handed out.

use std::io::{self, BufRead};
use std::path::PathBuf;

use serde_json::Map;

use super::record_text::{HINT_OF_NAME, RECORD_BYTES_MAX, RecordText, RecordTexts};
use super::strict::{DEPTH_MAX, JsonError, JsonValue, parse_strict};
use crate::crs::DeclaredCrs;
use crate::error::{FormatError, Location};
use crate::geometry::is_geometry_type;
use crate::input::{Content, Input};
use crate::quoted::quoted;

/// Members of the document that a record is made of, beside the type.
const MEMBERS_TAKEN: [&str; 5] = ["geometry", "properties", "id", "coordinates", "geometries"];
/// Most other members of a document, and most bytes of their names. The names are kept to detect
/// duplicates.
const FOREIGN_MEMBERS_MAX: usize = 10_000;
const FOREIGN_NAME_BYTES_MAX: usize = 1 << 20;
/// Most of them that an error names.
const FOREIGN_MEMBERS_SHOWN_MAX: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Start,
    Members,
    Features,
    /// In an array of records.
    Elements,
    End,
}

/// Reads the features or records of one document.
pub(crate) struct DocumentReader {
    path: PathBuf,
    content: Content,
    offset: u64,
    line: u64,
    state: State,
    /// Whether the current list has had an element already.
    has_element: bool,
    has_features: bool,
    /// The document's type, if it is a string.
    kind: Option<String>,
    crs: DeclaredCrs,
    /// Names of its members other than foreign ones.
    names: Vec<String>,
    /// The document as a record, as far as it has been read: an object without its closing brace.
    own_text: Vec<u8>,
    /// Names of its foreign members, in their order.
    foreign: Map<String, JsonValue>,
    foreign_name_bytes: usize,
}

impl DocumentReader {
    pub(crate) fn new(input: &Input) -> Result<DocumentReader, FormatError> {
        let mut content = input.content()?;
        let head = content.fill_buf().map_err(|error| FormatError::reading(&input.path, error))?;
        let bom_length = if head.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        content.consume(bom_length);
        Ok(DocumentReader {
            path: input.path.clone(),
            content,
            offset: bom_length as u64,
            line: 1,
            state: State::Start,
            has_element: false,
            has_features: false,
            kind: None,
            crs: DeclaredCrs::Undeclared,
            names: Vec::new(),
            own_text: b"{".to_vec(),
            foreign: Map::new(),
            foreign_name_bytes: 0,
        })
    }

    /// The reference system that the document names; complete after the last record.
    pub(crate) fn crs(&self) -> DeclaredCrs {
        self.crs.clone()
    }

    /// Adds the next feature, or the document itself if it is a feature or a geometry; false at the
    /// end.
    pub(super) fn next(&mut self, texts: &mut RecordTexts) -> Result<bool, FormatError> {
        loop {
            match self.state {
                State::Start => self.start()?,
                State::Members => {
                    if self.member(texts)? {
                        return Ok(true);
                    }
                }
                State::Features => {
                    if self.element(true, texts)? {
                        return Ok(true);
                    }
                    self.state = State::Members;
                    self.has_element = true;
                }
                State::Elements => {
                    if self.element(false, texts)? {
                        return Ok(true);
                    }
                    self.state = State::End;
                    self.check_end()?;
                }
                State::End => return Ok(false),
            }
        }
    }

    fn start(&mut self) -> Result<(), FormatError> {
        match self.peek_token()? {
            Some(b'{') => {
                self.advance();
                self.state = State::Members;
                Ok(())
            }
            Some(b'[') => {
                self.advance();
                self.state = State::Elements;
                Ok(())
            }
            Some(_) => Err(self.damaged(&format!("this is not GeoJSON, which begins with a brace; {HINT_OF_NAME}"))),
            None => Err(self.damaged("the file holds no JSON value")),
        }
    }

    /// Reads one member of the document, or its end. Returns true if the document is a record; it
    /// is added then.
    fn member(&mut self, texts: &mut RecordTexts) -> Result<bool, FormatError> {
        if self.list_end(b'}')? {
            self.state = State::End;
            return self.finish(texts);
        }
        let name_offset = self.offset;
        let name = match self.value()? {
            JsonValue::String(name) => name,
            _ => return Err(self.damaged_at(name_offset, "a member name was expected")),
        };
        if self.peek_token()? != Some(b':') {
            return Err(self.damaged("a colon was expected"));
        }
        self.advance();
        if name == "features" {
            if self.has_features {
                return Err(self.damaged_at(name_offset, "duplicate member name \"features\""));
            }
            self.has_features = true;
            if self.peek_token()? != Some(b'[') {
                return Err(self.damaged("the member \"features\" must be an array"));
            }
            self.advance();
            self.state = State::Features;
            self.has_element = false;
            return Ok(false);
        }
        self.peek_token()?;
        let start = self.offset;
        let text = self.value_text()?;
        let value = self.parsed(start, &text)?;
        if self.names.contains(&name) || self.foreign.contains_key(&name) {
            return Err(self.damaged_at(name_offset, &format!("duplicate member name {}", quoted(&name))));
        }
        if name == "crs" {
            self.crs = DeclaredCrs::from_geojson(&value);
            self.names.push(name);
            return Ok(false);
        }
        if name == "type" || MEMBERS_TAKEN.contains(&name.as_str()) {
            if name == "type" {
                self.kind = value.as_str().map(str::to_string);
            }
            drop(value);
            self.add_own_member(&name, &text);
            self.names.push(name);
            if self.own_text.len() > RECORD_BYTES_MAX {
                return Err(
                    self.damaged(&format!("the document's own members are longer than {RECORD_BYTES_MAX} bytes"))
                );
            }
            return Ok(false);
        }
        self.foreign_name_bytes += name.len();
        if self.foreign.len() == FOREIGN_MEMBERS_MAX || self.foreign_name_bytes > FOREIGN_NAME_BYTES_MAX {
            return Err(self.too_many_members(name_offset));
        }
        self.foreign.insert(name, JsonValue::Null);
        Ok(false)
    }

    /// Adds a member to the document's own record, if the document is one.
    fn add_own_member(&mut self, name: &str, text: &[u8]) {
        if self.own_text.len() > 1 {
            self.own_text.push(b',');
        }
        self.own_text.extend_from_slice(format!("{}:", JsonValue::from(name)).as_bytes());
        self.own_text.extend_from_slice(text);
    }

    fn too_many_members(&self, offset: u64) -> FormatError {
        let first: Vec<String> = self.foreign.keys().take(FOREIGN_MEMBERS_SHOWN_MAX).map(|name| quoted(name)).collect();
        let like = if first.is_empty() { String::new() } else { format!(", such as {}", first.join(", ")) };
        FormatError::refused(
            &self.path,
            Location::Byte(offset),
            format!(
                "the document has more than {FOREIGN_MEMBERS_MAX} members, or {FOREIGN_NAME_BYTES_MAX} bytes of \
                 their names, that GeoJSON does not define{like}"
            ),
            "put what describes the data into one member, and what describes a feature into its properties",
        )
    }

    /// Adds the next element of the current array; false at its end.
    fn element(&mut self, must_be_feature: bool, texts: &mut RecordTexts) -> Result<bool, FormatError> {
        if self.list_end(b']')? {
            return Ok(false);
        }
        // The line counts from where the value starts.
        self.peek_token()?;
        let (line, offset) = (self.line, self.offset);
        let bytes = self.value_text()?;
        texts.push(RecordText { line, offset, bytes: &bytes, must_be_feature });
        Ok(true)
    }

    /// Whether the list ends here; otherwise steps over the comma.
    fn list_end(&mut self, closing: u8) -> Result<bool, FormatError> {
        match self.peek_token()? {
            Some(byte) if byte == closing => {
                self.advance();
                Ok(true)
            }
            Some(b',') if self.has_element => {
                self.advance();
                if self.peek_token()? == Some(closing) {
                    return Err(self.damaged("a value is missing after the comma"));
                }
                Ok(false)
            }
            Some(_) if !self.has_element => {
                self.has_element = true;
                Ok(false)
            }
            Some(_) => Err(self.damaged("a comma or a closing bracket was expected")),
            None => Err(self.cut_short()),
        }
    }

    fn check_end(&mut self) -> Result<(), FormatError> {
        match self.peek_token()? {
            Some(_) => Err(self.damaged("there is text after the end of the JSON value")),
            None => Ok(()),
        }
    }

    /// Checks the whole document at its end. Returns true if the document is a record; it is added
    /// then.
    fn finish(&mut self, texts: &mut RecordTexts) -> Result<bool, FormatError> {
        self.check_end()?;
        let kind = match self.kind.take() {
            Some(kind) => kind,
            None if self.names.iter().any(|name| name == "type") => {
                return Err(self.damaged("the member \"type\" must be a string"));
            }
            None => return Err(self.damaged("the object has no member \"type\": this is not GeoJSON")),
        };
        match kind.as_str() {
            "FeatureCollection" if self.has_features => Ok(false),
            "FeatureCollection" => Err(self.damaged("the FeatureCollection has no member \"features\"")),
            _ if self.has_features => {
                Err(self.damaged(&format!("an object of type {kind:?} has features; only a FeatureCollection may")))
            }
            "Feature" => Ok(self.add_own_record(texts)),
            kind if is_geometry_type(kind) => Ok(self.add_own_record(texts)),
            kind => Err(self.damaged(&format!("unknown GeoJSON type {kind:?}"))),
        }
    }

    /// Adds the document as a single record. The limits of a record apply to it as a whole.
    fn add_own_record(&mut self, texts: &mut RecordTexts) -> bool {
        // Foreign members are added by name alone, as no column takes their values.
        for name in std::mem::take(&mut self.foreign).keys() {
            self.add_own_member(name, b"null");
        }
        self.own_text.push(b'}');
        let bytes = std::mem::take(&mut self.own_text);
        texts.push(RecordText { line: 1, offset: 0, must_be_feature: false, bytes: &bytes });
        true
    }

    /// A value that starts at the byte `start`, from its text.
    fn parsed(&self, start: u64, text: &[u8]) -> Result<JsonValue, FormatError> {
        parse_strict(text).map_err(|error| self.parse_error(start, &error))
    }

    fn value(&mut self) -> Result<JsonValue, FormatError> {
        self.peek_token()?;
        let start = self.offset;
        let text = self.value_text()?;
        self.parsed(start, &text)
    }

    fn parse_error(&self, start: u64, error: &JsonError) -> FormatError {
        let offset = start + error.offset.unwrap_or(0) as u64;
        self.damaged_at(offset, &error.reason)
    }

    /// The text of the value that starts at the next token.
    fn value_text(&mut self) -> Result<Vec<u8>, FormatError> {
        let mut text = Vec::new();
        let mut scan = ValueScan::default();
        loop {
            let available = match self.content.fill_buf() {
                Ok(available) => available,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(FormatError::reading(&self.path, error)),
            };
            if available.is_empty() {
                // A scalar may end with the file; the caller then misses the closing bracket.
                return Err(self.cut_short());
            }
            let (count, is_complete) = scan.advance(available);
            text.extend_from_slice(&available[..count]);
            self.line += available[..count].iter().filter(|&&byte| byte == b'\n').count() as u64;
            self.content.consume(count);
            self.offset += count as u64;
            if scan.depth > DEPTH_MAX {
                return Err(self.damaged(&format!("brackets are nested deeper than {DEPTH_MAX}")));
            }
            if text.len() > RECORD_BYTES_MAX {
                return Err(self.damaged(&format!("a value is longer than {RECORD_BYTES_MAX} bytes")));
            }
            if is_complete {
                return Ok(text);
            }
        }
    }

    /// The next byte that is not blank, without consuming it.
    fn peek_token(&mut self) -> Result<Option<u8>, FormatError> {
        loop {
            let available = match self.content.fill_buf() {
                Ok(available) => available,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(FormatError::reading(&self.path, error)),
            };
            let blank = available.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n')).count();
            let token = available.get(blank).copied();
            let is_end = available.is_empty();
            self.line += available[..blank].iter().filter(|&&byte| byte == b'\n').count() as u64;
            self.content.consume(blank);
            self.offset += blank as u64;
            if token.is_some() || is_end {
                return Ok(token);
            }
        }
    }

    /// Consumes the byte that `peek_token` returned.
    fn advance(&mut self) {
        self.content.consume(1);
        self.offset += 1;
    }

    fn cut_short(&self) -> FormatError {
        self.damaged("the file ends inside a JSON value: it is cut short")
    }

    fn damaged(&self, reason: &str) -> FormatError {
        self.damaged_at(self.offset, reason)
    }

    fn damaged_at(&self, offset: u64, reason: &str) -> FormatError {
        FormatError::damaged(&self.path, Location::Byte(offset), format!("{reason} (line {})", self.line))
    }
}

/// Finds the end of a value by its brackets and quotes.
#[derive(Default)]
pub(super) struct ValueScan {
    depth: u32,
    in_string: bool,
    is_escaped: bool,
    is_scalar: bool,
}

impl ValueScan {
    /// How many of `bytes` belong to the value, and whether it ends with them.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> (usize, bool) {
        for (index, &byte) in bytes.iter().enumerate() {
            if self.in_string {
                match byte {
                    _ if self.is_escaped => self.is_escaped = false,
                    b'\\' => self.is_escaped = true,
                    b'"' => {
                        self.in_string = false;
                        if self.depth == 0 {
                            return (index + 1, true);
                        }
                    }
                    _ => {}
                }
                continue;
            }
            match byte {
                b',' | b'}' | b']' | b':' | b' ' | b'\t' | b'\r' | b'\n' | b'"' | b'{' | b'[' if self.is_scalar => {
                    return (index, true);
                }
                b'"' => self.in_string = true,
                b'{' | b'[' => {
                    self.depth += 1;
                    if self.depth > DEPTH_MAX {
                        return (index + 1, true);
                    }
                }
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return (index + 1, true);
                    }
                }
                // No value starts like this; the strict parser reports it.
                b',' | b':' if self.depth == 0 => return (index + 1, true),
                _ => self.is_scalar = self.depth == 0,
            }
        }
        (bytes.len(), false)
    }
}
