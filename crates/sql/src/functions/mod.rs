//! The spatial functions of SQL. Predicates and distances are those of the engine.

mod arguments;
mod evaluate;
pub(crate) mod relation;

pub(crate) use arguments::{Geometries, parse_text};

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;

use crate::geometry::{geometry_field, is_lonlat};

/// A spatial function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Function {
    Point,
    MakeEnvelope,
    GeomFromText,
    /// The cast `::geometry`.
    Cast,
    X,
    Y,
    AsText,
    AsGeoJson,
    Intersects,
    Disjoint,
    Contains,
    Within,
    Covers,
    CoveredBy,
    /// The operator `&&`.
    BoxesIntersect,
    DWithin,
    Distance,
    DWithinSphere,
    DistanceSphere,
}

/// What an argument may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Geometry,
    Number,
    Text,
    /// The number of a reference system. It may be left out.
    Srid,
}

/// What a function returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Returns {
    Geometry,
    Bool,
    Number,
    Text,
}

use Kind::{Geometry as G, Number as N, Srid as S, Text as T};

/// The function that a cast to a geometry becomes.
pub(crate) const CAST: &str = "geometry";

/// Each function with its names, its arguments and its result. Messages show the first name.
const FUNCTIONS: &[(Function, &[&str], &[Kind], Returns)] = &[
    (Function::Point, &["st_point", "st_makepoint"], &[N, N, S], Returns::Geometry),
    (Function::MakeEnvelope, &["st_makeenvelope"], &[N, N, N, N, S], Returns::Geometry),
    (Function::GeomFromText, &["st_geomfromtext", "st_geometryfromtext"], &[T, S], Returns::Geometry),
    (Function::Cast, &[CAST], &[G], Returns::Geometry),
    (Function::X, &["st_x"], &[G], Returns::Number),
    (Function::Y, &["st_y"], &[G], Returns::Number),
    (Function::AsText, &["st_astext"], &[G], Returns::Text),
    (Function::AsGeoJson, &["st_asgeojson"], &[G], Returns::Text),
    (Function::Intersects, &["st_intersects"], &[G, G], Returns::Bool),
    (Function::Disjoint, &["st_disjoint"], &[G, G], Returns::Bool),
    (Function::Contains, &["st_contains"], &[G, G], Returns::Bool),
    (Function::Within, &["st_within"], &[G, G], Returns::Bool),
    (Function::Covers, &["st_covers"], &[G, G], Returns::Bool),
    (Function::CoveredBy, &["st_coveredby"], &[G, G], Returns::Bool),
    (Function::BoxesIntersect, &["geometry_overlaps"], &[G, G], Returns::Bool),
    (Function::DWithin, &["st_dwithin"], &[G, G, N], Returns::Bool),
    (Function::Distance, &["st_distance", "geometry_distance_centroid"], &[G, G], Returns::Number),
    (Function::DWithinSphere, &["st_dwithinsphere"], &[G, G, N], Returns::Bool),
    (Function::DistanceSphere, &["st_distancesphere"], &[G, G], Returns::Number),
];

impl Function {
    fn entry(self) -> &'static (Function, &'static [&'static str], &'static [Kind], Returns) {
        FUNCTIONS.iter().find(|(function, ..)| *function == self).unwrap_or(&FUNCTIONS[0])
    }

    fn returns(self) -> Returns {
        self.entry().3
    }
}

/// A spatial function as DataFusion calls it.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct SpatialFunction {
    function: Function,
    signature: Signature,
    aliases: Vec<String>,
}

impl SpatialFunction {
    pub fn function(&self) -> Function {
        self.function
    }
}

/// The function as an expression's callee.
pub(crate) fn udf(function: Function) -> Arc<ScalarUDF> {
    let aliases = function.entry().1[1..].iter().map(ToString::to_string).collect();
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(SpatialFunction { function, signature, aliases }))
}

/// All functions.
pub(crate) fn all() -> impl Iterator<Item = Arc<ScalarUDF>> {
    FUNCTIONS.iter().map(|(function, ..)| udf(*function))
}

impl ScalarUDFImpl for SpatialFunction {
    fn name(&self) -> &str {
        self.function.entry().1[0]
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.function.returns() {
            Returns::Geometry => DataType::Binary,
            Returns::Bool => DataType::Boolean,
            Returns::Number => DataType::Float64,
            Returns::Text => DataType::Utf8,
        })
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        if self.function.returns() != Returns::Geometry {
            return Ok(Arc::new(Field::new(self.name(), self.return_type(&[])?, true)));
        }
        let last = args.scalar_arguments.last().copied().flatten();
        let is_wgs84 = match self.function.entry().2.get(args.arg_fields.len() - 1) {
            Some(Kind::Srid) => matches!(last, Some(ScalarValue::Int64(Some(4326)))),
            _ => args.arg_fields.iter().any(|field| is_lonlat(field)),
        };
        Ok(Arc::new(geometry_field(self.name(), is_wgs84)))
    }

    fn coerce_types(&self, found: &[DataType]) -> Result<Vec<DataType>> {
        let (_, names, kinds, _) = self.function.entry();
        let required = kinds.iter().filter(|kind| **kind != Kind::Srid).count();
        if found.len() < required || found.len() > kinds.len() {
            let counts = match required == kinds.len() {
                true => required.to_string(),
                false => format!("{required} or {}", kinds.len()),
            };
            return plan_err!("{} takes {counts} arguments, not {}", names[0], found.len());
        }
        let coerce = |(number, (kind, found)): (usize, (&Kind, &DataType))| match arguments::coerce(*kind, found) {
            Some(wanted) => Ok(wanted),
            None => plan_err!("argument {} of {} is {found}, and must be {}", number + 1, names[0], kind.description()),
        };
        kinds.iter().zip(found).enumerate().map(coerce).collect()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_constant = args.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { args.number_rows };
        let array = evaluate::evaluate(self.function, &args, rows)?;
        match is_constant {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?)),
            false => Ok(ColumnarValue::Array(array)),
        }
    }
}

impl Kind {
    fn description(self) -> &'static str {
        match self {
            Self::Geometry => "a geometry, or a text with one (WKT)",
            Self::Number => "a number",
            Self::Text => "a text",
            Self::Srid => "the number of a reference system",
        }
    }
}
