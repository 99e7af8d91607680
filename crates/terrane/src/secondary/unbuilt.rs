//! Which indexes of a dataset are not complete.

use crate::Error;
use crate::engine::DatasetHandle;

/// The place of the first index of a dataset that is not complete. They are completed in their order.
pub(crate) fn first_unbuilt(dataset: &DatasetHandle) -> Option<usize> {
    dataset.indexes.load().iter().map(|(place, _)| place).find(|place| is_building(dataset, *place))
}

/// Says of the index at a place that it could not be completed, unless it was dropped meanwhile. To be called with `building`
/// still held.
pub(crate) fn unbuilt(dataset: &DatasetHandle, place: usize, cause: Error) -> Error {
    let indexes = dataset.indexes.load();
    match indexes.iter().find(|(at, _)| *at == place && is_building(dataset, place)) {
        Some((_, index)) if !matches!(cause, Error::Cancelled) => Error::Unbuilt {
            dataset: dataset.name.clone(),
            index: index.definition.name.clone(),
            cause: Box::new(cause),
        },
        _ => cause,
    }
}

/// Whether a dataset has an index of this name that is not complete.
pub(crate) fn is_unbuilt(dataset: &DatasetHandle, name: &str) -> bool {
    dataset.indexes.load().find(name).is_some_and(|(place, _)| is_building(dataset, place))
}

/// Whether what was there before the index is missing yet.
pub(crate) fn is_building(dataset: &DatasetHandle, place: usize) -> bool {
    let version = dataset.partitions.version(0);
    version.indexes.get(place).is_some_and(|index| index.is_building())
}
