//! Reads JSON records into batches, in two passes: the first learns the columns and their types
//! from all records, the second converts them.

use std::sync::Arc;

use terrane_space::Point;
use terrane_space::geometry::as_flat_point;

use super::flat::{FlatMembers, JsonRef, Names};
use super::record::RawRecord;
use super::record_text::HINT_OF_NAME;
use super::survey::Survey;
use super::texts::{Parser, TextPiece, TextSource};
use crate::error::{FormatError, Location};
use crate::format::Format;
use crate::geometry::GeometryReader;
use crate::guess::GeometryColumns;
use crate::input::Input;
use crate::layout::{ColumnSeen, Layout, empty_columns, find_geometry, unique_name};
use crate::pieces::{PieceSize, Pieces};
use crate::rows::{ColumnPlan, Role, RowBuilder, RowPlan, Scalar, json_scalar};
use crate::source::{Batch, BatchReader, Opened, ReadOptions};

/// The source of a column's values.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Origin {
    Field(String),
    Geometry,
    /// A coordinate of the record's geometry, which is a point.
    X,
    Y,
}

/// Opens a file of JSON records.
pub(crate) fn open(input: Input, format: Format, options: &ReadOptions) -> Result<Opened, FormatError> {
    let parser = Parser::new(input, format, options);
    let input = &parser.input;
    let mut survey = Survey::default();
    let survey_piece = {
        let parser = Arc::clone(&parser);
        move |piece: TextPiece| Survey::of(&parser, &piece)
    };
    let size = PieceSize::new(1, options.decoded_bytes_max());
    let mut pieces = Pieces::new(&input.path, TextSource::new(input, format)?, size, survey_piece);
    while let Some(piece) = pieces.next()? {
        survey.merge(input, piece?)?;
    }
    let crs = pieces.into_source().records.crs();
    let is_plain = parser.is_plain();
    if survey.row_count == 0 && format != Format::GeoJson {
        return Err(FormatError::damaged(&input.path, Location::File, "the file holds no JSON record"));
    }
    if let Some((line, reason, is_json)) = survey.first_refused.take()
        && survey.good_count == 0
        && is_plain
    {
        // No column is known; any other message about the file would be misleading.
        let others = if survey.row_count > 1 { "; nor can any other record of the file be used" } else { "" };
        let hint = if is_json { String::new() } else { format!("; {HINT_OF_NAME}") };
        return Err(FormatError::damaged(&input.path, Location::Line(line), format!("{reason}{others}{hint}")));
    }
    let seen: Vec<ColumnSeen<'_>> =
        survey.names.iter().zip(&survey.observed).map(|(name, observed)| ColumnSeen { name, observed }).collect();
    // A geometry that is always null does not prevent coordinate columns.
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
        GeometryColumns::Coordinates { x, y } if has_geometry && survey.names.place(x).is_none() => {
            Some([x.clone(), y.clone()])
        }
        _ => None,
    };
    let coordinates_are_fields = own_points.is_none();
    if let Some(names) = own_points {
        layout.columns.extend(names.map(|name| ColumnPlan::new(name, Role::Coordinate)));
        origins.extend([Origin::X, Origin::Y]);
    } else if has_geometry {
        let name = unique_name(options.own_geometry_name.as_deref().unwrap_or("geometry"), |name| {
            survey.names.place(name).is_some()
        });
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
    let geometry_reader = GeometryReader::new(&input.path, &crs, &options.coordinates, &mut layout.warnings)?;
    let converted_fields = coordinates_are_fields.then(|| geometry_reader.clone());
    let rows = RowPlan::new(layout.columns, &layout.geometry, converted_fields);
    let schema = rows.schema();
    let size = PieceSize::new(rows.columns.len(), options.decoded_bytes_max());
    let converter = Converter {
        parser: Arc::clone(&parser),
        names: survey.names,
        rows,
        origins,
        geometry_reader: geometry_reader.clone(),
    };
    let convert = move |piece: TextPiece| converter.convert_all(&piece);
    let batches = Pieces::new(&input.path, TextSource::new(input, format)?, size, convert);
    Ok(Opened {
        schema,
        geometry: layout.geometry,
        warnings: layout.warnings,
        row_count_hint: Some(survey.row_count),
        stored_types: Vec::new(),
        empty_columns,
        reader: Box::new(JsonReader { batches, geometry_reader }),
    })
}

/// Converts records to rows.
struct Converter {
    parser: Arc<Parser>,
    /// The members that are columns; they come first.
    names: Names,
    rows: RowPlan,
    origins: Vec<Origin>,
    geometry_reader: GeometryReader,
}

impl Converter {
    fn convert_all(&self, piece: &TextPiece) -> Result<Batch, FormatError> {
        let is_flat = self.parser.is_flat();
        let mut rows = RowBuilder::new(&self.rows, piece.len());
        let mut members = FlatMembers::default();
        for row in piece.rows() {
            let outcome = if is_flat && members.read(row.text.bytes, &self.names) {
                self.convert_flat(&members).and_then(|scalars| rows.push(row.number, scalars))
            } else {
                self.parser.parse(&row)?.and_then(|mut record| {
                    record.take_id();
                    rows.push(row.number, self.convert(&record)?)
                })
            };
            if let Err(reason) = outcome {
                let raw = String::from_utf8_lossy(row.text.bytes).into_owned();
                rows.reject(row.number, row.text.line, reason, raw);
            }
        }
        rows.finish(&self.parser.input.path)
    }

    fn convert<'a>(&self, record: &'a RawRecord) -> Result<Vec<Scalar<'a>>, String> {
        self.rows
            .columns
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

    /// The values of a record of scalars.
    fn convert_flat<'a>(&self, members: &'a FlatMembers<'_>) -> Result<Vec<Scalar<'a>>, String> {
        let mut scalars = Vec::with_capacity(self.rows.columns.len());
        // The column behind the members is the separate geometry, which such a record does not
        // have.
        for (place, column) in self.rows.columns.iter().enumerate() {
            scalars.push(match members.get(place) {
                None => Scalar::Null,
                Some(value) => self.field(column, value)?,
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

    /// The position of a record whose geometry is a point, if it has one.
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

struct JsonReader {
    batches: Pieces<TextSource, Result<Batch, FormatError>>,
    geometry_reader: GeometryReader,
}

impl BatchReader for JsonReader {
    fn next_batch(&mut self) -> Result<Option<Batch>, FormatError> {
        self.batches.next()?.transpose()
    }

    fn notices(&self) -> Vec<String> {
        self.geometry_reader.notices()
    }
}
