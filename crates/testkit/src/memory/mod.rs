//! A directory tree in memory that behaves like the real one.
//!
//! Errors are those of Linux, removed files stay readable through open handles, locks conflict
//! between handles. The clock stands still until it is advanced. A recorder, if there is one, gets
//! every change in the order in which the changes took effect. The crash controller is built on
//! that.

pub(crate) mod content;
mod file;
mod mapped;
pub(crate) mod reads;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use rustix::io::Errno;
use terrane_storage::event::{DiskEvent, Event, FileId};
use terrane_storage::{Context, DiskSpace, File, OpenMode, Operation, Result, Storage, names};
use xxhash_rust::xxh3::Xxh3;

use content::Content;
use file::{Inode, MemoryFile, Space};
use reads::Watch;
pub use reads::{Reads, Touched, WordsRead};

/// The initial clock of a new storage: 2024-01-01T00:00:00Z.
const START_UNIX_TIME_NS: u64 = 1_704_067_200_000_000_000;

type SystemResult<T> = std::result::Result<T, Errno>;

/// Receives every change, while the changed file or directory is still locked.
pub(crate) trait Recorder: Send + Sync + Debug {
    /// Records a change that has just been made.
    fn record(&self, event: Event);
}

/// Files in memory; clones share them.
#[derive(Debug, Clone)]
pub struct MemoryStorage {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    names: RwLock<BTreeMap<Arc<str>, Node>>,
    space: Arc<Space>,
    recorder: Option<Arc<dyn Recorder>>,
    next_file: AtomicU64,
    next_handle: AtomicU64,
    elapsed_ns: AtomicU64,
    boot: u128,
    /// The reads of the prepared files, including those that have lost their names.
    watches: Vec<(FileId, Arc<Watch>)>,
}

#[derive(Debug, Clone)]
enum Node {
    Directory,
    File(Arc<Inode>),
}

/// An entry of a prepared storage under one name.
pub(crate) enum Prepared {
    Directory,
    File(FileId, Content),
}

/// Adds the name of a file or directory to a hash.
pub(crate) fn hash_name(hasher: &mut Xxh3, name: &str) {
    hasher.update(&name.len().to_le_bytes());
    hasher.update(name.as_bytes());
}

impl Shared {
    fn record(&self, event: impl FnOnce() -> DiskEvent) {
        self.record_any(|| Event::Disk(event()));
    }

    fn record_any(&self, event: impl FnOnce() -> Event) {
        if let Some(recorder) = &self.recorder {
            recorder.record(event());
        }
    }
}

impl Default for MemoryStorage {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStorage {
    /// An empty root with unlimited space.
    pub fn new() -> Self {
        Self::prepared([], FileId(0), 1, None, false)
    }

    /// A root with these names; new files are numbered from `next_file`.
    pub(crate) fn prepared(
        held: impl IntoIterator<Item = (Arc<str>, Prepared)>,
        next_file: FileId,
        boot: u128,
        recorder: Option<Arc<dyn Recorder>>,
        is_watched: bool,
    ) -> Self {
        let space = Arc::new(Space::unlimited());
        let mut watches = Vec::new();
        let names = held
            .into_iter()
            .map(|(name, held)| {
                let node = match held {
                    Prepared::Directory => Node::Directory,
                    Prepared::File(id, content) => {
                        let watch = is_watched.then(|| Arc::new(Watch::new(content.length())));
                        watches.extend(watch.clone().map(|watch| (id, watch)));
                        Node::File(Inode::new(id, content, &space, watch))
                    }
                };
                (name, node)
            })
            .collect();
        Self {
            shared: Arc::new(Shared {
                names: RwLock::new(names),
                space,
                recorder,
                next_file: AtomicU64::new(next_file.0),
                next_handle: AtomicU64::new(0),
                elapsed_ns: AtomicU64::new(0),
                boot,
                watches,
            }),
        }
    }

    /// Limits the sum of all file lengths; growth beyond it fails as on a full disk.
    pub fn set_capacity(&self, bytes: u64) {
        self.shared.space.set_capacity(bytes);
    }

    /// Sum of the lengths of all files, including removed ones that are still open.
    pub fn used_bytes(&self) -> u64 {
        self.shared.space.used()
    }

    /// Moves both clocks forward.
    pub fn advance(&self, nanoseconds: u64) {
        self.shared.elapsed_ns.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// The reads so far of the files of [`crate::crash::Image::watched`], or since
    /// [`MemoryStorage::take_touched`]. Empty for other storage.
    pub fn reads(&self) -> Reads {
        self.shared.watches.iter().map(|(file, watch)| (*file, watch.lines())).collect()
    }

    /// The reads and stores so far of the files of [`crate::crash::Image::watched`], or since the
    /// last call. Starts anew.
    pub fn take_touched(&self) -> Touched {
        self.shared.watches.iter().map(|(file, watch)| (*file, watch.take())).collect()
    }

    /// A hash of the names and contents of all files. Storage with other files has the same hash
    /// with a chance of one in 2^64. Does not count as a read.
    pub fn hash_contents(&self) -> u64 {
        let mut hasher = Xxh3::new();
        for (name, node) in self.shared.names.read().iter() {
            hash_name(&mut hasher, name);
            if let Node::File(inode) = node {
                inode.content.read().hash(&mut hasher);
            }
        }
        hasher.digest()
    }

    pub(crate) fn boot(&self) -> u128 {
        self.shared.boot
    }

    fn open_existing(&self, name: &str) -> SystemResult<Arc<Inode>> {
        let held = self.shared.names.read();
        check_ancestors(&held, name)?;
        match held.get(name) {
            None => Err(Errno::NOENT),
            Some(Node::Directory) => Err(Errno::ISDIR),
            Some(Node::File(inode)) => Ok(inode.clone()),
        }
    }

    fn create_new(&self, name: &str) -> SystemResult<Arc<Inode>> {
        let mut held = self.shared.names.write();
        check_ancestors(&held, name)?;
        if held.contains_key(name) {
            return Err(Errno::EXIST);
        }
        let id = FileId(self.shared.next_file.fetch_add(1, Ordering::Relaxed));
        let inode = Inode::new(id, Content::default(), &self.shared.space, None);
        let name: Arc<str> = name.into();
        held.insert(name.clone(), Node::File(inode.clone()));
        self.shared.record(|| DiskEvent::Create { file: id, name });
        Ok(inode)
    }

    fn rename_checked(&self, from: &str, to: &str, replaces: bool) -> Result<()> {
        names::check_file(from).context(Operation::Rename, from, None)?;
        names::check_file(to).context(Operation::Rename, to, None)?;
        self.rename_file(from, to, replaces).context(Operation::Rename, &format!("{from} to {to}"), None)
    }

    fn rename_file(&self, from: &str, to: &str, replaces: bool) -> SystemResult<()> {
        let mut held = self.shared.names.write();
        check_ancestors(&held, from)?;
        let inode = match held.get(from) {
            None => return Err(Errno::NOENT),
            Some(Node::Directory) => return Err(Errno::ISDIR),
            Some(Node::File(inode)) => inode.clone(),
        };
        check_ancestors(&held, to)?;
        match held.get(to) {
            Some(Node::Directory) => return Err(Errno::ISDIR),
            Some(Node::File(_)) if !replaces => return Err(Errno::EXIST),
            Some(Node::File(_)) | None => {}
        }
        if from == to {
            return Ok(());
        }
        let file = inode.id;
        let to: Arc<str> = to.into();
        held.remove(from);
        held.insert(to.clone(), Node::File(inode));
        self.shared.record(|| DiskEvent::Rename { file, from: from.into(), to });
        Ok(())
    }

    fn remove_file(&self, name: &str) -> SystemResult<()> {
        let mut held = self.shared.names.write();
        check_ancestors(&held, name)?;
        match held.get(name) {
            None => Err(Errno::NOENT),
            Some(Node::Directory) => Err(Errno::ISDIR),
            Some(Node::File(inode)) => {
                let file = inode.id;
                held.remove(name);
                self.shared.record(|| DiskEvent::Remove { file, name: name.into() });
                Ok(())
            }
        }
    }

    fn make_directory(&self, name: &str) -> SystemResult<()> {
        let mut held = self.shared.names.write();
        for ancestor in names::ancestors(name) {
            if let Some(Node::File(_)) = held.get(ancestor) {
                return Err(Errno::NOTDIR);
            }
        }
        for directory in names::ancestors(name).chain(Some(name).filter(|name| !name.is_empty())) {
            match held.get(directory) {
                Some(Node::Directory) => {}
                Some(Node::File(_)) => return Err(Errno::EXIST),
                None => {
                    let directory: Arc<str> = directory.into();
                    held.insert(directory.clone(), Node::Directory);
                    self.shared.record(|| DiskEvent::CreateDirectory { name: directory });
                }
            }
        }
        Ok(())
    }

    fn list_nodes(&self, directory: &str, is_wanted: fn(&Node) -> bool) -> SystemResult<Vec<String>> {
        let held = self.shared.names.read();
        check_directory(&held, directory)?;
        let prefix = if directory.is_empty() { String::new() } else { format!("{directory}/") };
        Ok(held
            .range::<str, _>((Bound::Included(prefix.as_str()), Bound::Unbounded))
            .map_while(|(name, node)| Some((name.strip_prefix(&prefix)?, node)))
            .filter(|(name, node)| !name.contains('/') && is_wanted(node))
            .map(|(name, _)| name.to_owned())
            .collect())
    }
}

/// Every directory on the path of a name must exist.
fn check_ancestors(held: &BTreeMap<Arc<str>, Node>, name: &str) -> SystemResult<()> {
    names::ancestors(name).try_for_each(|ancestor| check_directory(held, ancestor))
}

fn check_directory(held: &BTreeMap<Arc<str>, Node>, name: &str) -> SystemResult<()> {
    if name.is_empty() {
        return Ok(());
    }
    match held.get(name) {
        Some(Node::Directory) => Ok(()),
        Some(Node::File(_)) => Err(Errno::NOTDIR),
        None => match names::ancestors(name).any(|above| matches!(held.get(above), Some(Node::File(_)))) {
            true => Err(Errno::NOTDIR),
            false => Err(Errno::NOENT),
        },
    }
}

impl Storage for MemoryStorage {
    fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        let operation = if mode == OpenMode::CreateNew { Operation::Create } else { Operation::Open };
        names::check_file(name).context(operation, name, None)?;
        let inode = match mode {
            OpenMode::Read | OpenMode::Write => self.open_existing(name),
            OpenMode::CreateNew => self.create_new(name),
        }
        .context(operation, name, None)?;
        Ok(Arc::new(MemoryFile::new(inode, name, mode != OpenMode::Read, self.shared.clone())))
    }

    fn exists(&self, name: &str) -> Result<bool> {
        names::check_directory(name).context(Operation::Exists, name, None)?;
        Ok(name.is_empty() || self.shared.names.read().contains_key(name))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.rename_checked(from, to, true)
    }

    fn rename_new(&self, from: &str, to: &str) -> Result<()> {
        self.rename_checked(from, to, false)
    }

    fn remove(&self, name: &str) -> Result<()> {
        names::check_file(name).context(Operation::Remove, name, None)?;
        self.remove_file(name).context(Operation::Remove, name, None)
    }

    fn create_directory(&self, name: &str) -> Result<()> {
        names::check_directory(name).context(Operation::CreateDirectory, name, None)?;
        self.make_directory(name).context(Operation::CreateDirectory, name, None)
    }

    fn list(&self, directory: &str) -> Result<Vec<String>> {
        names::check_directory(directory).context(Operation::List, directory, None)?;
        let is_file = |node: &Node| matches!(node, Node::File(_));
        self.list_nodes(directory, is_file).context(Operation::List, directory, None)
    }

    fn list_directories(&self, directory: &str) -> Result<Vec<String>> {
        names::check_directory(directory).context(Operation::List, directory, None)?;
        let is_directory = |node: &Node| !matches!(node, Node::File(_));
        self.list_nodes(directory, is_directory).context(Operation::List, directory, None)
    }

    fn sync_directory(&self, directory: &str) -> Result<()> {
        names::check_directory(directory).context(Operation::Open, directory, None)?;
        let held = self.shared.names.read();
        check_directory(&held, directory).context(Operation::Open, directory, None)?;
        self.shared.record(|| DiskEvent::SyncDirectory { directory: directory.into() });
        Ok(())
    }

    fn unix_time_ns(&self) -> u64 {
        START_UNIX_TIME_NS.saturating_add(self.monotonic_ns())
    }

    fn monotonic_ns(&self) -> u64 {
        self.shared.elapsed_ns.load(Ordering::Relaxed)
    }

    fn space(&self) -> Option<DiskSpace> {
        self.shared.space.of_disk()
    }

    fn boot_id(&self) -> Option<u128> {
        Some(self.shared.boot)
    }

    fn describe(&self) -> String {
        "memory".to_owned()
    }
}
