//! Geometries as KML and as GML 2.

use std::fmt::Write;

use datafusion::common::{Result, exec_err};
use terrane_space::geometry::{Coordinates, GeometryKind, Tree, TreeBody};

use super::Kind::{Geometry as G, Int as I, Text as T};
use super::Returns;
use super::tail::{Arg, Tail, Value, of};
use crate::geometry::WGS84_SRID;

/// The functions.
pub(super) const FUNCTIONS: &[Tail] =
    &[of(&["st_askml"], &[G, I, T], 1, Returns::Text, kml), of(&["st_asgml"], &[G, I], 1, Returns::Text, gml)];

/// How a format differs from the other.
struct Markup {
    /// In front of each name, with its colon.
    prefix: String,
    /// Of the outermost element.
    attributes: String,
    digits: usize,
    is_gml: bool,
}

/// Decimal digits of a coordinate.
fn digits(args: &[Arg<'_>]) -> Result<usize> {
    const DIGITS_MAX: i64 = 15;
    let digits = args.get(1).map_or(Ok(DIGITS_MAX), Arg::int)?;
    match digits < 0 {
        true => exec_err!("{digits} is not a number of digits; use one of at least 0"),
        false => Ok(usize::try_from(digits.min(DIGITS_MAX)).unwrap_or(0)),
    }
}

fn kml(args: &[Arg<'_>]) -> Result<Value> {
    let prefix = match args.get(2).map_or(Ok(""), Arg::text)? {
        "" => String::new(),
        name if name.chars().all(|sign| sign.is_alphanumeric() || "_-.".contains(sign)) => format!("{name}:"),
        name => return exec_err!("'{name}' is not the prefix of a name space"),
    };
    if args[0].srid() != WGS84_SRID {
        return exec_err!("KML has longitudes and latitudes; use ST_Transform(geometry, {WGS84_SRID}) or ST_SetSRID");
    }
    written(args, &Markup { prefix, attributes: String::new(), digits: digits(args)?, is_gml: false })
}

fn gml(args: &[Arg<'_>]) -> Result<Value> {
    let attributes = match args[0].srid() {
        0 => String::new(),
        srid => format!(" srsName=\"EPSG:{srid}\""),
    };
    written(args, &Markup { prefix: "gml:".to_owned(), attributes, digits: digits(args)?, is_gml: true })
}

fn written(args: &[Arg<'_>], markup: &Markup) -> Result<Value> {
    let tree = args[0].tree()?;
    if tree.is_empty() {
        return Ok(Value::Null);
    }
    let mut text = String::new();
    markup.write(&tree, &markup.attributes, &mut text);
    Ok(Value::Text(text))
}

impl Markup {
    fn element(&self, name: &str, attributes: &str, text: &mut String, content: impl FnOnce(&mut String)) {
        // Writing to a string does not fail.
        let _ = write!(text, "<{}{name}{attributes}>", self.prefix);
        content(text);
        let _ = write!(text, "</{}{name}>", self.prefix);
    }

    fn coordinates(&self, path: &[Coordinates], has_z: bool, text: &mut String) {
        self.element("coordinates", "", text, |text| {
            for (number, position) in path.iter().enumerate() {
                let tuple: Vec<String> =
                    position[..if has_z { 3 } else { 2 }].iter().map(|n| self.number(*n)).collect();
                text.push_str(if number == 0 { "" } else { " " });
                text.push_str(&tuple.join(","));
            }
        });
    }

    /// A number without zeros at its end.
    fn number(&self, number: f64) -> String {
        let shortest = number.to_string();
        let decimals = shortest.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        if decimals <= self.digits {
            return shortest;
        }
        let rounded = format!("{number:.*}", self.digits);
        let short = if rounded.contains('.') { rounded.trim_end_matches('0').trim_end_matches('.') } else { &rounded };
        if short == "-0" { "0".to_owned() } else { short.to_owned() }
    }

    fn write(&self, tree: &Tree, attributes: &str, text: &mut String) {
        let has_z = tree.dimensions.has_z;
        match &tree.body {
            TreeBody::Positions(path) => {
                let name = if tree.kind == GeometryKind::Point { "Point" } else { "LineString" };
                self.element(name, attributes, text, |text| self.coordinates(path, has_z, text));
            }
            TreeBody::Rings(rings) => self.element("Polygon", attributes, text, |text| {
                for (number, ring) in rings.iter().enumerate() {
                    let side = if number == 0 { "outerBoundaryIs" } else { "innerBoundaryIs" };
                    self.element(side, "", text, |text| {
                        self.element("LinearRing", "", text, |text| self.coordinates(ring, has_z, text));
                    });
                }
            }),
            TreeBody::Members(members) => {
                let (name, member_name) = match tree.kind {
                    _ if !self.is_gml => ("MultiGeometry", ""),
                    GeometryKind::MultiPoint => ("MultiPoint", "pointMember"),
                    GeometryKind::MultiLineString => ("MultiLineString", "lineStringMember"),
                    GeometryKind::MultiPolygon => ("MultiPolygon", "polygonMember"),
                    _ => ("MultiGeometry", "geometryMember"),
                };
                self.element(name, attributes, text, |text| {
                    for member in members.iter().filter(|member| !member.is_empty()) {
                        match self.is_gml {
                            true => self.element(member_name, "", text, |text| self.write(member, "", text)),
                            false => self.write(member, "", text),
                        }
                    }
                });
            }
        }
    }
}
