//! Flushes: the oldest sealed generations of all partitions become disk components.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::install::{discard, discard_uninstalled};
use super::snapshot::{Flushed, NewPart};
use super::{Generation, Partitions, RunningMerges, Version};
use crate::disk::{ComponentFile, ComponentMeta, ComponentWriter, PageCache};
use crate::index::FlushPlan;
use crate::manifest::{Manifest, ManifestFile};
use crate::{Error, Result, parallel};
use terrane_storage::Storage;
use terrane_storage::sync::{AtomicU64, Ordering};

/// The parts of the store that flushes and merges use.
#[derive(Clone, Debug)]
pub struct MaintenanceContext {
    /// The storage for new files.
    pub storage: Arc<dyn Storage>,
    /// The cache of new components.
    pub cache: Arc<PageCache>,
    /// The manifest.
    pub manifest: Arc<ManifestFile>,
    /// The next file id.
    pub next_file_id: Arc<AtomicU64>,
    /// Most threads that work on the partitions of one flush.
    pub threads_max: usize,
    /// The merges in progress.
    pub merges: Arc<RunningMerges>,
}

impl MaintenanceContext {
    /// A writer for a new component.
    pub fn writer(&self) -> Result<ComponentWriter> {
        ComponentWriter::create(&self.storage, self.next_file_id.fetch_add(1, Ordering::Relaxed))
    }

    /// Opens a component that was just written.
    pub fn file(&self, meta: &ComponentMeta) -> Result<Arc<ComponentFile>> {
        ComponentFile::open(&self.storage, &self.cache, meta)
    }

    /// A manifest step.
    pub fn step<T>(&self, change: impl FnOnce(&mut Manifest) -> Result<T>) -> Result<T> {
        self.manifest.update(|manifest| {
            manifest.next_file_id = manifest.next_file_id.max(self.next_file_id.load(Ordering::Relaxed));
            change(manifest)
        })
    }
}

/// The result of a flush.
#[derive(Clone, Debug, Default)]
pub struct FlushOutcome {
    /// Bytes of the new components.
    pub bytes_written: u64,
    /// Live entries of the first index in them.
    pub entries: u64,
    /// Threads that built them.
    pub threads: usize,
}

impl Partitions {
    /// Writes the oldest sealed generations, one of each partition, to disk and installs them (I4).
    /// Several threads build the components of the partitions. `wait_visible` waits until every
    /// change up to a sequence number is applied and durable (I3). `low_water` returns the log
    /// position for the manifest once these generations are on disk. `None` if there is nothing to
    /// flush, or the dataset was dropped meanwhile.
    ///
    /// A crash before the manifest step leaves component files that no manifest names, which the
    /// next open removes. A crash after it leaves all new components and the new cut.
    pub fn flush(
        &self,
        context: &MaintenanceContext,
        wait_visible: &dyn Fn(u64) -> Result<()>,
        low_water: &dyn Fn(&mut Manifest),
    ) -> Result<Option<FlushOutcome>> {
        let _flushing = self.flushing.lock();
        let versions = self.versions();
        let oldest = |version: &Arc<Version>| version.generations[1..].last().cloned();
        // By I1 there is one of each partition, or none.
        let generations: Vec<Arc<Generation>> = versions.iter().filter_map(oldest).collect();
        let Some(first) = generations.first() else { return Ok(None) };
        let sequence = first.sequence()?;
        if generations.len() != self.count || generations.iter().any(|generation| generation.cut() != Some(sequence.1))
        {
            return Err(Error::Invalid("the partitions of a dataset were not sealed together".into()));
        }
        wait_visible(sequence.1)?;
        generations.iter().for_each(|generation| generation.end_changes());
        // From here on every new snapshot sees at least the cut, so these are all of those inside.
        let snapshots = self.snapshots.sequences_below(sequence.1);
        // Nothing was written to the others.
        let touched = |partition: &usize| !generations[*partition].is_untouched();
        let partitions: Vec<usize> = (0..self.count).filter(touched).collect();
        let written = parallel::map(context.threads_max, &partitions, |&partition| {
            write_generation(context, &versions[partition], &generations[partition], &snapshots)
        });
        let mut metas: Vec<Vec<Option<ComponentMeta>>> = vec![Vec::new(); self.count];
        let mut failed = None;
        for (&partition, written) in partitions.iter().zip(written) {
            match written {
                Ok(written) => metas[partition] = written,
                // Of several errors, one that must not be overlooked.
                Err(error) if error.is_failed_sync() => failed = Some(error),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        let all = || metas.iter().flatten().flatten();
        let opened = match failed {
            Some(error) => Err(error),
            None => self.open_parts(context, &metas),
        };
        let mut parts = opened.inspect_err(|_| discard(context, all()))?;
        let sources: Vec<BTreeMap<u32, u64>> =
            generations.iter().zip(&*versions.0).map(|(new, version)| new.sources_after(&version.sources)).collect();
        let installed = context.step(|manifest| {
            let mut dropped = Vec::new();
            for partition in 0..self.count {
                let state = self.state_mut(manifest, partition)?;
                state.flushed_sequence = sequence.1;
                state.sources.clone_from(&sources[partition]);
                let slots = self.add_components(state, &metas[partition]);
                dropped.extend(slots.into_iter().map(|slot| (partition, slot)));
            }
            manifest.last_sequence = manifest.last_sequence.max(sequence.1);
            low_water(manifest);
            Ok(dropped)
        });
        let installed = installed.inspect_err(|_| discard_uninstalled(context, all()));
        if matches!(installed, Err(Error::Dropped)) {
            return Ok(None);
        }
        for (partition, slot) in installed? {
            parts[partition][slot] = None;
            discard(context, &metas[partition][slot]);
        }
        let flushed = generations.into_iter().zip(parts);
        let flushed: Vec<Flushed> = flushed.map(|(generation, parts)| Flushed { generation, parts }).collect();
        self.install_flushed(&flushed, sequence.1, sources)?;
        let of_first = metas.iter().filter_map(|metas| metas.iter().flatten().next());
        Ok(Some(FlushOutcome {
            bytes_written: all().map(|meta| meta.file_len).sum(),
            entries: of_first.map(|meta| meta.statistics.entries).sum(),
            threads: parallel::threads_of(context.threads_max, partitions.len()),
        }))
    }

    fn install_flushed(
        &self,
        flushed: &[Flushed],
        flushed_sequence: u64,
        sources: Vec<BTreeMap<u32, u64>>,
    ) -> Result<()> {
        {
            let _exchange = self.exchange.lock();
            let versions = self.versions.load_full();
            for (version, Flushed { parts, .. }) in versions.iter().zip(flushed) {
                // Its index, or the dataset, was dropped after the step that named it.
                let late = version.indexes.iter().zip(parts).filter(|(index, _)| index.is_dropped());
                late.filter_map(|(_, part)| part.as_ref()).for_each(|part| part.file().set_obsolete());
            }
            if !versions.is_dropped() {
                let next = versions.with_flushed(flushed);
                let mut next =
                    next.ok_or_else(|| Error::Invalid("a flushed generation is not in the version".into()))?;
                for (partition, sources) in sources.into_iter().enumerate() {
                    next.change(partition, |version| {
                        (version.flushed_sequence, version.sources) = (flushed_sequence, Arc::new(sources));
                    });
                }
                self.versions.store(Arc::new(next));
            }
        }
        self.snapshots.replace(flushed);
        Ok(())
    }

    /// Opens the new components of the indexes of all partitions at their slots.
    pub(super) fn open_parts(
        &self,
        context: &MaintenanceContext,
        metas: &[Vec<Option<ComponentMeta>>],
    ) -> Result<Vec<Vec<NewPart>>> {
        let versions = self.versions();
        let open_all = |(version, metas): (&Arc<Version>, &Vec<Option<ComponentMeta>>)| {
            let open = |(slot, meta): (usize, &Option<ComponentMeta>)| {
                meta.as_ref().map(|meta| version.open_part(context, slot, meta)).transpose()
            };
            metas.iter().enumerate().map(open).collect()
        };
        versions.iter().zip(metas).map(open_all).collect()
    }
}

/// Writes a component of each index of a partition. After an error, none is left.
fn write_generation(
    context: &MaintenanceContext,
    version: &Version,
    generation: &Generation,
    snapshots: &[u64],
) -> Result<Vec<Option<ComponentMeta>>> {
    let sequence = generation.sequence()?;
    let mut metas = Vec::with_capacity(generation.slots());
    for (slot, index) in version.indexes.iter().enumerate().take(generation.slots()) {
        let Some(memory) = generation.memory(slot).filter(|_| !index.is_dropped()) else {
            metas.push(None);
            continue;
        };
        let plan = FlushPlan { snapshots: snapshots.to_vec(), is_oldest: version.is_oldest(slot, 0), sequence };
        let meta = context.writer().and_then(|writer| index.numbered.index.flush(memory, writer, &plan));
        match meta {
            Ok(meta) => metas.push(Some(meta)),
            Err(error) => {
                discard(context, metas.iter().flatten());
                return Err(error);
            }
        }
    }
    Ok(metas)
}
