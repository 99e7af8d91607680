//! `terrane policy`: the policy by which the components of a dataset are merged.

use clap::ValueEnum;
use terrane::MergePolicy;

use crate::args::{Common, PolicyArguments, PolicyKind};
use crate::failure::Failure;
use crate::messages::Messages;
use crate::{output, place};

pub fn run(arguments: &PolicyArguments, common: &Common, messages: &Messages) -> Result<(), Failure> {
    let wanted = arguments.kind.map(|kind| wanted(kind, arguments)).transpose()?;
    if wanted.is_none() && !given(arguments).is_empty() {
        return Err(Failure::usage(format!("{} is of a policy; name one", given(arguments).join(" and "))));
    }
    let store = match wanted {
        Some(_) => place::open_to_write(&arguments.store, common, messages)?,
        None => place::open_to_read(&arguments.store, common)?,
    };
    let dataset = store.dataset(&arguments.dataset)?;
    if let Some(policy) = wanted {
        dataset.set_merge_policy(policy)?;
    }
    let said = format!("merge policy of {}: {}", arguments.dataset, dataset.merge_policy());
    drop(dataset);
    match wanted {
        Some(_) => place::close(store, messages)?,
        None => drop(store),
    }
    output::print_line(said)
}

/// The flags for the parameters of a policy.
fn given(arguments: &PolicyArguments) -> Vec<&'static str> {
    let flags = [
        (arguments.components.is_some(), "--components"),
        (arguments.max_bytes.is_some(), "--max-bytes"),
        (arguments.min_bytes.is_some(), "--min-bytes"),
        (arguments.ratio.is_some(), "--ratio"),
    ];
    flags.into_iter().filter_map(|(is_given, name)| is_given.then_some(name)).collect()
}

/// As it is written on the command line.
fn name_of(kind: PolicyKind) -> String {
    kind.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// The requested policy; `None` is the default of stores.
fn wanted(kind: PolicyKind, arguments: &PolicyArguments) -> Result<Option<MergePolicy>, Failure> {
    let known: &[&str] = match kind {
        PolicyKind::Default => &[],
        PolicyKind::Prefix => &["--components", "--max-bytes"],
        PolicyKind::Constant => &["--components"],
        PolicyKind::SizeTiered => &["--components", "--min-bytes", "--ratio"],
    };
    if let Some(foreign) = given(arguments).into_iter().find(|name| !known.contains(name)) {
        return Err(Failure::usage(format!("the policy {} has no parameter {foreign}; omit it", name_of(kind))));
    }
    let mut policy = match kind {
        PolicyKind::Default => return Ok(None),
        PolicyKind::Prefix => MergePolicy::default(),
        PolicyKind::Constant => MergePolicy::CONSTANT,
        PolicyKind::SizeTiered => MergePolicy::SIZE_TIERED,
    };
    let set = |place: &mut usize| *place = arguments.components.unwrap_or(*place);
    match &mut policy {
        MergePolicy::Prefix { mergeable_bytes_max, components_max } => {
            set(components_max);
            *mergeable_bytes_max = arguments.max_bytes.map_or(*mergeable_bytes_max, |bytes| bytes as u64);
        }
        MergePolicy::Constant { components_max } => set(components_max),
        MergePolicy::SizeTiered { components_min, size_ratio, bytes_min } => {
            set(components_min);
            *size_ratio = arguments.ratio.unwrap_or(*size_ratio);
            *bytes_min = arguments.min_bytes.map_or(*bytes_min, |bytes| bytes as u64);
        }
    }
    policy.validate().map_err(|error| Failure::usage(error.to_string()))?;
    Ok(Some(policy))
}
