//! Taking a backup.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde::Serialize;
use terrane_lsm::disk::{ComponentFile, ComponentMeta, PageCache, component_name};
use terrane_lsm::index::{DiskPart, Index};
use terrane_lsm::log::{ReadOnlyTail, SegmentSpan, can_be_one_log, exported_spans};
use terrane_lsm::manifest::{self, Manifest};
use terrane_storage::{OpenMode, Storage};

use super::points::{BackupPoint, COMPONENTS, NEW, POINTS, log_of, manifest_of, points};
use crate::engine::{PinnedState, directories_of_place, is_component, store_id};
use crate::options::{MemoryShares, Options};
use crate::{Error, Result};

/// Result of a backup.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BackupReport {
    /// Name of the point.
    pub point: String,
    /// Number of its last commit.
    pub sequence: u64,
    /// Number of component files in the point.
    pub components: u64,
    /// Number of those that no earlier point had.
    pub components_copied: u64,
    /// Bytes written, for components and the log.
    pub bytes_written: u64,
    /// Number of points removed.
    pub points_removed: u64,
    /// Names of earlier points whose manifests are damaged. They cannot be restored. While there
    /// are any, no component is removed, because it may belong to one of them.
    pub points_damaged: Vec<String>,
}

/// Backs up a store.
pub(super) fn take(
    source: &Arc<dyn Storage>,
    target: &Arc<dyn Storage>,
    options: &Options,
    keep: Option<usize>,
) -> Result<BackupReport> {
    if keep == Some(0) {
        return Err(Error::usage("a backup keeps at least one point"));
    }
    let shares = MemoryShares::of(options)?;
    check_target(&**target)?;
    target.create_directory(COMPONENTS)?;
    target.create_directory(POINTS)?;
    let Some(_lock) = target.lock_root()? else {
        return Err(Error::usage(format!("another backup is being taken to {}", target.describe())));
    };
    remove_unfinished(&**target)?;
    // The store's pages use the cache of the open store; the backup's pages get this one.
    let cache = PageCache::new(shares.work);
    let pinned = PinnedState::pin(source, &cache)?;
    let earlier = points(&**target)?;
    let (manifests, points_damaged) = read_manifests(target, &earlier)?;
    check_history(&**target, &manifests, &pinned)?;
    let seconds = target.unix_time_ns() / 1_000_000_000;
    // Names sort in the order in which points were taken, even if the clock goes back.
    let unix_seconds = earlier.last().map_or(seconds, |last| seconds.max(last.unix_seconds + 1));
    let point = BackupPoint { sequence: pinned.last_sequence, unix_seconds };
    let mut backup = Backup { target, cache, point, copied: 0, bytes_written: 0 };
    let mut components = 0;
    for dataset in pinned.datasets.values() {
        for index in dataset.partitions.versions().iter().flat_map(|version| &version.indexes) {
            for part in &index.components {
                backup.add(&*index.numbered.index, part)?;
                components += 1;
            }
        }
    }
    backup.install(&pinned)?;
    let points_removed = prune(target, keep)?;
    Ok(BackupReport {
        point: backup.point.name(),
        sequence: backup.point.sequence,
        components,
        components_copied: backup.copied,
        bytes_written: backup.bytes_written,
        points_removed,
        points_damaged,
    })
}

/// An earlier point with its manifest.
type Earlier = (BackupPoint, Manifest);

/// Reads the manifests of points, and lists the points whose manifests are damaged. Damaged points
/// do not prevent later backups, unless all are damaged.
fn read_manifests(target: &Arc<dyn Storage>, points: &[BackupPoint]) -> Result<(Vec<Earlier>, Vec<String>)> {
    let (mut manifests, mut damaged) = (Vec::new(), Vec::new());
    for point in points {
        match manifest_of(&**target, point) {
            Ok(manifest) => manifests.push((point.clone(), manifest)),
            Err(error) if error.is_damage() => damaged.push((point.name(), error)),
            Err(error) => return Err(error),
        }
    }
    match damaged.pop() {
        Some((_, error)) if manifests.is_empty() => {
            Err(Error::UnreadableBackup { backup: target.describe(), finding: error.finding() })
        }
        last => Ok((manifests, damaged.into_iter().chain(last).map(|(name, _)| name).collect())),
    }
}

/// A backup in progress.
struct Backup<'a> {
    target: &'a Arc<dyn Storage>,
    cache: Arc<PageCache>,
    point: BackupPoint,
    copied: u64,
    bytes_written: u64,
}

impl Backup<'_> {
    /// Copies a component and verifies the copy. A component that is already there is verified
    /// again, since a point is valid only if all of it is sound. If its pages have been damaged
    /// since, it is copied again.
    fn add(&mut self, index: &dyn Index, part: &Arc<dyn DiskPart>) -> Result<()> {
        let meta = part.file().meta();
        let name = component_name(meta.file_id);
        if self.target.exists(&name)? {
            match self.open(meta).and_then(|file| Ok(index.check(&index.open(file)?)?)) {
                // If a valid point names it, this is the same file: `check_history` has compared
                // the stamps.
                Err(error) if error.is_damage() => {}
                verified => return verified.map(|_| ()),
            }
        }
        let new = format!("{name}{NEW}");
        let copied = part.file().copy_to(&**self.target, &new);
        self.bytes_written += copied.inspect_err(|_| {
            // If removing fails, the next backup removes it.
            let _ = self.target.remove(&new);
        })?;
        self.target.rename(&new, &name)?;
        let verified = self.open(meta).and_then(|file| Ok(index.check(&index.open(file)?)?));
        if let Err(error) = verified {
            // A damaged copy would prevent a later, sound one.
            self.target.remove(&name)?;
            return Err(error);
        }
        self.copied += 1;
        Ok(())
    }

    fn open(&self, meta: &ComponentMeta) -> Result<Arc<ComponentFile>> {
        Ok(ComponentFile::open(self.target, &self.cache, meta)?)
    }

    /// Makes the point valid.
    fn install(&mut self, pinned: &PinnedState) -> Result<()> {
        let log_name = self.point.log_name();
        let log = self.target.open(&log_name, OpenMode::CreateNew)?;
        if let Some(tail) = &pinned.tail {
            self.bytes_written += tail.export(&*log)?;
        }
        log.sync_data()?;
        let name = self.point.manifest_name();
        let new = format!("{name}{NEW}");
        pinned.manifest.write_to(&**self.target, &new)?;
        // Everything the manifest names must have its name first.
        for directory in ["", COMPONENTS, POINTS] {
            self.target.sync_directory(directory)?;
        }
        self.target.rename(&new, &name)?;
        Ok(self.target.sync_directory(POINTS)?)
    }
}

/// Whether a directory can hold backups.
fn check_target(target: &dyn Storage) -> Result<()> {
    if !target.exists("")? {
        return Ok(());
    }
    let refuse =
        |what: String| Err(Error::usage(format!("{} {what}; take the backup to another directory", target.describe())));
    if target.exists(manifest::NAME)? {
        return refuse("is a store".into());
    }
    let directories = directories_of_place(target)?.into_iter().filter(|name| name != COMPONENTS && name != POINTS);
    match target.list("")?.into_iter().chain(directories).next() {
        Some(name) => refuse(format!("is no backup, and it is not empty (it has {name})")),
        None => Ok(()),
    }
}

/// Refuses a backup that has points of another store, of a later state than the store's, or of a
/// copy with a different history.
fn check_history(target: &dyn Storage, earlier: &[Earlier], pinned: &PinnedState) -> Result<()> {
    let Some((newest, before)) = earlier.last() else { return Ok(()) };
    let is_older = || {
        format!(
            "has commit {} of this store, which is at commit {}: it is an older copy",
            newest.sequence, pinned.last_sequence
        )
    };
    let reason = if before.store_id != pinned.manifest.store_id {
        "has backups of another store".to_owned()
    } else if before.branch != pinned.manifest.branch {
        "has backups of this store with a different history, from before it was restored or after".to_owned()
    } else if newest.sequence > pinned.last_sequence {
        is_older()
    } else if let Some(point) = point_of_other_history(target, earlier, pinned)? {
        format!("has point {} of a copy of this store with a different history", point.name())
    } else if before.generation > pinned.manifest.generation {
        is_older()
    } else {
        return Ok(());
    };
    Err(Error::usage(format!("{} {reason}; take the backup to another directory", target.describe())))
}

/// A point that is not an earlier state of this store. A copy with a different history gives the
/// same numbers to other component files, whose stamps differ, and to other log segments, whose
/// sessions differ. If nothing remains of the writes since the copy, the two cannot be told apart;
/// each point is sound by itself.
fn point_of_other_history<'e>(
    target: &dyn Storage,
    earlier: &'e [Earlier],
    pinned: &PinnedState,
) -> Result<Option<&'e BackupPoint>> {
    let stamps: HashMap<u64, u64> = pinned.manifest.components().map(|meta| (meta.file_id, meta.stamp)).collect();
    let is_other = |meta: &ComponentMeta| stamps.get(&meta.file_id).is_some_and(|stamp| *stamp != meta.stamp);
    let log = pinned.tail.as_ref().map(ReadOnlyTail::spans).unwrap_or_default();
    for (point, manifest) in earlier {
        let has_other_files = || manifest.components().any(is_other);
        if has_other_files() || !can_be_one_log(&spans_of(target, point, manifest)?, &log) {
            return Ok(Some(point));
        }
    }
    Ok(None)
}

/// The log segments of a point. A damaged log tells nothing, and does not prevent later backups.
fn spans_of(target: &dyn Storage, point: &BackupPoint, manifest: &Manifest) -> Result<Vec<SegmentSpan>> {
    let spans = || Ok(exported_spans(&*log_of(target, point)?, store_id(manifest)?)?);
    match spans() {
        Err(Error::Damaged { .. }) => Ok(Vec::new()),
        spans => spans,
    }
}

/// Removes what an interrupted backup left, except components, which the next backup may use.
fn remove_unfinished(target: &dyn Storage) -> Result<()> {
    let known: HashSet<String> = points(target)?.iter().map(BackupPoint::log_name).collect();
    for directory in [COMPONENTS, POINTS] {
        for name in target.list(directory)?.into_iter().map(|name| format!("{directory}/{name}")) {
            if name.ends_with(NEW) || (name.ends_with(".log") && !known.contains(&name)) {
                target.remove(&name)?;
            }
        }
    }
    Ok(())
}

/// Removes all points but the newest, and the components that no point uses. Components stay while
/// the contents of any point are unknown.
fn prune(target: &Arc<dyn Storage>, keep: Option<usize>) -> Result<u64> {
    let points = points(&**target)?;
    let (gone, kept) = points.split_at(points.len() - keep.unwrap_or(points.len()).min(points.len()));
    for point in gone {
        target.remove(&point.manifest_name())?;
    }
    // The points must be gone before the files they name.
    target.sync_directory(POINTS)?;
    for point in gone {
        match target.remove(&point.log_name()) {
            // Somebody else has removed the file, so the point could not be restored anyway.
            Err(error) if error.is_not_found() => {}
            removed => removed?,
        }
    }
    let (manifests, damaged) = read_manifests(target, kept)?;
    if !damaged.is_empty() {
        return Ok(gone.len() as u64);
    }
    for name in unnamed_components(&**target, &manifests)? {
        target.remove(&name)?;
    }
    Ok(gone.len() as u64)
}

/// The component files that no point uses.
fn unnamed_components(target: &dyn Storage, points: &[Earlier]) -> Result<Vec<String>> {
    let components = points.iter().flat_map(|(_, manifest)| manifest.components());
    let named: HashSet<String> = components.map(|meta| component_name(meta.file_id)).collect();
    let names = target.list(COMPONENTS)?.into_iter().filter(|name| is_component(name));
    Ok(names.map(|name| format!("{COMPONENTS}/{name}")).filter(|name| !named.contains(name)).collect())
}

/// The component files that no point uses, if the contents of all points are known.
pub(super) fn left_components(target: &Arc<dyn Storage>) -> Result<Vec<String>> {
    let points = points(&**target)?;
    if points.is_empty() || !target.exists(COMPONENTS)? {
        return Ok(Vec::new());
    }
    match read_manifests(target, &points) {
        Ok((manifests, damaged)) if damaged.is_empty() => unnamed_components(&**target, &manifests),
        Ok(_) | Err(Error::UnreadableBackup { .. }) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
