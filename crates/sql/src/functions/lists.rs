//! Functions that give a list: the members, rings, edges or positions of a geometry, each with its
//! path, and the cells of a grid. `unnest` makes rows of a list.

use datafusion::common::{Result, exec_err};
use terrane_space::geometry::{Coordinates, Dimensions, GeometryKind, Tree, TreeBody};

use super::Kind::{Geometry as G, Number as N};
use super::Returns;
use super::access::bounds;
use super::boxes::{hexagon, square};
use super::elements::Element;
use super::network::area_tree;
use super::tail::{Arg, Tail, Value, of};

/// The functions.
pub(super) const FUNCTIONS: &[Tail] = &[
    of(&["st_dump"], &[G], 1, Returns::Dump, |a| dump(a, members)),
    of(&["st_dumppoints"], &[G], 1, Returns::Dump, |a| dump(a, points)),
    of(&["st_dumpsegments"], &[G], 1, Returns::Dump, |a| dump(a, segments)),
    of(&["st_dumprings"], &[G], 1, Returns::Dump, rings),
    of(&["st_squaregrid"], &[N, G], 2, Returns::Cells, square_grid),
    of(&["st_hexagongrid"], &[N, G], 2, Returns::Cells, hexagon_grid),
];

type Add<'a> = &'a mut dyn FnMut(&[i64], Tree);

/// Numbers from 1.
fn numbered<T>(all: &[T]) -> impl Iterator<Item = (i64, &T)> {
    (1..).zip(all)
}

/// The list of what a function adds, each with its path.
fn dump(args: &[Arg<'_>], of: fn(&Tree, &mut Vec<i64>, Add<'_>)) -> Result<Value> {
    let tree = args[0].tree()?;
    let mut found = Vec::new();
    if !tree.is_empty() {
        let mut add = |path: &[i64], part: Tree| found.push(Element { numbers: path.to_vec(), wkb: part.to_wkb() });
        of(&tree, &mut Vec::new(), &mut add);
    }
    Ok(Value::List(found))
}

/// Calls a function with each part that has no members.
fn parts(tree: &Tree, path: &mut Vec<i64>, call: &mut dyn FnMut(&Tree, &mut Vec<i64>)) {
    let TreeBody::Members(members) = &tree.body else { return call(tree, path) };
    for (number, member) in numbered(members) {
        path.push(number);
        parts(member, path, call);
        path.pop();
    }
}

fn members(tree: &Tree, path: &mut Vec<i64>, add: Add<'_>) {
    parts(tree, path, &mut |part, path| add(path, part.clone()));
}

/// Calls a function with each line and ring.
fn lines(tree: &Tree, path: &mut Vec<i64>, call: &mut dyn FnMut(&[Coordinates], &mut Vec<i64>)) {
    parts(tree, path, &mut |part, path| match &part.body {
        TreeBody::Rings(rings) => {
            for (number, ring) in numbered(rings) {
                path.push(number);
                call(ring, path);
                path.pop();
            }
        }
        _ => call(part.positions(), path),
    });
}

fn points(tree: &Tree, path: &mut Vec<i64>, add: Add<'_>) {
    lines(tree, path, &mut |line, path| {
        for (number, position) in numbered(line) {
            path.push(number);
            add(path, Tree::of_positions(GeometryKind::Point, tree.dimensions, vec![*position]));
            path.pop();
        }
    });
}

fn segments(tree: &Tree, path: &mut Vec<i64>, add: Add<'_>) {
    lines(tree, path, &mut |line, path| {
        for (number, pair) in (1..).zip(line.windows(2)) {
            path.push(number);
            add(path, Tree::of_positions(GeometryKind::LineString, tree.dimensions, pair.to_vec()));
            path.pop();
        }
    });
}

/// The rings of a polygon as polygons. The outer one has the number 0.
fn rings(args: &[Arg<'_>]) -> Result<Value> {
    let Some(polygon) = args[0].tree_of(GeometryKind::Polygon)? else {
        return exec_err!("the argument of st_dumprings must be a polygon");
    };
    let ring = |(number, ring): (i64, &Vec<Coordinates>)| Element {
        numbers: vec![number],
        wkb: area_tree(vec![ring.clone()], polygon.dimensions).to_wkb(),
    };
    Ok(Value::List((0..).zip(polygon.rings()).map(ring).collect()))
}

/// Most cells of a grid.
const CELLS_MAX: f64 = 500_000.0;

/// The size of cells and the box that they fill.
fn grid_arguments(args: &[Arg<'_>]) -> Result<(f64, Option<[f64; 4]>)> {
    let size = args[0].number()?;
    match size.is_finite() && size > 0.0 {
        true => Ok((size, bounds(&args[1].tree()?))),
        false => exec_err!("{size} is not the size of a cell; use a number above 0"),
    }
}

/// The numbers from one to another, up to a limited count.
fn numbers(from: f64, to: f64) -> Result<std::ops::RangeInclusive<i64>> {
    match from.abs().max(to.abs()) < 2.0_f64.powi(53) && to - from < CELLS_MAX {
        true => Ok(from as i64..=to as i64),
        false => exec_err!("the grid would have more than {CELLS_MAX} cells; use larger ones"),
    }
}

fn check_count(columns: i64, rows: i64) -> Result<()> {
    match columns as f64 * rows as f64 <= CELLS_MAX {
        true => Ok(()),
        false => exec_err!("the grid would have more than {CELLS_MAX} cells; use larger ones"),
    }
}

fn cell(ring: Vec<Coordinates>, column: i64, row: i64) -> Element {
    Element { numbers: vec![column, row], wkb: area_tree(vec![ring], Dimensions::XY).to_wkb() }
}

fn square_grid(args: &[Arg<'_>]) -> Result<Value> {
    let (size, Some([x0, y0, x1, y1])) = grid_arguments(args)? else { return Ok(Value::List(Vec::new())) };
    let columns = numbers((x0 / size).floor(), (x1 / size).floor())?;
    let rows = numbers((y0 / size).floor(), (y1 / size).floor())?;
    check_count(columns.end() - columns.start() + 1, rows.end() - rows.start() + 1)?;
    let cells = columns.flat_map(|column| rows.clone().map(move |row| cell(square(size, column, row), column, row)));
    Ok(Value::List(cells.collect()))
}

/// The hexagons that a box needs. Odd columns are half a cell higher.
fn hexagon_grid(args: &[Arg<'_>]) -> Result<Value> {
    let (size, Some([x0, y0, x1, y1])) = grid_arguments(args)? else { return Ok(Value::List(Vec::new())) };
    let (width, height) = (1.5 * size, size * 3.0_f64.sqrt());
    let columns = numbers(((x0 - size) / width).ceil(), ((x1 + size) / width).floor())?;
    let rows = |column: i64| {
        let shift = if column & 1 == 0 { 0.5 } else { 0.0 };
        numbers((y0 / height + shift).floor(), (y1 / height + shift).floor())
    };
    let mut cells = Vec::new();
    for column in columns.clone() {
        let rows = rows(column)?;
        check_count(columns.end() - columns.start() + 1, rows.end() - rows.start() + 1)?;
        cells.extend(rows.map(|row| cell(hexagon(size, column, row), column, row)));
    }
    Ok(Value::List(cells))
}
