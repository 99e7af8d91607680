//! The spatial functions of SQL. Predicates and distances are those of the engine.

mod access;
mod aggregate;
mod arguments;
mod boxes;
mod buffer;
mod cells;
mod change;
mod clearance;
mod cluster;
mod combine;
mod construct;
mod elements;
mod evaluate;
mod geography;
mod hull;
mod inside;
mod lists;
mod markup;
mod measure;
mod network;
mod noding;
mod overlay;
mod pairs;
mod parts;
pub(crate) mod relation;
mod tail;
mod texts;
mod tiles;
mod vertices;

pub(crate) use aggregate::{aggregate_name, all as all_aggregates};
pub(crate) use arguments::{Geometries, parse_text};
pub(crate) use cluster::all as all_windows;
pub(crate) use overlay::RELATE_PATTERN;

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;

use crate::geometry::{WGS84_SRID, geography_field, geometry_field, srid_of, srid_of_bytes, srid_of_text};

/// A spatial function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Function {
    Point,
    MakeEnvelope,
    GeomFromText,
    /// The cast `::geometry`.
    Cast,
    /// The cast `::geography`.
    Geography,
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
    /// The operator `~`.
    BoxContains,
    DWithin,
    Distance,
    DWithinSphere,
    DistanceSphere,
    /// The condition of a join.
    Knn,
}

/// What an argument may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Geometry,
    Number,
    Int,
    Text,
    Bool,
    /// An integer, or options as a text.
    IntOrText,
    Bytes,
    /// The number of a reference system. It may be left out.
    Srid,
    /// That number, or a name such as `EPSG:3857`.
    Crs,
}

/// What a function returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Returns {
    Geometry,
    /// A geometry in a reference system that the function knows.
    GeometryIn(i64),
    Geography,
    Bool,
    Number,
    Int,
    Text,
    Bytes,
    /// A list of geometries, each with its path.
    Dump,
    /// A list of geometries, each with its column and row.
    Cells,
}

impl Returns {
    fn data_type(self) -> DataType {
        match self {
            Self::Geometry | Self::GeometryIn(_) | Self::Geography | Self::Bytes => DataType::Binary,
            Self::Bool => DataType::Boolean,
            Self::Number => DataType::Float64,
            Self::Int => DataType::Int64,
            Self::Text => DataType::Utf8,
            Self::Dump | Self::Cells => elements::list_type(self, 0),
        }
    }
}

use Kind::{Geometry as G, Number as N, Srid as S, Text as T};

/// The function that gives a column of geometries its reference system, and refuses others.
pub(crate) const IN_SYSTEM: &str = "geometry_in_system";

/// The function that a cast to a geometry becomes.
pub(crate) const CAST: &str = "geometry";

/// The function that a cast to a geography becomes.
pub(crate) const GEOGRAPHY_CAST: &str = "geography";

/// Each function with its names, its arguments and its result. Messages show the first name.
const FUNCTIONS: &[(Function, &[&str], &[Kind], Returns)] = &[
    (Function::Point, &["st_point", "st_makepoint"], &[N, N, S], Returns::Geometry),
    (Function::MakeEnvelope, &["st_makeenvelope"], &[N, N, N, N, S], Returns::Geometry),
    (Function::GeomFromText, &["st_geomfromtext", "st_geometryfromtext"], &[T, S], Returns::Geometry),
    (Function::Cast, &[CAST], &[G], Returns::Geometry),
    (Function::Geography, &[GEOGRAPHY_CAST], &[G], Returns::Geography),
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
    (Function::BoxContains, &["geometry_contains"], &[G, G], Returns::Bool),
    (Function::DWithin, &["st_dwithin"], &[G, G, N], Returns::Bool),
    (Function::Distance, &["st_distance", "geometry_distance_centroid"], &[G, G], Returns::Number),
    (Function::DWithinSphere, &["st_dwithinsphere"], &[G, G, N], Returns::Bool),
    (Function::DistanceSphere, &["st_distancesphere"], &[G, G], Returns::Number),
    (Function::Knn, &["st_knn"], &[G, G, Kind::Int, Kind::Bool], Returns::Bool),
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
    let tails = [
        access::FUNCTIONS,
        boxes::FUNCTIONS,
        buffer::FUNCTIONS,
        cells::FUNCTIONS,
        change::FUNCTIONS,
        clearance::FUNCTIONS,
        combine::FUNCTIONS,
        construct::FUNCTIONS,
        geography::FUNCTIONS,
        hull::FUNCTIONS,
        lists::FUNCTIONS,
        markup::FUNCTIONS,
        measure::FUNCTIONS,
        network::FUNCTIONS,
        overlay::FUNCTIONS,
        pairs::FUNCTIONS,
        parts::FUNCTIONS,
        tiles::FUNCTIONS,
        vertices::FUNCTIONS,
    ];
    let tails = tails.into_iter().flatten().map(tail::udf);
    FUNCTIONS.iter().map(|(function, ..)| udf(*function)).chain(tails).chain(texts::all())
}

/// The meaning of a function for a geography.
pub(crate) enum OnGeography {
    /// The same.
    Same,
    /// A call of another function.
    Other(Arc<ScalarUDF>),
    NotAvailable,
}

/// Functions of a geography besides the parts and properties.
const OF_COORDINATES: [&str; 7] =
    ["st_asbinary", "st_asewkb", "st_ashexwkb", "st_ashexewkb", "st_asewkt", "st_askml", "st_asgml"];

/// The meaning of a spatial function for a geography; `None` for other functions.
pub(crate) fn on_geography(function: &ScalarUDF) -> Option<OnGeography> {
    let inner: &dyn std::any::Any = function.inner().as_ref();
    if let Some(spatial) = inner.downcast_ref::<SpatialFunction>() {
        return Some(match spatial.function {
            Function::Distance => OnGeography::Other(udf(Function::DistanceSphere)),
            Function::DWithin => OnGeography::Other(udf(Function::DWithinSphere)),
            _ => OnGeography::Same,
        });
    }
    inner.downcast_ref::<tail::TailFunction>()?;
    let on_sphere = match function.name() {
        "st_length" => "st_lengthsphere",
        "st_perimeter" => "st_perimetersphere",
        "st_area" => "st_areasphere",
        other => other,
    };
    let is_named = |tail: &&tail::Tail| tail.names[0] == on_sphere;
    let mut same = access::FUNCTIONS.iter().map(|tail| tail.names[0]).chain(OF_COORDINATES);
    Some(match geography::FUNCTIONS.iter().find(is_named) {
        Some(other) => OnGeography::Other(tail::udf(other)),
        None if same.any(|name| name == on_sphere) => OnGeography::Same,
        None => OnGeography::NotAvailable,
    })
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
        Ok(self.function.returns().data_type())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        return_field(self.name(), self.function.entry().2, self.function.returns(), &args)
    }

    fn coerce_types(&self, found: &[DataType]) -> Result<Vec<DataType>> {
        let kinds = self.function.entry().2;
        // The number of a reference system may be left out, and the measure of a join.
        let is_required = |kind: &&Kind| **kind != Kind::Srid && (self.function, **kind) != (Function::Knn, Kind::Bool);
        let required = kinds.iter().filter(is_required).count();
        coerced(self.name(), kinds, required, found)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_constant = args.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { args.number_rows };
        if args.args.iter().any(|value| value.data_type() == DataType::Null) {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from(self.function.returns().data_type())?));
        }
        let array = evaluate::evaluate(self.function, &args, rows)?;
        match is_constant {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?)),
            false => Ok(ColumnarValue::Array(array)),
        }
    }
}

/// The field of a function's value. A geometry has the reference system that the last argument
/// names, or the first one has.
fn return_field(name: &str, kinds: &[Kind], returns: Returns, args: &ReturnFieldArgs) -> Result<FieldRef> {
    check_systems(name, kinds, args)?;
    if let Returns::GeometryIn(srid) = returns {
        return Ok(Arc::new(geometry_field(name, srid)));
    }
    let is_list = matches!(returns, Returns::Dump | Returns::Cells);
    if !is_list && !matches!(returns, Returns::Geometry | Returns::Geography) {
        return Ok(Arc::new(Field::new(name, returns.data_type(), true)));
    }
    let count = args.arg_fields.len();
    let scalar = |position: usize| args.scalar_arguments.get(position).copied().flatten();
    let srid = match count.checked_sub(1).and_then(|last| kinds.get(last)) {
        Some(kind @ (Kind::Srid | Kind::Crs)) => match scalar(count - 1) {
            Some(ScalarValue::Int64(srid)) => srid.unwrap_or(0),
            Some(ScalarValue::Utf8(text)) if *kind == Kind::Crs => {
                text.as_deref().and_then(geography::code_of).unwrap_or(0)
            }
            Some(ScalarValue::Null) => 0,
            _ => return plan_err!("the reference system in {name} must be a constant"),
        },
        _ => match scalar(0) {
            Some(ScalarValue::Utf8(Some(text))) => srid_of_text(text).unwrap_or(0),
            Some(ScalarValue::Binary(Some(bytes))) if srid_of_bytes(bytes).is_some() => {
                srid_of_bytes(bytes).unwrap_or(0)
            }
            _ => args.arg_fields.iter().find_map(|field| srid_of(field)).unwrap_or(0),
        },
    };
    if returns == Returns::Geography {
        return match srid {
            0 | WGS84_SRID => Ok(Arc::new(geography_field(name))),
            other => plan_err!("a geometry in EPSG:{other} is no geography; use ST_Transform(geometry, 4326)"),
        };
    }
    match is_list {
        true => Ok(Arc::new(Field::new(name, elements::list_type(returns, srid), true))),
        false => Ok(Arc::new(geometry_field(name, srid))),
    }
}

/// Refuses geometries in different reference systems. One that is not known fits all.
fn check_systems(name: &str, kinds: &[Kind], args: &ReturnFieldArgs) -> Result<()> {
    let mut known = None;
    for (position, field) in args.arg_fields.iter().enumerate() {
        if kinds.get(position) != Some(&Kind::Geometry) {
            continue;
        }
        let srid = match args.scalar_arguments.get(position).copied().flatten() {
            Some(ScalarValue::Utf8(Some(text))) => srid_of_text(text),
            _ => srid_of(field),
        };
        let Some(srid) = srid.filter(|srid| *srid != 0) else { continue };
        match known {
            Some(first) if first != srid => {
                return plan_err!(
                    "{name} takes geometries in one reference system, not in {first} and {srid}; use ST_Transform"
                );
            }
            _ => known = Some(srid),
        }
    }
    Ok(())
}

/// The types to which arguments are cast.
fn coerced(name: &str, kinds: &[Kind], required: usize, found: &[DataType]) -> Result<Vec<DataType>> {
    if found.len() < required || found.len() > kinds.len() {
        let counts = match required == kinds.len() {
            true => required.to_string(),
            false => format!("{required} to {}", kinds.len()),
        };
        return plan_err!("{name} takes {counts} arguments, not {}", found.len());
    }
    let coerce = |(number, (kind, found)): (usize, (&Kind, &DataType))| match arguments::coerce(*kind, found) {
        Some(wanted) => Ok(wanted),
        None => plan_err!("argument {} of {name} is {found}, and must be {}", number + 1, kind.description()),
    };
    kinds.iter().zip(found).enumerate().map(coerce).collect()
}

impl Kind {
    fn description(self) -> &'static str {
        match self {
            Self::Geometry => "a geometry, or a text with one (WKT)",
            Self::Number => "a number",
            Self::Text => "a text",
            Self::Int => "an integer",
            Self::Bool => "a boolean",
            Self::IntOrText => "an integer, or a text with options",
            Self::Bytes => "binary",
            Self::Srid => "the number of a reference system",
            Self::Crs => "the number or the name of a reference system",
        }
    }
}
