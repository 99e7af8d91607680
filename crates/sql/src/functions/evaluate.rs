//! The values of spatial functions. A null argument gives null.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, BooleanBuilder, Float64Builder, StringBuilder};
use arrow_array::{Array, ArrayRef, Float64Array};
use datafusion::common::{Result, exec_datafusion_err, exec_err};
use datafusion::logical_expr::ScalarFunctionArgs;
use terrane_space::geometry::{GeometryKind, as_point, parse_wkb, point_wkb, summarise, to_geojson, to_wkt};
use terrane_space::{CoordinateSystem, Point};

use super::Function;
use super::arguments::{Geometries, numbers};
use super::relation::{Prepared, Relation, box_contains, boxes_intersect, distance, unreadable};
use crate::geometry::{as_postgis, envelope_wkb, is_lonlat};

/// Evaluates a function for a number of rows.
pub(super) fn evaluate(function: Function, args: &ScalarFunctionArgs, rows: usize) -> Result<ArrayRef> {
    match function {
        Function::Point => points(args, rows),
        Function::MakeEnvelope => envelopes(args, rows),
        Function::GeomFromText | Function::Cast => {
            let texts = geometries(args, 0)?;
            let mut builder = BinaryBuilder::new();
            for row in 0..rows {
                builder.append_option(texts.get(row)?);
            }
            Ok(Arc::new(builder.finish()))
        }
        Function::Geography => {
            let shapes = geometries(args, 0)?;
            let mut builder = BinaryBuilder::new();
            for row in 0..rows {
                let shape = shapes.get(row)?;
                if let Some(bytes) = &shape {
                    summarise(bytes, CoordinateSystem::LonLat).map_err(unreadable)?;
                }
                builder.append_option(shape);
            }
            Ok(Arc::new(builder.finish()))
        }
        Function::X => coordinates(args, rows, "ST_X", |point| point.x),
        Function::Y => coordinates(args, rows, "ST_Y", |point| point.y),
        Function::AsText => texts(args, rows, |bytes| to_wkt(bytes).map(|wkt| as_postgis(&wkt)).map_err(unreadable)),
        Function::AsGeoJson => {
            texts(args, rows, |bytes| to_geojson(bytes).map(|value| value.to_string()).map_err(unreadable))
        }
        Function::Knn => {
            exec_err!("ST_KNN must be the only condition of a join: a JOIN b ON ST_KNN(a.place, b.place, 5)")
        }
        Function::Intersects => relation(args, rows, Relation::Intersects, false, false),
        Function::Disjoint => relation(args, rows, Relation::Intersects, false, true),
        Function::Contains => relation(args, rows, Relation::Holds, true, false),
        Function::Within => relation(args, rows, Relation::Holds, false, false),
        Function::Covers => relation(args, rows, Relation::Covers, true, false),
        Function::CoveredBy => relation(args, rows, Relation::Covers, false, false),
        Function::BoxesIntersect => pairs(args, rows, |a, b, _| boxes_intersect(a, b)),
        Function::BoxContains => pairs(args, rows, |a, b, _| box_contains(a, b)),
        Function::Distance => distances(args, rows, CoordinateSystem::Planar),
        Function::DistanceSphere => distances(args, rows, CoordinateSystem::LonLat),
        Function::DWithin => within_distance(args, rows, CoordinateSystem::Planar),
        Function::DWithinSphere => within_distance(args, rows, CoordinateSystem::LonLat),
    }
}

fn geometries(args: &ScalarFunctionArgs, number: usize) -> Result<Geometries> {
    Geometries::new(&args.args[number], &args.arg_fields[number])
}

fn points(args: &ScalarFunctionArgs, rows: usize) -> Result<ArrayRef> {
    let (xs, ys) = (numbers(&args.args[0], rows)?, numbers(&args.args[1], rows)?);
    let mut builder = BinaryBuilder::new();
    for row in 0..rows {
        match (value(&xs, row), value(&ys, row)) {
            (Some(x), Some(y)) => builder.append_value(point_wkb(finite(Point { x, y })?)),
            _ => builder.append_null(),
        }
    }
    Ok(Arc::new(builder.finish()))
}

fn envelopes(args: &ScalarFunctionArgs, rows: usize) -> Result<ArrayRef> {
    let sides: Vec<Float64Array> = args.args[..4].iter().map(|side| numbers(side, rows)).collect::<Result<_>>()?;
    let mut builder = BinaryBuilder::new();
    for row in 0..rows {
        match [0, 1, 2, 3].map(|side| value(&sides[side], row)) {
            [Some(x0), Some(y0), Some(x1), Some(y1)] => {
                let (from, to) = (finite(Point { x: x0, y: y0 })?, finite(Point { x: x1, y: y1 })?);
                builder.append_value(envelope_wkb(from, to));
            }
            _ => builder.append_null(),
        }
    }
    Ok(Arc::new(builder.finish()))
}

fn finite(point: Point) -> Result<Point> {
    match point.is_finite() {
        true => Ok(point),
        false => exec_err!("the coordinates {} {} are not finite", point.x, point.y),
    }
}

fn value(array: &Float64Array, row: usize) -> Option<f64> {
    array.is_valid(row).then(|| array.value(row))
}

fn coordinates(args: &ScalarFunctionArgs, rows: usize, name: &str, of: fn(Point) -> f64) -> Result<ArrayRef> {
    let geometries = geometries(args, 0)?;
    let mut builder = Float64Builder::with_capacity(rows);
    for row in 0..rows {
        builder.append_option(match geometries.get(row)? {
            None => None,
            Some(bytes) => match as_point(&bytes) {
                Some(point) => Some(of(point)),
                None if parse_wkb(&bytes).map_err(unreadable)?.kind == GeometryKind::Point => None,
                None => return exec_err!("the argument of {name} must be a point"),
            },
        });
    }
    Ok(Arc::new(builder.finish()))
}

fn texts(args: &ScalarFunctionArgs, rows: usize, of: impl Fn(&[u8]) -> Result<String>) -> Result<ArrayRef> {
    let geometries = geometries(args, 0)?;
    let mut builder = StringBuilder::new();
    for row in 0..rows {
        builder.append_option(geometries.get(row)?.map(|bytes| of(&bytes)).transpose()?);
    }
    Ok(Arc::new(builder.finish()))
}

/// The system of the geometries: that of any of them whose system is known.
fn system_of(args: &ScalarFunctionArgs) -> CoordinateSystem {
    match args.arg_fields.iter().any(|field| is_lonlat(field)) {
        true => CoordinateSystem::LonLat,
        false => CoordinateSystem::Planar,
    }
}

/// A predicate. The container is the second argument, or the first with `swap`.
fn relation(args: &ScalarFunctionArgs, rows: usize, relation: Relation, swap: bool, negate: bool) -> Result<ArrayRef> {
    let (first, second) = (geometries(args, 0)?, geometries(args, 1)?);
    let system = system_of(args);
    // The relation is symmetric, and a constant is prepared once.
    let swap = swap || relation == Relation::Intersects && first.is_constant() && !second.is_constant();
    let (other, container) = if swap { (second, first) } else { (first, second) };
    let mut prepared = Prepared::default();
    let mut builder = BooleanBuilder::with_capacity(rows);
    for row in 0..rows {
        builder.append_option(match (container.get(row)?, other.get(row)?) {
            (Some(container_bytes), Some(other)) => {
                let is_constant = container.is_constant();
                let holds = prepared.holds(relation, &container_bytes, &other, system, is_constant)?;
                Some(holds != negate)
            }
            _ => None,
        });
    }
    Ok(Arc::new(builder.finish()))
}

fn pairs(
    args: &ScalarFunctionArgs,
    rows: usize,
    mut test: impl FnMut(&[u8], &[u8], usize) -> Result<bool>,
) -> Result<ArrayRef> {
    let (first, second) = (geometries(args, 0)?, geometries(args, 1)?);
    let mut builder = BooleanBuilder::with_capacity(rows);
    for row in 0..rows {
        builder.append_option(match (first.get(row)?, second.get(row)?) {
            (Some(a), Some(b)) => Some(test(&a, &b, row)?),
            _ => None,
        });
    }
    Ok(Arc::new(builder.finish()))
}

fn distances(args: &ScalarFunctionArgs, rows: usize, system: CoordinateSystem) -> Result<ArrayRef> {
    let (first, second) = (geometries(args, 0)?, geometries(args, 1)?);
    let mut builder = Float64Builder::with_capacity(rows);
    for row in 0..rows {
        builder.append_option(match (first.get(row)?, second.get(row)?) {
            (Some(a), Some(b)) => distance_in(&a, &b, system)?,
            _ => None,
        });
    }
    Ok(Arc::new(builder.finish()))
}

/// The distance, after a check of the coordinates on the sphere.
fn distance_in(a: &[u8], b: &[u8], system: CoordinateSystem) -> Result<Option<f64>> {
    if system == CoordinateSystem::LonLat {
        for bytes in [a, b] {
            summarise(bytes, system).map_err(unreadable)?;
        }
    }
    distance(a, b, system)
}

fn within_distance(args: &ScalarFunctionArgs, rows: usize, system: CoordinateSystem) -> Result<ArrayRef> {
    let limits = numbers(&args.args[2], rows)?;
    let (first, second) = (geometries(args, 0)?, geometries(args, 1)?);
    let mut builder = BooleanBuilder::with_capacity(rows);
    for row in 0..rows {
        builder.append_option(match (first.get(row)?, second.get(row)?, value(&limits, row)) {
            (Some(a), Some(b), Some(limit)) => {
                if !limit.is_finite() || limit < 0.0 {
                    return Err(exec_datafusion_err!("{limit} is not a distance; use a finite number of at least 0"));
                }
                Some(distance_in(&a, &b, system)?.is_some_and(|distance| distance <= limit))
            }
            _ => None,
        });
    }
    Ok(Arc::new(builder.finish()))
}
