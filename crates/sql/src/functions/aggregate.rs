//! Aggregates of geometries. Nulls are left out; without a geometry the value is null.

use std::mem::size_of_val;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue, exec_err, internal_datafusion_err, plan_err};
use datafusion::functions_aggregate::array_agg::ArrayAgg;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, Signature, Volatility};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Literal;
use terrane_space::geometry::{Tree, to_geo};

use super::Kind;
use super::access::bounds;
use super::arguments::{self, Geometries};
use super::combine::united;
use super::construct::{collection_of, line_through};
use super::relation::unreadable;
use super::tiles::Layer;
use crate::geometry::{box_wkb, geometry_field, srid_of};

/// Functions that take all geometries of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Aggregate {
    Extent,
    Union,
    Collect,
    MakeLine,
    /// A tile of rows, which has more arguments.
    Tile,
}

/// Each aggregate with its name, and the name of the function of two geometries that becomes it if
/// it is called with one.
const AGGREGATES: [(Aggregate, &str, &str); 5] = [
    (Aggregate::Extent, "st_extent_agg", "st_extent"),
    (Aggregate::Union, "st_union_agg", "st_union"),
    (Aggregate::Collect, "st_collect_agg", "st_collect"),
    (Aggregate::MakeLine, "st_makeline_agg", "st_makeline"),
    (Aggregate::Tile, "st_asmvt", ""),
];

/// The name of the aggregate that a call becomes, by the number of its arguments.
pub(crate) fn aggregate_name(function: &str, arguments: usize) -> Option<&'static str> {
    let found = AGGREGATES.iter().find(|(_, _, name)| function.eq_ignore_ascii_case(name));
    found.filter(|_| arguments == 1).map(|(_, name, _)| *name)
}

/// All aggregates.
pub(crate) fn all() -> impl Iterator<Item = AggregateUDF> {
    let of = |(aggregate, name, _)| {
        let signature = Signature::user_defined(Volatility::Immutable);
        AggregateUDF::new_from_impl(SpatialAggregate {
            aggregate,
            name,
            signature,
            inner: Arc::new(ArrayAgg::default()),
        })
    };
    AGGREGATES.into_iter().map(of)
}

/// An aggregate as DataFusion calls it. All but the extent gather the geometries first.
#[derive(Debug)]
struct SpatialAggregate {
    aggregate: Aggregate,
    name: &'static str,
    signature: Signature,
    inner: Arc<dyn AggregateUDFImpl>,
}

impl PartialEq for SpatialAggregate {
    fn eq(&self, other: &Self) -> bool {
        self.aggregate == other.aggregate && self.inner.dyn_eq(&*other.inner as _)
    }
}

impl Eq for SpatialAggregate {}

impl std::hash::Hash for SpatialAggregate {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.aggregate.hash(state);
    }
}

/// A list of the geometries, as they are gathered.
fn list_of(element: &FieldRef) -> FieldRef {
    Arc::new(Field::new_list("list", Field::new_list_field(element.data_type().clone(), true), true))
}

/// The types of the arguments of `ST_AsMVT`: a row, the layer, its extent, and the names of the
/// geometry and of the feature's number.
fn tile_types(found: &[DataType]) -> Result<Vec<DataType>> {
    match found {
        [row @ DataType::Struct(_), others @ ..] => {
            let kinds = [Kind::Text, Kind::Int, Kind::Text, Kind::Text];
            let others = super::coerced("st_asmvt with a row", &kinds, 0, others)?;
            Ok(std::iter::once(row.clone()).chain(others).collect())
        }
        _ => plan_err!("the first argument of st_asmvt is a row: named_struct('geom', geometry, 'name', name)"),
    }
}

/// The constants behind the row.
fn layer_of(exprs: &[Arc<dyn PhysicalExpr>]) -> Result<Layer> {
    let mut layer = Layer::default();
    for (number, expr) in exprs.iter().enumerate().skip(1) {
        let literal = (expr.as_ref() as &dyn std::any::Any).downcast_ref::<Literal>();
        let Some(value) = literal.map(Literal::value) else {
            return exec_err!("the arguments of st_asmvt behind the row must be constants");
        };
        let text = value.try_as_str().flatten().map(str::to_owned);
        match (number, value) {
            (1, _) => layer.name = text.unwrap_or(layer.name),
            (2, ScalarValue::Int64(Some(extent))) => layer.extent = *extent,
            (3, _) => layer.geometry = text,
            (4, _) => layer.feature_id = text,
            _ => {}
        }
    }
    Ok(layer)
}

impl AggregateUDFImpl for SpatialAggregate {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Binary)
    }

    fn return_field(&self, fields: &[FieldRef]) -> Result<FieldRef> {
        if self.aggregate == Aggregate::Tile {
            return Ok(Arc::new(Field::new(self.name, DataType::Binary, true)));
        }
        Ok(Arc::new(geometry_field(self.name, fields.first().and_then(|field| srid_of(field)).unwrap_or(0))))
    }

    fn coerce_types(&self, found: &[DataType]) -> Result<Vec<DataType>> {
        if self.aggregate == Aggregate::Tile {
            return tile_types(found);
        }
        match found {
            [one] => match arguments::coerce(Kind::Geometry, one) {
                Some(wanted) => Ok(vec![wanted]),
                None => {
                    plan_err!("the argument of {} is {one}, and must be {}", self.name, Kind::Geometry.description())
                }
            },
            _ => plan_err!("{} takes one argument, not {}", self.name, found.len()),
        }
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        match self.aggregate {
            Aggregate::Extent => AggregateOrderSensitivity::Insensitive,
            _ => self.inner.order_sensitivity(),
        }
    }

    fn with_beneficial_ordering(self: Arc<Self>, is_ordered: bool) -> Result<Option<Arc<dyn AggregateUDFImpl>>> {
        if self.aggregate == Aggregate::Extent {
            return Ok(None);
        }
        let with =
            |inner| Self { aggregate: self.aggregate, name: self.name, signature: self.signature.clone(), inner };
        let inner = self.inner.clone().with_beneficial_ordering(is_ordered)?;
        Ok(inner.map(|inner| Arc::new(with(inner)) as Arc<dyn AggregateUDFImpl>))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        match self.aggregate {
            Aggregate::Extent => {
                let side = |side| Arc::new(Field::new(format!("{}[{side}]", args.name), DataType::Float64, true));
                Ok(["x0", "y0", "x1", "y1"].map(side).to_vec())
            }
            _ => {
                let list = args.input_fields.first().map(list_of);
                let return_field = list.unwrap_or_else(|| args.return_field.clone());
                let input_fields = args.input_fields.get(..1).unwrap_or_default();
                self.inner.state_fields(StateFieldsArgs { return_field, input_fields, ..args })
            }
        }
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let Some(field) = args.expr_fields.first().cloned() else {
            return Err(internal_datafusion_err!("{} has no argument", self.name));
        };
        if self.aggregate == Aggregate::Extent {
            return Ok(Box::new(Extent { field, bounds: None }));
        }
        let layer = if self.aggregate == Aggregate::Tile { layer_of(args.exprs)? } else { Layer::default() };
        let arguments = args.exprs.len();
        let (exprs, expr_fields) = (&args.exprs[..1], &args.expr_fields[..1]);
        let gathered =
            AccumulatorArgs { return_field: list_of(&field), ignore_nulls: false, exprs, expr_fields, ..args };
        let inner = self.inner.accumulator(gathered)?;
        Ok(Box::new(Gathered { aggregate: self.aggregate, field, inner, arguments, layer }))
    }
}

/// Gathers geometries, in order if one is given.
#[derive(Debug)]
struct Gathered {
    aggregate: Aggregate,
    field: FieldRef,
    inner: Box<dyn Accumulator>,
    /// The number of arguments. The first one is gathered.
    arguments: usize,
    /// Of a tile.
    layer: Layer,
}

impl Accumulator for Gathered {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        // Behind the arguments stand the values that give the order.
        let order = values.iter().skip(self.arguments);
        let gathered: Vec<ArrayRef> = values.iter().take(1).chain(order).cloned().collect();
        self.inner.update_batch(&gathered)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.inner.merge_batch(states)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.inner.size()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let null = Ok(ScalarValue::Binary(match self.aggregate {
            Aggregate::Tile => Some(Vec::new()),
            _ => None,
        }));
        let ScalarValue::List(list) = self.inner.evaluate()? else { return null };
        if list.is_null(0) {
            return null;
        }
        if self.aggregate == Aggregate::Tile {
            let rows = list.value(0);
            let rows = rows.as_struct_opt().ok_or_else(|| internal_datafusion_err!("no rows for a tile"))?;
            return Ok(ScalarValue::Binary(Some(self.layer.encode(rows)?)));
        }
        let elements = ColumnarValue::Array(list.value(0));
        let rows = list.value(0).len();
        let geometries = Geometries::new(&elements, &self.field)?;
        let mut trees = Vec::new();
        for row in 0..rows {
            if let Some(bytes) = geometries.get(row)? {
                trees.push(Tree::parse(&bytes).map_err(unreadable)?);
            }
        }
        if trees.is_empty() {
            return null;
        }
        let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.aggregate.of(trees)));
        match made {
            Ok(made) => Ok(ScalarValue::Binary(Some(made?))),
            Err(_) => exec_err!("the geometries of a group cannot be combined"),
        }
    }
}

impl Aggregate {
    /// The value for at least one geometry.
    fn of(self, trees: Vec<Tree>) -> Result<Vec<u8>> {
        match self {
            Self::MakeLine => Ok(line_through(&trees)?.to_wkb()),
            Self::Union => {
                let all = collection_of(trees).to_wkb();
                let geometry = to_geo(&all).map_err(unreadable)?;
                Ok(united(all, &geometry))
            }
            Self::Collect | Self::Extent | Self::Tile => Ok(collection_of(trees).to_wkb()),
        }
    }
}

/// The box around geometries.
#[derive(Debug)]
struct Extent {
    field: FieldRef,
    bounds: Option<[f64; 4]>,
}

impl Extent {
    fn add(&mut self, [x0, y0, x1, y1]: [f64; 4]) {
        let known = self.bounds.unwrap_or([x0, y0, x1, y1]);
        self.bounds = Some([known[0].min(x0), known[1].min(y0), known[2].max(x1), known[3].max(y1)]);
    }
}

impl Accumulator for Extent {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [values] = values else { return Err(internal_datafusion_err!("an extent of {} columns", values.len())) };
        let geometries = Geometries::new(&ColumnarValue::Array(values.clone()), &self.field)?;
        for row in 0..values.len() {
            if let Some(bytes) = geometries.get(row)?
                && let Some(bounds) = bounds(&Tree::parse(&bytes).map_err(unreadable)?)
            {
                self.add(bounds);
            }
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        use arrow_array::types::Float64Type;
        let sides = states.iter().filter_map(|side| side.as_primitive_opt::<Float64Type>()).collect::<Vec<_>>();
        let [x0, y0, x1, y1] = sides.as_slice() else { return Err(internal_datafusion_err!("no state of an extent")) };
        for row in (0..x0.len()).filter(|row| x0.is_valid(*row)) {
            self.add([x0, y0, x1, y1].map(|side| side.value(row)));
        }
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let side = |side: usize| ScalarValue::Float64(self.bounds.map(|bounds| bounds[side]));
        Ok((0..4).map(side).collect())
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let corner = |x, y| terrane_space::Point { x, y };
        let made = self.bounds.map(|[x0, y0, x1, y1]| box_wkb(corner(x0, y0), corner(x1, y1)));
        Ok(ScalarValue::Binary(made))
    }
}
