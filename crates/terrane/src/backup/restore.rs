//! Making a store of a backup.

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

/// Points that are begun with, one after the other, where backups remove them meanwhile.
const ATTEMPTS: u32 = 3;

/// Refuses a place in which a link would have a part of the store written elsewhere.
pub(super) fn check_links(store: &Path) -> Result<()> {
    let is_link = |name: &&str| std::fs::symlink_metadata(store.join(name)).is_ok_and(|found| found.is_symlink());
    match [COMPONENTS, LOG, LOCK, RESERVE_NAME, RESTORING_NAME].iter().find(|name| is_link(name)) {
        Some(name) => Err(Error::usage(format!(
            "{} has a link {name:?}, and nothing is restored to other places; restore to another directory",
            store.display()
        ))),
        None => Ok(()),
    }
}

/// What was restored.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RestoreReport {
    /// Name of the point.
    pub point: String,
    /// Number of the last commit.
    pub sequence: u64,
    /// Datasets.
    pub datasets: u64,
    /// Component files.
    pub components: u64,
    /// Pages of them, all verified.
    pub pages: u64,
    /// Entries of the log that are in no component, all verified.
    pub log_entries: u64,
    /// Bytes of the component files.
    pub bytes: u64,
}

/// Makes a store of a point, or of the newest. Who takes backups meanwhile may remove points; then it begins again with what is the
/// newest by then.
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
                "the point {} of the backup at {} was removed while it was restored; restore one that there is, while no backup is \
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
    // Somebody may have come first.
    check_vacant(&**store)?;
    let restored = Restoration { backup, store, manifest: &manifest, point }.run(shares);
    if restored.is_err() {
        // Where something cannot be removed, files are left without a manifest, which no one takes for a store.
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

/// Whether a store can be made in a place. The lock of one is nothing yet.
fn check_vacant(store: &dyn Storage) -> Result<()> {
    check_not_foreign(store)?;
    if !store.exists("")? {
        return Ok(());
    }
    let file = own_names(store)?.into_iter().find(|name| ![COMPONENTS, LOG, LOCK].contains(&name.as_str()));
    file.map_or(Ok(()), |name| {
        let advice = match (store.exists(manifest::NAME)?, store.exists(RESTORING_NAME)?) {
            (true, _) => "restore to another directory",
            (false, true) => {
                "it is what a restoration left that did not end: remove it, or restore to another directory"
            }
            // As earlier versions left it.
            (false, false) => {
                "if it is what a restoration left that was ended, remove it; or restore to another directory"
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
        // Whatever becomes of this, nobody takes what it leaves for a store that lost its manifest.
        store.open(RESTORING_NAME, OpenMode::CreateNew)?;
        store.sync_directory("")?;
        store.create_directory(COMPONENTS)?;
        store.create_directory(LOG)?;
        let cache = PageCache::new(shares.work);
        let mut bytes = 0;
        for meta in manifest.components() {
            // Told of as a file of the backup, if something is wrong with it.
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
        // All that the manifest names has its name before it has its own.
        for directory in [COMPONENTS, LOG, ""] {
            store.sync_directory(directory)?;
        }
        // The store is one with this.
        let branch = draw_id(&***store);
        ManifestFile::create((*store).clone(), Manifest { branch, ..(*manifest).clone() })?;
        // Beside a manifest it means nothing, and the next opening to write removes it as well.
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
