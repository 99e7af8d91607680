//! Datasets as tables.

use std::sync::Arc;

use arrow_schema::{Field, Schema as ArrowSchema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Result, ScalarValue, internal_datafusion_err};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use terrane::schema::{GeometryColumn, Schema};
use terrane::{CoordinateSystem, Query, Snapshot};

use crate::geometry::geometry_field;
use crate::kept::{filled, simplified};
use crate::pushdown::{Pushed, Translator};
use crate::scan::{Origin, ScanExec, Source};

/// Name of the column of points that is computed from the coordinates.
const GEOMETRY: &str = "geometry";

/// A dataset at one moment as a table: key, coordinates or geometry, attributes, and the computed
/// points last.
#[derive(Clone, Debug)]
pub(crate) struct DatasetTable {
    dataset: String,
    snapshot: Snapshot,
    schema: Arc<Schema>,
    arrow: SchemaRef,
    pushes_down: bool,
    /// Values with which a plan is made whose parameters stay open.
    values: Option<Arc<[ScalarValue]>>,
}

/// A dataset at one moment as a table for another session of DataFusion.
pub fn table_of(name: &str, snapshot: Snapshot) -> Arc<dyn TableProvider> {
    Arc::new(DatasetTable::new(name.to_owned(), snapshot, true))
}

impl DatasetTable {
    pub fn new(dataset: String, snapshot: Snapshot, pushes_down: bool) -> Self {
        let schema = snapshot.schema();
        let arrow = arrow_schema(&schema);
        Self { dataset, snapshot, schema, arrow, pushes_down, values: None }
    }

    /// The table for a plan whose parameters stay open. It is made as for the values.
    pub fn open(self, values: Arc<[ScalarValue]>) -> Self {
        Self { values: Some(values), ..self }
    }

    /// The state that is read.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Name of the computed column of points.
    pub fn point(&self) -> Option<&str> {
        self.geometry().filter(|_| self.schema.holds_points())
    }

    pub fn system(&self) -> CoordinateSystem {
        self.schema.system
    }

    /// Whether the engine judges a filter exactly; `None` if it does not judge it.
    pub fn is_exact(&self, filter: &Expr) -> Option<bool> {
        self.translate(filter).map(|pushed| pushed.is_exact)
    }

    /// Name of the column of geometries, if there is one.
    pub fn geometry(&self) -> Option<&str> {
        match &self.schema.geometry {
            GeometryColumn::Geometry { name } => Some(name),
            GeometryColumn::Point { .. } => self.arrow.fields().last().map(|field| field.name().as_str()),
            GeometryColumn::None => None,
        }
    }

    fn translate(&self, filter: &Expr) -> Option<Pushed> {
        let translator = Translator { schema: &self.schema, geometry: self.geometry() };
        match &self.values {
            _ if !self.pushes_down => None,
            Some(values) => {
                let filled = filled(filter, values).ok()?;
                translator.translate(&filled).or_else(|| translator.translate(&simplified(filled, &self.arrow).ok()?))
            }
            None => translator.translate(filter),
        }
    }

    /// A query of columns with filters and a limit; `None` if a filter has no translation.
    fn query(&self, filters: &[Expr], limit: Option<usize>, columns: &[String]) -> Option<(Query, Vec<bool>)> {
        let mut query = Query::new().columns(columns);
        let mut is_exact = Vec::with_capacity(filters.len());
        for filter in filters {
            let pushed = self.translate(filter)?;
            is_exact.push(pushed.is_exact);
            query = pushed.add_to(query);
        }
        if let Some(limit) = limit {
            query = query.limit(limit as u64);
        }
        Some((query, is_exact))
    }
}

/// The columns of the table.
fn arrow_schema(schema: &Schema) -> SchemaRef {
    let arrow = schema.to_arrow();
    if !schema.holds_points() {
        return Arc::new(arrow);
    }
    let name = free_name(&arrow);
    let mut fields: Vec<Arc<Field>> = arrow.fields().iter().cloned().collect();
    fields.push(Arc::new(geometry_field(&name, schema.srid().into())));
    Arc::new(ArrowSchema::new(fields))
}

/// `geometry`, or the first free one of `geometry_2`, `geometry_3`, ….
pub(crate) fn free_name(arrow: &ArrowSchema) -> String {
    let mut name = GEOMETRY.to_owned();
    let mut number = 2;
    while arrow.index_of(&name).is_ok() {
        name = format!("{GEOMETRY}_{number}");
        number += 1;
    }
    name
}

#[async_trait]
impl TableProvider for DatasetTable {
    fn schema(&self) -> SchemaRef {
        self.arrow.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let support = |filter: &&Expr| match self.translate(filter) {
            Some(Pushed { is_exact: true, .. }) => TableProviderFilterPushDown::Exact,
            Some(_) => TableProviderFilterPushDown::Inexact,
            None => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(support).collect())
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let all: Vec<usize> = (0..self.arrow.fields().len()).collect();
        let projection = projection.unwrap_or(&all);
        let mut columns: Vec<String> = Vec::new();
        let mut position = |name: &str| match columns.iter().position(|column| column == name) {
            Some(position) => position,
            None => {
                columns.push(name.to_owned());
                columns.len() - 1
            }
        };
        let mut origins = Vec::with_capacity(projection.len());
        for index in projection {
            origins.push(match &self.schema.geometry {
                GeometryColumn::Point { x, y } if *index + 1 == self.arrow.fields().len() => {
                    Origin::Point(position(x), position(y))
                }
                _ => Origin::Column(position(self.arrow.field(*index).name())),
            });
        }
        let untranslated = || internal_datafusion_err!("a filter was pushed down without a translation: {filters:?}");
        let (query, is_exact) = self.query(filters, limit, &columns).ok_or_else(untranslated)?;
        let schema: SchemaRef = Arc::new(self.arrow.project(projection)?);
        let mut condition = String::new();
        if !filters.is_empty() {
            let filters: Vec<String> = filters.iter().map(|filter| shortened(&filter.to_string())).collect();
            condition = format!(", filters=[{}]", filters.join("; "));
        }
        if !self.pushes_down {
            condition.push_str(", push-down is off (SET terrane.pushdown = true)");
        }
        if let Some(limit) = limit {
            condition.push_str(&format!(", limit={limit}"));
        }
        let source = Source {
            dataset: self.dataset.clone(),
            snapshot: self.snapshot.clone(),
            query,
            origins,
            geometry: self.geometry().and_then(|name| schema.index_of(name).ok()),
            schema,
            condition,
            limit,
            pushes_down: self.pushes_down,
            open: self.values.is_some().then(|| {
                let table = self.clone();
                OpenScan { table, filters: filters.to_vec(), is_exact, columns }
            }),
        };
        Ok(Arc::new(ScanExec::new(source)?))
    }
}

/// What a scan with open parameters needs to be filled in.
#[derive(Clone, Debug)]
pub(crate) struct OpenScan {
    table: DatasetTable,
    filters: Vec<Expr>,
    /// Whether the engine judges each filter exactly.
    is_exact: Vec<bool>,
    columns: Vec<String>,
}

impl OpenScan {
    /// The scan's query with values; `None` if the engine judges a filter in another way than the
    /// plan has it.
    pub fn query(&self, limit: Option<usize>, values: Arc<[ScalarValue]>) -> Option<Query> {
        let (query, is_exact) = self.table.clone().open(values).query(&self.filters, limit, &self.columns)?;
        (is_exact == self.is_exact).then_some(query)
    }
}

/// A filter without the bytes of long literals.
fn shortened(text: &str) -> String {
    const SHOWN_MAX: usize = 200;
    let mut shown: String = text.chars().take(SHOWN_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}
