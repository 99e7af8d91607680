//! Reading JSON records into batches, in two passes: the first learns the
//! columns and their types from all records, the second converts them.

use std::collections::HashMap;

use arrow_schema::ArrowError;
use terrane_space::Point;
use terrane_space::geometry::as_flat_point;

use super::document::DocumentReader;
use super::flat::{FlatMembers, JsonRef};
use super::foreign::ForeignMembers;
use super::lines::LineReader;
use super::record::{RawGeometry, RawRecord, replace_nulls};
use super::strict::{JsonErrorKind, JsonValue, parse_strict};
use crate::crs::DeclaredCrs;
use crate::error::{FormatError, Location};
use crate::format::Format;
use crate::geometry::GeometryReader;
use crate::input::Input;
use crate::layout::{ColumnSeen, Layout, empty_columns, find_geometry, unique_name};
use crate::rows::{ColumnPlan, Role, RowBuilder, Scalar, json_scalar, schema_of};
use crate::source::{Batch, BatchReader, GeometryColumns, Opened, ReadOptions};
use crate::types::Observed;

/// How long the text of one record may be.
pub(crate) const RECORD_BYTES_MAX: usize = 64 << 20;

/// How many different member names the records of a file may have.
const COLUMNS_MAX: usize = 10_000;

/// How long such a name may be, as no column has a longer one.
const NAME_BYTES_MAX: usize = 255;

/// What to do where a file is no JSON at all, which its name says that it is.
pub(super) const HINT_OF_NAME: &str =
    "if the file has another format, give it a name that says so, such as one in .csv";

/// The text of one record, still to be parsed.
pub(crate) struct RecordText {
    /// The line on which it starts, counted from 1.
    pub line: u64,
    /// The byte at which it starts.
    pub offset: u64,
    /// Whether it stands in the `features` of a document.
    pub must_be_feature: bool,
    pub bytes: Vec<u8>,
}

/// The records of a file.
enum Records {
    Lines(LineReader),
    Document(Box<DocumentReader>),
}

impl Records {
    fn new(input: &Input, format: Format) -> Result<Records, FormatError> {
        Ok(match format {
            Format::GeoJson | Format::JsonArray => Records::Document(Box::new(DocumentReader::new(input)?)),
            _ => Records::Lines(LineReader::new(input)?),
        })
    }

    fn next(&mut self) -> Result<Option<RecordText>, FormatError> {
        match self {
            Records::Lines(reader) => reader.next(),
            Records::Document(reader) => reader.next(),
        }
    }

    /// A record's text as a value. Bad syntax inside a document is damage to
    /// the document; between lines it spoils only its own record.
    fn parse(
        &mut self,
        input: &Input,
        text: &RecordText,
        options: &ReadOptions,
    ) -> Result<Result<RawRecord, String>, FormatError> {
        let mut value = match parse_strict(&text.bytes) {
            Ok(value) => value,
            Err(error) => {
                if error.kind != JsonErrorKind::Content && matches!(self, Records::Document(_)) {
                    let offset = text.offset + error.offset.unwrap_or(0) as u64;
                    return Err(FormatError::damaged(&input.path, Location::Byte(offset), error.reason));
                }
                let reason = match self {
                    Records::Lines(reader) if error.kind == JsonErrorKind::Unfinished => reader.goes_on(input)?,
                    _ => None,
                };
                return Ok(Err(reason.unwrap_or_else(|| error.to_string())));
            }
        };
        if text.must_be_feature && value.get("type").and_then(JsonValue::as_str) != Some("Feature") {
            return Ok(Err("an element of \"features\" is not a Feature".to_string()));
        }
        replace_nulls(&mut value, &options.nulls);
        Ok(RawRecord::from_value(value).and_then(|mut record| {
            options.settle_members(&mut record.fields)?;
            Ok(record)
        }))
    }

    fn crs(&self) -> DeclaredCrs {
        match self {
            Records::Lines(_) => DeclaredCrs::Undeclared,
            Records::Document(reader) => reader.crs(),
        }
    }
}

/// What the first pass learns.
#[derive(Default)]
struct Survey {
    names: Vec<String>,
    index: HashMap<String, usize>,
    observed: Vec<Observed>,
    /// What the id of a feature became whose property of that name is another.
    other_id: Option<String>,
    has_geometry: bool,
    /// Of those without a place: whether a record says that it has none.
    has_null_geometry: bool,
    foreign: ForeignMembers,
    row_count: u64,
    good_count: u64,
    /// The first record that cannot be used: its line, why, and whether it begins as JSON does.
    first_refused: Option<(u64, String, bool)>,
}

impl Survey {
    fn take(&mut self, input: &Input, row: u64, line: u64, mut record: RawRecord) -> Result<(), FormatError> {
        self.good_count += 1;
        self.has_geometry |= !matches!(record.geometry, RawGeometry::Absent | RawGeometry::Null);
        self.has_null_geometry |= record.geometry == RawGeometry::Null;
        self.foreign.note(&record.foreign);
        let other_id = record.take_id();
        if self.other_id.is_none() {
            self.other_id = other_id;
        }
        for (name, value) in &record.fields {
            let index = match self.index.get(name) {
                Some(&index) => index,
                None => self.add_column(input, line, name)?,
            };
            self.observed[index].json(row, value.into());
        }
        Ok(())
    }

    /// Takes a record of scalars in columns that are known; false if it is none.
    fn take_flat(&mut self, row: u64, text: &RecordText) -> bool {
        let place_of = |likely: usize, name: &str| place_of(&self.names, &self.index, likely, name);
        let Some(members) = FlatMembers::read(&text.bytes, &place_of, self.names.len()) else {
            return false;
        };
        for (observed, value) in self.observed.iter_mut().zip(&members.values) {
            if let Some(value) = value {
                observed.json(row, value.as_ref());
            }
        }
        self.good_count += 1;
        true
    }

    fn add_column(&mut self, input: &Input, line: u64, name: &str) -> Result<usize, FormatError> {
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
                Location::Line(line),
                format!("a member's name {start:?}… has {} bytes; a column's has {NAME_BYTES_MAX} at most", name.len()),
                "use shorter names",
            ));
        }
        self.names.push(name.to_string());
        self.index.insert(name.to_string(), index);
        self.observed.push(Observed::for_column(name));
        Ok(index)
    }
}

/// The place of a name among the columns, likely this one.
fn place_of(names: &[String], index: &HashMap<String, usize>, likely: usize, name: &str) -> Option<usize> {
    match names.get(likely) {
        Some(known) if known == name => Some(likely),
        _ => index.get(name).copied(),
    }
}

/// Where the value of a column comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Origin {
    Field(String),
    Geometry,
    /// A coordinate of the geometry, which is a point.
    X,
    Y,
}

/// Opens a file of JSON records.
pub(crate) fn open(input: Input, format: Format, options: &ReadOptions) -> Result<Opened, FormatError> {
    let mut records = Records::new(&input, format)?;
    // Records that need not have a geometry beside their fields.
    let is_plain = matches!(format, Format::Ndjson | Format::JsonArray);
    let is_flat = is_plain && options.nulls.is_empty() && !options.settles_members();
    let mut survey = Survey::default();
    while let Some(text) = records.next()? {
        survey.row_count += 1;
        if is_flat && survey.take_flat(survey.row_count, &text) {
            continue;
        }
        match records.parse(&input, &text, options)? {
            Ok(record) => survey.take(&input, survey.row_count, text.line, record)?,
            Err(reason) if survey.first_refused.is_none() => {
                let is_json = matches!(text.bytes.trim_ascii_start().first(), Some(b'{' | b'['));
                survey.first_refused = Some((text.line, reason, is_json));
            }
            Err(_) => {}
        }
    }
    if survey.row_count == 0 && format != Format::GeoJson {
        return Err(FormatError::damaged(&input.path, Location::File, "the file holds no JSON record"));
    }
    if let Some((line, reason, is_json)) = survey.first_refused.take()
        && survey.good_count == 0
        && is_plain
    {
        // No column is known, so that nothing else that could be said of the file would be true.
        let others = if survey.row_count > 1 { "; nor can any other record of the file be used" } else { "" };
        let hint = if is_json { String::new() } else { format!("; {HINT_OF_NAME}") };
        return Err(FormatError::damaged(&input.path, Location::Line(line), format!("{reason}{others}{hint}")));
    }
    let seen: Vec<ColumnSeen<'_>> =
        survey.names.iter().zip(&survey.observed).map(|(name, observed)| ColumnSeen { name, observed }).collect();
    // A geometry that is always null does not keep records from having their places in coordinates.
    let has_other_geometry =
        || find_geometry(&input.path, &seen, options, false).is_ok_and(|found| found != GeometryColumns::None);
    let is_of_nulls = survey.has_null_geometry && !has_other_geometry();
    let has_geometry = survey.has_geometry || is_of_nulls || !is_plain;
    let mut layout = Layout::new(&input.path, &seen, options, has_geometry)?;
    let empty_columns = empty_columns(&seen);
    let mut origins: Vec<Origin> = survey.names.iter().cloned().map(Origin::Field).collect();
    if let Some(name) = &survey.other_id {
        layout.warnings.push(format!(
            "features have a property \"id\" that is not their id; the property is column \"id\", the id is column {name:?}"
        ));
    }
    let own_points = match &layout.geometry {
        GeometryColumns::Coordinates { x, y } if has_geometry && !survey.names.contains(x) => {
            Some([x.clone(), y.clone()])
        }
        _ => None,
    };
    let coordinates_are_fields = own_points.is_none();
    if let Some(names) = own_points {
        layout.columns.extend(names.map(|name| ColumnPlan::new(name, Role::Coordinate)));
        origins.extend([Origin::X, Origin::Y]);
    } else if has_geometry {
        let name =
            unique_name(options.own_geometry_name.as_deref().unwrap_or("geometry"), |name| survey.names.contains(name));
        if layout.geometry == GeometryColumns::None {
            layout.geometry = GeometryColumns::Column { name: name.clone() };
        }
        layout.columns.push(ColumnPlan::new(name, Role::Geometry));
        origins.push(Origin::Geometry);
    }
    layout.settle_integers(options);
    if !survey.foreign.is_empty() {
        layout.warnings.push(survey.foreign.to_string());
    }
    let geometry_reader = GeometryReader::new(&input.path, &records.crs(), &options.coordinates, &mut layout.warnings)?;
    let converted_fields = coordinates_are_fields.then(|| geometry_reader.clone());
    let reader = JsonReader {
        records: Records::new(&input, format)?,
        rows: RowBuilder::new(&layout.columns, &layout.geometry, converted_fields),
        names: survey.names,
        index: survey.index,
        is_flat,
        options: options.clone(),
        input,
        columns: layout.columns.clone(),
        origins,
        geometry_reader,
        row: 0,
    };
    Ok(Opened {
        schema: schema_of(&layout.columns),
        geometry: layout.geometry,
        warnings: layout.warnings,
        row_count_hint: Some(survey.row_count),
        stored_types: Vec::new(),
        empty_columns,
        reader: Box::new(reader),
    })
}

struct JsonReader {
    input: Input,
    records: Records,
    columns: Vec<ColumnPlan>,
    origins: Vec<Origin>,
    geometry_reader: GeometryReader,
    rows: RowBuilder,
    /// The members that are columns, the first ones.
    names: Vec<String>,
    index: HashMap<String, usize>,
    /// Whether records of scalars are nothing but their members.
    is_flat: bool,
    options: ReadOptions,
    row: u64,
}

impl JsonReader {
    fn convert<'a>(&self, record: &'a RawRecord) -> Result<Vec<Scalar<'a>>, String> {
        self.columns
            .iter()
            .zip(&self.origins)
            .map(|(column, origin)| {
                let value = match origin {
                    Origin::Geometry => {
                        let wkb = record.geometry.convert(&self.geometry_reader)?;
                        return Ok(wkb.map_or(Scalar::Null, |wkb| Scalar::Binary(wkb.into())));
                    }
                    Origin::X => return Ok(self.point(record)?.map_or(Scalar::Null, |point| Scalar::Float64(point.x))),
                    Origin::Y => return Ok(self.point(record)?.map_or(Scalar::Null, |point| Scalar::Float64(point.y))),
                    Origin::Field(name) => record.fields.get(name),
                };
                value.map_or(Ok(Scalar::Null), |value| self.field(column, value.into()))
            })
            .collect()
    }
}

impl JsonReader {
    /// The values of a record of scalars.
    fn convert_flat<'a>(&self, members: &'a FlatMembers<'_>) -> Result<Vec<Scalar<'a>>, String> {
        let mut scalars = Vec::with_capacity(self.columns.len());
        // What comes after the members is the geometry beside them, which such a record does not have.
        for (place, column) in self.columns.iter().enumerate() {
            let value = members.values.get(place).and_then(Option::as_ref);
            scalars.push(match value {
                None => Scalar::Null,
                Some(value) => self.field(column, value.as_ref())?,
            });
        }
        Ok(scalars)
    }

    /// The value of a member.
    fn field<'a>(&self, column: &ColumnPlan, value: JsonRef<'a>) -> Result<Scalar<'a>, String> {
        match column.role {
            Role::Geometry => {
                let wkb = self.geometry_reader.json(value)?;
                Ok(wkb.map_or(Scalar::Null, |wkb| Scalar::Binary(wkb.into())))
            }
            _ => json_scalar(value, column),
        }
        .map_err(|reason: String| format!("column {:?}: {reason}", column.name))
    }

    /// The place of a record whose geometry is a point, if it has one.
    fn point(&self, record: &RawRecord) -> Result<Option<Point>, String> {
        let Some(wkb) = record.geometry.convert(&self.geometry_reader)? else {
            return Ok(None);
        };
        let point = as_flat_point(&wkb).ok_or(
            "geometry: the dataset holds two-dimensional points; other geometries need a dataset with a geometry column",
        )?;
        Ok(Some(point))
    }
}

impl BatchReader for JsonReader {
    fn next_batch(&mut self) -> Result<Option<Batch>, FormatError> {
        while !self.rows.is_full() {
            let Some(text) = self.records.next()? else {
                break;
            };
            self.row += 1;
            if self.is_flat {
                let place_of = |likely: usize, name: &str| place_of(&self.names, &self.index, likely, name);
                if let Some(members) = FlatMembers::read(&text.bytes, &place_of, self.names.len()) {
                    let scalars = self.convert_flat(&members);
                    let outcome = scalars.and_then(|scalars| self.rows.push(self.row, scalars));
                    if let Err(reason) = outcome {
                        let raw = String::from_utf8_lossy(&text.bytes).into_owned();
                        self.rows.reject(self.row, text.line, reason, raw);
                    }
                    continue;
                }
            }
            let record = self.records.parse(&self.input, &text, &self.options)?;
            let outcome = record.and_then(|mut record| {
                record.take_id();
                let scalars = self.convert(&record)?;
                self.rows.push(self.row, scalars)
            });
            if let Err(reason) = outcome {
                let raw = String::from_utf8_lossy(&text.bytes).into_owned();
                self.rows.reject(self.row, text.line, reason, raw);
            }
        }
        if self.rows.is_empty() {
            return Ok(None);
        }
        let batch = self.rows.finish().map_err(|error| internal(&self.input, &error))?;
        Ok(Some(batch))
    }

    fn notices(&self) -> Vec<String> {
        self.geometry_reader.notices()
    }
}

/// Arrow refused columns that were built to fit.
pub(crate) fn internal(input: &Input, error: &ArrowError) -> FormatError {
    FormatError::damaged(&input.path, Location::File, format!("the rows do not form a batch: {error}"))
}
