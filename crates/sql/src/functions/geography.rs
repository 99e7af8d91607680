//! Measures in metres on the sphere, and conversions between reference systems.

use std::cell::RefCell;
use std::f64::consts::{PI, TAU};
use std::rc::Rc;

use datafusion::common::{Result, exec_datafusion_err, exec_err};
use terrane_formats::Transformation;
use terrane_space::geometry::{Coordinates, GeometryKind, Tree, TreeBody, summarise};
use terrane_space::sphere::{EARTH_RADIUS_M, distance_m};
use terrane_space::{CoordinateSystem, Point};

use super::Kind::{Crs, Geometry as G};
use super::Returns;
use super::relation::unreadable;
use super::tail::{Arg, Tail, Value};

/// The functions.
pub(super) const FUNCTIONS: &[Tail] = &[
    Tail {
        names: &["st_lengthsphere"],
        kinds: &[G],
        required: 1,
        returns: Returns::Number,
        call: |a| length(a, false),
    },
    Tail {
        names: &["st_perimetersphere"],
        kinds: &[G],
        required: 1,
        returns: Returns::Number,
        call: |a| length(a, true),
    },
    Tail { names: &["st_areasphere"], kinds: &[G], required: 1, returns: Returns::Number, call: area },
    Tail { names: &["st_transform"], kinds: &[G, Crs, Crs], required: 2, returns: Returns::Geometry, call: transform },
];

/// A geometry in longitudes and latitudes.
fn on_sphere(arg: &Arg<'_>) -> Result<Tree> {
    summarise(arg.wkb()?, CoordinateSystem::LonLat).map_err(unreadable)?;
    arg.tree()
}

fn path_length(path: &[Coordinates]) -> f64 {
    let place = |position: &Coordinates| Point::new(position[0], position[1]);
    path.windows(2).map(|pair| distance_m(place(&pair[0]), place(&pair[1]))).sum()
}

/// The length of all lines, or that of all rings.
fn length(args: &[Arg<'_>], of_rings: bool) -> Result<Value> {
    fn of(tree: &Tree, of_rings: bool) -> f64 {
        match &tree.body {
            TreeBody::Positions(path) if tree.kind == GeometryKind::LineString && !of_rings => path_length(path),
            TreeBody::Rings(rings) if of_rings => rings.iter().map(|ring| path_length(ring)).sum(),
            TreeBody::Positions(_) | TreeBody::Rings(_) => 0.0,
            TreeBody::Members(members) => members.iter().map(|member| of(member, of_rings)).sum(),
        }
    }
    Ok(Value::Number(of(&on_sphere(&args[0])?, of_rings)))
}

/// The share of the sphere's surface, times 4 pi, that a ring of great-circle arcs encloses: the
/// smaller of its two sides.
fn ring_area(ring: &[Coordinates]) -> f64 {
    let (mut total, mut turns) = (0.0, 0.0);
    for pair in ring.windows(2) {
        let difference = (pair[1][0] - pair[0][0]).to_radians();
        let change = difference - TAU * (difference / TAU).round();
        let [from, to] = [pair[0], pair[1]].map(|position| (position[1].to_radians() / 2.0).tan());
        // The area between the arc and the equator.
        total += 2.0 * ((change / 2.0).tan() * (from + to)).atan2(1.0 + from * to);
        turns += change;
    }
    // A ring around a pole bounds what the equator leaves.
    let area: f64 = if turns.abs() > PI { TAU - f64::abs(total) } else { f64::abs(total) };
    area.min(2.0 * TAU - area)
}

fn area(args: &[Arg<'_>]) -> Result<Value> {
    fn of(tree: &Tree) -> f64 {
        match &tree.body {
            TreeBody::Positions(_) => 0.0,
            TreeBody::Rings(rings) => match rings.split_first() {
                Some((outer, holes)) => ring_area(outer) - holes.iter().map(|hole| ring_area(hole)).sum::<f64>(),
                None => 0.0,
            },
            TreeBody::Members(members) => members.iter().map(of).sum(),
        }
    }
    Ok(Value::Number(of(&on_sphere(&args[0])?) * EARTH_RADIUS_M * EARTH_RADIUS_M))
}

/// The EPSG code in `EPSG:3857`.
pub(super) fn code_of(text: &str) -> Option<i64> {
    let (authority, code) = text.trim().split_once(':')?;
    match authority.to_ascii_uppercase().as_str() {
        "EPSG" => code.parse().ok(),
        "OGC" if code.eq_ignore_ascii_case("CRS84") => Some(crate::geometry::WGS84_SRID),
        _ => None,
    }
}

fn code(arg: &Arg<'_>) -> Result<i64> {
    match arg {
        Arg::Text(text) => {
            code_of(text).ok_or_else(|| exec_datafusion_err!("'{text}' is not a reference system, such as EPSG:3857"))
        }
        arg => arg.int(),
    }
}

thread_local! {
    /// The last conversion. The next row mostly needs it again.
    static LAST: RefCell<Option<([i64; 2], Rc<Transformation>)>> = const { RefCell::new(None) };
}

fn transformation(from: i64, to: i64) -> Result<Rc<Transformation>> {
    let last = LAST.with_borrow(|last| last.clone());
    if let Some((_, known)) = last.filter(|(codes, _)| *codes == [from, to]) {
        return Ok(known);
    }
    let number = |code: i64| u32::try_from(code).unwrap_or(0);
    let made = Transformation::between(number(from), number(to))
        .map_err(|error| exec_datafusion_err!("there is no conversion from EPSG:{from} to EPSG:{to}: {error}"))?;
    let made = Rc::new(made);
    LAST.set(Some(([from, to], made.clone())));
    Ok(made)
}

/// The geometry in another reference system. Edges stay straight between their new ends.
fn transform(args: &[Arg<'_>]) -> Result<Value> {
    let (from, to) = match args {
        [geometry, to] => (geometry.srid(), code(to)?),
        [_, from, to] => (code(from)?, code(to)?),
        _ => return exec_err!("st_transform takes 2 or 3 arguments"),
    };
    if from == 0 {
        return exec_err!(
            "the reference system of the geometry is not known; name it: ST_Transform(geometry, 'EPSG:4326', 'EPSG:{to}')"
        );
    }
    let mut tree = args[0].tree()?;
    if from == to {
        return Ok(tree.into());
    }
    let transformation = transformation(from, to)?;
    let failure: RefCell<Option<String>> = RefCell::new(None);
    tree.change(&|position| match transformation.convert(position[0], position[1]) {
        Ok((x, y)) => (position[0], position[1]) = (x, y),
        Err(error) => _ = failure.borrow_mut().get_or_insert(error),
    });
    match failure.into_inner() {
        Some(error) => exec_err!("{error}"),
        None => Ok(tree.into()),
    }
}
