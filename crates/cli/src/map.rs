//! `terrane map`: writes an interactive map of the records that meet all conditions.

use std::fs::File;

use terrane::schema::GeometryColumn;
use terrane_formats::OutputFormat;

use crate::args::{Common, MapArguments, QueryFormat};
use crate::failure::Failure;
use crate::messages::Messages;
use crate::shape::warn_of_condition;
use crate::{output, place, query};

pub fn run(arguments: &MapArguments, common: &Common, messages: &Messages) -> Result<(), Failure> {
    let (conditions, systems) = query::build(&arguments.conditions)?;
    let conditions = query::limited(conditions, &arguments.conditions, 0);
    let store = place::open_to_query(&arguments.store, common, messages)?;
    let dataset = store.dataset(&arguments.dataset)?;
    let schema = dataset.schema();
    if schema.geometry == GeometryColumn::None {
        return Err(Failure::usage(format!("dataset {} has no geometry, so there is no map of it", dataset.name())));
    }
    systems.iter().try_for_each(|system| system.check(schema.system))?;
    warn_of_condition(arguments.conditions.condition.as_ref(), &schema, messages);
    let working_memory = place::working_memory(common);
    let writer = match &arguments.output {
        None => output::rows_to_stdout(output::row_format(Some(QueryFormat::Map))?, &schema, working_memory),
        Some(path) => {
            // A wrong condition leaves an earlier page as it is.
            dataset.query(&conditions)?;
            let file = File::create(path).map_err(|error| {
                Failure::new(Failure::FAILURE, format!("{}: cannot create the file: {error}", path.display()))
            })?;
            output::rows_to(file, OutputFormat::Map, &schema, working_memory)
        }
    };
    query::print_rows(&dataset, &conditions, 0, writer, messages).map(drop)
}
