//! The logical node of a lateral join.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::common::{Column, DFSchemaRef, JoinType, Result, internal_datafusion_err};
use datafusion::logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore, build_join_schema};

use super::query::NearestQuery;

/// What is asked for each outer row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Hash)]
pub(super) enum Inner {
    Nearest(Box<NearestQuery>),
    /// A plan with outer references.
    Plan(Arc<LogicalPlan>),
}

/// For each outer row, the rows of a query that depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LateralJoin {
    pub outer: LogicalPlan,
    pub inner: Inner,
    /// Whether an outer row without inner ones is kept.
    pub is_left: bool,
    /// The columns of the inner query.
    inner_schema: DFSchemaRef,
    /// The outer columns that the inner query has.
    pub references: Vec<Column>,
    schema: DFSchemaRef,
}

impl LateralJoin {
    pub fn new(
        outer: LogicalPlan,
        inner: Inner,
        is_left: bool,
        inner_schema: DFSchemaRef,
        references: Vec<Column>,
    ) -> Result<Self> {
        let kind = if is_left { JoinType::Left } else { JoinType::Inner };
        let schema = Arc::new(build_join_schema(outer.schema(), &inner_schema, &kind)?);
        Ok(Self { outer, inner, is_left, inner_schema, references, schema })
    }
}

impl Hash for LateralJoin {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.outer, &self.inner, self.is_left).hash(state);
    }
}

impl PartialOrd for LateralJoin {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let order = (&self.outer, &self.inner, self.is_left).partial_cmp(&(&other.outer, &other.inner, other.is_left));
        order.filter(|order| *order != Ordering::Equal || self == other)
    }
}

impl UserDefinedLogicalNodeCore for LateralJoin {
    fn name(&self) -> &'static str {
        "LateralJoin"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.outer]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        self.references.iter().cloned().map(Expr::Column).collect()
    }

    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        // A condition on outer columns alone may be judged before.
        self.inner_schema.fields().iter().map(|field| field.name().clone()).collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let kind = if self.is_left { "left" } else { "inner" };
        match &self.inner {
            Inner::Nearest(query) => {
                let table = query.table_scan().map(|scan| scan.table_name.to_string()).unwrap_or_default();
                write!(f, "LateralJoin: {kind}, the {} nearest rows of {table}", query.k)
            }
            Inner::Plan(_) => write!(f, "LateralJoin: {kind}, a query for each row"),
        }
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        let outer = inputs.pop().ok_or_else(|| internal_datafusion_err!("a lateral join has one input"))?;
        Self::new(outer, self.inner.clone(), self.is_left, self.inner_schema.clone(), self.references.clone())
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let outer = self.outer.schema();
        let mut columns: Vec<usize> =
            output_columns.iter().copied().filter(|column| *column < outer.fields().len()).collect();
        for reference in &self.references {
            columns.push(outer.maybe_index_of_column(reference)?);
        }
        columns.sort_unstable();
        columns.dedup();
        Some(vec![columns])
    }
}
