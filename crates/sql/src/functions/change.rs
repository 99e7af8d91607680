//! Geometries with other coordinates.

use datafusion::common::{Result, exec_err};
use terrane_space::geometry::{Coordinates, Dimensions, GeometryKind, Tree, TreeBody};

use super::Kind::{Geometry as G, Number as N, Text as T};
use super::tail::{Arg, Tail, Value, shape as of};

/// The functions.
pub(super) const FUNCTIONS: &[Tail] = &[
    of(&["st_force2d"], &[G], 1, |a| forced(a, Dimensions::XY)),
    of(&["st_force3d", "st_force3dz"], &[G, N], 1, |a| forced(a, Dimensions { has_z: true, has_m: false })),
    of(&["st_force3dm"], &[G, N], 1, |a| forced(a, Dimensions { has_z: false, has_m: true })),
    of(&["st_force4d"], &[G, N, N], 1, |a| forced(a, Dimensions { has_z: true, has_m: true })),
    of(&["st_flipcoordinates"], &[G], 1, |a| changed(a, &|p| p.swap(0, 1))),
    of(&["st_swapordinates"], &[G, T], 2, swapped),
    of(&["st_shiftlongitude"], &[G], 1, |a| changed(a, &shift)),
    of(&["st_reverse"], &[G], 1, reversed),
    of(&["st_translate"], &[G, N, N, N], 3, translated),
    of(&["st_scale"], &[G, N, N, N], 3, scaled),
    of(&["st_rotate", "st_rotatez"], &[G, N, N, N], 2, rotated),
    of(&["st_rotatex"], &[G, N], 2, |a| rotated_about(a, 1, 2)),
    of(&["st_rotatey"], &[G, N], 2, |a| rotated_about(a, 2, 0)),
    of(&["st_affine"], &[G, N, N, N, N, N, N, N, N, N, N, N, N], 7, affine),
    of(&["st_multi"], &[G], 1, multi),
    of(&["st_segmentize"], &[G, N], 2, segmentized),
    of(&["st_snaptogrid"], &[G, N], 2, snapped),
    of(&["st_removerepeatedpoints"], &[G], 1, without_repeated),
];

fn changed(args: &[Arg<'_>], change: &dyn Fn(&mut Coordinates)) -> Result<Value> {
    let mut tree = args[0].tree()?;
    tree.change(change);
    let mut is_finite = true;
    tree.visit(&mut |position| is_finite &= position.iter().all(|number| number.is_finite()));
    match is_finite {
        true => Ok(tree.into()),
        false => exec_err!("the coordinates of the result are not finite"),
    }
}

fn number(args: &[Arg<'_>], position: usize, default: f64) -> Result<f64> {
    args.get(position).map_or(Ok(default), Arg::number)
}

/// Other dimensions. New values are those of the arguments, or 0.
fn forced(args: &[Arg<'_>], wanted: Dimensions) -> Result<Value> {
    let mut tree = args[0].tree()?;
    let found = tree.dimensions;
    let (z, m) = match (wanted.has_z, wanted.has_m) {
        (false, true) => (0.0, number(args, 1, 0.0)?),
        _ => (number(args, 1, 0.0)?, number(args, 2, 0.0)?),
    };
    if !z.is_finite() || !m.is_finite() {
        return exec_err!("the new coordinate is not finite");
    }
    tree.set_dimensions(wanted);
    tree.change(&|position| {
        if !found.has_z {
            position[2] = z;
        }
        if !found.has_m {
            position[3] = m;
        }
    });
    Ok(tree.into())
}

/// Exchanges two coordinates, each named by its letter.
fn swapped(args: &[Arg<'_>]) -> Result<Value> {
    let Dimensions { has_z, has_m } = args[0].tree()?.dimensions;
    let text = args[1].text()?;
    let axis = |letter: char| match letter.to_ascii_lowercase() {
        'x' => Some(0),
        'y' => Some(1),
        'z' if has_z => Some(2),
        'm' if has_m => Some(3),
        _ => None,
    };
    match text.chars().map(axis).collect::<Vec<_>>()[..] {
        [Some(a), Some(b)] => changed(args, &|p| p.swap(a, b)),
        _ => exec_err!("'{text}' does not name two coordinates of the geometry, such as 'xy'"),
    }
}

/// Turns longitudes from -180 to 180 into ones from 0 to 360, and back.
fn shift(position: &mut Coordinates) {
    if position[0] < 0.0 {
        position[0] += 360.0;
    } else if position[0] > 180.0 {
        position[0] -= 360.0;
    }
}

fn reversed(args: &[Arg<'_>]) -> Result<Value> {
    fn reverse(tree: &mut Tree) {
        match &mut tree.body {
            TreeBody::Positions(positions) => positions.reverse(),
            TreeBody::Rings(rings) => rings.iter_mut().for_each(|ring| ring.reverse()),
            TreeBody::Members(members) => members.iter_mut().for_each(reverse),
        }
    }
    let mut tree = args[0].tree()?;
    reverse(&mut tree);
    Ok(tree.into())
}

fn translated(args: &[Arg<'_>]) -> Result<Value> {
    let (x, y, z) = (args[1].number()?, args[2].number()?, number(args, 3, 0.0)?);
    let has_z = args[0].tree()?.dimensions.has_z;
    changed(args, &|p| {
        p[0] += x;
        p[1] += y;
        if has_z {
            p[2] += z;
        }
    })
}

fn scaled(args: &[Arg<'_>]) -> Result<Value> {
    let (x, y, z) = (args[1].number()?, args[2].number()?, number(args, 3, 1.0)?);
    changed(args, &|p| {
        p[0] *= x;
        p[1] *= y;
        p[2] *= z;
    })
}

fn rotated(args: &[Arg<'_>]) -> Result<Value> {
    let (sin, cos) = args[1].number()?.sin_cos();
    let (x, y) = (number(args, 2, 0.0)?, number(args, 3, 0.0)?);
    changed(args, &|p| {
        let (dx, dy) = (p[0] - x, p[1] - y);
        p[0] = x + dx * cos - dy * sin;
        p[1] = y + dx * sin + dy * cos;
    })
}

/// Turns one axis towards another.
fn rotated_about(args: &[Arg<'_>], from: usize, to: usize) -> Result<Value> {
    let (sin, cos) = args[1].number()?.sin_cos();
    changed(args, &|p| {
        let (a, b) = (p[from], p[to]);
        p[from] = a * cos - b * sin;
        p[to] = a * sin + b * cos;
    })
}

fn affine(args: &[Arg<'_>]) -> Result<Value> {
    let numbers = args[1..].iter().map(Arg::number).collect::<Result<Vec<f64>>>()?;
    let [a, b, c, d, e, f, g, h, i, x, y, z] = match numbers.as_slice() {
        [a, b, d, e, x, y] => [*a, *b, 0.0, *d, *e, 0.0, 0.0, 0.0, 1.0, *x, *y, 0.0],
        [a, b, c, d, e, f, g, h, i, x, y, z] => [*a, *b, *c, *d, *e, *f, *g, *h, *i, *x, *y, *z],
        _ => return exec_err!("st_affine takes 6 or 12 numbers, not {}", numbers.len()),
    };
    changed(args, &|p| {
        let [px, py, pz, m] = *p;
        *p = [a * px + b * py + c * pz + x, d * px + e * py + f * pz + y, g * px + h * py + i * pz + z, m];
    })
}

fn multi(args: &[Arg<'_>]) -> Result<Value> {
    let tree = args[0].tree()?;
    let kind = match tree.kind {
        GeometryKind::Point => GeometryKind::MultiPoint,
        GeometryKind::LineString => GeometryKind::MultiLineString,
        GeometryKind::Polygon => GeometryKind::MultiPolygon,
        _ => return Ok(tree.into()),
    };
    let members = if tree.is_empty() { Vec::new() } else { vec![tree.clone()] };
    Ok(Tree::of_members(kind, tree.dimensions, members).into())
}

/// Applies a function to each line and ring.
fn with_paths(tree: &mut Tree, change: &dyn Fn(&mut Vec<Coordinates>)) {
    match &mut tree.body {
        TreeBody::Positions(positions) if tree.kind == GeometryKind::LineString => change(positions),
        TreeBody::Positions(_) => {}
        TreeBody::Rings(rings) => rings.iter_mut().for_each(change),
        TreeBody::Members(members) => members.iter_mut().for_each(|member| with_paths(member, change)),
    }
}

/// Most positions of a result.
pub(super) const POSITIONS_MAX: f64 = 10_000_000.0;

fn segmentized(args: &[Arg<'_>]) -> Result<Value> {
    let length_max = args[1].number()?;
    if length_max.is_nan() || length_max <= 0.0 {
        return exec_err!("{length_max} is not a length; use a number above 0");
    }
    let mut tree = args[0].tree()?;
    let pieces = |a: &Coordinates, b: &Coordinates| ((b[0] - a[0]).hypot(b[1] - a[1]) / length_max).ceil().max(1.0);
    let total = std::cell::Cell::new(0.0);
    with_paths(&mut tree, &|path| {
        let count: f64 = path.windows(2).map(|pair| pieces(&pair[0], &pair[1])).sum();
        total.set(total.get() + count);
    });
    if total.get() > POSITIONS_MAX {
        return exec_err!("the length {length_max} would give more than {POSITIONS_MAX} positions; use a larger one");
    }
    with_paths(&mut tree, &|path| {
        let mut cut = Vec::new();
        for pair in path.windows(2) {
            let [a, b] = [pair[0], pair[1]];
            let count = pieces(&a, &b) as usize;
            for number in 0..count {
                let part = number as f64 / count as f64;
                cut.push(std::array::from_fn(|index| a[index] + (b[index] - a[index]) * part));
            }
        }
        cut.extend(path.last());
        *path = cut;
    });
    Ok(tree.into())
}

fn snapped(args: &[Arg<'_>]) -> Result<Value> {
    let size = args[1].number()?;
    changed(args, &|p| {
        if size > 0.0 {
            p[0] = (p[0] / size).round_ties_even() * size;
            p[1] = (p[1] / size).round_ties_even() * size;
        }
    })
}

fn without_repeated(args: &[Arg<'_>]) -> Result<Value> {
    let mut tree = args[0].tree()?;
    with_paths(&mut tree, &|path| path.dedup());
    Ok(tree.into())
}
