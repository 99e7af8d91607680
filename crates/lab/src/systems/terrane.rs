//! Terrane under comparison. Only this file of the laboratory knows the store's interface.
//!
//! There is one planar dataset with int64 keys, points, and a timestamp. To get several live
//! components, records are written part by part, each part is flushed, and none is merged.

use std::borrow::Borrow;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, TimestampMicrosecondArray};
use terrane::schema::{Column, ColumnType, GeometryColumn, KeyColumn, KeyType, Schema};
use terrane::{
    CoordinateSystem, Dataset, Durability, Error, Key, KeyRef, MergePolicy, OnConflict, Options, Query, Snapshot,
    Store, Value,
};
use terrane_formats::{CoordinateOptions, ReadOptions};

use crate::compare::{TERRANE, TERRANE_UNSYNCED};
use crate::system::{Reader, Replay, Role, SPATIAL_INDEX, System, Visitor, Writer};
use crate::workload::{Location, Points, Record, Window};

const DATASET: &str = "points";
/// Limit of every store, except those for queries.
const MEMORY_LIMIT: usize = 64 << 20;
/// Room in the page cache for everything, and in memory components for the data of one flush.
const QUERY_MEMORY_PER_POINT: usize = 1 << 10;
const BATCH_ROWS: usize = 8_192;

/// Log bytes of one insert, by the layout of `docs/format.md`: the group's header, then one entry
/// with the operations of both indexes, padded to a multiple of 8.
const INSERT_BYTES: u64 = {
    const GROUP_HEADER: u64 = 64;
    const LENGTH: u64 = 4;
    const ENTRY_HEADER: u64 = 40;
    const OPERATION_HEADER: u64 = 16;
    const KEY: u64 = 8;
    const POINT: u64 = 16;
    const RECORD_HEADER: u64 = 4;
    const NULL_BITMAP: u64 = 1;
    const TIMESTAMP: u64 = 8;
    let primary = OPERATION_HEADER + KEY + RECORD_HEADER + POINT + NULL_BITMAP + TIMESTAMP;
    let spatial = OPERATION_HEADER + POINT + KEY;
    GROUP_HEADER + (LENGTH + ENTRY_HEADER + primary + spatial).next_multiple_of(8)
};

/// Terrane in each durability mode that is compared.
pub fn systems() -> Vec<Box<dyn System>> {
    vec![Box::new(Terrane { durability: Durability::Power }), Box::new(Terrane { durability: Durability::None })]
}

struct Terrane {
    durability: Durability,
}

impl System for Terrane {
    fn name(&self) -> &'static str {
        if self.durability == Durability::None { TERRANE_UNSYNCED } else { TERRANE }
    }

    fn settings(&self) -> &'static str {
        if self.durability == Durability::None {
            "durability none, memory limit 64 MiB"
        } else {
            "durability power: log with group commit; memory limit 64 MiB, for queries 1 KiB a point"
        }
    }

    fn roles(&self) -> &'static [Role] {
        if self.durability == Durability::None {
            &[Role::UnsyncedWrites]
        } else {
            &[Role::Build, Role::Queries, Role::FiveComponents, Role::DurableWrites, Role::Reopen, Role::Compact]
        }
    }

    fn build(&self, parts: &[Points], dir: &Path) -> Result<Box<dyn Reader>> {
        let unmerged = MergePolicy::Prefix { mergeable_bytes_max: u64::MAX, components_max: usize::MAX };
        let count: usize = parts.iter().map(Points::len).sum();
        let memory_limit = MEMORY_LIMIT.max(count * QUERY_MEMORY_PER_POINT);
        let options = Options { merge_policy: unmerged, ..self.options(memory_limit) };
        let Instance { dataset, store } = Instance::open(dir, options)?;
        for part in parts {
            write(&dataset, part)?;
            dataset.flush()?;
        }
        if parts.len() == 1 {
            dataset.compact()?;
        }
        for index in store.info()?.datasets.iter().flat_map(|dataset| &dataset.indexes) {
            ensure!(
                index.components == parts.len(),
                "{} has {} components instead of {}",
                index.name,
                index.components,
                parts.len()
            );
        }
        Ok(Box::new(View { snapshot: dataset.snapshot(), store }))
    }

    fn import(&self, file: &Path, dir: &Path) -> Result<Box<dyn Reader>> {
        let store = Store::open(dir, self.options(MEMORY_LIMIT))?;
        let columns = ReadOptions {
            x: Some("x".into()),
            y: Some("y".into()),
            coordinates: CoordinateOptions::planar(),
            ..ReadOptions::default()
        };
        let mut source = terrane_formats::open(file, &columns)?;
        let mut importer = store.importer(DATASET, schema()?)?;
        while let Some(batch) = source.next_batch()? {
            ensure!(batch.rejected.is_empty(), "{}: rows were rejected", file.display());
            let refused = importer.push(&batch.batch)?;
            ensure!(refused.is_empty(), "{}: rows were refused", file.display());
        }
        importer.finish(&mut |refused| Err(refused.error))?;
        let snapshot = store.dataset(DATASET)?.snapshot();
        Ok(Box::new(View { snapshot, store }))
    }

    fn open_reader(&self, dir: &Path) -> Result<Box<dyn Reader>> {
        let store = Store::open_read_only(dir, self.options(MEMORY_LIMIT))?;
        let snapshot = store.dataset(DATASET)?.snapshot();
        Ok(Box::new(View { snapshot, store }))
    }

    fn open_writer(&self, dir: &Path) -> Result<Box<dyn Writer>> {
        Ok(Box::new(Instance::open(dir, self.options(MEMORY_LIMIT))?))
    }
}

impl Terrane {
    fn options(&self, memory_limit: usize) -> Options {
        Options { durability: Some(self.durability), memory_limit, ..Options::default() }
    }
}

fn schema() -> Result<Schema> {
    Ok(Schema::new(
        KeyColumn { name: "id".into(), key_type: KeyType::Int64, generated: false },
        GeometryColumn::Point { x: "x".into(), y: "y".into() },
        CoordinateSystem::Planar,
        vec![Column::new("time", ColumnType::Timestamp { utc: false })],
    )?)
}

/// Writes records in batches. All are durable on return.
fn write(dataset: &Dataset, points: &Points) -> Result<()> {
    let schema = Arc::new(schema()?.to_arrow());
    for start in (0..points.len()).step_by(BATCH_ROWS) {
        let rows = start..points.len().min(start + BATCH_ROWS);
        let batch = RecordBatch::try_new(
            schema.clone(),
            vec![
                Arc::new(Int64Array::from(points.id[rows.clone()].to_vec())),
                Arc::new(Float64Array::from(points.x[rows.clone()].to_vec())),
                Arc::new(Float64Array::from(points.y[rows.clone()].to_vec())),
                Arc::new(TimestampMicrosecondArray::from(points.time_us[rows].to_vec())),
            ],
        )?;
        let outcome = dataset.write_batch(&batch, OnConflict::Refuse)?;
        if let Some(refused) = outcome.refused.into_iter().next() {
            return Err(refused.error).with_context(|| format!("row {}", start + refused.row));
        }
    }
    Ok(())
}

/// An open store that can be written.
struct Instance {
    dataset: Dataset,
    store: Store,
}

impl Instance {
    fn open(dir: &Path, options: Options) -> Result<Self> {
        let store = Store::open(dir, options)?;
        let dataset = match store.dataset(DATASET) {
            Err(Error::UnknownDataset { .. }) => store.create_dataset(DATASET, schema()?)?,
            found => found?,
        };
        Ok(Self { dataset, store })
    }
}

impl Writer for Instance {
    fn insert(&self, record: &Record) -> Result<()> {
        let Location { x, y } = record.location;
        let values = vec![Value::Timestamp(record.time_us)];
        Ok(self.dataset.insert(&terrane::Record::at(record.id, x, y, values))?)
    }

    fn insert_all(&self, points: &Points) -> Result<()> {
        write(&self.dataset, points)
    }

    fn delete(&self, record: &Record) -> Result<()> {
        ensure!(self.dataset.delete(&Key::Int(record.id))?, "terrane: no record {}", record.id);
        Ok(())
    }

    fn compact(&self) -> Result<()> {
        Ok(self.dataset.compact()?)
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(View { snapshot: self.dataset.snapshot(), store: &self.store }))
    }

    fn bytes_per_insert(&self) -> Option<u64> {
        (self.store.durability() == Durability::Power).then_some(INSERT_BYTES)
    }
}

/// A snapshot, with its store.
struct View<S> {
    snapshot: Snapshot,
    store: S,
}

impl<S: Borrow<Store>> Reader for View<S> {
    fn window(&self, window: &Window, visit: &mut Visitor<'_>) -> Result<()> {
        let Window { x0, y0, x1, y1 } = *window;
        Ok(self.snapshot.visit_window(x0, y0, x1, y1, |key| hand_on(key, visit))?)
    }

    fn nearest(&self, from: Location, k: usize, visit: &mut Visitor<'_>) -> Result<()> {
        Ok(self.snapshot.visit_nearest(from.x, from.y, k, |key, _| hand_on(key, visit))?)
    }

    fn records(&self, visit: &mut dyn FnMut(&Record)) -> Result<()> {
        let mut rows = self.snapshot.query(&Query::new())?;
        while let Some(batch) = rows.next_batch()? {
            let ids = column(&batch, "id")?.as_primitive::<Int64Type>();
            let xs = column(&batch, "x")?.as_primitive::<Float64Type>();
            let ys = column(&batch, "y")?.as_primitive::<Float64Type>();
            let times = column(&batch, "time")?.as_primitive::<TimestampMicrosecondType>();
            for row in 0..batch.num_rows() {
                let location = Location { x: xs.value(row), y: ys.value(row) };
                visit(&Record { id: ids.value(row), time_us: times.value(row), location });
            }
        }
        Ok(())
    }

    fn footprint(&self) -> Result<Vec<(String, u64)>> {
        let info = self.store.borrow().info()?;
        let indexes = info.datasets.into_iter().flat_map(|dataset| dataset.indexes);
        Ok(indexes
            .map(|index| {
                let name =
                    if index.kind == "rtree" { SPATIAL_INDEX.to_owned() } else { format!("{} index", index.name) };
                (name, index.bytes)
            })
            .collect())
    }

    fn replay(&self) -> Option<Replay> {
        let info = self.store.borrow().info().ok()?;
        Some(Replay { records: info.replayed_entries?, wall_s: info.replay_s? })
    }
}

fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef> {
    batch.column_by_name(name).with_context(|| format!("the rows have no column {name}"))
}

/// The dataset's keys are int64, so every key is passed on.
#[inline]
fn hand_on(key: KeyRef<'_>, visit: &mut Visitor<'_>) -> ControlFlow<()> {
    if let KeyRef::Int(id) = key {
        visit(id);
    }
    ControlFlow::Continue(())
}

#[cfg(test)]
#[path = "terrane_tests.rs"]
mod tests;
