//! `terrane query`: prints the records that meet all conditions.

use arrow_array::RecordBatch;
use terrane::schema::Schema;
use terrane::{Condition, Dataset, Explanation, Filter, Query};
use terrane_formats::Writer;

use crate::args::{Common, ConditionFlags, QueryArguments, QueryFormat};
use crate::failure::Failure;
use crate::messages::Messages;
use crate::shape::{DeclaredSystem, parse_condition, parse_geometry, warn_of_condition};
use crate::{environment, output, place};

pub fn run(arguments: &QueryArguments, common: &Common, messages: &Messages) -> Result<(), Failure> {
    let format = environment::query_format(arguments.format)?;
    let (query, systems) = build(&arguments.conditions)?;
    let store = place::open_to_query(&arguments.store, common, messages)?;
    let dataset = store.dataset(&arguments.dataset)?;
    // Opened for reading, the store shows one state.
    messages.debug(format_args!("the answer is of commit {}", dataset.snapshot().sequence()));
    let schema = dataset.schema();
    systems.iter().try_for_each(|system| system.check(schema.system))?;
    warn_of_condition(arguments.conditions.condition.as_ref(), &schema, messages);
    let explanation = match arguments.count {
        true => count(&dataset, &schema, &limited(query, &arguments.conditions, 0), arguments.explain)?,
        false => {
            let writer = output::rows_to_stdout(output::row_format(format)?, &schema, place::working_memory(common));
            #[cfg(feature = "sql")]
            if let Some(order) = &arguments.order_by {
                return print_sorted(&dataset, query, order, (arguments, common), writer, messages);
            }
            let query = limited(with_columns(query, &arguments.columns), &arguments.conditions, arguments.offset);
            Some(print_rows(&dataset, &query, arguments.offset, writer, messages)?)
        }
    };
    match explanation.filter(|_| arguments.explain) {
        Some(explanation) => explain(&explanation, format, messages),
        None => Ok(()),
    }
}

/// The query without a limit, and the reference systems that its geometries declare.
pub fn build(flags: &ConditionFlags) -> Result<(Query, Vec<DeclaredSystem>), Failure> {
    let mut query = Query::new();
    let mut systems = Vec::new();
    let mut parse = |flag, text| -> Result<Vec<u8>, Failure> {
        let (wkb, system) = parse_geometry(flag, text)?;
        systems.push(system);
        Ok(wkb)
    };
    if let Some([x0, y0, x1, y1]) = flags.bbox {
        query = query.window(x0, y0, x1, y1);
    }
    if let Some(text) = &flags.intersects {
        query = query.filter(Filter::Intersects(parse("--intersects", text)?));
    }
    if let Some(text) = &flags.within {
        query = query.filter(Filter::Within(parse("--within", text)?));
    }
    if let Some([x, y, radius]) = flags.circle {
        query = query.circle(x, y, radius);
    }
    if let Some(text) = &flags.condition {
        query = query.condition(parse_condition("--where", text)?);
    }
    if let Some(words) = &flags.words {
        query = query.condition(Condition::matches_anywhere(words));
    }
    if let Some([x, y]) = flags.nearest {
        query = query.nearest(x, y, flags.k);
    }
    if let Some(name) = &flags.index {
        query = query.using_index(name);
    }
    Ok((query, systems))
}

/// The query of some columns; all of them if none is named.
fn with_columns(query: Query, columns: &[String]) -> Query {
    if columns.is_empty() { query } else { query.columns(columns) }
}

/// The query with the limit of the flags, which does not count rows that are left out.
pub fn limited(query: Query, flags: &ConditionFlags, offset: u64) -> Query {
    match flags.limit {
        Some(limit) => query.limit(limit.saturating_add(offset)),
        None => query,
    }
}

/// Prints the rows of a query but the first ones.
pub fn print_rows(
    dataset: &Dataset,
    query: &Query,
    offset: u64,
    writer: Box<dyn Writer>,
    messages: &Messages,
) -> Result<Explanation, Failure> {
    let mut rows = dataset.query(query)?;
    let schema = rows.schema().clone();
    output::print_batches(&schema, &mut after(&mut rows, offset), writer, messages)?;
    Ok(rows.explanation())
}

/// The rows behind the first ones.
fn after<E>(
    batches: impl Iterator<Item = Result<RecordBatch, E>>,
    offset: u64,
) -> impl Iterator<Item = Result<RecordBatch, E>> {
    let mut left = usize::try_from(offset).unwrap_or(usize::MAX);
    batches.filter_map(move |batch| match batch {
        Ok(batch) => {
            let skipped = left.min(batch.num_rows());
            left -= skipped;
            (skipped < batch.num_rows()).then(|| Ok(batch.slice(skipped, batch.num_rows() - skipped)))
        }
        Err(error) => Some(Err(error)),
    })
}

/// Prints the rows of a query in an order.
#[cfg(feature = "sql")]
fn print_sorted(
    dataset: &Dataset,
    query: Query,
    order: &str,
    (arguments, common): (&QueryArguments, &Common),
    writer: Box<dyn Writer>,
    messages: &Messages,
) -> Result<(), Failure> {
    use terrane_sql::{Session, Sorting, order_of};
    let by = order_of(&[order.to_owned()], &dataset.schema());
    let by = by.map_err(|reason| Failure::usage(format!("--order-by: {reason}")))?;
    let columns = (!arguments.columns.is_empty()).then(|| arguments.columns.clone());
    let limit = arguments.conditions.limit.map(|limit| limit.saturating_add(arguments.offset));
    let limit = limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let sorting = Sorting { by, limit, columns };
    let rows = dataset.query(&with_columns(query, &sorting.columns_read().unwrap_or_default()))?;
    let schema = rows.schema().clone();
    let session = Session::new(&place::session_options(common))?;
    let sorted = session.sort(&schema, rows, sorting)?;
    let schema = sorted.schema().clone();
    output::print_batches(&schema, &mut after(sorted, arguments.offset), writer, messages)
}

/// Prints the number of rows. An explanation excludes the shortcuts of a mere count, so it is made
/// only on request.
fn count(dataset: &Dataset, schema: &Schema, query: &Query, explain: bool) -> Result<Option<Explanation>, Failure> {
    if !explain {
        output::print_line(dataset.count(query)?)?;
        return Ok(None);
    }
    let mut rows = dataset.query(&query.clone().columns([&schema.key.name]))?;
    let mut count = 0;
    for batch in rows.by_ref() {
        count += batch?.num_rows();
    }
    output::print_line(count)?;
    Ok(Some(rows.explanation()))
}

fn explain(explanation: &Explanation, format: Option<QueryFormat>, messages: &Messages) -> Result<(), Failure> {
    match format {
        Some(QueryFormat::Json) => messages.answer(output::to_json(explanation)?),
        _ => messages.answer(explanation),
    }
    Ok(())
}
