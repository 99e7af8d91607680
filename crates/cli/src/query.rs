//! `terrane query`: prints the records that meet all conditions.

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
        true => count(&dataset, &schema, &query, arguments.explain)?,
        false => {
            let writer = output::rows_to_stdout(output::row_format(format)?, &schema, place::working_memory(common));
            Some(print_rows(&dataset, &query, writer, messages)?)
        }
    };
    match explanation.filter(|_| arguments.explain) {
        Some(explanation) => explain(&explanation, format, messages),
        None => Ok(()),
    }
}

/// The query, and the reference systems that its geometries declare.
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
    if let Some(limit) = flags.limit {
        query = query.limit(limit);
    }
    if let Some(name) = &flags.index {
        query = query.using_index(name);
    }
    Ok((query, systems))
}

pub fn print_rows(
    dataset: &Dataset,
    query: &Query,
    writer: Box<dyn Writer>,
    messages: &Messages,
) -> Result<Explanation, Failure> {
    let mut rows = dataset.query(query)?;
    let schema = rows.schema().clone();
    output::print_batches(&schema, &mut rows, writer, messages)?;
    Ok(rows.explanation())
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
