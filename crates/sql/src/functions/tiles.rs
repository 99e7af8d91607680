//! Tiles of vectors for web maps: Mapbox Vector Tiles, version 2.1.

use std::collections::HashMap;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, StructArray};
use arrow_schema::{DataType, Field};
use datafusion::arrow::compute::cast;
use datafusion::common::{Result, exec_datafusion_err, exec_err};
use datafusion::logical_expr::ColumnarValue;
use terrane_space::Point;
use terrane_space::geometry::{Coordinates, Dimensions, GeometryKind, Tree, TreeBody};

use super::Kind::{Bool as B, Geometry as G, Int as I};
use super::access::bounds;
use super::arguments::Geometries;
use super::combine::within_box;
use super::network::area;
use super::parts::of_highest_dimension;
use super::relation::unreadable;
use super::tail::{Arg, Tail, Value, shape};
use super::vertices::{on_grid, valid};
use crate::geometry::envelope_wkb;

/// The functions.
pub(super) const FUNCTIONS: &[Tail] = &[shape(&["st_asmvtgeom"], &[G, G, I, I, B], 2, to_tile)];

/// Units of a tile where none are given, and most of them.
const EXTENT: i64 = 4096;
const EXTENT_MAX: i64 = 1 << 24;
const BUFFER: i64 = 256;

fn check_extent(extent: i64) -> Result<u32> {
    match u32::try_from(extent) {
        Ok(units) if (1..=EXTENT_MAX).contains(&extent) => Ok(units),
        _ => exec_err!("a tile has from 1 to {EXTENT_MAX} units, not {extent}"),
    }
}

/// A geometry in the units of a tile, from its upper left corner. One that has no part in the tile
/// and its buffer, or no size there, is null.
fn to_tile(args: &[Arg<'_>]) -> Result<Value> {
    let Some([x0, y0, x1, y1]) = bounds(&args[1].tree()?) else { return exec_err!("the bounds of a tile are empty") };
    if x0 == x1 || y0 == y1 {
        return exec_err!("the bounds of a tile have no area");
    }
    let units = f64::from(check_extent(args.get(2).map_or(Ok(EXTENT), Arg::int)?)?);
    let buffer = args.get(3).map_or(Ok(BUFFER), Arg::int)?;
    if !(0..=EXTENT_MAX).contains(&buffer) {
        return exec_err!("a buffer has from 0 to {EXTENT_MAX} units, not {buffer}");
    }
    let clips = args.get(4).map_or(Ok(true), Arg::bool)?;
    let mut tree = of_highest_dimension(args[0].tree()?);
    tree.set_dimensions(Dimensions::XY);
    tree.change(&|place| {
        *place = [(place[0] - x0) / (x1 - x0) * units, (y1 - place[1]) / (y1 - y0) * units, 0.0, 0.0];
    });
    let mut finite = true;
    tree.visit(&mut |place| finite &= place[0].is_finite() && place[1].is_finite());
    if !finite {
        return exec_err!("the coordinates of the result are not finite");
    }
    let Some(dimension) = dimension_of_parts(&tree) else { return Ok(Value::Null) };
    if clips {
        let (from, to) = (-(buffer as f64), units + buffer as f64);
        let window = envelope_wkb(Point { x: from, y: from }, Point { x: to, y: to });
        tree = Tree::parse(&within_box(&valid(tree)?.to_wkb(), &window)?).map_err(unreadable)?;
    }
    let tree = of_highest_dimension(on_grid(tree, 1.0)?);
    Ok(if dimension_of_parts(&tree) == Some(dimension) { tree.into() } else { Value::Null })
}

/// The dimension of a geometry that is not empty.
fn dimension_of_parts(tree: &Tree) -> Option<i64> {
    (!tree.is_empty()).then(|| super::access::dimension_of(tree))
}

/// The name and the extent of a layer, and the names of two members of its rows.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    pub name: String,
    pub extent: i64,
    pub geometry: Option<String>,
    pub feature_id: Option<String>,
}

impl Default for Layer {
    fn default() -> Self {
        Self { name: "default".to_owned(), extent: EXTENT, geometry: None, feature_id: None }
    }
}

fn write_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number > 0x7F {
        bytes.push((number as u8 & 0x7F) | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// A field of a protocol buffer that has a length.
fn write_bytes(bytes: &mut Vec<u8>, field: u64, content: &[u8]) {
    write_number(bytes, field << 3 | 2);
    write_number(bytes, content.len() as u64);
    bytes.extend(content);
}

fn write_field(bytes: &mut Vec<u8>, field: u64, number: u64) {
    write_number(bytes, field << 3);
    write_number(bytes, number);
}

fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63).cast_unsigned()
}

/// A column of attributes.
enum Attribute {
    Text(ArrayRef),
    Float(ArrayRef),
    Double(ArrayRef),
    Int(ArrayRef),
    Bool(ArrayRef),
}

impl Attribute {
    fn of(array: &ArrayRef) -> Result<Self> {
        let into = |wanted: DataType| {
            let unfit = |error| exec_datafusion_err!("{} is no attribute of a tile: {error}", array.data_type());
            cast(array, &wanted).map_err(unfit)
        };
        Ok(match array.data_type() {
            DataType::Boolean => Self::Bool(array.clone()),
            DataType::Float32 => Self::Float(array.clone()),
            other if other.is_integer() => Self::Int(into(DataType::Int64)?),
            other if other.is_numeric() => Self::Double(into(DataType::Float64)?),
            _ => Self::Text(into(DataType::Utf8)?),
        })
    }

    /// The encoded value of a row; `None` if it is null.
    fn encoded(&self, row: usize) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let (Self::Text(array) | Self::Float(array) | Self::Double(array) | Self::Int(array) | Self::Bool(array)) =
            self;
        if array.is_null(row) {
            return None;
        }
        match self {
            Self::Text(array) => write_bytes(&mut bytes, 1, array.as_string::<i32>().value(row).as_bytes()),
            Self::Float(array) => {
                write_number(&mut bytes, 2 << 3 | 5);
                bytes.extend(array.as_primitive::<Float32Type>().value(row).to_le_bytes());
            }
            Self::Double(array) => {
                write_number(&mut bytes, 3 << 3 | 1);
                bytes.extend(array.as_primitive::<Float64Type>().value(row).to_le_bytes());
            }
            Self::Int(array) => match array.as_primitive::<Int64Type>().value(row) {
                number if number < 0 => write_field(&mut bytes, 6, zigzag(number)),
                number => write_field(&mut bytes, 5, number.cast_unsigned()),
            },
            Self::Bool(array) => write_field(&mut bytes, 7, u64::from(array.as_boolean().value(row))),
        }
        Some(bytes)
    }
}

impl Layer {
    /// A tile with one layer of rows. Without a feature, it is empty.
    pub fn encode(&self, rows: &StructArray) -> Result<Vec<u8>> {
        let extent = check_extent(self.extent)?;
        let geometry = self.geometry_of(rows)?;
        let column = rows.column(geometry);
        let plain = Field::new("geometry", column.data_type().clone(), true);
        let geometries = Geometries::new(&ColumnarValue::Array(column.clone()), &plain)?;
        let (mut names, mut attributes, mut ids) = (Vec::new(), Vec::new(), None);
        for (number, (field, column)) in rows.fields().iter().zip(rows.columns()).enumerate() {
            if Some(field.name()) == self.feature_id.as_ref() {
                ids = match Attribute::of(column)? {
                    Attribute::Int(ids) => Some(ids),
                    _ => return exec_err!("the feature id '{}' must be an integer", field.name()),
                };
            } else if number != geometry {
                names.push(field.name());
                attributes.push(Attribute::of(column)?);
            }
        }
        if let (Some(name), None) = (&self.feature_id, &ids) {
            return exec_err!("the rows of st_asmvt have no member '{name}'");
        }
        let mut features = Vec::new();
        let mut values: Vec<Vec<u8>> = Vec::new();
        let mut known: HashMap<Vec<u8>, u64> = HashMap::new();
        for row in (0..rows.len()).filter(|row| rows.is_valid(*row)) {
            let Some(wkb) = geometries.get(row)? else { continue };
            let Some((kind, commands)) = commands(&Tree::parse(&wkb).map_err(unreadable)?)? else { continue };
            let mut tags = Vec::new();
            for (name, attribute) in attributes.iter().enumerate() {
                let Some(value) = attribute.encoded(row) else { continue };
                let place = *known.entry(value).or_insert_with_key(|value| {
                    values.push(value.clone());
                    values.len() as u64 - 1
                });
                write_number(&mut tags, name as u64);
                write_number(&mut tags, place);
            }
            let mut feature = Vec::new();
            if let Some(ids) = ids.as_ref().filter(|ids| ids.is_valid(row))
                && let Ok(id) = u64::try_from(ids.as_primitive::<Int64Type>().value(row))
            {
                write_field(&mut feature, 1, id);
            }
            if !tags.is_empty() {
                write_bytes(&mut feature, 2, &tags);
            }
            write_field(&mut feature, 3, kind);
            write_bytes(&mut feature, 4, &commands);
            write_bytes(&mut features, 2, &feature);
        }
        if features.is_empty() {
            return Ok(Vec::new());
        }
        let mut layer = Vec::new();
        write_field(&mut layer, 15, 2);
        write_bytes(&mut layer, 1, self.name.as_bytes());
        layer.extend(features);
        names.iter().for_each(|name| write_bytes(&mut layer, 3, name.as_bytes()));
        values.iter().for_each(|value| write_bytes(&mut layer, 4, value));
        write_field(&mut layer, 5, u64::from(extent));
        let mut tile = Vec::new();
        write_bytes(&mut tile, 3, &layer);
        Ok(tile)
    }

    /// The member with the geometry: the named one, or else the first of binary data.
    fn geometry_of(&self, rows: &StructArray) -> Result<usize> {
        let is_wanted = |field: &Field| match &self.geometry {
            Some(name) => field.name() == name,
            None => *field.data_type() == DataType::Binary,
        };
        match rows.fields().iter().position(|field| is_wanted(field)) {
            Some(found) => Ok(found),
            None => exec_err!("the rows of st_asmvt have no geometry; use named_struct('geom', …)"),
        }
    }
}

/// Draws a geometry relative to the last place.
#[derive(Default)]
struct Pen {
    commands: Vec<u8>,
    at: [i64; 2],
}

impl Pen {
    fn command(&mut self, id: u64, count: usize) {
        write_number(&mut self.commands, (count as u64) << 3 | id);
    }

    fn places(&mut self, places: &[[i64; 2]]) {
        for place in places {
            for (at, to) in self.at.iter_mut().zip(place) {
                write_number(&mut self.commands, zigzag(to - *at));
                *at = *to;
            }
        }
    }

    fn path(&mut self, places: &[[i64; 2]]) {
        self.command(1, 1);
        self.places(&places[..1]);
        self.command(2, places.len() - 1);
        self.places(&places[1..]);
    }
}

/// Places in whole units, none of them twice in sequence.
fn places(path: &[Coordinates]) -> Result<Vec<[i64; 2]>> {
    let unit = |number: f64| match number.abs() <= f64::from(i32::MAX) {
        true => Ok(number.round() as i64),
        false => exec_err!("{number} is no coordinate of a tile; use ST_AsMVTGeom"),
    };
    let mut places = path.iter().map(|at| Ok([unit(at[0])?, unit(at[1])?])).collect::<Result<Vec<_>>>()?;
    places.dedup();
    Ok(places)
}

/// The kind of a feature and its commands; `None` if nothing is left of the geometry.
fn commands(tree: &Tree) -> Result<Option<(u64, Vec<u8>)>> {
    let mut pen = Pen::default();
    let kind = match tree.kind {
        GeometryKind::Point | GeometryKind::MultiPoint => 1,
        GeometryKind::LineString | GeometryKind::MultiLineString => 2,
        GeometryKind::Polygon | GeometryKind::MultiPolygon => 3,
        GeometryKind::GeometryCollection => {
            return exec_err!("a feature of a tile is not a collection; use ST_AsMVTGeom or ST_CollectionExtract");
        }
    };
    if kind == 1 {
        let mut all: Vec<Coordinates> = Vec::new();
        tree.visit(&mut |position| all.push(*position));
        let places = places(&all)?;
        if !places.is_empty() {
            pen.command(1, places.len());
            pen.places(&places);
        }
    }
    for part in tree.members() {
        match &part.body {
            TreeBody::Positions(path) if kind == 2 => {
                let places = places(path)?;
                if places.len() > 1 {
                    pen.path(&places);
                }
            }
            TreeBody::Rings(rings) => {
                for (number, ring) in rings.iter().enumerate() {
                    let mut ring = ring.clone();
                    // Outer rings have an area above 0 in the units of the tile.
                    if (area(&ring) > 0.0) != (number == 0) {
                        ring.reverse();
                    }
                    let mut places = places(&ring)?;
                    places.pop();
                    if places.len() < 3 {
                        // Without the outer ring, there are no holes.
                        if number == 0 { break } else { continue }
                    }
                    pen.path(&places);
                    pen.command(7, 1);
                }
            }
            _ => {}
        }
    }
    Ok((!pen.commands.is_empty()).then_some((kind, pen.commands)))
}
