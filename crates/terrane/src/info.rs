//! Sizes and counts of a store, for people and programs.

use std::fmt;

use serde::Serialize;
use terrane_literal::format_timestamp;
use terrane_lsm::disk::TimeRange;
use terrane_lsm::partition::IndexVersion;
use terrane_lsm::policy::MergePolicy;
use terrane_space::CoordinateSystem;

use crate::Result;
use crate::engine::{DatasetHandle, Engine, reserve_bytes};
use crate::feed::{FeedInfo, feeds_of};
use crate::schema::{ColumnType, GeometryColumn, Schema, SchemaHistory};
use crate::secondary::{IndexOptions, PRIMARY};
use crate::words::counted;

/// An index of a dataset.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IndexInfo {
    /// Name.
    pub name: String,
    /// Kind.
    pub kind: String,
    /// Its columns.
    pub columns: Vec<String>,
    /// Options of its kind, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub options: Option<IndexOptions>,
    /// Whether it is still being built. Queries do not use it until it is complete.
    pub is_building: bool,
    /// Number of disk components.
    pub components: usize,
    /// Live entries in disk components. Newer components may hide some. Kinds `shb` and `sif` may
    /// have several entries per record.
    pub entries: u64,
    /// Anti-matter entries in disk components.
    pub antimatter: u64,
    /// Bytes of the disk components.
    pub bytes: u64,
}

/// A dataset.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DatasetInfo {
    /// Name.
    pub name: String,
    /// Its schema.
    pub schema: Schema,
    /// Number of partitions.
    pub partitions: usize,
    /// Its own merge policy, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merge_policy: Option<MergePolicy>,
    /// Indexes, the primary first. Numbers are totals over all partitions.
    pub indexes: Vec<IndexInfo>,
    /// Feeds, with the positions up to which their sources have been read.
    pub feeds: Vec<FeedInfo>,
    /// Bytes of memory components.
    pub memory_bytes: u64,
    /// Bounding box of all entries in disk components: x0, y0, x1, y1.
    pub bounds: Option<[f64; 4]>,
    /// First and last time of the entries in disk components, by the dataset's first timestamp
    /// attribute; `None` without one, or if a component does not know it.
    pub times: Option<TimesInfo>,
}

/// First and last time of a dataset's records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TimesInfo {
    /// Name of the timestamp attribute.
    pub column: String,
    /// ISO 8601.
    pub first: String,
    /// ISO 8601.
    pub last: String,
}

impl TimesInfo {
    fn of(history: &SchemaHistory, statistics: impl Iterator<Item = Option<TimeRange>>) -> Option<Self> {
        let attribute = history.first_timestamp()?;
        let mut all: Option<(i64, i64)> = None;
        for time in statistics {
            let range = time.filter(|time| time.attribute == attribute.number())?.range;
            if let Some((first, last)) = range {
                let (least, greatest) = all.unwrap_or((first, last));
                all = Some((least.min(first), greatest.max(last)));
            }
        }
        let (first, last) = all?;
        let column = history.newest().columns.get(history.position(attribute)?)?;
        let utc = matches!(column.column_type, ColumnType::Timestamp { utc: true });
        let text = |time| format_timestamp(time, utc);
        Some(Self { column: column.name.clone(), first: text(first), last: text(last) })
    }
}

/// Bytes of an interrupted write behind the end of the log. Opening for writing removes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TornTailInfo {
    /// File below the store's directory.
    pub file: String,
    /// Byte offset in the file.
    pub offset: u64,
    /// Their number, as far as the file's earlier contents show it.
    pub bytes: u64,
    /// Whether they have been removed; a store open for reading leaves them.
    pub cut: bool,
}

impl TornTailInfo {
    fn of(engine: &Engine) -> Option<Self> {
        let written = engine.opening.recovery.as_ref().and_then(|report| report.torn_tail);
        let seen = || engine.core.tail().and_then(|tail| tail.torn_tail());
        let tail = written.or_else(seen)?;
        Some(Self {
            file: tail.file(),
            offset: tail.offset,
            bytes: tail.bytes,
            cut: engine.environment().is_writable(),
        })
    }
}

impl fmt::Display for TornTailInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = counted(self.bytes, "byte", "bytes");
        write!(f, "the log ends in {bytes} of an interrupted write, at byte {} of {}", self.offset, self.file)?;
        f.write_str(match self.cut {
            true => "; they were removed, and were never acknowledged unless the disk lost data",
            false => " (a writer was killed, or is writing now); opening for writing removes them",
        })
    }
}

/// A store.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StoreInfo {
    /// Its location.
    pub location: String,
    /// Durability mode.
    pub durability: String,
    /// Bytes of the disk reserve; 0 while it is released on a full disk and not refilled. `None`
    /// without a reserve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_reserve_bytes: Option<u64>,
    /// Manifest steps so far.
    pub manifest_generation: u64,
    /// Number of the last visible commit.
    pub sequence: u64,
    /// Log entries replayed by opening, if it did.
    pub replayed_entries: Option<u64>,
    /// Seconds that opening and replaying the log took, if there is a log.
    pub replay_s: Option<f64>,
    /// Bytes of an interrupted write behind the end of the log, if any.
    pub torn_tail: Option<TornTailInfo>,
    /// The datasets.
    pub datasets: Vec<DatasetInfo>,
}

impl StoreInfo {
    pub(crate) fn of(engine: &Engine) -> Result<Self> {
        let manifest = engine.environment().context.manifest.current();
        Ok(Self {
            location: engine.environment().storage.describe(),
            durability: engine.environment().durability.name().into(),
            disk_reserve_bytes: reserve_bytes(&*engine.environment().storage)?,
            manifest_generation: manifest.generation,
            sequence: engine.core.visible(),
            replayed_entries: engine.opening.recovery.as_ref().map(|report| report.entries),
            replay_s: engine.opening.recovery.as_ref().map(|_| engine.opening.replay_time.as_secs_f64()),
            torn_tail: TornTailInfo::of(engine),
            datasets: engine.datasets.load().values().map(|dataset| dataset_info(dataset)).collect(),
        })
    }
}

fn dataset_info(dataset: &DatasetHandle) -> DatasetInfo {
    let versions = dataset.partitions.versions();
    let mut bounds: Option<[f64; 4]> = None;
    let mut times = None;
    let points = dataset.schema().holds_points();
    let indexes = dataset.indexes.load_full();
    let of_partitions = |slot: usize| {
        let found = versions.iter().map(|version| version.indexes.get(slot));
        found.collect::<Option<Vec<&IndexVersion>>>()
    };
    // Without a geometry, the index of every dataset has nothing to hold.
    let shown = indexes.iter().filter(|(_, index)| !index.definition.columns.is_empty());
    let indexes = shown.filter_map(|(slot, index)| Some((&index.definition, of_partitions(slot)?)));
    let indexes = indexes.map(|(definition, index)| {
        let parts: Vec<_> = index.iter().flat_map(|index| &index.components).collect();
        let statistics = || parts.iter().map(|part| &part.file().meta().statistics);
        if definition.id == PRIMARY {
            times = TimesInfo::of(&dataset.history.load(), statistics().map(|statistics| statistics.time));
        }
        for [x0, y0, x1, y1] in statistics().filter_map(|statistics| statistics.bounds) {
            let all = bounds.get_or_insert([x0, y0, x1, y1]);
            *all = [all[0].min(x0), all[1].min(y0), all[2].max(x1), all[3].max(y1)];
        }
        IndexInfo {
            name: definition.name.clone(),
            kind: definition.kind.clone(),
            columns: definition.columns.clone(),
            options: IndexOptions::of(definition, points),
            is_building: index.iter().any(|index| index.is_building()),
            components: parts.len(),
            entries: statistics().map(|statistics| statistics.entries).sum(),
            antimatter: statistics().map(|statistics| statistics.antimatter).sum(),
            bytes: parts.iter().map(|part| part.file().meta().file_len).sum(),
        }
    });
    let indexes = indexes.collect();
    DatasetInfo {
        name: dataset.name.clone(),
        schema: (*dataset.schema()).clone(),
        partitions: versions.len(),
        merge_policy: dataset.own_merge_policy(),
        indexes,
        feeds: feeds_of(dataset),
        memory_bytes: dataset.partitions.memory_used() as u64,
        bounds,
        times,
    }
}

impl fmt::Display for StoreInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "store {}\n  durability {} · commit {} · manifest {}",
            self.location, self.durability, self.sequence, self.manifest_generation
        )?;
        match self.disk_reserve_bytes {
            Some(0) => write!(f, " · the disk was full, its reserve is released")?,
            Some(bytes) => write!(f, " · {} of disk in reserve", counted(bytes, "byte", "bytes"))?,
            None => {}
        }
        if let Some(entries) = self.replayed_entries {
            write!(f, " · {} replayed", counted(entries, "log entry", "log entries"))?;
        }
        if let Some(tail) = &self.torn_tail {
            write!(f, "\n  {tail}")?;
        }
        for dataset in &self.datasets {
            let schema = &dataset.schema;
            let geometry = match &schema.geometry {
                GeometryColumn::Point { x, y } => format!("points {x}, {y}"),
                GeometryColumn::Geometry { name } => format!("geometry {name}"),
                GeometryColumn::None => "no geometry".to_owned(),
            };
            let system = match schema.system {
                CoordinateSystem::LonLat => "lonlat",
                CoordinateSystem::Planar => "planar",
            };
            write!(
                f,
                "\n\ndataset {}\n  key {} ({}) · {geometry} · {system}",
                dataset.name, schema.key.name, schema.key.key_type
            )?;
            if dataset.partitions > 1 {
                write!(f, "\n  {} partitions", dataset.partitions)?;
            }
            if let Some(policy) = dataset.merge_policy {
                write!(f, "\n  merge policy {policy}")?;
            }
            for column in &schema.columns {
                write!(f, "\n  column {} {}", column.name, column.column_type)?;
            }
            for index in &dataset.indexes {
                write!(
                    f,
                    "\n  index {} {} on {}: {}, {}, {}",
                    index.name,
                    index.kind,
                    index.columns.join(", "),
                    counted(index.components as u64, "component", "components"),
                    counted(index.entries, "entry", "entries"),
                    counted(index.bytes, "byte", "bytes")
                )?;
                if let Some(options) = &index.options {
                    write!(f, ", {options}")?;
                }
                if index.is_building {
                    f.write_str(", being built")?;
                }
                if index.antimatter > 0 {
                    write!(f, ", {} anti-matter", index.antimatter)?;
                }
            }
            for FeedInfo { name, position, .. } in &dataset.feeds {
                write!(f, "\n  feed {name}: read up to {position}")?;
            }
            write!(f, "\n  in memory {}", counted(dataset.memory_bytes, "byte", "bytes"))?;
            if let Some([x0, y0, x1, y1]) = dataset.bounds {
                write!(f, "\n  bounds {x0} {y0} {x1} {y1}")?;
            }
            if let Some(TimesInfo { column, first, last }) = &dataset.times {
                write!(f, "\n  {column} from {first} to {last}")?;
            }
        }
        Ok(())
    }
}
