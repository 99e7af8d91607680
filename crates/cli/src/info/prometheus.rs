//! A store's gauges in the text format of Prometheus.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode as encode_text;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use terrane::StoreInfo;

use crate::failure::Failure;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DatasetLabels {
    dataset: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct IndexLabels {
    dataset: String,
    index: String,
    kind: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FeedLabels {
    dataset: String,
    feed: String,
}

type Whole = Gauge<u64, AtomicU64>;

pub fn encode(info: &StoreInfo) -> Result<String, Failure> {
    let mut registry = Registry::with_prefix("terrane");
    add_store(&mut registry, info);
    add_datasets(&mut registry, info);
    let mut text = String::new();
    encode_text(&mut text, &registry)
        .map_err(|error| Failure::new(Failure::FAILURE, format!("the gauges cannot be written: {error}")))?;
    Ok(text)
}

fn add_store(registry: &mut Registry, info: &StoreInfo) {
    let mut whole = |name: &str, help: &str, value: u64| {
        let gauge = Whole::default();
        gauge.set(value);
        registry.register(name, help, gauge);
    };
    whole("commit", "Number of the last visible commit", info.sequence);
    whole("manifest_generation", "Manifest steps since the store was created", info.manifest_generation);
    if let Some(entries) = info.replayed_entries {
        whole("replayed_entries", "Log entries that opening replayed", entries);
    }
    if let Some(bytes) = info.disk_reserve_bytes {
        whole("disk_reserve_bytes", "Bytes of disk in reserve", bytes);
    }
    let torn = info.torn_tail.as_ref().map_or(0, |tail| tail.bytes);
    whole("torn_tail_bytes", "Bytes of an unfinished write behind the end of the log", torn);
    if let Some(seconds) = info.replay_s {
        let gauge = Gauge::<f64, AtomicU64>::default();
        gauge.set(seconds);
        registry.register_with_unit("replay", "Time to open and replay the log", Unit::Seconds, gauge);
    }
}

fn add_datasets(registry: &mut Registry, info: &StoreInfo) {
    let memory = Family::<DatasetLabels, Whole>::default();
    let partitions = Family::<DatasetLabels, Whole>::default();
    let [components, entries, antimatter, bytes, building] =
        std::array::from_fn(|_| Family::<IndexLabels, Whole>::default());
    let positions = Family::<FeedLabels, Whole>::default();
    for dataset in &info.datasets {
        let labels = DatasetLabels { dataset: dataset.name.clone() };
        memory.get_or_create(&labels).set(dataset.memory_bytes);
        partitions.get_or_create(&labels).set(dataset.partitions as u64);
        for index in &dataset.indexes {
            let (dataset, index_name, kind) = (dataset.name.clone(), index.name.clone(), index.kind.clone());
            let labels = IndexLabels { dataset, index: index_name, kind };
            components.get_or_create(&labels).set(index.components as u64);
            entries.get_or_create(&labels).set(index.entries);
            antimatter.get_or_create(&labels).set(index.antimatter);
            bytes.get_or_create(&labels).set(index.bytes);
            building.get_or_create(&labels).set(u64::from(index.is_building));
        }
        for feed in &dataset.feeds {
            let labels = FeedLabels { dataset: dataset.name.clone(), feed: feed.name.clone() };
            positions.get_or_create(&labels).set(feed.position);
        }
    }
    registry.register("memory_component_bytes", "Bytes of memory components", memory);
    registry.register("partitions", "Partitions of a dataset", partitions);
    registry.register("index_components", "Disk components of an index", components);
    registry.register("index_entries", "Live entries in disk components", entries);
    registry.register("index_antimatter", "Anti-matter entries in disk components", antimatter);
    registry.register("index_bytes", "Bytes of disk components", bytes);
    registry.register("index_is_building", "1 while an index is being built", building);
    registry.register("feed_position", "How far the source of a feed has been read", positions);
}
