//! `terrane join`: prints pairs of nearby records of two datasets, or of one.

use terrane::{Join, JoinExplanation, JoinOn, JoinPairs, Query, Snapshot};
use terrane_formats::Writer;

use crate::args::{Common, JoinArguments, PairsWanted, QueryFormat};
use crate::failure::Failure;
use crate::messages::Messages;
use crate::shape::{parse_condition, warn_of_condition};
use crate::{environment, output, place};

pub fn run(arguments: &JoinArguments, common: &Common, messages: &Messages) -> Result<(), Failure> {
    let format = environment::query_format(arguments.format)?;
    let join = build(arguments)?;
    let store = place::open_to_query(&arguments.store, common, messages)?;
    let (outer, inner) = store.dataset(&arguments.outer)?.snapshot_with(&store.dataset(&arguments.inner)?)?;
    messages.debug(format_args!("the answer is of commit {}", outer.sequence()));
    warn_of_condition(arguments.outer_where.as_ref(), &outer.schema(), messages);
    warn_of_condition(arguments.inner_where.as_ref(), &inner.schema(), messages);
    let explanation = match arguments.count {
        true => {
            let (count, explanation) = outer.count_join_explained(&inner, &join)?;
            output::print_line(count)?;
            explanation
        }
        false => {
            let (outer_schema, inner_schema) = (outer.schema(), inner.schema());
            let name = |column: &str| match inner_schema.column_names().any(|other| other == column) {
                true => format!("{}{column}", arguments.outer_prefix),
                false => column.to_owned(),
            };
            let memory = place::working_memory(common);
            let writer = output::renamed_rows_to_stdout(output::row_format(format)?, &outer_schema, &name, memory);
            print_pairs(&outer, &inner, &join, writer, messages)?
        }
    };
    match (arguments.explain, format) {
        (false, _) => {}
        (true, Some(QueryFormat::Json)) => messages.answer(output::to_json(&explanation)?),
        (true, _) => messages.answer(&explanation),
    }
    Ok(())
}

fn build(arguments: &JoinArguments) -> Result<Join, Failure> {
    let on = match arguments.within_distance {
        Some(distance) => JoinOn::WithinDistance(distance),
        None if arguments.intersects => JoinOn::Intersects,
        None if arguments.within => JoinOn::Within,
        None => JoinOn::Contains,
    };
    let side = |bbox: Option<[f64; 4]>, circle: Option<[f64; 3]>, flag, condition: &Option<String>| {
        let mut query = Query::new();
        if let Some([x0, y0, x1, y1]) = bbox {
            query = query.window(x0, y0, x1, y1);
        }
        if let Some([x, y, radius]) = circle {
            query = query.circle(x, y, radius);
        }
        if let Some(text) = condition {
            query = query.condition(parse_condition(flag, text)?);
        }
        Ok::<Query, Failure>(query)
    };
    let mut outer = side(arguments.outer_bbox, arguments.outer_circle, "--outer-where", &arguments.outer_where)?;
    if let Some(limit) = arguments.outer_limit {
        outer = outer.limit(limit);
    }
    let mut inner = side(arguments.inner_bbox, arguments.inner_circle, "--inner-where", &arguments.inner_where)?;
    if let Some(name) = &arguments.index {
        inner = inner.using_index(name);
    }
    let pairs = match arguments.pairs {
        PairsWanted::All => JoinPairs::All,
        PairsWanted::Distinct => JoinPairs::Distinct,
        PairsWanted::Ordered => JoinPairs::Ordered,
    };
    let join = Join::new(on).outer(outer).inner(inner).pairs(pairs);
    let join = join.prefixes(&arguments.outer_prefix, &arguments.inner_prefix);
    Ok(match arguments.limit {
        Some(limit) => join.limit(limit),
        None => join,
    })
}

fn print_pairs(
    outer: &Snapshot,
    inner: &Snapshot,
    join: &Join,
    writer: Box<dyn Writer>,
    messages: &Messages,
) -> Result<JoinExplanation, Failure> {
    let mut rows = outer.join(inner, join)?;
    let schema = rows.schema().clone();
    output::print_batches(&schema, &mut rows, writer, messages)?;
    Ok(rows.explanation())
}
