//! Datasets as tables.

use std::sync::Arc;

use arrow_schema::{Field, Schema as ArrowSchema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use terrane::schema::{GeometryColumn, Schema};
use terrane::{CoordinateSystem, Query, Snapshot};

use crate::geometry::{WGS84_SRID, geometry_field};
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
}

impl DatasetTable {
    pub fn new(dataset: String, snapshot: Snapshot, pushes_down: bool) -> Self {
        let schema = snapshot.schema();
        let arrow = arrow_schema(&schema);
        Self { dataset, snapshot, schema, arrow, pushes_down }
    }

    /// The state that is read.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Name of the computed column of points.
    pub fn point(&self) -> Option<&str> {
        matches!(self.schema.geometry, GeometryColumn::Point { .. }).then(|| self.geometry())
    }

    pub fn system(&self) -> CoordinateSystem {
        self.schema.system
    }

    /// Whether the engine judges a filter exactly; `None` if it does not judge it.
    pub fn is_exact(&self, filter: &Expr) -> Option<bool> {
        self.translate(filter).map(|pushed| pushed.is_exact)
    }

    /// Name of the column of geometries.
    pub fn geometry(&self) -> &str {
        match &self.schema.geometry {
            GeometryColumn::Geometry { name } => name,
            GeometryColumn::Point { .. } => self.arrow.fields().last().map_or(GEOMETRY, |field| field.name()),
        }
    }

    fn translate(&self, filter: &Expr) -> Option<Pushed> {
        let translator = Translator { schema: &self.schema, geometry: self.geometry() };
        if self.pushes_down { translator.translate(filter) } else { None }
    }
}

/// The columns of the table.
fn arrow_schema(schema: &Schema) -> SchemaRef {
    let arrow = schema.to_arrow();
    if let GeometryColumn::Geometry { .. } = schema.geometry {
        return Arc::new(arrow);
    }
    let name = free_name(&arrow);
    let mut fields: Vec<Arc<Field>> = arrow.fields().iter().cloned().collect();
    fields
        .push(Arc::new(geometry_field(&name, if schema.system == CoordinateSystem::LonLat { WGS84_SRID } else { 0 })));
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
        let mut query = Query::new();
        for filter in filters {
            let untranslated = || internal_datafusion_err!("a filter was pushed down without a translation: {filter}");
            query = self.translate(filter).ok_or_else(untranslated)?.add_to(query);
        }
        if let Some(limit) = limit {
            query = query.limit(limit as u64);
        }
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
            query: query.columns(columns),
            origins,
            geometry: schema.index_of(self.geometry()).ok(),
            schema,
            condition,
            limit,
            pushes_down: self.pushes_down,
        };
        Ok(Arc::new(ScanExec::new(source)?))
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
