//! Physical plans of prepared statements, kept from one execution to the next.
//!
//! A plan is made for the types of the values, and its parameters stay open: as placeholders in the
//! filters of a scan, as calls of [`OpenParameter`] elsewhere. An execution fills in its values and
//! takes the newest state of the tables. Where the values could make another plan, as a geometry
//! that no index takes, the statement is planned anew.

use std::any::Any;
use std::sync::{Arc, LazyLock};

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, FieldRef, Schema as ArrowSchema, SchemaRef};
use datafusion::common::metadata::FieldMetadata;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, ScalarValue, internal_err};
use datafusion::config::ConfigOptions;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::expr::{Placeholder, ScalarFunction};
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr, ScalarFunctionExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::sql::sqlparser::ast::{DataType as SqlType, ExactNumberInfo, Ident, Statement as SqlStatement};
use terrane::schema::Schema;
use terrane::{Snapshot, Store};

use crate::comparisons::{is_within_float32, with_expressions};
use crate::nearest::NearestRule;
use crate::scan::ScanExec;

/// Deepest expression of a plan that is kept.
const DEPTH_MAX: usize = 100;

/// A physical plan whose parameters are open.
pub(crate) struct KeptPlan {
    plan: Arc<dyn ExecutionPlan>,
    /// The datasets that it reads, with the schemas for which it was made.
    tables: Vec<(String, Arc<Schema>)>,
    /// The names of all datasets, which decide what a name means.
    names: Vec<String>,
    task: Arc<TaskContext>,
    is_sorted: bool,
}

impl KeptPlan {
    /// Keeps a plan; `None` if it has a part that cannot be filled in.
    pub fn new(
        plan: Arc<dyn ExecutionPlan>,
        tables: Vec<(String, Arc<Schema>)>,
        names: Vec<String>,
        task: Arc<TaskContext>,
    ) -> Option<Self> {
        let is_sorted = plan.exists(|plan| Ok(plan.downcast_ref::<SortExec>().is_some())).unwrap_or(true);
        can_be_filled(&plan).then_some(Self { plan, tables, names, task, is_sorted })
    }

    /// The newest state of its datasets; `None` if they are others than those that it was made for.
    pub fn snapshots(&self, store: &Store) -> Option<Vec<Snapshot>> {
        let names: Vec<&str> = self.tables.iter().map(|(name, _)| name.as_str()).collect();
        let snapshots = store.snapshots(&names).ok()?;
        let mut tables = snapshots.iter().zip(&self.tables);
        let is_same =
            store.dataset_names() == self.names && tables.all(|(snapshot, (_, schema))| snapshot.schema() == *schema);
        is_same.then_some(snapshots)
    }

    /// Runs the plan with values; `None` if it does not fit them.
    ///
    /// # Errors
    /// Those of starting the plan.
    pub fn run(
        &self,
        snapshots: &[Snapshot],
        values: &Arc<[ScalarValue]>,
    ) -> Result<Option<SendableRecordBatchStream>> {
        if !values.iter().all(is_within_float32) {
            return Ok(None);
        }
        let filling = Filling { tables: &self.tables, snapshots, values };
        let Some(plan) = filling.fill(&self.plan)? else { return Ok(None) };
        let plan = match self.is_sorted {
            true => NearestRule.optimize(plan, self.task.session_config().options())?,
            false => plan,
        };
        execute_stream(plan, self.task.clone()).map(Some)
    }
}

/// Whether all parts of a plan can be filled in, or have no parameters.
fn can_be_filled(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if let Some(scan) = plan.downcast_ref::<ScanExec>() {
        return scan.source().open.is_some();
    }
    let takes_values = plan.downcast_ref::<ProjectionExec>().is_some()
        || plan.downcast_ref::<FilterExec>().is_some()
        || plan.downcast_ref::<SortExec>().is_some();
    let is_known = takes_values
        || plan.downcast_ref::<AggregateExec>().is_some()
        || plan.downcast_ref::<CoalescePartitionsExec>().is_some()
        || plan.downcast_ref::<CooperativeExec>().is_some()
        || plan.downcast_ref::<GlobalLimitExec>().is_some()
        || plan.downcast_ref::<LocalLimitExec>().is_some()
        || plan.downcast_ref::<RepartitionExec>().is_some()
        || plan.downcast_ref::<SortPreservingMergeExec>().is_some();
    let children = plan.children();
    is_known
        && depth(plan) <= DEPTH_MAX
        && !children.is_empty()
        && (takes_values || !has_parameters(plan))
        && children.into_iter().all(can_be_filled)
}

/// The depth of a plan's expressions: they are evaluated recursively, by a thread of the caller.
fn depth(plan: &Arc<dyn ExecutionPlan>) -> usize {
    fn below(expr: &Arc<dyn PhysicalExpr>) -> usize {
        1 + expr.children().into_iter().map(below).max().unwrap_or(0)
    }
    let mut depth = 0;
    let looked = plan.apply_expressions(&mut |expr| {
        depth = depth.max(below(expr));
        Ok(TreeNodeRecursion::Continue)
    });
    if looked.is_ok() { depth } else { usize::MAX }
}

fn has_parameters(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let mut found = false;
    let looked = plan.apply_expressions(&mut |expr| {
        expr.apply(|expr| {
            found |= parameter(expr).is_some();
            Ok(TreeNodeRecursion::Continue)
        })
    });
    found || looked.is_err()
}

/// Fills values into a plan.
struct Filling<'p> {
    tables: &'p [(String, Arc<Schema>)],
    snapshots: &'p [Snapshot],
    values: &'p Arc<[ScalarValue]>,
}

impl Filling<'_> {
    /// The plan with values, and without the state of an earlier execution.
    fn fill(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        if let Some(scan) = plan.downcast_ref::<ScanExec>() {
            let position = self.tables.iter().position(|(name, _)| *name == scan.source().dataset);
            let Some(snapshot) = position.map(|position| self.snapshots[position].clone()) else { return Ok(None) };
            let filled = scan.filled(snapshot, self.values)?;
            return Ok(filled.map(|filled| Arc::new(filled) as _));
        }
        let mut children = Vec::new();
        for child in plan.children() {
            let Some(child) = self.fill(child)? else { return Ok(None) };
            children.push(child);
        }
        // The children have the same columns and parts as before.
        let keep = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
        let plan = plan.clone().replace_children(children, keep)?.reset_state()?;
        self.set_values(plan).map(Some)
    }

    fn set_values(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        if !has_parameters(&plan) {
            return Ok(plan);
        }
        if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
            let expr = |item: &ProjectionExpr| {
                Ok(ProjectionExpr { expr: self.value_of(&item.expr)?, alias: item.alias.clone() })
            };
            let exprs = projection.expr().iter().map(expr).collect::<Result<Vec<_>>>()?;
            return Ok(Arc::new(ProjectionExec::try_new(exprs, projection.input().clone())?));
        }
        if let Some(filter) = plan.downcast_ref::<FilterExec>() {
            let predicate = self.value_of(filter.predicate())?;
            return Ok(Arc::new(FilterExecBuilder::from(filter).with_predicate(predicate).build()?));
        }
        if let Some(sort) = plan.downcast_ref::<SortExec>() {
            let key =
                |key: &PhysicalSortExpr| Ok(PhysicalSortExpr { expr: self.value_of(&key.expr)?, options: key.options });
            let keys = sort.expr().iter().map(key).collect::<Result<Vec<_>>>()?;
            let Some(keys) = LexOrdering::new(keys) else { return Ok(plan) };
            let filled = SortExec::new(keys, sort.input().clone())
                .with_preserve_partitioning(sort.preserve_partitioning())
                .with_fetch(sort.fetch());
            return Ok(Arc::new(filled));
        }
        internal_err!("a parameter of a kept plan stands where it cannot be filled in: {}", plan.name())
    }

    /// An expression with values. Parts that depend on nothing else become constants, as in a plan
    /// that was made with the values.
    fn value_of(&self, expr: &Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
        let filled = expr.clone().transform_up(|expr| {
            if let Some(parameter) = parameter(&expr) {
                return match self.values.get(parameter.number) {
                    Some(value) => Ok(Transformed::yes(Arc::new(Literal::new(value.clone())) as _)),
                    None => internal_err!("parameter ${} has no value", parameter.number + 1),
                };
            }
            let children = expr.children();
            let is_constant =
                !children.is_empty() && children.iter().all(|child| child.downcast_ref::<Literal>().is_some());
            if !is_constant || expr.downcast_ref::<Column>().is_some() {
                return Ok(Transformed::no(expr));
            }
            let no_columns = RecordBatch::new_empty(Arc::new(ArrowSchema::empty()));
            let field = expr.return_field(no_columns.schema_ref())?;
            Ok(match expr.evaluate(&no_columns) {
                Ok(ColumnarValue::Scalar(value)) => {
                    let metadata = Some(FieldMetadata::from(field.as_ref()));
                    Transformed::yes(Arc::new(Literal::new_with_metadata(value, metadata)) as _)
                }
                // The rows have to show the error, if there are any.
                _ => Transformed::no(expr),
            })
        });
        filled.data()
    }
}

/// The parameter that an expression is.
fn parameter(expr: &Arc<dyn PhysicalExpr>) -> Option<&OpenParameter> {
    let call = expr.downcast_ref::<ScalarFunctionExpr>()?;
    let inner: &dyn Any = call.fun().inner().as_ref();
    inner.downcast_ref::<OpenParameter>()
}

/// A parameter without a value, in a physical plan.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OpenParameter {
    /// From 0 on.
    number: usize,
    field: FieldRef,
    signature: Signature,
}

impl ScalarUDFImpl for OpenParameter {
    fn name(&self) -> &'static str {
        "open_parameter"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.field.data_type().clone())
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(self.field.clone())
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        internal_err!("parameter ${} was not filled in", self.number + 1)
    }
}

/// The number of a placeholder, from 0 on.
pub(crate) fn placeholder_number(placeholder: &Placeholder) -> Option<usize> {
    placeholder.id.strip_prefix('$')?.parse::<usize>().ok()?.checked_sub(1)
}

/// A logical plan whose placeholders, except those in the filters of scans, are calls of
/// [`OpenParameter`]: a physical plan has no placeholders.
pub(crate) fn open_parameters(plan: LogicalPlan) -> Result<LogicalPlan> {
    let opened = plan.transform_up_with_subqueries(|plan| match plan {
        LogicalPlan::TableScan(_) => Ok(Transformed::no(plan)),
        plan => with_placeholders(plan, &|placeholder| {
            let Some((number, field)) = placeholder_number(&placeholder).zip(placeholder.field.clone()) else {
                return Expr::Placeholder(placeholder);
            };
            let signature = Signature::nullary(Volatility::Immutable);
            let parameter = ScalarUDF::new_from_impl(OpenParameter { number, field, signature });
            Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(parameter), Vec::new()))
        }),
    });
    opened.data()
}

/// Replaces the placeholders of one node.
fn with_placeholders(plan: LogicalPlan, replace: &dyn Fn(Placeholder) -> Expr) -> Result<Transformed<LogicalPlan>> {
    with_expressions(plan, &|expr, _| {
        expr.transform_up(|expr| match expr {
            Expr::Placeholder(placeholder) => Ok(Transformed::yes(replace(placeholder))),
            other => Ok(Transformed::no(other)),
        })
    })
}

/// A statement as one to be prepared for values of the given types.
pub(crate) fn declared(statement: SqlStatement, values: &[ScalarValue]) -> Option<SqlStatement> {
    let sql_type = |value: &ScalarValue| match value.data_type() {
        DataType::Boolean => Some(SqlType::Boolean),
        DataType::Int64 => Some(SqlType::BigInt(None)),
        DataType::Float64 => Some(SqlType::Double(ExactNumberInfo::None)),
        DataType::Utf8 => Some(SqlType::Text),
        _ => None,
    };
    let data_types = values.iter().map(sql_type).collect::<Option<Vec<_>>>()?;
    Some(SqlStatement::Prepare { name: Ident::new("kept"), data_types, statement: Box::new(statement) })
}

/// A plan whose placeholders have exactly the types of the values; `None` if its functions may give
/// another value with each execution.
pub(crate) fn typed(plan: LogicalPlan, values: &[ScalarValue]) -> Result<Option<LogicalPlan>> {
    let fields: Vec<FieldRef> = values.iter().map(|value| Arc::new(Field::new("", value.data_type(), false))).collect();
    let mut is_fixed = true;
    plan.apply_with_subqueries(|plan| {
        plan.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Expr::ScalarFunction(call) = expr {
                    is_fixed &= call.func.signature().volatility == Volatility::Immutable;
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    if !is_fixed {
        return Ok(None);
    }
    let plan = plan.transform_up_with_subqueries(|plan| {
        with_placeholders(plan, &|mut placeholder| {
            if let Some(field) = placeholder_number(&placeholder).and_then(|number| fields.get(number)) {
                placeholder.field = Some(field.clone());
            }
            Expr::Placeholder(placeholder)
        })
    });
    plan.data().map(Some)
}

/// The options with which constants are computed.
static OPTIONS: LazyLock<Arc<ConfigOptions>> = LazyLock::new(Arc::default);

/// A filter of a scan with values. Calls and casts that depend on no column become constants.
pub(crate) fn filled(filter: &Expr, values: &[ScalarValue]) -> Result<Expr> {
    let set = filter.clone().transform_up(|expr| {
        Ok(match &expr {
            Expr::Column(column) => {
                Transformed::yes(Expr::Column(datafusion::common::Column::new_unqualified(&column.name)))
            }
            Expr::Placeholder(placeholder) => {
                match placeholder_number(placeholder).and_then(|number| values.get(number)) {
                    Some(value) => Transformed::yes(Expr::Literal(value.clone(), None)),
                    None => return internal_err!("parameter {} has no value", placeholder.id),
                }
            }
            Expr::ScalarFunction(call) => match constant(call) {
                Some(value) => Transformed::yes(value),
                None => Transformed::no(expr),
            },
            Expr::Cast(cast) => match &*cast.expr {
                Expr::Literal(value, _) => match value.cast_to(cast.field.data_type()) {
                    Ok(value) => Transformed::yes(Expr::Literal(value, None)),
                    Err(_) => Transformed::no(expr),
                },
                _ => Transformed::no(expr),
            },
            _ => Transformed::no(expr),
        })
    });
    set.data()
}

/// The value of a call, if its arguments are constants and it has no error. Fields say in which
/// reference systems geometries are.
fn constant(call: &ScalarFunction) -> Option<Expr> {
    let mut scalars = Vec::with_capacity(call.args.len());
    let mut arg_fields = Vec::with_capacity(call.args.len());
    for arg in &call.args {
        let Expr::Literal(value, _) = arg else { return None };
        scalars.push(value.clone());
        arg_fields.push(arg.to_field(&DFSchema::empty()).ok()?.1);
    }
    let scalar_arguments: Vec<Option<&ScalarValue>> = scalars.iter().map(Some).collect();
    let known = ReturnFieldArgs { arg_fields: &arg_fields, scalar_arguments: &scalar_arguments };
    let return_field = call.func.return_field_from_args(known).ok()?;
    let metadata = FieldMetadata::from(return_field.as_ref());
    let args = scalars.into_iter().map(ColumnarValue::Scalar).collect();
    let config_options = OPTIONS.clone();
    let args = ScalarFunctionArgs { args, arg_fields, number_rows: 1, return_field, config_options };
    let value = match call.func.invoke_with_args(args).ok()? {
        ColumnarValue::Scalar(value) => value,
        ColumnarValue::Array(array) => ScalarValue::try_from_array(&array, 0).ok()?,
    };
    Some(Expr::Literal(value, Some(metadata)))
}

/// A filter with values in the form that a plan would have that was made with them.
pub(crate) fn simplified(filter: Expr, schema: &SchemaRef) -> Result<Expr> {
    let schema = Arc::new(DFSchema::try_from(schema.clone())?);
    let context = SimplifyContext::builder().with_schema(schema).with_config_options(OPTIONS.clone()).build();
    ExprSimplifier::new(context).simplify(filter)
}
