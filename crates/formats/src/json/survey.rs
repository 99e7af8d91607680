//! The first pass over a file of records: what the records tell of its columns.

use super::flat::{FlatMembers, Names};
use super::foreign::ForeignMembers;
use super::record::{RawGeometry, RawRecord};
use super::texts::{Parser, Row, TextPiece};
use crate::error::{FormatError, Location};
use crate::input::Input;
use crate::types::Observed;

/// Most different member names in the records of a file.
const COLUMNS_MAX: usize = 10_000;

/// Most bytes of a member name, the same as of a column name.
const NAME_BYTES_MAX: usize = 255;

/// The result of the first pass.
#[derive(Default)]
pub(super) struct Survey {
    pub names: Names,
    pub observed: Vec<Observed>,
    /// The field name for feature ids that differ from their property `id`.
    pub other_id: Option<String>,
    pub has_geometry: bool,
    /// Whether a record states that it has no geometry.
    pub has_null_geometry: bool,
    pub foreign: ForeignMembers,
    pub row_count: u64,
    pub good_count: u64,
    /// The first record that cannot be used: its line, the reason, and whether it begins like JSON.
    pub first_refused: Option<(u64, String, bool)>,
}

impl Survey {
    /// What the records of a piece tell.
    pub(super) fn of(parser: &Parser, piece: &TextPiece) -> Result<Survey, FormatError> {
        let is_flat = parser.is_flat();
        let mut survey = Survey { row_count: piece.len() as u64, ..Survey::default() };
        let mut members = FlatMembers::default();
        for row in piece.rows() {
            if is_flat && survey.take_flat(&row, &mut members) {
                continue;
            }
            match parser.parse(&row)? {
                Ok(record) => survey.take(&parser.input, &row, record)?,
                Err(reason) if survey.first_refused.is_none() => {
                    let is_json = matches!(row.text.bytes.trim_ascii_start().first(), Some(b'{' | b'['));
                    survey.first_refused = Some((row.text.line, reason, is_json));
                }
                Err(_) => {}
            }
        }
        Ok(survey)
    }

    /// Adds what the next records tell.
    pub(super) fn merge(&mut self, input: &Input, later: Survey) -> Result<(), FormatError> {
        for (name, observed) in later.names.iter().zip(later.observed) {
            let index = match self.names.place(name) {
                Some(index) => index,
                None => self.add_column(input, Location::File, name)?,
            };
            self.observed[index].merge(observed);
        }
        self.other_id = self.other_id.take().or(later.other_id);
        self.has_geometry |= later.has_geometry;
        self.has_null_geometry |= later.has_null_geometry;
        self.foreign.merge(later.foreign);
        self.row_count += later.row_count;
        self.good_count += later.good_count;
        self.first_refused = self.first_refused.take().or(later.first_refused);
        Ok(())
    }

    fn take(&mut self, input: &Input, row: &Row<'_>, mut record: RawRecord) -> Result<(), FormatError> {
        self.good_count += 1;
        self.has_geometry |= !matches!(record.geometry, RawGeometry::Absent | RawGeometry::Null);
        self.has_null_geometry |= record.geometry == RawGeometry::Null;
        self.foreign.note(&record.foreign);
        let other_id = record.take_id();
        if self.other_id.is_none() {
            self.other_id = other_id;
        }
        for (name, value) in &record.fields {
            let index = match self.names.place(name) {
                Some(index) => index,
                None => self.add_column(input, Location::Line(row.text.line), name)?,
            };
            self.observed[index].json(row.number, value.into());
        }
        Ok(())
    }

    /// Observes a record of scalars with known columns; false if the record is not of this kind.
    fn take_flat<'t>(&mut self, row: &Row<'t>, members: &mut FlatMembers<'t>) -> bool {
        if !members.read(row.text.bytes, &self.names) {
            return false;
        }
        for (column, value) in members.iter() {
            self.observed[column].json(row.number, value);
        }
        self.good_count += 1;
        true
    }

    fn add_column(&mut self, input: &Input, place: Location, name: &str) -> Result<usize, FormatError> {
        let index = self.names.len();
        if index == COLUMNS_MAX {
            return Err(FormatError::refused(
                &input.path,
                Location::File,
                format!("the records have more than {COLUMNS_MAX} different members"),
                "use fixed member names and put what varies into values",
            ));
        }
        if name.len() > NAME_BYTES_MAX {
            let start: String = name.chars().take(40).collect();
            return Err(FormatError::refused(
                &input.path,
                place,
                format!(
                    "the member name {start:?}… has {} bytes; a column name has at most {NAME_BYTES_MAX}",
                    name.len()
                ),
                "use shorter names",
            ));
        }
        self.names.push(name);
        self.observed.push(Observed::for_column(name));
        Ok(index)
    }
}
