//! Clusters of the geometries of a window. Their numbers count from 0, in the order of their first
//! rows. A null or an empty geometry is in no cluster.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, Int64Array};
use arrow_schema::{DataType, Field, FieldRef};
use datafusion::common::{Result, exec_datafusion_err, exec_err, internal_datafusion_err};
use datafusion::logical_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::{ColumnarValue, PartitionEvaluator, Signature, Volatility, WindowUDF, WindowUDFImpl};
use geo::{Centroid, KMeans, KMeansParams, Point};
use rstar::primitives::{GeomWithData, Rectangle};
use rstar::{AABB, RTree};
use terrane_space::CoordinateSystem;
use terrane_space::geometry::{Tree, to_geo};

use super::Kind;
use super::access::bounds;
use super::arguments::Geometries;
use super::coerced;
use super::relation::{distance, unreadable};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Method {
    /// Density: `eps` and the least number of neighbours.
    Dbscan,
    /// A number of clusters around centres.
    KMeans,
}

const METHODS: [(Method, &str, &[Kind]); 2] = [
    (Method::Dbscan, "st_clusterdbscan", &[Kind::Geometry, Kind::Number, Kind::Int]),
    (Method::KMeans, "st_clusterkmeans", &[Kind::Geometry, Kind::Int]),
];

/// All window functions.
pub(crate) fn all() -> impl Iterator<Item = WindowUDF> {
    METHODS.into_iter().map(|(method, name, kinds)| {
        let signature = Signature::user_defined(Volatility::Immutable);
        WindowUDF::new_from_impl(Clustering { method, name, kinds, signature })
    })
}

/// A window function as DataFusion calls it.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Clustering {
    method: Method,
    name: &'static str,
    kinds: &'static [Kind],
    signature: Signature,
}

impl WindowUDFImpl for Clustering {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, found: &[DataType]) -> Result<Vec<DataType>> {
        coerced(self.name, self.kinds, self.kinds.len(), found)
    }

    fn field(&self, args: WindowUDFFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(args.name(), DataType::Int64, true)))
    }

    fn partition_evaluator(&self, args: PartitionEvaluatorArgs<'_>) -> Result<Box<dyn PartitionEvaluator>> {
        match args.input_fields().first() {
            Some(field) => Ok(Box::new(Partition { method: self.method, field: field.clone() })),
            None => Err(internal_datafusion_err!("{} has no argument", self.name)),
        }
    }
}

#[derive(Debug)]
struct Partition {
    method: Method,
    field: FieldRef,
}

impl PartitionEvaluator for Partition {
    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> Result<ArrayRef> {
        let Some((shapes, parameters)) = values.split_first() else {
            return Err(internal_datafusion_err!("a window function without arguments"));
        };
        let geometries = Geometries::new(&ColumnarValue::Array(shapes.clone()), &self.field)?;
        let mut shapes: Vec<Shape> = Vec::new();
        for row in 0..rows {
            if let Some(wkb) = geometries.get(row)?
                && let Some(bounds) = bounds(&Tree::parse(&wkb).map_err(unreadable)?)
            {
                shapes.push(Shape { row, wkb: wkb.into_owned(), bounds });
            }
        }
        let clusters = match (self.method, parameters) {
            (Method::Dbscan, [reach, least]) => {
                let reach = f64::from_bits(constant(bits, reach, "the distance of ST_ClusterDBSCAN")?);
                let least = constant(int, least, "the number of neighbours in ST_ClusterDBSCAN")?;
                dense(&shapes, reach, least)?
            }
            (Method::KMeans, [count]) => {
                around_centres(&shapes, constant(int, count, "the number of clusters in ST_ClusterKMeans")?)?
            }
            _ => return Err(internal_datafusion_err!("a window function with {} arguments", values.len())),
        };
        let mut numbers: HashMap<usize, i64> = HashMap::new();
        let mut found: Vec<Option<i64>> = vec![None; rows];
        for (shape, cluster) in shapes.iter().zip(clusters) {
            let next = numbers.len() as i64;
            found[shape.row] = cluster.map(|cluster| *numbers.entry(cluster).or_insert(next));
        }
        Ok(Arc::new(Int64Array::from(found)))
    }
}

fn bits(array: &ArrayRef, row: usize) -> Option<u64> {
    array.as_primitive_opt::<Float64Type>().map(|numbers| numbers.value(row).to_bits())
}

fn int(array: &ArrayRef, row: usize) -> Option<i64> {
    array.as_primitive_opt::<Int64Type>().map(|numbers| numbers.value(row))
}

/// The only value of a parameter.
fn constant<T: PartialEq>(of: fn(&ArrayRef, usize) -> Option<T>, array: &ArrayRef, name: &str) -> Result<T> {
    let first = if array.is_empty() || array.null_count() > 0 { None } else { of(array, 0) };
    match first {
        Some(first) if (1..array.len()).all(|row| of(array, row).as_ref() == Some(&first)) => Ok(first),
        _ => exec_err!("{name} must be the same number for all rows of a window"),
    }
}

/// A geometry that is not empty.
struct Shape {
    row: usize,
    wkb: Vec<u8>,
    bounds: [f64; 4],
}

/// Sets of numbers that grow together.
struct Sets(Vec<usize>);

impl Sets {
    fn of(&mut self, number: usize) -> usize {
        let mut set = number;
        while self.0[set] != set {
            self.0[set] = self.0[self.0[set]];
            set = self.0[set];
        }
        set
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.of(a), self.of(b));
        self.0[a.max(b)] = a.min(b);
    }
}

/// DBSCAN (Ester et al., 1996). A shape with enough neighbours, itself included, is in one cluster
/// with them. One that is not dense itself stays in the first cluster that reaches it.
fn dense(shapes: &[Shape], reach: f64, least: i64) -> Result<Vec<Option<usize>>> {
    if !reach.is_finite() || reach < 0.0 {
        return exec_err!("{reach} is not a distance; use a finite number of at least 0");
    }
    if least < 0 {
        return exec_err!("{least} is not a number of neighbours; use one of at least 0");
    }
    let boxes = shapes.iter().enumerate().map(|(number, shape)| {
        let [x0, y0, x1, y1] = shape.bounds;
        GeomWithData::new(Rectangle::from_corners([x0, y0], [x1, y1]), number)
    });
    let tree = RTree::bulk_load(boxes.collect());
    let mut sets = Sets((0..shapes.len()).collect());
    let mut is_reached = vec![false; shapes.len()];
    let mut is_dense = vec![false; shapes.len()];
    for (number, shape) in shapes.iter().enumerate() {
        let [x0, y0, x1, y1] = shape.bounds;
        // Rounding must not lose a neighbour, which is then judged by its distance.
        let size = [x0, y0, x1, y1].into_iter().fold(reach, |size, side| size.max(side.abs()));
        let wide = reach + size * 1e-12;
        let window = AABB::from_corners([x0 - wide, y0 - wide], [x1 + wide, y1 + wide]);
        let mut near: Vec<usize> = Vec::new();
        for other in tree.locate_in_envelope_intersecting(&window).map(|found| found.data) {
            let is_near = other == number
                || distance(&shape.wkb, &shapes[other].wkb, CoordinateSystem::Planar)?
                    .is_some_and(|away| away <= reach);
            if is_near {
                near.push(other);
            }
        }
        if (near.len() as i64) < least {
            continue;
        }
        is_dense[number] = true;
        for other in near {
            if !is_reached[other] || is_dense[other] {
                sets.join(number, other);
                is_reached[other] = true;
            }
        }
    }
    Ok((0..shapes.len()).map(|number| is_reached[number].then(|| sets.of(number))).collect())
}

/// Clusters around centres, by the centroids of the shapes, always from the same start.
fn around_centres(shapes: &[Shape], count: i64) -> Result<Vec<Option<usize>>> {
    const SEED: u64 = 1;
    const ROUNDS_MAX: usize = 1_000;
    let Some(wanted) = usize::try_from(count).ok().filter(|count| *count > 0) else {
        return exec_err!("{count} is not a number of clusters; use one of at least 1");
    };
    let mut centres: Vec<Point<f64>> = Vec::new();
    for shape in shapes {
        let centre = to_geo(&shape.wkb).map_err(unreadable)?.centroid();
        centres.push(centre.ok_or_else(|| exec_datafusion_err!("a geometry has no centroid"))?);
    }
    let key = |centre: &Point<f64>| [centre.x().to_bits(), centre.y().to_bits()];
    let distinct = centres.iter().map(key).collect::<HashSet<_>>().len();
    if distinct == 0 {
        return Ok(Vec::new());
    }
    let parameters = KMeansParams::new_with_seed(wanted.min(distinct), SEED).max_iter(ROUNDS_MAX);
    let clusters = centres.kmeans_with_params(parameters);
    let clusters = clusters.map_err(|error| exec_datafusion_err!("no clusters were found: {error}"))?;
    Ok(clusters.into_iter().map(Some).collect())
}
