//! Restoring a store from a backup.

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use terrane_lsm::disk::{ComponentFile, PageCache, component_name};
use terrane_lsm::log::{copy_file, create_empty, import_tail};
use terrane_lsm::manifest::{self, Manifest, ManifestFile};
use terrane_storage::{OpenMode, Storage};

use super::points::{BackupPoint, COMPONENTS, log_of, manifest_of, points};
use crate::engine::{PinnedState, RESERVE_NAME, RESTORING_NAME, check_not_foreign, draw_id, lock, own_names, store_id};
use crate::options::{Durability, MemoryShares, Options};
use crate::{Error, Result};

const LOG: &str = "log";
const LOCK: &str = "LOCK";

/// Number of points tried in turn while other backups remove them.
const ATTEMPTS: u32 = 3;

/// Refuses a place with links, through which parts of the store would be written elsewhere.
pub(super) fn check_links(store: &Path) -> Result<()> {
    let is_link = |name: &&str| std::fs::symlink_metadata(store.join(name)).is_ok_and(|found| found.is_symlink());
    match [COMPONENTS, LOG, LOCK, RESERVE_NAME, RESTORING_NAME].iter().find(|name| is_link(name)) {
        Some(name) => Err(Error::usage(format!(
            "{} contains the link {name:?}, and restoring never follows links; restore to another directory",
            store.display()
        ))),
        None => Ok(()),
    }
}

/// Result of a restoration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RestoreReport {
    /// Name of the point.
    pub point: String,
    /// Number of its last commit.
    pub sequence: u64,
    /// Number of datasets.
    pub datasets: u64,
    /// Number of component files.
    pub components: u64,
    /// Number of their pages, all verified.
    pub pages: u64,
    /// Number of log entries that are in no component, all verified.
    pub log_entries: u64,
    /// Size of the component files in bytes.
    pub bytes: u64,
}

/// Restores a point, by default the newest. A backup may remove this point meanwhile; then the
/// newest remaining point is tried.
pub(super) fn restore(
    backup: &Arc<dyn Storage>,
    store: &Arc<dyn Storage>,
    name: Option<&str>,
    options: &Options,
) -> Result<RestoreReport> {
    let shares = MemoryShares::of(options)?;
    let of_backup = |error: Error| match error.is_damage() {
        true => Error::DamagedBackup { backup: backup.describe(), finding: error.finding() },
        false => error,
    };
    let mut left = ATTEMPTS;
    loop {
        left -= 1;
        let point = choose(&**backup, name).map_err(of_backup)?;
        let restored = restore_point(backup, store, &point, shares);
        let is_gone = restored.is_err() && backup.exists(&point.manifest_name()).is_ok_and(|exists| !exists);
        if !is_gone {
            return restored.map_err(of_backup);
        }
        if name.is_some() || left == 0 {
            return Err(Error::Failed(format!(
                "the point {} of the backup at {} was removed while it was restored; restore another point, while no backup is \
                 taken that removes it",
                point.name(),
                backup.describe()
            )));
        }
    }
}

fn restore_point(
    backup: &Arc<dyn Storage>,
    store: &Arc<dyn Storage>,
    point: &BackupPoint,
    shares: MemoryShares,
) -> Result<RestoreReport> {
    let manifest = manifest_of(&**backup, point)?;
    manifest.durability.parse::<Durability>()?.check_supported()?;
    check_vacant(&**store)?;
    let lock = lock(&**store, true)?;
    // Another process may have used the place meanwhile.
    check_vacant(&**store)?;
    let restored = Restoration { backup, store, manifest: &manifest, point }.run(shares);
    if restored.is_err() {
        // If files cannot be removed, they remain without a manifest, so nobody takes them for a
        // store.
        if let Ok(names) = own_names(&**store) {
            names.iter().for_each(|name| drop(store.remove(name)));
        }
    }
    drop(lock);
    restored
}

fn choose(backup: &dyn Storage, name: Option<&str>) -> Result<BackupPoint> {
    let points = points(backup)?;
    let Some(newest) = points.last() else {
        return Err(Error::usage(format!("there is no backup at {}", backup.describe())));
    };
    let Some(name) = name else { return Ok(newest.clone()) };
    points.iter().find(|point| point.name() == name).cloned().ok_or_else(|| {
        let names: Vec<String> = points.iter().map(BackupPoint::name).collect();
        Error::usage(format!("the backup has no point {name:?}; it has {}", names.join(", ")))
    })
}

/// Whether a store can be restored to this place. A lock file alone does not count.
fn check_vacant(store: &dyn Storage) -> Result<()> {
    check_not_foreign(store)?;
    if !store.exists("")? {
        return Ok(());
    }
    let file = own_names(store)?.into_iter().find(|name| ![COMPONENTS, LOG, LOCK].contains(&name.as_str()));
    file.map_or(Ok(()), |name| {
        let advice = match (store.exists(manifest::NAME)?, store.exists(RESTORING_NAME)?) {
            (true, _) => "restore to another directory",
            (false, true) => "it is left from an interrupted restoration: remove it, or restore to another directory",
            // Left by earlier versions.
            (false, false) => {
                "if it is left from an interrupted restoration, remove it; or restore to another directory"
            }
        };
        Err(Error::usage(format!("{} is not empty (it has {name}); {advice}", store.describe())))
    })
}

struct Restoration<'a> {
    backup: &'a Arc<dyn Storage>,
    store: &'a Arc<dyn Storage>,
    manifest: &'a Manifest,
    point: &'a BackupPoint,
}

impl Restoration<'_> {
    fn run(&self, shares: MemoryShares) -> Result<RestoreReport> {
        let Self { backup, store, manifest, point } = self;
        // Marks the place, so that whatever this leaves is not taken for a store that lost its
        // manifest.
        store.open(RESTORING_NAME, OpenMode::CreateNew)?;
        store.sync_directory("")?;
        store.create_directory(COMPONENTS)?;
        store.create_directory(LOG)?;
        let cache = PageCache::new(shares.work);
        let mut bytes = 0;
        for meta in manifest.components() {
            // If something is wrong with the file, the error names it as a file of the backup.
            ComponentFile::open(backup, &cache, meta)?;
            let name = component_name(meta.file_id);
            bytes += copy_file(&*backup.open(&name, OpenMode::Read)?, &***store, &name)?;
        }
        self.restore_log()?;
        let pinned = PinnedState::pin_manifest(store, &cache, manifest)?;
        if pinned.last_sequence != point.sequence {
            let reason = format!("it ends with commit {} instead of {}", pinned.last_sequence, point.sequence);
            return Err(Error::damaged(point.log_name(), 0, reason));
        }
        let (mut components, mut pages) = (0, 0);
        for dataset in pinned.datasets.values() {
            for index in dataset.partitions.versions().iter().flat_map(|version| &version.indexes) {
                for part in &index.components {
                    pages += index.numbered.index.check(part)?.pages;
                    components += 1;
                }
            }
        }
        // Everything the manifest names must have its name first.
        for directory in [COMPONENTS, LOG, ""] {
            store.sync_directory(directory)?;
        }
        // From this step on, the place is a store.
        let branch = draw_id(&***store);
        ManifestFile::create((*store).clone(), Manifest { branch, ..(*manifest).clone() })?;
        // Beside a manifest, the mark has no meaning. The next opening for writing removes it too.
        let _ = store.remove(RESTORING_NAME);
        Ok(RestoreReport {
            point: point.name(),
            sequence: point.sequence,
            datasets: pinned.datasets.len() as u64,
            components,
            pages,
            log_entries: pinned.tail.as_ref().map_or(0, |tail| tail.entries()),
            bytes,
        })
    }

    fn restore_log(&self) -> Result<()> {
        let Self { backup, store, manifest, point } = self;
        if manifest.durability.parse::<Durability>()? == Durability::None {
            return Ok(());
        }
        let tail = log_of(&***backup, point)?;
        match tail.is_empty()? {
            true => create_empty(&***store, manifest.low_water.segment)?,
            false => import_tail(&*tail, store_id(manifest)?, &***store)?,
        }
        Ok(())
    }
}
